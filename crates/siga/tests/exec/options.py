"""Uses options of sockets whose effect a program can see. Runs on the kernel's sockets, and on a guest with a loopback interface of its own.

The argument `leaf` makes this a program that another one has executed: it prints what it can see.
"""

import array
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import threading
import time

IP_PKTINFO, IP_RECVTTL, IP_MTU_DISCOVER, IP_RECVTOS = 8, 12, 10, 13
SIOCGIFCONF, SIOCGIFADDR, SIOCGIFNETMASK, SIOCGIFFLAGS, SIOCGIFMTU, SIOCGIFINDEX, SIOCGIFNAME = (
    0x8912, 0x8915, 0x891B, 0x8913, 0x8921, 0x8933, 0x8910)
SIOCOUTQ, FIONREAD, SIOCOUTQNSD = 0x5411, 0x541B, 0x894B
V4, V6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
LOOPBACK = 1
TIME_MAX = 20
libc = ctypes.CDLL(None, use_errno=True)


def datagram_socket(family=socket.AF_INET, address=None):
    made = socket.socket(family, socket.SOCK_DGRAM)
    made.settimeout(TIME_MAX)
    if address:
        made.bind(address)
    return made


def pair(address="127.0.0.1", family=socket.AF_INET):
    with socket.create_server((address, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2], TIME_MAX)
        accepted, _ = server.accept()
        accepted.settimeout(TIME_MAX)
        return client, accepted


def number(request, stream):
    count = array.array("i", [-1])
    fcntl.ioctl(stream, request, count)
    return count[0]


def until(condition):
    end = time.monotonic() + TIME_MAX
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.001)


def integer(value):
    return struct.pack("i", value)


def reports_of_datagrams():
    receiver, sender = datagram_socket(address=("127.0.0.1", 0)), datagram_socket(address=("127.0.0.1", 0))
    own = socket.inet_aton("127.0.0.1")
    sender.sendto(b"unasked", receiver.getsockname())
    assert receiver.recvmsg(100, 100)[1] == []
    for option in (IP_PKTINFO, IP_RECVTTL, IP_RECVTOS):
        assert receiver.getsockopt(V4, option) == 0
        receiver.setsockopt(V4, option, 1)
        assert receiver.getsockopt(V4, option) == 1
    sender.setsockopt(V4, socket.IP_TTL, 9)
    sender.setsockopt(V4, socket.IP_TOS, 0x28)
    assert sender.getsockopt(V4, socket.IP_TOS) == 0x28
    sender.sendto(b"x", receiver.getsockname())
    _, control, flags, _ = receiver.recvmsg(100, 200)
    info = struct.pack("i4s4s", LOOPBACK, own, own)
    assert flags == 0 and control == [(V4, IP_PKTINFO, info), (V4, socket.IP_TTL, integer(9)), (V4, socket.IP_TOS, b"\x28")], control
    # Options of one datagram.
    sender.sendmsg([b"y"], [(V4, socket.IP_TTL, integer(7)), (V4, socket.IP_TOS, integer(0x48))], 0, receiver.getsockname())
    assert [data for _, _, data in receiver.recvmsg(100, 200)[1][1:]] == [integer(7), b"\x48"]
    sender.sendto(b"z", receiver.getsockname())
    assert [data for _, _, data in receiver.recvmsg(100, 200)[1][1:]] == [integer(9), b"\x28"]
    # Space for the first message only; for a part of it; for none.
    for room, expected, flags in [(socket.CMSG_SPACE(12), [info], socket.MSG_CTRUNC), (socket.CMSG_LEN(4), [info[:4]], socket.MSG_CTRUNC),
                                  (0, [], socket.MSG_CTRUNC)]:
        sender.sendto(b"z", receiver.getsockname())
        _, control, seen, _ = receiver.recvmsg(100, room)
        assert [data for _, _, data in control] == expected and seen == flags, (room, control, seen)
    for wrong in [(V4, socket.IP_TTL, integer(0)), (V4, socket.IP_TTL, integer(256)), (V4, IP_PKTINFO, b"short"), (V4, 77, integer(0))]:
        assert error_of(sender.sendmsg, [b"w"], [wrong], 0, receiver.getsockname()) == errno.EINVAL, wrong
    # The source of a datagram, chosen among the addresses of this host.
    server = datagram_socket(address=("0.0.0.0", 0))
    source = struct.pack("i4s4s", 0, socket.inet_aton("127.0.0.1"), b"")
    server.sendmsg([b"from"], [(V4, IP_PKTINFO, source)], 0, receiver.getsockname())
    assert receiver.recvfrom(100) == (b"from", ("127.0.0.1", server.getsockname()[1]))
    receiver.setsockopt(V4, IP_PKTINFO, 0)
    sender.sendto(b"x", receiver.getsockname())
    assert [kind for _, kind, _ in receiver.recvmsg(100, 200)[1]] == [socket.IP_TTL, socket.IP_TOS]


def reports_of_datagrams_of_ipv6():
    receiver, sender = datagram_socket(socket.AF_INET6, ("::1", 0)), datagram_socket(socket.AF_INET6)
    for option in (socket.IPV6_RECVPKTINFO, socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVTCLASS):
        receiver.setsockopt(V6, option, 1)
        assert receiver.getsockopt(V6, option) == 1
    sender.setsockopt(V6, socket.IPV6_UNICAST_HOPS, 11)
    sender.setsockopt(V6, socket.IPV6_TCLASS, 0x31)
    sender.sendto(b"x", receiver.getsockname())
    own = socket.inet_pton(socket.AF_INET6, "::1")
    info = struct.pack("16si", own, LOOPBACK)
    kinds = [(V6, socket.IPV6_PKTINFO), (V6, socket.IPV6_HOPLIMIT), (V6, socket.IPV6_TCLASS)]
    _, control, flags, _ = receiver.recvmsg(100, 200)
    assert flags == 0 and control == [(*kind, data) for kind, data in zip(kinds, [info, integer(11), integer(0x31)])], control
    sender.sendmsg([b"y"], [(*kinds[2], integer(7)), (*kinds[1], integer(6)), (*kinds[0], struct.pack("16si", own, 0))], 0, receiver.getsockname())
    assert [data for _, _, data in receiver.recvmsg(100, 200)[1]] == [info, integer(6), integer(7)]
    sender.sendmsg([b"y"], [(*kinds[1], integer(-1)), (*kinds[2], integer(-1))], 0, receiver.getsockname())
    assert receiver.recvmsg(100, 200)[0] == b"y"
    assert error_of(sender.sendmsg, [b"y"], [(*kinds[1], integer(256))], 0, receiver.getsockname()) == errno.EINVAL


def unsent_and_unread_bytes():
    client, server = pair()
    assert number(SIOCOUTQ, client) == 0 and number(SIOCOUTQNSD, client) == 0
    client.setblocking(False)
    sent = 0
    # The peer reads nothing, so its window closes.
    while True:
        try:
            sent += client.send(b"x" * 65536)
        except BlockingIOError:
            if not select.select([], [client], [], 0.2)[1]:
                break
    undelivered = number(SIOCOUTQ, client)
    assert 0 < undelivered <= sent and 0 < number(SIOCOUTQNSD, client) <= undelivered
    assert number(FIONREAD, server) > 0
    server.setblocking(False)
    read = 0

    def reads_all():
        nonlocal read
        try:
            read += len(server.recv(1 << 20))
        except BlockingIOError:
            pass
        return read == sent

    until(reads_all)
    until(lambda: number(SIOCOUTQ, client) == 0)
    receiver, sender = datagram_socket(address=("127.0.0.1", 0)), datagram_socket()
    assert number(FIONREAD, receiver) == 0
    for size in (5, 9):
        sender.sendto(b"x" * size, receiver.getsockname())
    until(lambda: number(FIONREAD, receiver) == 5)
    receiver.recv(100)
    until(lambda: number(FIONREAD, receiver) == 9)


def low_water():
    client, server = pair()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 10)
    assert server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 10
    poller = select.epoll()
    poller.register(server, select.EPOLLIN)
    client.send(b"12345")
    until(lambda: number(FIONREAD, server) == 5)
    assert select.select([server], [], [], 0.05)[0] == [] and poller.poll(0.05) == []
    client.send(b"67890")
    assert select.select([server], [], [], TIME_MAX)[0] == [server] and poller.poll(TIME_MAX) == [(server.fileno(), select.EPOLLIN)]
    assert server.recv(4) == b"1234"
    assert poller.poll(0.05) == []
    # A call that waits receives as many bytes as it asks for, up to the mark. One that does not wait receives what is there.
    threading.Timer(0.1, client.send, [b"abcdefghij"]).start()
    server.setblocking(True)
    assert server.recv(12) == b"567890abcdef"
    client.send(b"few")
    until(lambda: number(FIONREAD, server) == 7)
    server.setblocking(False)
    assert server.recv(100) == b"ghijfew"
    server.setblocking(True)
    client.send(b"end")
    client.close()
    assert select.select([server], [], [], TIME_MAX)[0] == [server]
    assert server.recv(100) == b"end" and server.recv(100) == b""
    # A mark above the usual size of the buffer.
    client, server = pair()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 300_000)
    threading.Thread(target=client.sendall, args=[b"x" * 300_000]).start()
    assert select.select([server], [], [], TIME_MAX)[0] == [server] and number(FIONREAD, server) == 300_000


def deferred_connections():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
        server.settimeout(TIME_MAX)
        silent, client = (socket.create_connection(server.getsockname(), TIME_MAX) for _ in range(2))
        assert select.select([server], [], [], 0.2)[0] == []
        client.send(b"first")
        assert select.select([server], [], [], TIME_MAX)[0] == [server]
        accepted, peer = server.accept()
        assert peer == client.getsockname() and accepted.recv(100) == b"first"
        assert select.select([server], [], [], 0.05)[0] == []
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 0)
        other = socket.create_connection(server.getsockname(), TIME_MAX)
        assert server.accept()[1] == other.getsockname()
        silent.send(b"late")
        assert server.accept()[1] == silent.getsockname()


def options_of_a_listener_that_listens():
    server = socket.create_server(("127.0.0.1", 0))
    before = socket.create_connection(server.getsockname(), TIME_MAX)
    server.accept()[0].close()
    for level, option, value in [(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                                 (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (V4, socket.IP_TTL, 33)]:
        server.setsockopt(level, option, value)
    client = socket.create_connection(server.getsockname(), TIME_MAX)
    accepted, _ = server.accept()
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 16384
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert accepted.getsockopt(V4, socket.IP_TTL) == 33 and accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > 500
    # The small buffer limits how many bytes arrive while nothing is read.
    client.setblocking(False)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    sent = 0
    while select.select([], [client], [], 0.1)[1]:
        sent += client.send(b"x" * 65536)
    assert 0 < number(FIONREAD, accepted) <= 16384 and sent < 200_000, sent
    before.close()


def both_versions():
    # A stream socket of IPv6 that is bound to `::` accepts IPv4 as mapped addresses.
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        for host, seen in [("127.0.0.1", "::ffff:127.0.0.1"), ("::1", "::1")]:
            with socket.create_connection((host, port), TIME_MAX) as client:
                accepted, peer = server.accept()
                assert peer[0] == seen and accepted.getsockname()[0] == seen and accepted.family == socket.AF_INET6
                client.sendall(b"a")
                assert accepted.recv(1) == b"a"
                accepted.close()
        assert error_of(socket.create_server, ("127.0.0.1", port)) == errno.EADDRINUSE
    # A datagram socket receives and sends both versions.
    both = datagram_socket(socket.AF_INET6)
    both.setsockopt(V6, socket.IPV6_V6ONLY, 0)
    both.setsockopt(V6, socket.IPV6_RECVPKTINFO, 1)
    both.bind(("::", 0))
    port = both.getsockname()[1]
    for family, host, seen in [(socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1"), (socket.AF_INET6, "::1", "::1")]:
        peer = datagram_socket(family)
        peer.sendto(b"ask", (host, port))
        data, control, _, address = both.recvmsg(100, 100)
        assert data == b"ask" and address[0] == seen, address
        (level, kind, info), = control
        assert (level, kind) == (V6, socket.IPV6_PKTINFO) and info[:16] == socket.inet_pton(socket.AF_INET6, seen)
        both.sendto(b"answer", address)
        assert peer.recvfrom(100)[1][:2] == (host, port)
    only = datagram_socket(socket.AF_INET6)
    only.setsockopt(V6, socket.IPV6_V6ONLY, 1)
    only.bind(("::", 0))
    assert error_of(only.sendto, b"x", ("::ffff:127.0.0.1", port)) == errno.ENETUNREACH
    datagram_socket(address=("0.0.0.0", only.getsockname()[1])).close()


def interfaces():
    asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    place = array.array("B", bytes(4096))
    asked = struct.pack("iL", len(place), place.buffer_info()[0])
    count, _ = struct.unpack("iL", fcntl.ioctl(asks, SIOCGIFCONF, asked))
    entries = [place.tobytes()[at:at + 40] for at in range(0, count, 40)]
    found = {entry[:16].rstrip(b"\0").decode(): socket.inet_ntoa(entry[20:24]) for entry in entries}
    assert found["lo"] == "127.0.0.1" and count % 40 == 0
    needed, _ = struct.unpack("iL", fcntl.ioctl(asks, SIOCGIFCONF, struct.pack("iL", 0, 0)))
    assert needed == count
    for name, address in found.items():
        ask = lambda request: fcntl.ioctl(asks, request, struct.pack("16s24x", name.encode()))
        assert socket.inet_ntoa(ask(SIOCGIFADDR)[20:24]) == address
        index = struct.unpack("i", ask(SIOCGIFINDEX)[16:20])[0]
        assert index == socket.if_nametoindex(name)
        assert fcntl.ioctl(asks, SIOCGIFNAME, struct.pack("16xi20x", index))[:16].rstrip(b"\0") == name.encode()
        assert struct.unpack("h", ask(SIOCGIFFLAGS)[16:18])[0] & 1 == 1, "the interface is up"
        assert struct.unpack("i", ask(SIOCGIFMTU)[16:20])[0] >= 576
    assert socket.inet_ntoa(fcntl.ioctl(asks, SIOCGIFNETMASK, struct.pack("16s24x", b"lo"))[20:24]) == "255.0.0.0"
    assert error_of(fcntl.ioctl, asks, SIOCGIFADDR, struct.pack("16s24x", b"nothing")) == errno.ENODEV
    # A socket of another family answers in the same way.
    unix = socket.socket(socket.AF_UNIX)
    assert struct.unpack("i", fcntl.ioctl(unix, SIOCGIFINDEX, struct.pack("16s24x", b"lo"))[16:20])[0] == LOOPBACK
    return {name: address for name, address in found.items() if name != "lo"}


def groups(address):
    group, other = "239.255.77.7", "239.255.77.8"
    member = datagram_socket()
    member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    request = socket.inet_aton(group) + socket.inet_aton(address)
    # The socket joins before it has an address.
    member.setsockopt(V4, socket.IP_ADD_MEMBERSHIP, request)
    member.bind(("", 0))
    port = member.getsockname()[1]
    assert error_of(member.setsockopt, V4, socket.IP_ADD_MEMBERSHIP, request) == errno.EADDRINUSE
    assert error_of(member.setsockopt, V4, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("10.0.0.1") + socket.inet_aton(address)) == errno.EINVAL
    unknown = socket.inet_aton(group) + socket.inet_aton("192.0.2.77")
    assert error_of(member.setsockopt, V4, socket.IP_ADD_MEMBERSHIP, unknown) == errno.ENODEV
    sender = datagram_socket()
    sender.setsockopt(V4, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    assert error_of(sender.setsockopt, V4, socket.IP_MULTICAST_IF, socket.inet_aton("192.0.2.77")) in (errno.EADDRNOTAVAIL, errno.ENODEV)
    member.setsockopt(V4, IP_PKTINFO, 1)
    member.setsockopt(V4, IP_RECVTTL, 1)
    sender.setsockopt(V4, socket.IP_MULTICAST_TTL, 0)
    assert sender.getsockopt(V4, socket.IP_MULTICAST_TTL) == 0
    sender.sendto(b"to all", (group, port))
    data, control, _, peer = member.recvmsg(100, 100)
    assert data == b"to all" and peer[0] == address, peer
    assert control[0][2][8:] == socket.inet_aton(group) and control[1][2] == integer(0)
    sender.setsockopt(V4, socket.IP_MULTICAST_LOOP, 0)
    sender.sendto(b"not to this host", (group, port))
    sender.setsockopt(V4, socket.IP_MULTICAST_LOOP, 1)
    sender.sendto(b"to another group", (other, port))
    sender.sendto(b"again", (group, port))
    assert member.recv(100) == b"again"
    member.setsockopt(V4, socket.IP_DROP_MEMBERSHIP, request)
    assert error_of(member.setsockopt, V4, socket.IP_DROP_MEMBERSHIP, request) == errno.EADDRNOTAVAIL
    # `struct group_req`, which Java and others use.
    index = socket.if_nametoindex(next(name for name, own in interfaces().items() if own == address))
    storage = struct.pack("HH4s120x", socket.AF_INET, 0, socket.inet_aton(group))
    member.setsockopt(V4, 42, struct.pack("i4x", index) + storage)
    sender.sendto(b"third", (group, port))
    assert member.recv(100) == b"third"


def groups_of_ipv6(name):
    group, index = "ff02::7777", socket.if_nametoindex(name)
    member = datagram_socket(socket.AF_INET6, ("::", 0))
    member.setsockopt(V6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + integer(index))
    sender = datagram_socket(socket.AF_INET6)
    sender.setsockopt(V6, socket.IPV6_MULTICAST_IF, index)
    sender.setsockopt(V6, socket.IPV6_MULTICAST_HOPS, 0)
    sender.sendto(b"to all", (group, member.getsockname()[1], 0, index))
    assert member.recv(100) == b"to all"
    assert error_of(member.setsockopt, V6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + integer(999)) == errno.ENODEV


def executed_programs(server):
    """Programs that are executed by functions with a variable number of arguments keep the guest and the sockets."""
    program, script = sys.executable.encode(), os.environ["SIGA_TEST_SCRIPT"].encode()
    text = lambda value: ctypes.c_char_p(value)
    environment = (ctypes.c_char_p * 2)(b"SIGA_TEST_SCRIPT=" + script, None)
    port = str(server.getsockname()[1]).encode()
    calls = [
        (libc.execl, [program, b"python", b"-c", script, b"leaf", port], []),
        (libc.execl, [program, b"python", b"-E", b"-s", b"-B", b"-c", script, b"leaf", port, b"8", b"9", b"10"], []),
        (libc.execlp, [program, b"python", b"-c", script, b"leaf", port], []),
        (libc.execle, [program, b"python", b"-c", script, b"leaf", port], [environment]),
        (libc.execle, [program, b"python", b"-B", b"-s", b"-E", b"-c", script, b"leaf", port, b"8"], [environment]),
    ]
    for call, arguments, rest in calls:
        read, write = os.pipe()
        if os.fork() == 0:
            os.dup2(write, 1)
            call(*map(text, arguments), ctypes.c_void_p(None), *rest)
            os._exit(7)
        os.close(write)
        accepted, _ = server.accept()
        accepted.sendall(b"served")
        accepted.close()
        output = b""
        while part := os.read(read, 1000):
            output += part
        os.close(read)
        os.wait()
        extra = arguments[arguments.index(b"leaf") + 2:]
        assert output == b"served " + b" ".join(extra) + b"\n", output


def leaf():
    client = socket.create_connection(("127.0.0.1", int(sys.argv[2])), TIME_MAX)
    print(client.recv(100).decode(), " ".join(sys.argv[3:]), flush=True)
    client.recv(1)


if sys.argv[1:2] == ["leaf"]:
    leaf()
else:
    reports_of_datagrams()
    reports_of_datagrams_of_ipv6()
    unsent_and_unread_bytes()
    low_water()
    deferred_connections()
    options_of_a_listener_that_listens()
    both_versions()
    others = interfaces()
    for name, address in list(others.items())[:1]:
        groups(address)
        groups_of_ipv6(name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        executed_programs(server)
    print("all is well")
