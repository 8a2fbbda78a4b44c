"""Two programs of guests exchange bytes over connections that become direct. Prints "ok" if every byte is right."""
import os, select, socket, sys

role, host = sys.argv[1:3]


def content(size, salt):
    return bytes((place * 31 + salt) % 251 for place in range(size))


def all_of(stream, size):
    read = b""
    while len(read) < size:
        more = stream.recv(size - len(read))
        assert more, (len(read), size)
        read += more
    return read


if role == "server":
    listener = socket.create_server((host, 7000))
    print("listens", flush=True)
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    streams = {}
    while True:
        for number, events in poller.poll():
            if number == listener.fileno():
                stream, _ = listener.accept()
                stream.setblocking(False)
                streams[stream.fileno()] = stream
                poller.register(stream, select.EPOLLIN)
                continue
            stream = streams[number]
            try:
                bytes_read = stream.recv(65536)
            except ConnectionResetError:
                bytes_read = b""
            if not bytes_read:
                poller.unregister(stream)
                del streams[number]
                stream.close()
                continue
            if bytes_read.startswith(b"fork"):
                # The child answers, and has the connection from then on.
                if os.fork() == 0:
                    stream.setblocking(True)
                    stream.sendall(b"child")
                    while more := stream.recv(65536):
                        stream.sendall(more)
                    os._exit(0)
                poller.unregister(stream)
                del streams[number]
                stream.close()
                continue
            stream.setblocking(True)
            stream.sendall(bytes_read)
            stream.setblocking(False)

streams = [socket.create_connection((host, 7000)) for _ in range(3)]
for turn in range(300):
    for salt, stream in enumerate(streams):
        request = content(1 + turn * 7 % 2000, salt)
        stream.sendall(request)
        assert all_of(stream, len(request)) == request, turn
# A longer stream, in both directions at once.
for salt, stream in enumerate(streams):
    request, answer = content(3_000_000, salt), b""
    stream.setblocking(False)
    sent = 0
    while len(answer) < len(request):
        wants = select.POLLIN | (select.POLLOUT if sent < len(request) else 0)
        poller = select.poll()
        poller.register(stream, wants)
        for _, events in poller.poll():
            if events & select.POLLOUT:
                sent += stream.send(request[sent : sent + 50_000])
            if events & select.POLLIN:
                answer += stream.recv(100_000)
    assert answer == request
    stream.setblocking(True)
if len(sys.argv) > 3:
    print("direct", flush=True)
    sys.stdin.readline()
# Both ends fork: the connection returns to TCP.
first, second, third = streams
first.sendall(b"fork")
assert all_of(first, 5) == b"child"
for turn in range(50):
    first.sendall(b"more")
    assert all_of(first, 4) == b"more"
# The server's child ends, so it has no connection open any more.
first.close()
# A child reads what its parent has not read.
second.sendall(content(900, 5))
select.select([second], [], [])
child = os.fork()
if child == 0:
    right = all_of(second, 900) == content(900, 5)
    second.sendall(b"from the child")
    right &= all_of(second, 14) == b"from the child"
    os._exit(0 if right else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
third.shutdown(socket.SHUT_WR)
assert third.recv(10) == b""
print("ok", flush=True)
