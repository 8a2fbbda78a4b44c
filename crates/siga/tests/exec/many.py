"""Opens connections to two addresses, half of them each, or accepts them; each connection then carries bytes both ways.

Arguments: server or client, the number of connections, the addresses.
"""

import select
import socket
import sys

role, count, addresses = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
MESSAGE = 100


def wait(waits):
    events = waits.poll(60)
    assert events, "nothing happens for a minute"
    return events


def receive(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "the connection has ended"
        data += part
    return data


if role == "server":
    waits = select.epoll()
    family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
    listener = socket.create_server((addresses[0], 5000), family=family, backlog=4096, dualstack_ipv6=":" in addresses[0])
    listener.setblocking(False)
    waits.register(listener, select.EPOLLIN)
    print("listens", flush=True)
    held = {}
    ended = 0
    while ended < count:
        for number, _ in wait(waits):
            if number == listener.fileno():
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                connection.settimeout(60)
                held[connection.fileno()] = connection
                waits.register(connection, select.EPOLLIN)
                continue
            data = held[number].recv(MESSAGE)
            if data:
                held[number].sendall(data)
            else:
                ended += 1
                held.pop(number).close()
else:
    held = []
    for at in range(count):
        held.append(socket.create_connection((addresses[at % len(addresses)], 5000), 60))
    for _ in range(2):
        for at, connection in enumerate(held):
            connection.sendall(b"%0*d" % (MESSAGE, at))
        for at, connection in enumerate(held):
            assert int(receive(connection, MESSAGE)) == at
    for connection in held:
        connection.close()
print("all is well")
