"""Listens on a guest, notices that the guest has ended, and listens again on the restarted guest."""

import errno
import socket
import sys
import time


server = socket.create_server(("10.0.2.2", 9))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
print("listens", flush=True)
assert error_of(server.accept) == errno.ENETDOWN, "nobody connects, and the guest has ended"
print("lost", flush=True)
end = time.monotonic() + 30
while time.monotonic() < end:
    try:
        again = socket.create_server(("10.0.2.2", 9))
        break
    except OSError as error:
        assert error.errno == errno.ENETDOWN, error
        time.sleep(0.05)
else:
    sys.exit("the guest did not come back")
print("listens again", flush=True)
for old in (server, client, accepted):
    old.settimeout(20)
for call in ((server.accept,), (client.recv, 1), (accepted.send, b"x")):
    assert error_of(*call) == errno.ENETDOWN, call
for old in (server, client, accepted):
    old.close()
