"""Uses sockets in the ways of common programs. Runs on a guest whose addresses are 10.0.2.2 and fd00:2::2."""

import asyncio
import ctypes
import errno
import fcntl
import os
import platform
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time

OWN = "10.0.2.2"
libc = ctypes.CDLL(None)


def read_all(stream):
    parts = []
    while part := stream.recv(65536):
        parts.append(part)
    return b"".join(parts)


def half_close_and_flags():
    client, server = pair()
    client.sendall(b"x" * 300_000 + b"end")
    assert server.recv(4, socket.MSG_PEEK) == b"xxxx"
    assert server.recv(300_000, socket.MSG_WAITALL) == b"x" * 300_000
    client.shutdown(socket.SHUT_WR)
    assert read_all(server) == b"end"
    assert error_of(client.send, b"more") == errno.EPIPE
    server.sendmsg([b"an", b"", b"swer"])
    buffers = [bytearray(3), bytearray(10)]
    while sum(map(len, buffers)) and select.select([client], [], [], 10)[0] and client.recv(6, socket.MSG_PEEK) != b"answer":
        pass
    assert client.recvmsg_into(buffers)[0] == 6 and bytes(buffers[0]) == b"ans" and buffers[1][:3] == b"wer"
    server.close()
    assert read_all(client) == b""


def errors():
    closed = socket.create_server((OWN, 0))
    address = closed.getsockname()
    assert error_of(socket.create_server, address) == errno.EADDRINUSE
    closed.close()
    assert error_of(socket.create_connection, address) == errno.ECONNREFUSED
    assert error_of(socket.create_server, ("192.0.2.1", 0)) == errno.EADDRNOTAVAIL
    fresh = socket.socket()
    assert error_of(fresh.getpeername) == errno.ENOTCONN and error_of(fresh.recv, 1) == errno.ENOTCONN
    assert error_of(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) == errno.EPROTONOSUPPORT
    client, server = pair()
    client.setblocking(False)
    assert error_of(client.recv, 1) == errno.EAGAIN
    server.settimeout(0.05)
    try:
        server.recv(1)
        raise AssertionError("nothing was sent")
    except TimeoutError:
        pass
    # A close with unread bytes resets the connection.
    client.send(b"unread")
    assert select.select([server], [], [], 10)[0]
    server.close()
    client.setblocking(True)
    assert error_of(client.recv, 1) == errno.ECONNRESET


def addresses():
    # A bound socket has its address before it listens or connects, and no other socket can get it.
    first, second = socket.socket(), socket.socket()
    first.bind((OWN, 0))
    port = first.getsockname()[1]
    assert port != 0 and error_of(second.bind, (OWN, port)) == errno.EADDRINUSE
    assert error_of(second.bind, ("", port)) == errno.EADDRINUSE
    first.listen()
    assert first.getsockname() == (OWN, port)
    second.bind((OWN, 0))
    own = second.getsockname()
    second.connect((OWN, port))
    accepted, peer = first.accept()
    assert peer == own == second.getsockname()
    for one in (first, second, accepted):
        one.close()
    # Both IP versions have the port of a bound socket of both.
    both = socket.socket(socket.AF_INET6)
    both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    both.bind(("::", 0))
    port = both.getsockname()[1]
    assert error_of(socket.socket().bind, ("0.0.0.0", port)) == errno.EADDRINUSE
    both.close()
    with socket.create_server((OWN, port)):
        pass


def options():
    client, server = pair()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
    assert server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert len(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)) == 104


def both_versions():
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        for host, seen in [(OWN, "::ffff:" + OWN), ("fd00:2::2", "fd00:2::2")]:
            with socket.create_connection((host, port)) as client:
                accepted, peer = server.accept()
                assert peer[0] == seen, peer
                client.sendall(b"a")
                assert accepted.recv(1) == b"a"
                accepted.close()
    only = socket.create_server(("::", 0), family=socket.AF_INET6)
    only.close()
    # Without the option, as Java and Node bind their sockets.
    with socket.socket(socket.AF_INET6) as server:
        server.bind(("::", 0))
        server.listen()
        socket.create_connection((OWN, server.getsockname()[1]), 20).close()
        assert server.accept()[1][0] == "::ffff:" + OWN


def datagrams():
    one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    one.bind((OWN, 0))
    other.connect(one.getsockname())
    other.send(b"ask")
    assert one.recvfrom(2, socket.MSG_PEEK)[0] == b"as"
    data, peer = one.recvfrom(100)
    assert data == b"ask" and peer == (OWN, other.getsockname()[1])
    one.sendto(b"answer", peer)
    data, _, flags, _ = other.recvmsg(3)
    assert data == b"ans" and flags & socket.MSG_TRUNC
    assert error_of(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).send, b"x") == errno.EDESTADDRREQ


def connected_datagrams():
    server, client, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3))
    server.bind((OWN, 0))
    client.connect(server.getsockname())
    assert client.getsockname()[0] == OWN and client.getpeername() == server.getsockname()
    client.send(b"ask")
    _, address = server.recvfrom(10)
    assert address == client.getsockname()
    # A datagram of another sender does not arrive.
    other.sendto(b"from another sender", address)
    server.sendto(b"answer", address)
    assert client.recv(100) == b"answer"
    server.close()
    # A port without a socket answers with an error, which only a connected socket receives.
    client.send(b"nothing listens")
    client.settimeout(10)
    assert error_of(client.recv, 10) == errno.ECONNREFUSED
    shared = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for one in shared:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared[0].bind((OWN, 0))
    shared[1].bind(shared[0].getsockname())
    assert error_of(client.bind, shared[0].getsockname()) in (errno.EINVAL, errno.EADDRINUSE)


def duplicates():
    client, server = pair()
    copy = os.dup(client.fileno())
    client.close()
    os.write(copy, b"through the copy")
    assert server.recv(100) == b"through the copy"
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, copy)
    assert server.recv(1) == b"", "the last number is gone"
    client, server = pair()
    os.dup2(client.fileno(), null)
    client.close()
    server.sendall(b"y")
    assert os.read(null, 10) == b"y"
    os.close(null)


def a_number_comes_back_as_a_file():
    client, server = pair()
    number = client.detach()
    # 3 is `close` on x86-64; elsewhere this test closes with libc.
    closed = libc.syscall(3, number) if platform.machine() == "x86_64" else libc.close(number)
    assert closed == 0 and server.recv(10) == b"", "the socket is closed at once"
    files = [os.open("/dev/null", os.O_RDWR)]
    while files[-1] != number:
        files.append(os.open("/dev/null", os.O_RDWR))
    assert os.write(number, b"to the file") == 11 and os.read(number, 10) == b""
    for file in files:
        os.close(file)


def streams_of_libc():
    client, server = pair()
    libc.fdopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fdopen(client.fileno(), b"r+"))
    assert libc.fileno(stream) == client.fileno()
    assert libc.fputs(b"a line\n", stream) >= 0 and libc.fflush(stream) == 0
    assert server.recv(100) == b"a line\n"
    server.sendall(b"an answer\n")
    line = ctypes.create_string_buffer(100)
    assert libc.fgets(line, 100, stream) and line.value == b"an answer\n"
    client.detach()
    assert libc.fclose(stream) == 0
    assert server.recv(1) == b""


def dup2_ends_a_wait():
    client, server = pair()
    seen = []
    # The guest wakes the thread that sleeps first. The other one sleeps until a thread of this process wakes it.
    first, peer_of_first = pair()
    threading.Thread(target=first.recv, args=(1,), daemon=True).start()
    time.sleep(0.1)
    thread = threading.Thread(target=lambda: seen.append(error_of(client.recv, 1)))
    thread.start()
    time.sleep(0.1)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, client.fileno())
    thread.join(20)
    assert seen == [errno.EBADF] and server.recv(1) == b""
    os.close(null)
    peer_of_first.close()


def small_numbers():
    os.close(0)
    client = socket.socket()
    assert client.fileno() == 0
    with socket.create_server((OWN, 0)) as server:
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        os.write(0, b"from number 0")
        assert accepted.recv(100) == b"from number 0"
    client.close()
    assert os.open("/dev/null", os.O_RDONLY) == 0


def small_numbers_are_the_programs():
    # Shells and servers duplicate descriptors to numbers of their choice.
    script = f"""import os, select, socket
server = socket.create_server(({OWN!r}, 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
waits = select.epoll()
waits.register(accepted, select.EPOLLIN)
null = os.open('/dev/null', os.O_RDWR)
own = [one.fileno() for one in (server, client, accepted, waits)] + [null]
for number in range(3, 100):
    if number not in own:
        os.dup2(null, number)
assert waits.poll(0.05) == []
client.send(b'x')
assert waits.poll(20) and accepted.recv(10) == b'x'
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def polling():
    client, server = pair()
    pipe, fill = os.pipe()
    poller = select.epoll()
    poller.register(server, select.EPOLLIN | select.EPOLLRDHUP)
    poller.register(pipe, select.EPOLLIN)
    assert poller.poll(0.01) == []
    os.write(fill, b"p")
    assert poller.poll(10) == [(pipe, select.EPOLLIN)]
    client.send(b"s")
    assert sorted(poller.poll(10)) == sorted([(pipe, select.EPOLLIN), (server.fileno(), select.EPOLLIN)]) or len(poller.poll(10)) > 0
    os.read(pipe, 1)
    assert poller.poll(10) == [(server.fileno(), select.EPOLLIN)], "an event stays until the bytes are read"
    poller.modify(server, select.EPOLLIN | select.EPOLLET)
    assert poller.poll(10) == [(server.fileno(), select.EPOLLIN)]
    assert poller.poll(0.01) == [], "an edge is reported once"
    client.send(b"t")
    assert poller.poll(10) == [(server.fileno(), select.EPOLLIN)], "each arrival is an edge"
    poller.modify(server, select.EPOLLIN | select.EPOLLONESHOT)
    assert len(poller.poll(10)) == 1 and poller.poll(0.01) == []
    poller.modify(server, select.EPOLLIN | select.EPOLLRDHUP)
    client.close()
    assert server.recv(10) == b"st"
    (_, events), = poller.poll(10)
    assert events & select.EPOLLRDHUP and events & select.EPOLLIN
    poller.unregister(server)
    assert poller.poll(0.01) == []
    both = select.poll()
    both.register(server, select.POLLIN)
    both.register(pipe, select.POLLIN)
    assert [number for number, _ in both.poll(10_000)] == [server.fileno()]
    assert select.select([server, pipe], [server], [], 10) == ([server], [server], [])


def a_ready_socket_does_not_hide_other_descriptors():
    client, server = pair()
    client.sendall(b"unread")
    assert select.select([server], [], [], 20)[0] == [server]
    reads, writes = os.pipe()
    os.write(writes, b"x")
    with select.epoll() as waits:
        waits.register(server, select.EPOLLIN)
        waits.register(reads, select.EPOLLIN)
        seen = {number for _ in range(50) for number, _ in waits.poll(1, 1)}
    assert seen == {server.fileno(), reads}
    os.close(reads)
    os.close(writes)


def sets_of_epoll_nest():
    for inner_first in (True, False):
        outer, inner = select.epoll(), select.epoll()
        client, server = pair()
        if inner_first:
            inner.register(server, select.EPOLLIN)
        outer.register(inner, select.EPOLLIN)
        if not inner_first:
            inner.register(server, select.EPOLLIN)
        poller = select.poll()
        poller.register(inner, select.POLLIN)
        assert outer.poll(0.05) == [] and poller.poll(50) == []
        for send_first in (True, False):
            for waits in (lambda: outer.poll(20), lambda: poller.poll(20_000)):
                send = threading.Timer(0 if send_first else 0.1, client.send, [b"x"])
                send.start()
                assert waits() == [(inner.fileno(), select.EPOLLIN)]
                send.join()
                assert inner.poll(20) == [(server.fileno(), select.EPOLLIN)]
                assert waits() == [(inner.fileno(), select.EPOLLIN)], "the bytes are not read"
                assert server.recv(10) == b"x"
                assert outer.poll(0.01) == [] and poller.poll(10) == [] and inner.poll(0) == []
        inner.unregister(server)
        client.send(b"x")
        assert outer.poll(0.05) == []
        for one in (outer, inner, client, server):
            one.close()


def each_thread_has_a_set():
    pairs, sets, seen = [pair() for _ in range(4)], [select.epoll() for _ in range(4)], queue.Queue()

    def wait(waits, stream):
        waits.register(stream, select.EPOLLIN)
        while True:
            ((number, _),) = waits.poll(20)
            data = stream.recv(10)
            seen.put((number, data))
            if data == b"end":
                return

    threads = [threading.Thread(target=wait, args=(waits, server)) for waits, (_, server) in zip(sets, pairs)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        for client, server in pairs:
            client.send(b"x")
            assert seen.get(timeout=20) == (server.fileno(), b"x")
    for client, _ in pairs:
        client.send(b"end")
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def numbers_above_the_limit_of_select():
    client, server = pair()
    large = fcntl.fcntl(server, fcntl.F_DUPFD, 1100)
    client.send(b"x")
    poller = select.poll()
    poller.register(large, select.POLLIN)
    assert large >= 1100 and poller.poll(20_000) == [(large, select.POLLIN)]
    # As with glibc, a larger set than `fd_set` serves.
    words = (ctypes.c_uint64 * 32)()
    words[large // 64] = 1 << large % 64
    assert libc.select(large + 1, words, None, None, None) == 1 and words[large // 64] == 1 << large % 64
    os.close(large)
    assert server.recv(10) == b"x"


def a_set_has_several_numbers():
    for is_early in (True, False):
        first = select.epoll()
        duplicate = lambda: select.epoll.fromfd(os.dup(first.fileno()))
        second = duplicate() if is_early else None
        client, server = pair()
        other, other_server = pair()
        (second or first).register(server, select.EPOLLIN)
        second = second or duplicate()
        first.register(other_server, select.EPOLLIN)
        assert error_of(second.register, other_server, select.EPOLLIN) == errno.EEXIST
        third = duplicate()
        client.sendall(b"1")
        other.sendall(b"2")
        for waits in (first, second, third):
            seen = set()
            while len(seen) < 2:
                events = waits.poll(20)
                assert events, "no event under one of the numbers"
                seen |= set(events)
            assert seen == {(one.fileno(), select.EPOLLIN) for one in (server, other_server)}
        second.unregister(other_server)
        for closed, left in ((first, second), (second, third)):
            closed.close()
            assert left.poll(20) == [(server.fileno(), select.EPOLLIN)]
        third.close()
        for one in (client, server, other, other_server):
            one.close()


def a_set_gets_its_first_socket_while_a_thread_waits():
    poller, seen = select.epoll(), []
    thread = threading.Thread(target=lambda: seen.append(poller.poll(20)))
    thread.start()
    time.sleep(0.1)
    # The first siga sockets of this process.
    client, server = pair()
    poller.register(server, select.EPOLLIN)
    time.sleep(0.1)
    client.send(b"x")
    thread.join(30)
    assert seen == [[(server.fileno(), select.EPOLLIN)]], seen


def threads_wait_for_each_other():
    client, server = pair()
    got = []
    threads = [threading.Thread(target=lambda stream=stream: got.append(stream.recv(1))) for stream in (client, server)]
    for thread in threads:
        thread.start()
    client.send(b"c")
    server.send(b"s")
    for thread in threads:
        thread.join(20)
    assert sorted(got) == [b"c", b"s"]


def a_signal_interrupts_a_wait():
    client, server = pair()
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(client.send(b"from the handler")))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    assert server.recv(100) == b"from the handler" and seen == [16]


def a_call_of_c_goes_on_after_a_handler_if_it_shall():
    with_errno = ctypes.CDLL(None, use_errno=True)
    signal.signal(signal.SIGALRM, lambda *_: None)
    for interrupts, result in [(False, 1), (True, -1)]:
        client, server = pair()
        # Whether a handler interrupts calls is the flag SA_RESTART.
        signal.siginterrupt(signal.SIGALRM, interrupts)
        later = threading.Timer(0.3, client.send, (b"x",))
        later.start()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        assert with_errno.recv(server.fileno(), ctypes.create_string_buffer(1), 1, 0) == result
        assert result == 1 or ctypes.get_errno() == errno.EINTR
        later.join()


def one_wait_reports_a_socket_once():
    pairs = [pair() for _ in range(3)]
    waits = select.epoll()
    for client, server in pairs:
        waits.register(server, select.EPOLLIN)
        client.send(b"x")
    # Some waits also ask the kernel.
    for _ in range(30):
        numbers = [number for number, _ in waits.poll(1)]
        assert len(numbers) == len(set(numbers)), numbers


def a_handler_sends_while_its_thread_is_inside():
    client, server = pair()
    # Otherwise each part waits for a delayed acknowledgement, and the thread is hardly ever inside.
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sender, receiver = pair()
    sender.setblocking(False)
    signal.signal(signal.SIGALRM, lambda *_: None)
    # The handler in C writes a byte for each signal, at once.
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    for at in range(3000):
        client.sendall(b"%04d" % at)
        assert server.recv(4, socket.MSG_WAITALL) == b"%04d" % at
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.set_wakeup_fd(before)
    assert set(receiver.recv(100000)) == {signal.SIGALRM}


def handlers_are_those_of_the_program():
    def handler(*_):
        raise AssertionError("no signal is sent")

    before = signal.signal(signal.SIGUSR1, handler)
    assert before == signal.SIG_DFL
    assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) == handler
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.signal(signal.SIGUSR1, signal.SIG_DFL) == signal.SIG_IGN


def a_program_that_cannot_be_started_leaves_the_sockets():
    # Python starts it with vfork, and the child ends with _exit.
    client, server = pair()
    try:
        subprocess.run(["/no/such/program"])
        raise AssertionError("this program exists")
    except FileNotFoundError:
        pass
    client.sendall(b"x")
    assert server.recv(1) == b"x"


def a_child_has_sockets_of_its_own():
    client, server = pair()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            mine, other = pair()
            mine.send(b"child")
            status = 0 if other.recv(10) == b"child" else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    client.send(b"parent")
    assert server.recv(10) == b"parent"


async def answer(reader, writer):
    data = await reader.read(100)
    writer.write(data[::-1])
    await writer.drain()
    writer.close()


async def many_connections():
    server = await asyncio.start_server(answer, OWN, 0)
    port = server.sockets[0].getsockname()[1]

    async def one(number):
        reader, writer = await asyncio.open_connection(OWN, port)
        writer.write(b"%d" % number)
        writer.write_eof()
        data = await reader.read()
        writer.close()
        return data

    results = await asyncio.gather(*[one(number) for number in range(300)])
    assert results == [(b"%d" % number)[::-1] for number in range(300)]


a_set_gets_its_first_socket_while_a_thread_waits()
half_close_and_flags()
errors()
addresses()
options()
both_versions()
datagrams()
connected_datagrams()
duplicates()
a_number_comes_back_as_a_file()
streams_of_libc()
dup2_ends_a_wait()
small_numbers()
small_numbers_are_the_programs()
polling()
a_ready_socket_does_not_hide_other_descriptors()
sets_of_epoll_nest()
each_thread_has_a_set()
numbers_above_the_limit_of_select()
a_set_has_several_numbers()
threads_wait_for_each_other()
a_signal_interrupts_a_wait()
a_call_of_c_goes_on_after_a_handler_if_it_shall()
one_wait_reports_a_socket_once()
a_handler_sends_while_its_thread_is_inside()
handlers_are_those_of_the_program()
a_program_that_cannot_be_started_leaves_the_sockets()
a_child_has_sockets_of_its_own()
asyncio.run(many_connections())
print("all is well")
