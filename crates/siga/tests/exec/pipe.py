"""Uses a guest that has ended while the program slept. As in most programs of C, SIGPIPE would end the program."""

import errno
import signal
import socket
import sys
import time

signal.signal(signal.SIGPIPE, signal.SIG_DFL)
server = socket.create_server(("10.0.2.2", 9))
print("listens", flush=True)
input()
end = time.monotonic() + 30
while time.monotonic() < end:
    try:
        again = socket.create_server(("10.0.2.2", 10))
        print("listens again", flush=True)
        break
    except OSError as error:
        if error.errno != errno.ENETDOWN:
            raise
        time.sleep(0.05)
else:
    sys.exit("the guest did not come back")
