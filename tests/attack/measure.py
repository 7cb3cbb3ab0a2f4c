"""Measures what requests cost a broker: turns of its event loop, in processor time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from unittest.mock import patch

from krammar.broker import Broker
from tests.attack.generate import Case
from tests.broker.attacks import PROPERTIES, Attacker, InProcess, fill
from tests.broker.support import RawClient

# The most seconds that a response may take. Some requests wait for other members of a group.
WAIT = 3.0


@dataclass
class Turns:
    """The longest turn in seconds since the last reset."""

    longest: float = 0.0


@contextlib.contextmanager
def timed_broker() -> Iterator[tuple[InProcess, Turns, Broker]]:
    """A broker on asyncio's own loop with data, and the longest turn of that loop: all that was ready at once.

    Processor time does not grow with what else the machine does.
    """
    logging.getLogger("krammar.broker").addHandler(logging.NullHandler())
    turns = Turns()
    run = asyncio.BaseEventLoop._run_once  # type: ignore[attr-defined]

    def timed(loop: asyncio.BaseEventLoop) -> None:
        began = time.thread_time()
        run(loop)
        turns.longest = max(turns.longest, time.thread_time() - began)

    with (
        patch.object(asyncio.BaseEventLoop, "_run_once", timed),
        patch("krammar.broker.broker.new_event_loop", asyncio.new_event_loop),
        Broker.start(properties=PROPERTIES) as broker,
    ):
        ports = {name: port for name, (_, port) in broker.addresses.items()}
        target = InProcess(ports["PLAINTEXT"], ports["SASL_PLAINTEXT"])
        fill(target.port)
        yield target, turns, broker


@dataclass
class Result:
    """What a request has cost. ``sent`` is in bytes, the turn in seconds."""

    case: Case
    sent: int
    turn: float


def run(cases: Iterable[Case]) -> Iterator[Result]:
    """Send each request to one broker, and yield its cost."""
    with timed_broker() as (target, turns, broker):
        for case in cases:
            # The objects of this process and of earlier requests are not the broker's cost.
            gc.collect()
            gc.freeze()
            turns.longest = 0.0
            with Attacker(target.port) as client:
                client.socket.settimeout(WAIT)
                # No answer in time, or a connection that is closed, is an answer too.
                with contextlib.suppress(TimeoutError, ConnectionError):
                    client.send(case.request, case.version)
                    client.receive()
                sent = client.sent
            with RawClient(target.port) as other:
                from kafka_wire import ApiVersionsRequest

                other.call(ApiVersionsRequest(), 0)
            yield Result(case, sent, broker.call(lambda: turns.longest))
