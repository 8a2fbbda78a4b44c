"""Uses the loopback addresses of a guest. Argument: a port of the host's 127.0.0.1 at which a server listens."""

import errno
import os
import socket
import subprocess
import sys

outside = int(sys.argv[1])


assert error_of(socket.create_connection, ("127.0.0.1", outside), 10) == errno.ECONNREFUSED, "this is the host's server"
for family, own in [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "127.1.2.3")]:
    server = socket.create_server((own, 0), family=family)
    port = server.getsockname()[1]
    client = socket.create_connection((own, port))
    accepted, peer = server.accept()
    assert peer[0] == own and client.getpeername()[0] == own
    client.sendall(b"x" * 1_000_000)
    client.close()
    assert sum(map(len, iter(lambda: accepted.recv(65536), b""))) == 1_000_000
    # Another program on this guest reaches the server too.
    script = f"import socket; socket.create_connection(({own!r}, {port})).sendall(b'from another program')"
    other = subprocess.Popen([sys.executable, "-c", script])
    accepted, _ = server.accept()
    assert b"".join(iter(lambda: accepted.recv(100), b"")) == b"from another program"
    assert other.wait() == 0
    # A socket with a loopback address reaches no other host.
    away = socket.socket(family)
    away.bind((own, 0))
    remote = "10.0.1.1" if family == socket.AF_INET else "fd00:1::1"
    assert error_of(away.connect, (remote, 80)) == errno.EINVAL
    datagrams, sender = (socket.socket(family, socket.SOCK_DGRAM) for _ in range(2))
    datagrams.bind((own, 0))
    sender.sendto(b"datagram", datagrams.getsockname())
    assert datagrams.recvfrom(100)[1][0] == own

# A server at all addresses is reached by the loopback addresses and by name.
with socket.create_server(("", 0)) as server:
    client = socket.create_connection(("localhost", server.getsockname()[1]))
    assert client.getpeername()[0] == "127.0.0.1"
assert socket.gethostbyname("localhost") == "127.0.0.1" and socket.gethostbyname("tcpip3") == "10.0.2.2"
assert socket.gethostbyname_ex("tcpip3")[2] == ["10.0.2.2"]
assert socket.gethostbyaddr("127.0.0.1")[0] == "localhost"
assert socket.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICSERV) == ("localhost", "80")
assert socket.getnameinfo(("10.0.2.2", 80), socket.NI_NUMERICSERV) == ("10.0.2.2", "80")
try:
    socket.gethostbyname("example.org")
    raise AssertionError("the host's resolver was asked")
except socket.gaierror:
    pass
names = [name for _, name in socket.if_nameindex()]
assert names[0] == "lo" and len(names) == 2, names
assert socket.if_indextoname(2) == names[1] and socket.if_nametoindex(names[1]) == 2
assert error_of(socket.if_nametoindex, "eth0") is None, "Python raises an error without a number"
print("all is well")
