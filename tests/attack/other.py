"""``python -m tests.attack.other PORT PID FILE``: another client of a server, which sends small requests all the time.

It is a process of its own: beside the attacks in one interpreter, it would wait for them too. It writes to a file how
long it has waited at most, in processor time of the server, and how many responses it has got. Its standard input is
the request.
"""

from __future__ import annotations

import mmap
import socket
import struct
import sys
import time
from pathlib import Path

# The longest wait in seconds, and the number of responses.
STATE = struct.Struct("dQ")
# Seconds between a response and the next request.
PAUSE = 0.002
# The Linux clock of a process's processor time, from clock_getcpuclockid.
_PROCESS_CLOCK = 2


def processor_time(pid: int) -> float:
    """The processor time of a process so far, in seconds."""
    return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)


def read_frame(client: socket.socket) -> int:
    """Read a frame; return its size without the length. Raises ConnectionError at the end of the connection."""
    head = b""
    while len(head) < 4:
        piece = client.recv(4 - len(head))
        if not piece:
            raise ConnectionError("the server has closed the connection")
        head += piece
    (left,) = size = struct.unpack(">i", head)
    while left:
        piece = client.recv(min(left, 1 << 20))
        if not piece:
            raise ConnectionError("the server has closed the connection")
        left -= len(piece)
    return int(size[0])


def main(port: int, pid: int, file: Path) -> None:
    request = sys.stdin.buffer.read()
    with file.open("r+b") as opened:
        shared = mmap.mmap(opened.fileno(), STATE.size)
    with socket.create_connection(("127.0.0.1", port)) as client:
        while True:
            before = processor_time(pid)
            client.sendall(request)
            read_frame(client)
            wait = processor_time(pid) - before
            longest, answered = STATE.unpack(shared[:])
            shared[:] = STATE.pack(max(longest, wait), answered + 1)
            time.sleep(PAUSE)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    except OSError as error:
        sys.exit(str(error) or type(error).__name__)
