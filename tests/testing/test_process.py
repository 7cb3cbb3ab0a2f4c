"""Brokers in processes of their own, and tools that a broker in the process of the test does not survive."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import freezegun
import pytest
from confluent_kafka import Producer
from kafka_wire import ErrorCode, ProduceRequest

from krammar.broker import Broker, BrokerError, Cluster, ConfigError
from krammar.faults.errors import FaultError, FaultNotFired
from krammar.proxy.interface import Filter
from krammar.testing import KafkaBroker
from krammar.util.forks import ForkedError
from tests.support.waiting import PATIENCE, until

pytest_plugins = ["pytester"]


@pytest.fixture(scope="module")
def shared() -> Iterator[KafkaBroker]:
    with KafkaBroker.start(topics=["orders"], process=True) as broker:
        yield broker


@pytest.fixture
def broker(shared: KafkaBroker) -> KafkaBroker:
    shared.reset()
    return shared


def produce(broker: KafkaBroker, value: bytes = b"one") -> None:
    producer = Producer(broker.clients.confluent_kafka)
    producer.produce("orders", value)
    assert producer.flush(PATIENCE) == 0


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    return subprocess.check_output(command, text=True, timeout=PATIENCE)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_rules_of_faults(broker: KafkaBroker) -> None:
    first = broker.faults.on(ProduceRequest, topic="orders", versions=range(3, 14))
    first.answer([ErrorCode.NOT_LEADER_OR_FOLLOWER, None])
    second = broker.faults.on("Produce").after(first).delay(1).once()
    other = broker.faults.on("Heartbeat", name="never").drop()
    produce(broker)
    produce(broker, b"two")
    assert first.wait(timeout=PATIENCE) is first
    second.wait(timeout=PATIENCE)
    second.expect(times=1)
    assert (other.fired, other.matched, other.api_keys) == (0, 0, [12])
    assert [rule.name for rule in broker.faults.rules] == [first.name, second.name, "never"]
    event = broker.faults.history[0]
    assert (event.rule.name, event.api) == (first.name, "Produce")
    assert event.request.topic_data[0].name in ("orders", "")
    code = event.response.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(FaultNotFired, match='"never" did not fire'):
        broker.faults.expect()
    with pytest.raises(FaultNotFired, match=r'"never" did not fire 2 times in 0.01 s'):
        other.wait(times=2, timeout=0.01)
    broker.faults.remove(other)
    broker.faults.expect()
    seen = broker.faults.on("Produce", topic="orders").observe()
    produce(broker, b"three")
    assert seen.wait(timeout=PATIENCE).matched == 1
    broker.faults.clear()
    assert broker.faults.rules == ()
    assert broker.faults.history == []


def test_mistakes_in_rules(broker: KafkaBroker) -> None:
    with pytest.raises(FaultError, match='the API "Prodce" does not exist'):
        broker.faults.on("Prodce")
    with pytest.raises(FaultError, match="is a function, and the broker runs in another process"):
        broker.faults.on("Produce").call(lambda request, exchange: None)
    with pytest.raises(TypeError, match="cannot be sent to the process of the broker"):
        broker.faults.on("Produce", client_id=object())
    with pytest.raises(AttributeError, match="has no 'strike'"):
        broker.faults.on("Produce").strike()
    # The connection between the processes still works.
    assert broker.topics == {"orders": 1}


def test_the_clock_and_metrics(broker: KafkaBroker) -> None:
    assert broker.broker.metrics.value("kafka_log_log_logendoffset", topic="orders") == 0
    produce(broker)
    assert broker.broker.metrics.value("kafka_log_log_logendoffset", topic="orders") == 1
    with pytest.raises(LookupError):
        broker.broker.metrics.value("unknown")
    broker.advance_clock(60_000)
    with pytest.raises(ValueError, match="ms is a number of milliseconds"):
        broker.advance_clock(-1)


def test_settings(broker: KafkaBroker) -> None:
    assert broker.config.num_partitions == 1
    with pytest.raises(ConfigError, match=r"num\.partitions: 'x' "):
        KafkaBroker.start(num_partitions="x", process=True)
    with pytest.raises(ConfigError, match="process: '1' is neither True nor False"):
        KafkaBroker.start(process=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="filters: run in the process of the test"):
        KafkaBroker.start(filters=[Filter()], process=True)
    with pytest.raises(AttributeError, match="'logs': a broker in another process has no such"):
        broker.broker.logs  # noqa: B018


def test_broker_start(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path, process=True) as broker:
        assert broker.bootstrap_servers == f"{broker.host}:{broker.port}"
        broker.faults.on("Produce").drop()
        with pytest.raises(BrokerError, match="is in use by another broker"):
            Broker.start(data_dir=tmp_path)
    assert not alive(broker.pid)
    with Broker.start(data_dir=tmp_path, nodes=1):
        pass
    with pytest.raises(ValueError, match="a cluster needs at least one node, not 0"):
        Cluster.start(nodes=0, process=True)
    with pytest.raises(ValueError, match="clock and filters run in this process"):
        Broker.start(clock=lambda: 0, process=True)  # type: ignore[call-overload]


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from krammar.testing import KafkaBroker\n"
        "broker = KafkaBroker.start(process=True)\n"
        "child = os.fork()\n"  # has the parent's sockets
        "if child == 0:\n"
        "    os.execvp('sleep', ['sleep', '1000'])\n"
        "print(broker.broker.pid, child, broker.config.log_dirs[0], flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        pid, child, folder = one.stdout.readline().split()
        assert Path(folder).exists()
        one.kill()
    try:
        until(lambda: not Path(folder).exists())
        until(lambda: not alive(int(pid)))
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_process_that_dies(tmp_path: Path) -> None:
    with KafkaBroker.start(process=True) as broker:
        pid = broker.broker.pid
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(BrokerError, match=f"the process {pid} of the broker has ended"):
            broker.wait_for_records("orders", 1, timeout=PATIENCE)


def test_forks(broker: KafkaBroker) -> None:
    def child() -> None:
        with pytest.raises(ForkedError):
            broker.records("orders")
        broker.close()
        produce(broker)

    process = multiprocessing.get_context("fork").Process(target=child)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert len(broker.records("orders")) == 1


def test_freezegun(broker: KafkaBroker) -> None:
    with freezegun.freeze_time("2024-05-01"):
        produce(broker)
        assert len(broker.wait_for_records("orders", 1)) == 1
        broker.faults.on("Produce").delay(0).once()
        produce(broker)
        broker.faults.expect()


_GEVENT = """
import gevent.monkey
gevent.monkey.patch_all()
from krammar.broker import Broker
from krammar.testing import KafkaBroker
try:
    KafkaBroker.start()
except Exception as error:
    print(f"{type(error).__name__}: {error}")
with KafkaBroker.start(topics=["orders"], process=True) as broker:
    print(broker.topics)
with Broker.start(process=True) as broker:
    print(broker.port > 0)
"""


def test_gevent() -> None:
    error, *rest = run(_GEVENT).splitlines()
    assert error.startswith("BrokerError: gevent.monkey has replaced threads, so the event loop of")
    assert error.endswith(": start the broker with process=True")
    assert rest == ["{'orders': 1}", "True"]


_FILES = """
import pytest
from confluent_kafka import Producer

def send(broker):
    producer = Producer({**broker.clients.confluent_kafka, "message.timeout.ms": 3000, "log_level": 0})
    producer.produce("orders", b"one")
    producer.flush(10)
    assert len(broker.records("orders")) == 1

MARK

def test_broker_first(kafka_broker, fs):
    send(kafka_broker)

def test_fs_first(fs, kafka_broker):
    send(kafka_broker)
"""


def test_pyfakefs(pytester: pytest.Pytester) -> None:
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest")
    pytester.makepyfile(_FILES.replace("MARK", ""))
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*BrokerError: pyfakefs has replaced the files of this process*"])
    pytester.makepyfile(_FILES.replace("MARK", ""))
    pytester.makeini("[pytest]\nkafka_broker_process = true\n")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=2)


def test_the_mark_and_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
import pytest

@pytest.fixture(scope="session")
def kafka_broker_settings():
    return {"process": True}

def test_suite(session_kafka_broker, kafka_faults):
    assert session_kafka_broker.broker.pid
    kafka_faults.on("Produce").drop()
    session_kafka_broker.faults.clear()

@pytest.mark.kafka_broker(process=False)
def test_mark(kafka_broker):
    assert not hasattr(kafka_broker.broker, "pid")
""")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
