"""Shares sockets between processes by fork and exec. Runs on a guest with the address 10.0.2.2."""

import errno
import os
import select
import socket
import subprocess
import sys
import time

OWN = "10.0.2.2"


def pair():
    with socket.create_server((OWN, 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        client.settimeout(20)
        accepted.settimeout(20)
        return client, accepted


def read_all(stream):
    return b"".join(iter(lambda: stream.recv(65536), b""))


def fork(work):
    """Runs work() in a child, and returns the child's id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print("child:", repr(error), flush=True)
        finally:
            os._exit(status)
    return child


def succeeded(child):
    assert os.waitpid(child, 0)[1] == 0, "the child has failed"


def a_child_serves_the_connection_that_its_parent_accepted():
    client, accepted = pair()
    client.sendall(b"first second")
    assert accepted.recv(5) == b"first"
    wait, go = os.pipe()

    def serve():
        assert accepted.recv(100) == b" second", "the child reads what the parent has not read"
        accepted.sendall(b"x" * 300_000)
        os.read(wait, 1)

    child = fork(serve)
    accepted.close()
    received = 0
    while received < 300_000:
        received += len(client.recv(65536))
    # The stream ends when the last holder closes it.
    assert select.select([client], [], [], 0.1)[0] == []
    os.write(go, b"g")
    succeeded(child)
    assert client.recv(1) == b""


def parent_and_child_use_a_connection_in_turn():
    client, accepted = pair()
    accepted.sendall(b"parent ")
    succeeded(fork(lambda: accepted.sendall(b"child ")))
    accepted.sendall(b"parent again")
    accepted.close()
    assert read_all(client) == b"parent child parent again"


def two_processes_wait_for_one_connection():
    client, accepted = pair()
    results, told = os.pipe()

    def wait():
        accepted.settimeout(None)
        for _ in range(2):
            os.write(told, accepted.recv(100))

    # The kernel gives each part to one of the processes, and siga does too.
    children = [fork(wait), fork(wait)]
    for part in (b"a", b"b", b"c", b"d"):
        time.sleep(0.05)
        client.sendall(part)
        assert os.read(results, 100) == part
    for child in children:
        succeeded(child)


def processes_that_wait_for_one_connection_sleep():
    client, accepted = pair()

    def wait():
        begun = time.process_time()
        accepted.settimeout(None)
        assert accepted.recv(100) == b"a"
        assert time.process_time() - begun < 0.2, "the process has not slept"

    children = [fork(wait), fork(wait)]
    time.sleep(1)
    for child in children:
        client.sendall(b"a")
        time.sleep(0.3)
    for child in children:
        succeeded(child)


def a_closing_child_closes_nothing():
    client, accepted = pair()
    succeeded(fork(lambda: (client.close(), accepted.close())))
    client.sendall(b"still open")
    assert accepted.recv(100) == b"still open"


def children_accept_at_the_listener_of_their_parent():
    server = socket.create_server((OWN, 0), backlog=64)
    address = server.getsockname()
    # This connection waits at the listener when the parent forks.
    early = socket.create_connection(address)

    def serve():
        for _ in range(10):
            stream, _ = server.accept()
            stream.sendall(b"%d" % os.getpid())
            stream.close()

    children = [fork(serve) for _ in range(4)]
    server.close()
    streams = [early] + [socket.create_connection(address) for _ in range(39)]
    answers = [int(read_all(stream)) for stream in streams]
    assert set(answers) <= set(children) and len(answers) == 40
    for child in children:
        succeeded(child)
    try:
        socket.create_connection(address)
        raise AssertionError("the listener is still open")
    except (ConnectionRefusedError, ConnectionResetError):
        pass


def children_wait_for_a_listener_with_epoll():
    server = socket.create_server((OWN, 0))
    server.setblocking(False)

    def serve():
        poller = select.epoll()
        poller.register(server, select.EPOLLIN | select.EPOLLEXCLUSIVE)
        while True:
            assert poller.poll(20), "no connection has come"
            try:
                stream, _ = server.accept()
            except BlockingIOError:
                continue
            data = stream.recv(100)
            stream.sendall(data)
            stream.close()
            if data == b"end":
                return

    children = [fork(serve) for _ in range(2)]
    for data in [b"%d" % number for number in range(50)] + [b"end", b"end"]:
        with socket.create_connection(server.getsockname()) as stream:
            stream.settimeout(20)
            stream.sendall(data)
            assert read_all(stream) == data
    for child in children:
        succeeded(child)


def a_child_sends_datagrams_for_its_parent():
    one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    one.bind((OWN, 0))
    other.bind((OWN, 0))
    other.settimeout(20)
    one.settimeout(20)
    succeeded(fork(lambda: one.sendto(b"from the child", other.getsockname())))
    data, sender = other.recvfrom(100)
    assert data == b"from the child" and sender == one.getsockname()
    other.sendto(b"to the parent", sender)
    assert one.recv(100) == b"to the parent"


def a_program_gets_a_connection_as_its_standard_streams():
    client, accepted = pair()
    # A socket with a time limit does not block, and cat does not wait for data on such a socket.
    accepted.setblocking(True)
    other = subprocess.Popen(["/bin/cat"], stdin=accepted, stdout=accepted)
    accepted.close()
    client.sendall(b"through another program")
    client.shutdown(socket.SHUT_WR)
    assert read_all(client) == b"through another program"
    assert other.wait() == 0


def a_program_gets_a_listener_under_its_number():
    server = socket.create_server((OWN, 0))
    script = f"import socket; s = socket.socket(fileno={server.fileno()}); c, _ = s.accept(); c.sendall(b'accepted')"
    other = subprocess.Popen([sys.executable, "-c", script], pass_fds=[server.fileno()])
    address = server.getsockname()
    server.close()
    assert read_all(socket.create_connection(address)) == b"accepted"
    assert other.wait() == 0


def a_process_receives_sockets_in_messages():
    here, there = socket.socketpair()

    def serve():
        mine, theirs = pair()
        _, numbers, _, _ = socket.recv_fds(there, 100, 3)
        stream, listener, datagrams = (socket.socket(fileno=number) for number in numbers)
        assert stream.recv(100) == b"unread"
        stream.sendall(b"from the receiver")
        accepted, _ = listener.accept()
        accepted.sendall(b"accepted")
        assert datagrams.recv(100) == b"datagram"
        mine.sendall(b"x")
        assert theirs.recv(1) == b"x"

    child = fork(serve)
    client, stream = pair()
    client.settimeout(20)
    client.sendall(b"unread")
    assert select.select([stream], [], [], 20)[0]
    listener = socket.create_server((OWN, 0))
    datagrams, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    datagrams.bind((OWN, 0))
    receives = datagrams.getsockname()
    passed = [stream, listener, datagrams]
    socket.send_fds(here, [b"take these"], [one.fileno() for one in passed])
    address = listener.getsockname()
    for one in passed:
        one.close()
    assert client.recv(100) == b"from the receiver"
    assert socket.create_connection(address, 20).recv(100) == b"accepted"
    sender.sendto(b"datagram", receives)
    succeeded(child)
    assert client.recv(1) == b"", "the last holder has ended"
    # A process passes a socket to itself.
    client, stream = pair()
    socket.send_fds(here, [b"x"], [stream.fileno()])
    _, (number,), _, _ = socket.recv_fds(there, 100, 1)
    stream.close()
    os.write(number, b"through another number")
    assert client.recv(100) == b"through another number"
    os.close(number)
    assert client.recv(1) == b""
    # A socket without an address cannot be passed.
    try:
        fresh = socket.socket()
        socket.send_fds(here, [b"x"], [fresh.fileno()])
        raise AssertionError("a socket without an address was passed")
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP


def a_program_without_environment_stays_on_the_guest():
    with socket.create_server((OWN, 0)) as server:
        script = f"import socket; print(socket.create_connection({server.getsockname()!r}).getsockname()[0])"
        for close in (True, False):
            output = subprocess.run([sys.executable, "-c", script], env={}, close_fds=close, capture_output=True)
            assert output.stdout == b"10.0.2.2\n", output
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", "import socket; socket.create_server(('10.0.2.2', 0))"], {})
    succeeded(child)


a_child_serves_the_connection_that_its_parent_accepted()
parent_and_child_use_a_connection_in_turn()
two_processes_wait_for_one_connection()
processes_that_wait_for_one_connection_sleep()
a_closing_child_closes_nothing()
children_accept_at_the_listener_of_their_parent()
children_wait_for_a_listener_with_epoll()
a_child_sends_datagrams_for_its_parent()
a_program_gets_a_connection_as_its_standard_streams()
a_program_gets_a_listener_under_its_number()
a_process_receives_sockets_in_messages()
a_program_without_environment_stays_on_the_guest()
print("all is well")
