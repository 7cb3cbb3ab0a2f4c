"""``krammar broker``: start a broker, print its addresses, serve until a signal arrives, shut down."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from krammar import __version__
from krammar.broker.broker import Broker
from krammar.broker.errors import BrokerError
from krammar.util.event_loop import new_event_loop
from krammar.util.logs import TextFormatter
from krammar.util.server_memory import RetainedMemory, prepare_memory
from krammar.util.sockets import why

if TYPE_CHECKING:
    from krammar.util.http_server import HttpControl


def run(
    broker: Broker,
    write: Callable[[str], None],
    started: float,
    formatter: logging.Formatter | None = None,
    control: int | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        broker: the broker, not started
        write: prints a line
        started: the ``time.perf_counter()`` of the process's start, for the "ready after" line
        formatter: the form of log lines; None for plain text
        control: the port for commands over HTTP; None for no commands

    Raises:
        BrokerError, ConfigError: the broker cannot start.
    """
    config = broker.config
    RetainedMemory().trim()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter or TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    for warning in config.warnings:
        write(f"warning: {warning}")

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(broker)
            topics = broker.cluster.topics.values()
            partitions = sum(len(topic.partitions) for topic in topics)
            ids = ", ".join(map(str, broker.nodes))
            write(
                f"krammar broker {__version__}: {'node' if len(broker.nodes) == 1 else 'nodes'} {ids} of "
                f"cluster {broker.cluster.cluster_id}"
            )
            write(
                f"{_number(len(topics), 'topic')} with {_number(partitions, 'partition')} in "
                + ", ".join(map(str, config.log_dirs))
            )
            for node in broker.nodes.values():
                for listener in node.config.listeners:
                    host, port = node.addresses[listener.name]
                    name = f"node {node.config.node_id}: " if len(broker.nodes) > 1 else ""
                    write(f"{name}{listener.protocol} listening on {host}:{port}")
            if config.metrics is not None:
                host, port = broker.metrics_address
                write(f"metrics on http://{f'[{host}]' if ':' in host else host}:{port}/metrics")
            if control is not None:
                write((await _control(broker, control, stack)).line)
            write(f"ready after {(time.perf_counter() - started) * 1000:.0f} ms")
            prepare_memory()
            await stop.wait()
            write("stopping")
        write("stopped: logs are closed")

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())


async def _control(broker: Broker, port: int, stack: AsyncExitStack) -> HttpControl:
    """Accept commands until the end of the stack. Raises BrokerError."""
    from krammar.broker.control import BrokerControl
    from krammar.faults.control import FaultsControl
    from krammar.testing.control import ProbeControl
    from krammar.testing.probe import BrokerProbe
    from krammar.util.http_server import HttpControl

    tests = ProbeControl(BrokerProbe(broker, notes_batches=False))
    http = HttpControl(FaultsControl(broker.faults), BrokerControl(broker), tests)
    try:
        await http.listen(port)
    except OSError as error:
        raise BrokerError(f"cannot listen on 127.0.0.1:{port} for commands: {why(error)}") from None
    stack.push_async_callback(http.close)
    return http


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
