"""A connection that processes hand on in the middle of streams in both directions. The server sends back what it receives. Prints "ok" if
every byte is right. The arguments of an executed program say where the streams are.
"""
import os, select, socket, sys

script, role, host = sys.argv[1:4]
UNREAD_MAX, PART = 60_000, 7_001


def content(at, size):
    begin = at % 251
    return (bytes(range(251)) * (size // 251 + 2))[begin : begin + size]


def move(stream, sent, read, end):
    """Sends and reads until `end` bytes are read. Bytes stay unread, and under way."""
    while read < end:
        if sent - read < UNREAD_MAX:
            sent += stream.send(content(sent, PART))
        data = stream.recv(5_003)
        assert data == content(read, len(data)) and data, (sent, read)
        read += len(data)
    return sent, read


def end_of(stream, sent, read):
    stream.shutdown(socket.SHUT_WR)
    while data := stream.recv(65536):
        assert data == content(read, len(data)), (sent, read)
        read += len(data)
    assert read == sent, (sent, read)


if role == "server":
    listener = socket.create_server((host, 7000))
    print("listens", flush=True)
    while True:
        stream, _ = listener.accept()
        while data := stream.recv(65536):
            stream.sendall(data)
        stream.close()
if role == "executed":
    number, sent, read = map(int, sys.argv[4:])
    stream = socket.socket(fileno=number)
    sent, read = move(stream, sent, read, read + 200_000)
    end_of(stream, sent, read)
    sys.exit()
for turn in range(6):
    stream = socket.create_connection((host, 7000))
    # Short requests first, so that the connection is direct soon.
    sent = 0
    for _ in range(40):
        stream.sendall(content(sent, 9))
        assert stream.recv(9, socket.MSG_WAITALL) == content(sent, 9)
        sent += 9
    sent, read = move(stream, sent, sent, 300_000 + 1_237 * turn)
    child = os.fork()
    if child == 0:
        sent, read = move(stream, sent, read, read + 100_000 + 977 * turn)
        os.set_inheritable(stream.fileno(), True)
        os.execv(sys.executable, [sys.executable, "-c", script, script, "executed", host, str(stream.fileno()), str(sent), str(read)])
    stream.close()
    assert os.waitpid(child, 0)[1] == 0
print("ok", flush=True)
