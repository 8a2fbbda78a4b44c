"""Dialogues of two programs over a connection, whose outcome is that of the kernel's sockets. The second program is a child that carries out
what the first one asks for. Arguments: `kernel` or `tcp` if TCP carries all bytes, `direct` if the connections use memory of both programs. Then
the number of dialogues; without it, all take place.
"""

import array
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time

SIOCOUTQ, FIONREAD = 0x5411, 0x541B
# Places of numbers in `struct tcp_info`.
BYTES_ACKED, BYTES_RECEIVED, DATA_SEGMENTS_SENT = 120, 128, 156
TIME_MAX = 20
carrier = sys.argv[1]


class End:
    """One end of a connection."""

    def __init__(self, stream):
        self.stream = stream
        self.epolls = {}
        stream.settimeout(TIME_MAX)

    def send(self, data, flags=0):
        return self.stream.send(data, flags)

    def sendall(self, data):
        self.stream.sendall(data)

    def recv(self, size, flags=0):
        return self.stream.recv(size, flags)

    def recv_exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.stream.recv(size - len(data))
            assert more, (len(data), size)
            data += more
        return data

    def recv_all(self):
        return b"".join(iter(lambda: self.stream.recv(65536), b""))

    def shutdown(self, how):
        self.stream.shutdown(how)

    def close(self):
        begun = time.monotonic()
        self.stream.close()
        return time.monotonic() - begun

    def set(self, level, name, value):
        self.stream.setsockopt(level, name, value)

    def get(self, level, name, size=0):
        return self.stream.getsockopt(level, name, size) if size else self.stream.getsockopt(level, name)

    def blocking(self, value):
        self.stream.setblocking(value)

    def timeout(self, seconds):
        self.stream.settimeout(seconds)

    def number(self, request):
        count = array.array("i", [-1])
        fcntl.ioctl(self.stream, request, count)
        return count[0]

    def info(self, place, form):
        return struct.unpack_from(form, self.stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 248), place)[0]

    def poll(self, wanted, seconds=0):
        poller = select.poll()
        poller.register(self.stream, wanted)
        found = poller.poll(seconds * 1000)
        return found[0][1] if found else 0

    def epoll(self, name, wanted):
        """Makes a set of epoll that watches this end."""
        self.epolls[name] = select.epoll()
        self.epolls[name].register(self.stream, wanted)

    def events(self, name, seconds=0):
        found = self.epolls[name].poll(seconds)
        return found[0][1] if found else 0

    def fill(self):
        """Sends as much as there is room for. Returns the number of bytes."""
        self.stream.setblocking(False)
        sent = 0
        while True:
            try:
                sent += self.stream.send(content(sent, 65536))
            except BlockingIOError:
                if not self.poll(select.POLLOUT, 0.3):
                    break
        self.stream.settimeout(TIME_MAX)
        return sent

    def recv_filled(self, size):
        """Receives bytes of `fill`. Returns whether they are right."""
        data = b""
        while len(data) < size:
            data += self.stream.recv(size - len(data))
        return data == content(0, size)


def content(at, size):
    begin = at % 251
    return (bytes(range(251)) * (size // 251 + 2))[begin : begin + size]


class Remote:
    """The end of a connection in the other program."""

    def __init__(self, ask):
        self.ask = ask

    def __getattr__(self, name):
        def call(*arguments):
            # The constants of the module have another `repr` than numbers.
            return self.ask(("call", name, [int(one) if isinstance(one, int) else one for one in arguments]))

        return call


def carry_out(request):
    """Carries out what the other program asks for."""
    kind, *rest = request
    if kind == "listen":
        carry_out.listener = socket.create_server(("127.0.0.1", 0))
        return carry_out.listener.getsockname()
    if kind == "accept":
        carry_out.end = End(carry_out.listener.accept()[0])
        return carry_out.listener.close()
    if kind == "connect":
        carry_out.end = End(socket.create_connection(rest[0], TIME_MAX))
        return None
    name, arguments = rest
    return getattr(carry_out.end, name)(*arguments)


def start_other():
    """Starts the other program. Returns the function that asks it, and its process id."""
    (ask_read, ask_write), (answer_read, answer_write) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        requests = os.fdopen(ask_read, "r")
        os.close(ask_write)
        for line in requests:
            try:
                answer = ("value", carry_out(eval(line)))
            except OSError as error:
                answer = ("error", type(error).__name__, error.errno)
            os.write(answer_write, (repr(answer) + "\n").encode())
        os._exit(0)
    answers = os.fdopen(answer_read, "r")

    def ask(request):
        os.write(ask_write, (repr(request) + "\n").encode())
        kind, *rest = eval(answers.readline())
        if kind == "value":
            return rest[0]
        raise OSError(rest[1], rest[0]) if rest[1] else TimeoutError(rest[0])

    return ask, pid


ask, other_pid = start_other()


def sends_by_memory(end, peer):
    before = end.info(DATA_SEGMENTS_SENT, "I")
    end.sendall(b"?")
    assert peer.recv(1) == b"?"
    return end.info(DATA_SEGMENTS_SENT, "I") == before


def pair(turned):
    """Two ends of a connection. The other program has the second one, or the first if `turned` is true. The connection has exchanged bytes,
    and uses memory if it is to."""
    address = ask(("listen",))
    here, there = End(socket.create_connection(address, TIME_MAX)), Remote(ask)
    ask(("accept",))
    end = time.monotonic() + TIME_MAX
    for turn in range(20):
        for one, peer in ((here, there), (there, here)):
            one.sendall(b"x")
            assert peer.recv(1) == b"x"
    while (carrier == "direct") != (sends_by_memory(here, there) and sends_by_memory(there, here)):
        assert carrier == "direct" and time.monotonic() < end, "the connection has the wrong carrier"
        time.sleep(0.001)
    return (there, here) if turned else (here, there)


def until(condition):
    end = time.monotonic() + TIME_MAX
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.001)


def error_of(call, *arguments):
    try:
        call(*arguments)
    except TimeoutError:
        return errno.EAGAIN
    except OSError as error:
        return error.errno
    return 0


def order_and_half_close(one, other):
    for size in (1, 2, 3000, 70_000, 0, 1):
        one.sendall(content(size, size))
        assert other.recv_exactly(size) == content(size, size), size
    one.sendall(b"last")
    one.shutdown(socket.SHUT_WR)
    assert error_of(one.send, b"more") == errno.EPIPE
    assert other.recv_all() == b"last" and other.recv(10) == b""
    # The other direction goes on.
    other.sendall(content(0, 100_000))
    assert one.recv_exactly(100_000) == content(0, 100_000)
    other.sendall(b"bye")
    other.close()
    assert one.recv_all() == b"bye" and one.recv(10) == b""
    one.close()


def a_close_with_unread_bytes_resets(one, other):
    one.sendall(b"answer")
    other.sendall(b"unread")
    until(lambda: one.number(FIONREAD) == 6 and other.number(FIONREAD) == 6)
    one.close()
    until(lambda: other.poll(select.POLLHUP) & select.POLLHUP)
    assert other.recv(100) == b"answer"
    assert error_of(other.recv, 10) == errno.ECONNRESET
    assert error_of(other.send, b"x") in (errno.EPIPE, errno.ECONNRESET)
    other.close()


def bytes_for_a_closed_connection_are_answered_by_a_reset(one, other):
    one.close()
    assert other.recv(10) == b""
    seen = []
    until(lambda: seen.append(error_of(other.send, b"x")) or seen[-1] != 0)
    assert seen[-1] in (errno.EPIPE, errno.ECONNRESET), seen
    other.close()


def lingering_for_no_time_resets(one, other):
    one.set(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.sendall(b"published")
    until(lambda: other.number(FIONREAD) == 9)
    one.close()
    until(lambda: other.poll(select.POLLERR) & select.POLLERR)
    assert other.recv(100) == b"published"
    assert error_of(other.recv, 10) == errno.ECONNRESET
    other.close()


def lingering_ends_when_all_has_arrived(one, other):
    one.set(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10))
    one.sendall(content(0, 50_000))
    assert one.close() < 5
    assert other.recv_all() == content(0, 50_000)
    other.close()


def a_peek_leaves_the_bytes(one, other):
    one.sendall(b"0123456789")
    until(lambda: other.number(FIONREAD) == 10)
    assert other.recv(4, socket.MSG_PEEK) == b"0123"
    assert other.recv(100, socket.MSG_PEEK) == b"0123456789"
    assert other.recv(3) == b"012"
    assert other.recv(100, socket.MSG_PEEK) == b"3456789" and other.number(FIONREAD) == 7
    assert other.recv(7, socket.MSG_WAITALL) == b"3456789"
    other.blocking(False)
    assert error_of(other.recv, 1, socket.MSG_PEEK) == errno.EAGAIN
    other.timeout(TIME_MAX)
    one.shutdown(socket.SHUT_WR)
    assert other.recv(1, socket.MSG_PEEK) == b"" and other.recv(1) == b""
    one.close(), other.close()


def the_low_water_mark_decides_when_bytes_are_readable(one, other):
    other.set(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 10)
    other.epoll("level", select.EPOLLIN)
    one.send(b"12345")
    until(lambda: other.number(FIONREAD) == 5)
    assert other.poll(select.POLLIN, 0.05) == 0 and other.events("level", 0.05) == 0
    one.send(b"67890")
    assert other.poll(select.POLLIN, TIME_MAX) and other.events("level", TIME_MAX)
    assert other.recv(4) == b"1234" and other.events("level", 0.05) == 0
    other.blocking(False)
    assert other.recv(100) == b"567890"
    one.send(b"end")
    one.shutdown(socket.SHUT_WR)
    assert other.events("level", TIME_MAX)
    other.timeout(TIME_MAX)
    assert other.recv_all() == b"end"
    one.close(), other.close()


def a_large_low_water_mark_is_reached(one, other):
    other.set(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 300_000)
    one.blocking(False)
    sent = 0
    end = time.monotonic() + TIME_MAX
    while sent < 300_000:
        if one.poll(select.POLLOUT, 1):
            sent += one.send(content(sent, min(65536, 300_000 - sent)))
        assert time.monotonic() < end, sent
    assert other.poll(select.POLLIN, TIME_MAX) and other.number(FIONREAD) == 300_000
    assert other.recv_filled(300_000)
    one.close(), other.close()


def a_full_buffer_is_writable_again_when_the_peer_has_read(one, other):
    one.epoll("level", select.EPOLLOUT)
    one.epoll("edge", select.EPOLLOUT | select.EPOLLET)
    assert one.events("edge")
    sent = one.fill()
    assert sent > 10_000
    one.timeout(0.05)
    assert error_of(one.send, b"x") == errno.EAGAIN
    one.timeout(TIME_MAX)
    one.events("edge")
    assert one.poll(select.POLLOUT) == 0 and one.events("level") == 0 and one.events("edge") == 0
    assert other.recv(100) == content(0, 100)
    assert one.poll(select.POLLOUT, 0.05) == 0, "there is little room"
    rest = sent - 100
    data = other.recv_exactly(rest)
    assert data == content(100, rest)
    assert one.poll(select.POLLOUT, TIME_MAX) and one.events("level", TIME_MAX) and one.events("edge", TIME_MAX)
    one.sendall(b"end")
    assert other.recv(10) == b"end"
    one.close(), other.close()


def a_small_send_buffer_limits_what_the_peer_has_not_read(one, other):
    one.set(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    assert one.get(socket.SOL_SOCKET, socket.SO_SNDBUF) == 32768
    sent = one.fill()
    # In memory, the bytes lie in the buffer of the sender until the peer has read them.
    assert 0 < sent and (carrier != "direct" or sent <= 32768), sent
    assert other.recv_filled(sent)
    assert one.poll(select.POLLOUT, TIME_MAX)
    one.sendall(b"end")
    assert other.recv(10) == b"end"
    one.close(), other.close()


def numbers_of_unread_and_unacknowledged_bytes(one, other):
    until(lambda: one.number(SIOCOUTQ) == 0)
    acked, received = one.info(BYTES_ACKED, "Q"), other.info(BYTES_RECEIVED, "Q")
    one.sendall(content(0, 5000))
    until(lambda: other.number(FIONREAD) == 5000 and one.number(SIOCOUTQ) == 0)
    assert other.recv_exactly(5000) == content(0, 5000)
    until(lambda: one.info(BYTES_ACKED, "Q") - acked == 5000)
    assert other.info(BYTES_RECEIVED, "Q") - received == 5000
    assert other.number(FIONREAD) == 0
    one.close(), other.close()


def events_of_arrivals_and_ends(one, other):
    wanted = select.EPOLLIN | select.EPOLLRDHUP
    other.epoll("edge", wanted | select.EPOLLET)
    other.epoll("level", wanted)
    other.epoll("once", wanted | select.EPOLLONESHOT)
    assert other.events("edge") == 0 and other.events("level") == 0
    for turn in range(3):
        one.send(b"x")
        assert other.events("edge", TIME_MAX) == select.EPOLLIN, "each arrival is an edge"
        assert other.events("edge", 0.01) == 0, "an edge is reported once"
        assert other.events("level", TIME_MAX) == select.EPOLLIN == other.events("level")
    assert other.events("once", TIME_MAX) == select.EPOLLIN and other.events("once", 0.01) == 0
    assert other.recv(10) == b"xxx" and other.events("level", 0.01) == 0
    one.shutdown(socket.SHUT_WR)
    for name in ("edge", "level"):
        assert other.events(name, TIME_MAX) == wanted
    assert other.poll(select.POLLIN | select.POLLHUP) == select.POLLIN
    other.shutdown(socket.SHUT_WR)
    until(lambda: other.poll(0) == select.POLLHUP)
    one.close(), other.close()


def a_wait_ends_when_the_time_is_over(one, other):
    one.set(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
    one.blocking(True)
    begun = time.monotonic()
    assert error_of(one.recv, 1) == errno.EAGAIN and 0.04 < time.monotonic() - begun < 5
    other.send(b"x")
    assert one.recv(1) == b"x"
    one.set(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50_000))
    one.fill()
    one.blocking(True)
    errors = []
    until(lambda: errors.append(error_of(one.send, bytes(65536))) or errors[-1])
    assert errors[-1] == errno.EAGAIN
    one.close(), other.close()


def no_keepalive_or_user_timeout_ends_a_silent_connection(one, other):
    for end in (one, other):
        end.set(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 1)):
            end.set(socket.IPPROTO_TCP, name, value)
        end.set(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 300)
    one.sendall(b"unread for a while")
    time.sleep(2.5)
    assert other.recv(100) == b"unread for a while"
    other.sendall(b"answer")
    assert one.recv(100) == b"answer"
    one.close(), other.close()


def a_shut_receiver_reads_nothing(one, other):
    one.shutdown(socket.SHUT_RD)
    assert one.recv(10) == b""
    one.sendall(b"goes on")
    assert other.recv(10) == b"goes on"
    other.close(), one.close()


def a_stopped_peer_reads_on_later(one, other):
    if not isinstance(other, Remote):
        return one.close(), other.close()
    os.kill(other_pid, signal.SIGSTOP)
    sent = one.fill()
    os.kill(other_pid, signal.SIGCONT)
    assert other.recv_filled(sent)
    one.sendall(b"end")
    one.close()
    assert other.recv_all() == b"end"
    other.close()


DIALOGUES = (
    order_and_half_close,
    a_close_with_unread_bytes_resets,
    bytes_for_a_closed_connection_are_answered_by_a_reset,
    lingering_for_no_time_resets,
    lingering_ends_when_all_has_arrived,
    a_peek_leaves_the_bytes,
    the_low_water_mark_decides_when_bytes_are_readable,
    a_large_low_water_mark_is_reached,
    a_full_buffer_is_writable_again_when_the_peer_has_read,
    a_small_send_buffer_limits_what_the_peer_has_not_read,
    numbers_of_unread_and_unacknowledged_bytes,
    events_of_arrivals_and_ends,
    a_wait_ends_when_the_time_is_over,
    no_keepalive_or_user_timeout_ends_a_silent_connection,
    a_shut_receiver_reads_nothing,
    a_stopped_peer_reads_on_later,
)
for dialogue in DIALOGUES[: int(sys.argv[2]) if len(sys.argv) > 2 else None]:
    for turned in (False, True):
        try:
            dialogue(*pair(turned))
        except BaseException:
            print(dialogue.__name__, carrier, "turned" if turned else "", file=sys.stderr)
            raise
os.kill(other_pid, signal.SIGKILL)
os.waitpid(other_pid, 0)
print("all is well")
