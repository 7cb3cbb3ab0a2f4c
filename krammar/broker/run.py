"""What ``krammar broker`` does: start, say where, serve until a signal comes, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable

from krammar import __version__, malloc
from krammar.broker.broker import Broker, new_event_loop
from krammar.broker.config import BrokerConfig


def run(config: BrokerConfig, write: Callable[[str], None], started: float) -> None:
    """Serve until INT or TERM. ``started`` is the ``time.perf_counter()`` of the start that is told of.

    Raises BrokerError and ConfigError where the broker cannot start.
    """
    memory = _Memory()
    _allow_open_files()
    logging.basicConfig(
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
        level=logging.WARNING,
    )
    for warning in config.warnings:
        write(f"warning: {warning}")

    async def serve() -> None:
        broker = Broker(config)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with broker:
            topics = broker.cluster.topics.values()
            partitions = sum(len(topic.partitions) for topic in topics)
            write(
                f"krammar broker {__version__}: node {config.node_id} of cluster "
                f"{broker.cluster.cluster_id}"
            )
            write(
                f"{_number(len(topics), 'topic')} with {_number(partitions, 'partition')} in "
                + ", ".join(map(str, config.log_dirs))
            )
            for listener in config.listeners:
                host, port = broker.addresses[listener.name]
                write(f"{listener.protocol} listening on {host}:{port}")
            write(f"ready after {(time.perf_counter() - started) * 1000:.0f} ms")
            memory.watch(broker)
            await stop.wait()
            write("stopping")
        write("stopped: logs are closed")

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())


class _Memory:
    """Lets glibc keep memory that was freed while there is traffic, and return it to the system after.

    So a frame of 1 MB is read in 50 µs, not 900, and a
    consumer of four partitions costs 0.5 ms for a megabyte, not 1.9.
    """

    def __init__(self) -> None:
        self._seen = self._trimmed = 0
        self._libc = malloc.keep_freed()
        malloc.trim(self._libc)

    def watch(self, broker: Broker) -> None:
        """Trim in the second that follows traffic, and so on."""
        if self._libc is None:
            return
        traffic = broker.traffic
        if traffic - self._seen < _QUIET < traffic - self._trimmed:
            malloc.trim(self._libc)
            self._trimmed = traffic
        self._seen = traffic
        broker.call_later(1.0, self.watch, broker)


# Bytes that are no traffic, in a second.
_QUIET = 1 << 20


def _allow_open_files() -> None:
    """Raise the limit to what the system allows: each partition in use has a file open."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # not a Unix, or not allowed
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
