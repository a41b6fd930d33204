"""The world beyond the machine's link: takes connections there and passes them on to what listens on the machine's own
loopback, where a job that has a network of its own does not reach. Started in the world's namespace:
`forward.py PORT=FILE...`, where each file holds the port to pass on to.
"""

import ctypes
import os
import socket
import sys
import threading
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end, how in ((source, socket.SHUT_RD), (sink, socket.SHUT_WR)):
        try:
            end.shutdown(how)
        except OSError:
            pass


def serve(listener: socket.socket, target: Path) -> None:
    enter_the_machine()
    while True:
        taken = listener.accept()[0]
        try:
            passed = socket.create_connection(("127.0.0.1", int(target.read_text())), 5)
        except (OSError, ValueError):
            taken.close()
            continue
        passed.settimeout(None)
        for ends in ((taken, passed), (passed, taken)):
            threading.Thread(target=pump, args=ends, daemon=True).start()


def enter_the_machine() -> None:
    """A socket stays in the namespace it was made in: those made from now on, by this thread, are the machine's."""
    with open("/proc/1/ns/net") as namespace:
        if LIBC.setns(namespace.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")


if __name__ == "__main__":
    threads = []
    for word in sys.argv[1:]:
        port, _, file = word.partition("=")
        place = socket.create_server(("0.0.0.0", int(port)), backlog=64)
        threads.append(threading.Thread(target=serve, args=(place, Path(file)), daemon=True))
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    os.close(1)
    for thread in threads:
        thread.join()
