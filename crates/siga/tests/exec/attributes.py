"""Checks that a program that uses its sockets keeps its scheduling policy, its CPUs, its dumpability and its resource limits."""

import ctypes
import os
import resource
import socket
import sys
import threading

PR_GET_DUMPABLE, PR_GET_NO_NEW_PRIVS = 3, 39
ROUNDS = 3000


def attributes():
    libc = ctypes.CDLL(None)
    limits = [resource.getrlimit(limit) for limit in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)]
    return (
        os.sched_getaffinity(0),
        os.sched_getscheduler(0),
        os.getpriority(os.PRIO_PROCESS, 0),
        libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0),
        limits,
    )


before = attributes()
if sys.argv[1] == "print":
    print(before)
    sys.exit()
# A plain process of the same test has printed these.
assert sys.argv[1] == str(before), before
assert ctypes.CDLL(None).prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1

listener = socket.create_server(("10.0.2.2", 5000))
found = []


def serve():
    connection, _ = listener.accept()
    while data := connection.recv(100):
        # The guest answers this, so the thread waits for the guest.
        connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)
        connection.sendall(data)
    found.append(attributes())


server = threading.Thread(target=serve)
server.start()
client = socket.create_connection(("10.0.2.2", 5000))
for _ in range(ROUNDS):
    client.sendall(b"x")
    client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 200)
    assert client.recv(100) == b"x"
    found.append(attributes())
client.close()
server.join()
assert all(one == before for one in found), [one for one in found if one != before][:3]

# A child has them too.
if os.fork() == 0:
    socket.create_connection(("10.0.2.2", 5000)).close()
    os._exit(attributes() != before)
assert os.wait()[1] == 0
print("all is well")
