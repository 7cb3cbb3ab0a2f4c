"""Brokers while freezegun or time-machine stops the time of the test."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import freezegun
import pytest
import time_machine
from confluent_kafka import Producer

from krammar.broker.timers import system_ms
from krammar.testing import KafkaBroker, NotInTime
from krammar.util import clock
from krammar.util.event_loop import new_event_loop
from tests.support.waiting import PATIENCE

THEN = "2024-05-01"
Stop = Callable[[], AbstractContextManager[Any]]
TOOLS: dict[str, Stop] = {
    "freezegun": lambda: freezegun.freeze_time(THEN),
    "time-machine": lambda: time_machine.travel(THEN, tick=False),
    "time-machine, ticking": lambda: time_machine.travel(THEN, tick=True),
}


@pytest.fixture(params=TOOLS)
def stop(request: pytest.FixtureRequest) -> Stop:
    return TOOLS[request.param]


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)


def test_the_clocks_are_real(stop: Stop) -> None:
    before, now = clock.monotonic(), clock.time_ns()
    with stop():
        assert time.time() < 1.72e9
        assert 0 <= clock.monotonic() - before < PATIENCE
        assert 0 <= clock.time_ns() - now < PATIENCE * 1e9
        assert abs(system_ms() - now / 1e6) < PATIENCE * 1000


def test_krammar_can_be_imported_while_the_time_is_frozen() -> None:
    program = (
        "import freezegun\n"
        f"with freezegun.freeze_time({THEN!r}):\n"
        "    from krammar.util import clock\n"
        "    print(clock.time_ns(), clock.monotonic())\n"
    )
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    wall, monotonic = output.split()
    assert 0 <= time.time_ns() - int(wall) < PATIENCE * 1e9
    assert 0 <= time.monotonic() - float(monotonic) < PATIENCE


def test_timers_of_the_event_loop_end(stop: Stop, loop: None) -> None:
    with stop():
        running = new_event_loop()
        began = running.time()
        running.call_later(0.01, running.stop)
        running.run_forever()
        assert running.time() > began
        running.close()


def test_a_broker(stop: Stop, loop: None) -> None:
    errors = []
    with KafkaBroker.start(topics=["orders"]) as broker, stop():
        producer = Producer({**broker.clients.confluent_kafka, "linger.ms": 0})
        producer.produce("orders", b"one", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE) == 0
        assert errors == [None]  # not INVALID_TIMESTAMP
        (record,) = broker.wait_for_records("orders", 1)
        assert abs(record.timestamp - clock.time_ns() / 1e6) < PATIENCE * 1000
        with pytest.raises(NotInTime):
            broker.wait_for_records("orders", 2, timeout=0.05)
        rule = broker.faults.on("Produce").delay(20)
        producer.produce("orders", b"two")
        assert producer.flush(PATIENCE) == 0
        rule.expect()
        broker.reset()
