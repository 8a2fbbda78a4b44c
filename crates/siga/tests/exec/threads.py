"""A server has several threads, each with a connection and a set of epoll of its own. The client sends requests over one connection at a
time, so most threads sleep. Prints "ok" if every answer comes."""
import select, socket, sys, threading

role, host = sys.argv[1:3]
THREADS, REQUESTS = 4, 3_000


def serve(stream):
    poller = select.epoll()
    poller.register(stream, select.EPOLLIN)
    while True:
        poller.poll()
        request = stream.recv(64)
        if not request:
            return
        stream.sendall(request)


if role == "server":
    listener = socket.create_server((host, 7000))
    print("listens", flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

streams = [socket.create_connection((host, 7000), 5) for _ in range(THREADS)]
for stream in streams:
    for number in range(REQUESTS):
        request = number.to_bytes(4, "big")
        stream.sendall(request)
        assert stream.recv(64) == request
print("ok")
