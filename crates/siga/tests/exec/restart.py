"""Listens on a guest, notices that the guest has ended, and listens again on the restarted guest."""

import socket
import sys
import time

server = socket.create_server(("10.0.2.2", 9))
print("listens", flush=True)
try:
    server.accept()
    sys.exit("nobody connects")
except OSError:
    print("lost", flush=True)
server.close()
end = time.monotonic() + 30
while time.monotonic() < end:
    try:
        again = socket.create_server(("10.0.2.2", 9))
        print("listens again", flush=True)
        sys.exit(0)
    except OSError:
        time.sleep(0.05)
sys.exit("the guest did not come back")
