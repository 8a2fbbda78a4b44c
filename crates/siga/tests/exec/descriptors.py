"""Uses descriptor numbers again that libc has closed unseen, and libc's functions by their names with underscores. Runs on a guest with
the address 10.0.2.2."""

import ctypes
import errno
import fcntl
import os
import socket
import sys

OWN = "10.0.2.2"
libc = ctypes.CDLL(None, use_errno=True)


def a_number_comes_back_by_any_call():
    """libc closes a descriptor without its public functions. Whichever call returns the number next, it is no longer that of a socket."""
    libc.fopen.restype = ctypes.c_void_p
    libc.fileno.argtypes = [ctypes.c_void_p]
    null = os.open("/dev/null", os.O_RDONLY)
    here, _ = socket.socketpair()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0siga-%d" % os.getpid())
    listener.listen()
    ends = []

    def accept():
        ends.append(socket.socket(socket.AF_UNIX))
        ends[-1].connect(listener.getsockname())
        return lambda: libc.accept(listener.fileno(), None, None)

    # Each entry makes what the call needs, and returns the call.
    for prepare in (
        lambda: lambda: libc.dup(null),
        lambda: lambda: fcntl.fcntl(null, fcntl.F_DUPFD, 0),
        lambda: lambda: socket.socket(socket.AF_UNIX).detach(),
        accept,
        lambda: lambda: libc.fileno(libc.fopen(b"/dev/null", b"r")),
        lambda: lambda: libc.mkstemp(ctypes.create_string_buffer(b"/tmp/siga-XXXXXX")),
    ):
        client, server = pair()
        server.settimeout(20)
        number, lower, call = client.detach(), [], prepare()
        while not lower or lower[-1] < number:
            lower.append(os.open("/dev/null", os.O_RDONLY))
        os.close(lower.pop())
        assert getattr(libc, "__close_nocancel")(number) == 0
        assert call() == number
        assert server.recv(1) == b"", "the socket is closed"
        if os.path.isfile(path := os.readlink("/proc/self/fd/%d" % number)) and path.startswith("/tmp/siga-"):
            os.unlink(path)
        for file in (number, *lower):
            os.close(file)
    os.close(null)
    for end in (here, listener, *ends):
        end.close()


def names_with_underscores():
    """Some libraries call libc's functions by these names."""

    def own(name):
        return getattr(libc, "__" + name)

    client, server = pair()
    number, bytes_read = client.detach(), ctypes.create_string_buffer(10)
    assert own("write")(number, b"ab", 2) == 2 and own("send")(number, b"c", 1, 0) == 1
    assert server.recv(3, socket.MSG_WAITALL) == b"abc"
    server.sendall(b"answer")
    assert own("read")(number, bytes_read, 10) == 6 and bytes_read.value == b"answer"
    null = own("open")(b"/dev/null", os.O_RDONLY)
    assert own("dup2")(number, null) == null
    assert own("fcntl")(null, fcntl.F_SETFL, os.O_NONBLOCK) == 0
    assert own("read")(null, bytes_read, 10) == -1 and ctypes.get_errno() == errno.EAGAIN
    assert own("close")(number) == 0 and own("close")(null) == 0
    server.settimeout(20)
    while server.recv(10):
        pass
    made = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    address = socket.AF_INET.to_bytes(2, sys.byteorder) + (1).to_bytes(2, "big") + socket.inet_aton(OWN) + bytes(8)
    assert own("connect")(made, address, len(address)) == -1 and ctypes.get_errno() == errno.ECONNREFUSED
    assert own("close")(made) == 0


a_number_comes_back_by_any_call()
names_with_underscores()
print("all is well")
