"""Passes bytes between clients and a broker without looking at them: the least that a proxy on this event loop costs.

python -m tests.bench.relay --listen HOST:PORT --upstream HOST:PORT
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import cast

from krammar.proxy.addresses import Address
from krammar.proxy.relay import MEMORY
from krammar.util.event_loop import new_event_loop

_MEMORY = memoryview(bytearray(MEMORY))


class Side(asyncio.BufferedProtocol):
    """One side of a connection; ``peer`` is the other one. Slow receivers delay nobody."""

    peer: Side
    transport: asyncio.Transport | None = None
    socket = -1  # its descriptor
    early = b""  # what has arrived before the broker was reached

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.socket = transport.get_extra_info("socket").fileno()
        self.transport.write(self.peer.early)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _MEMORY

    def buffer_updated(self, nbytes: int) -> None:
        transport = self.peer.transport
        if transport is None:
            self.early += _MEMORY[:nbytes]
            return
        written = 0
        if not transport.is_closing() and not transport.get_write_buffer_size():
            try:
                written = os.write(self.peer.socket, _MEMORY[:nbytes])
            except OSError:  # the transport meets it, too
                written = 0
        if written < nbytes:
            transport.write(bytes(_MEMORY[written:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer.transport is not None:
            self.peer.transport.close()


class Client(Side):
    """The side of the client."""

    def __init__(self, upstream: Address) -> None:
        self.peer = Side()
        self.peer.peer = self
        self._upstream = upstream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(loop.create_connection(lambda: self.peer, *self._upstream))


async def serve(listen: Address, upstream: Address) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Client(upstream), *listen)
    print(f"listening on {Address(*server.sockets[0].getsockname()[:2])}", file=sys.stderr)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.relay", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--listen", type=Address.parse, required=True)
    parser.add_argument("--upstream", type=Address.parse, required=True)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(options.listen, options.upstream))


if __name__ == "__main__":
    main()
