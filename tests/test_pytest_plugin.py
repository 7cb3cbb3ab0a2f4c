"""The fixtures and marks of the pytest plugin, each in a test run of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# pytester forgets what a run in this process imports. These are imported once for all runs; hypothesis is
# imported at the end of each run, by its plugin.
import aiokafka  # noqa: F401
import hypothesis  # noqa: F401
import pytest
from confluent_kafka import Producer

from krammar.testing import KafkaBroker
from krammar.util.extras import MODULES
from tests.support.waiting import PATIENCE

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import what brokers import when they are used. cryptography cannot even be imported twice."""
    with KafkaBroker.start(sasl="scram", tls=True) as broker:
        producer = Producer(broker.clients.confluent_kafka)
        broker.faults.on("Produce").delay(0)
        producer.produce("orders", b"one")
        assert producer.flush(PATIENCE) == 0
        broker.faults.expect()
        assert len(broker.records("orders")) == 1


# Plugins that import much, or (unraisableexception) collect the garbage of all that is imported.
_OTHERS = ("cacheprovider", "pytest-lsp", "hypothesispytest", "unraisableexception")
_FEWER = tuple(option for name in _OTHERS for option in ("-p", f"no:{name}"))

# What the tests below share: a producer that waits, in the tests' own words.
_SUPPORT = """
import pytest
from confluent_kafka import Producer

def send(broker, topic, value=b"one", **settings):
    producer = Producer({**broker.clients.confluent_kafka, **settings})
    producer.produce(topic, value)
    assert producer.flush(60) == 0

def values(broker, topic):
    return [record.value for record in broker.records(topic)]
"""


def run(pytester: pytest.Pytester) -> pytest.RunResult:
    return pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "-p", "no:xdist", "--strict-markers"
    )


def run_file(pytester: pytest.Pytester, text: str, conftest: str = "") -> pytest.RunResult:
    if conftest:
        pytester.makeconftest(conftest)
    pytester.makepyfile(_SUPPORT + text)
    return run(pytester)


def process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,  # three processes import all of it
        check=False,
    )


# Settings and marks.


def test_settings(pytester: pytest.Pytester) -> None:
    run_file(
        pytester,
        """
def check(broker):
    assert broker.config.num_partitions == 3
    assert broker.config.auto_create_topics_enable is False

@pytest.mark.kafka_broker(num_partitions=3, auto_create_topics_enable=False)
def test_keywords(kafka_broker):
    check(kafka_broker)

@pytest.mark.kafka_broker({"num.partitions": "3", "auto.create.topics.enable": "false"})
def test_mapping(kafka_broker):
    check(kafka_broker)

@pytest.mark.kafka_broker({"num.partitions": 2}, num_partitions=3, auto_create_topics_enable="false")
def test_both(kafka_broker):
    check(kafka_broker)
""",
    ).assert_outcomes(passed=3)


_WRONG = [
    ("num_partition=3", 'num_partition: unknown setting; did you mean "num.partitions"?'),
    ("{'num.partitons': 3}", 'num.partitons: unknown setting; did you mean "num.partitions"?'),
    ("properties={}", "properties: unknown setting"),
    ("unheard_of=None", "unheard_of: unknown setting"),
    ("num_partitions='x'", "num.partitions: 'x' "),
    ("3", "accepts one mapping of settings"),
    ("{}, {}", "accepts one mapping of settings"),
    ("topic=['orders']", 'topic: unknown keyword; did you mean "topics"?'),
    ("sasl='scramm'", 'did you mean "scram"?'),
    ("topics={'orders': 0}", "topics: orders cannot have 0 partitions"),
    ("users=['bob']", "users: need sasl"),
    ("tls=True", "tls=True needs no_such_module: pip install 'krammar[testing]'"),
]


def test_errors(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULES, "testing", ("no_such_module",))
    tests = [
        f"@pytest.mark.kafka_broker({arguments})\ndef test_{at}(kafka_broker): ...\n"
        for at, (arguments, _) in enumerate(_WRONG)
    ]
    result = run_file(pytester, "\n".join(tests))
    result.assert_outcomes(errors=len(_WRONG))
    assert "During handling of the above exception" not in result.stdout.str()
    lines = [line for line in result.outlines if line.startswith("@pytest.mark.kafka_broker")]
    for line, (_, error) in zip(lines, _WRONG, strict=True):
        assert error in line


def test_logins_and_tls(pytester: pytest.Pytester) -> None:
    run_file(
        pytester,
        """
@pytest.mark.kafka_broker(num_partitions=3, topics={"orders": 4}, sasl="scram", tls=True)
def test_marked(kafka_broker):
    assert kafka_broker.topics == {"orders": 4}
    send(kafka_broker, "orders")
    send(kafka_broker, "made")
    assert kafka_broker.topics == {"orders": 4, "made": 3}
    assert values(kafka_broker, "orders") == [b"one"]
    assert kafka_broker.clients.protocol == "SASL_SSL"
    assert list(kafka_broker.users) == ["alice"]

def test_plain(kafka_broker):
    assert kafka_broker.clients.protocol == "PLAINTEXT"
""",
    ).assert_outcomes(passed=2)


def test_settings_for_all_brokers(pytester: pytest.Pytester) -> None:
    run_file(
        pytester,
        """
def test_all(kafka_broker, module_kafka_broker, session_kafka_broker):
    for broker in (kafka_broker, module_kafka_broker, session_kafka_broker):
        assert broker.config.num_partitions == 5
        assert broker.topics == {"orders": 5}

@pytest.mark.kafka_broker({"num.partitions": 6})
def test_a_mapping_wins(kafka_broker):
    assert kafka_broker.topics == {"orders": 6}

@pytest.mark.kafka_broker(num_partitions=7, topics=["other"])
def test_keywords_win(kafka_broker):
    assert kafka_broker.topics == {"other": 7}
""",
        """
import pytest

@pytest.fixture(scope="session")
def kafka_broker_settings():
    return {"num_partitions": 5, "topics": ["orders"]}
""",
    ).assert_outcomes(passed=3)


def test_wrong_settings_for_all_brokers(pytester: pytest.Pytester) -> None:
    result = run_file(
        pytester,
        "def test_it(session_kafka_broker): ...",
        "import pytest\n@pytest.fixture(scope='session')\n"
        "def kafka_broker_settings(): return {'topic': 'orders'}",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ['the fixture kafka_broker_settings: topic: unknown keyword; did you mean "topics"?']
    )


# Shared brokers.


def test_what_is_shared(pytester: pytest.Pytester) -> None:
    module = _SUPPORT + """
import seen

pytestmark = pytest.mark.kafka_broker(topics=["of_the_module"])

@pytest.mark.parametrize("turn", [0, 1])
def test_shared(turn, kafka_broker, module_kafka_broker, session_kafka_broker):
    seen.functions.add(kafka_broker.port)
    seen.modules.add(module_kafka_broker.port)
    seen.sessions.add(session_kafka_broker.port)
    assert module_kafka_broker.topics == {"of_the_module": 1}
    send(session_kafka_broker, "orders")
    assert len(values(session_kafka_broker, "orders")) == len(seen.functions)

"""
    pytester.makepyfile(
        seen="functions, modules, sessions = set(), set(), set()",
        test_a=module,
        test_b=module,
        test_c="""
import seen

def test_counts():
    # Ports of brokers that were stopped can come again.
    assert len(seen.sessions) == 1
    assert 1 <= len(seen.modules) <= 2
    assert not seen.sessions & (seen.modules | seen.functions)

def test_a_reset(session_kafka_broker):
    assert session_kafka_broker.topics == {"orders": 1}
    session_kafka_broker.reset()
    assert session_kafka_broker.topics == {}
    assert seen.sessions == {session_kafka_broker.port}
""",
    )
    run(pytester).assert_outcomes(passed=6)


def test_new_topics(pytester: pytest.Pytester) -> None:
    run_file(
        pytester,
        """
pytestmark = pytest.mark.kafka_broker(num_partitions=2)

seen = set()

@pytest.mark.parametrize("broker", ["kafka_broker", "module_kafka_broker", "session_kafka_broker"])
@pytest.mark.parametrize("what", ["a/b", "ä ö", "x" * 300])
def test_topic(broker, what, request):
    broker = request.getfixturevalue(broker)
    kafka_topic = request.getfixturevalue("kafka_topic")
    assert kafka_topic.startswith("test_topic_")
    assert request.getfixturevalue("kafka_prefix") == kafka_topic + "-"
    assert kafka_topic not in seen
    seen.add(kafka_topic)

def test_in_the_module(module_kafka_broker, kafka_topic):
    assert module_kafka_broker.topics[kafka_topic] == 2
    send(module_kafka_broker, kafka_topic)
    assert values(module_kafka_broker, kafka_topic) == [b"one"]

def test_in_the_session(kafka_topic, session_kafka_broker):
    assert session_kafka_broker.topics[kafka_topic] == 1

def test_the_narrowest_wins(session_kafka_broker, module_kafka_broker, kafka_broker, kafka_topic):
    assert kafka_broker.topics == {kafka_topic: 2}

def test_only_a_topic(kafka_topic, request):
    assert request.getfixturevalue("kafka_broker").topics == {kafka_topic: 2}
""",
    ).assert_outcomes(passed=13)


def test_clusters(pytester: pytest.Pytester) -> None:
    result = run_file(
        pytester,
        """
pytestmark = pytest.mark.kafka_cluster(nodes=2)

def test_three_scopes(kafka_cluster, module_kafka_cluster, session_kafka_cluster, kafka_topic):
    clusters = (kafka_cluster, module_kafka_cluster, session_kafka_cluster)
    assert [len(each.broker.nodes) for each in clusters] == [2, 2, 3]
    assert [list(each.topics) for each in clusters] == [[kafka_topic], [], []]

@pytest.mark.kafka_cluster(nodes=5, topics=["orders"])
def test_a_node_stops(kafka_cluster, kafka_faults):
    kafka_faults.on("Produce", topic="orders").drop().once()
    kafka_cluster.stop_node(kafka_cluster.leader("orders", 0))
    send(kafka_cluster, "orders")
    assert values(kafka_cluster, "orders") == [b"one"]

def test_in_the_module(module_kafka_cluster, kafka_topic):
    assert kafka_topic in module_kafka_cluster.topics

def test_in_the_session(session_kafka_cluster, kafka_topic):
    assert kafka_topic in session_kafka_cluster.topics

@pytest.mark.kafka_cluster(node=5)
def test_wrong(kafka_cluster): ...

@pytest.mark.kafka_broker(nodes=5)
def test_wrong_too(kafka_broker): ...

@pytest.mark.kafka_cluster(nodes=5)
def test_without_effect(session_kafka_cluster): ...

@pytest.mark.kafka_cluster(nodes=3)
def test_the_mark_of_another_fixture(kafka_broker): ...
""",
    )
    result.assert_outcomes(passed=4, errors=4)
    result.stdout.fnmatch_lines(
        [
            '@pytest.mark.kafka_cluster: node: unknown keyword; did you mean "nodes"[?]',
            "@pytest.mark.kafka_broker: nodes: a broker has one; use KafkaCluster (kafka_cluster)",
            "@pytest.mark.kafka_cluster of a test has no effect on module_kafka_cluster and *",
            "@pytest.mark.kafka_cluster has no effect on the fixture kafka_broker: use the mark *",
        ]
    )


# Faults.


def test_faults(pytester: pytest.Pytester) -> None:
    result = run_file(
        pytester,
        """
from krammar.testing import NotInTime

def test_fires(session_kafka_broker, kafka_faults):
    assert kafka_faults is session_kafka_broker.faults
    kafka_faults.on("Produce").drop("after").once()
    send(session_kafka_broker, "orders")
    assert len(values(session_kafka_broker, "orders")) == 2

def test_the_rules_have_ended(session_kafka_broker):
    assert session_kafka_broker.faults.rules == ()
    assert not session_kafka_broker.faults.history

def test_never_fires(kafka_broker, kafka_faults):
    kafka_faults.on("Produce", topic="other", name="the lost answer").drop("after")
    send(kafka_broker, "orders")

def test_fails_for_another_reason(kafka_broker, kafka_faults):
    kafka_faults.on("Produce", topic="other").drop("after")
    assert values(kafka_broker, "orders") == [b"one"]

def test_a_rule_that_need_not_fire(kafka_faults, kafka_broker):
    rule = kafka_faults.on("Produce").drop("after")
    kafka_faults.remove(rule)
""",
    )
    # A fault that never fired is an error after the test, unless the test has failed.
    result.assert_outcomes(passed=4, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ['E *FaultNotFired: the fault "the lost answer" did not fire at all: it matched 0 times*']
    )


# What failing tests show.


def test_requests_of_failing_tests(pytester: pytest.Pytester) -> None:
    result = run_file(
        pytester,
        """
def test_passes(kafka_broker, session_kafka_broker):
    send(kafka_broker, "passing")
    send(session_kafka_broker, "passing")

@pytest.mark.parametrize("process", [False, True])
def test_fails(process, request):
    kind = "kafka_broker" if not process else "own_process"
    broker = request.getfixturevalue(kind)
    broker.faults.on("Produce", topic="failing").delay(0)
    send(broker, "failing")
    assert values(broker, "failing") == []

@pytest.fixture
def own_process(request):
    request.node.add_marker(pytest.mark.kafka_broker(process=True))
    return request.getfixturevalue("kafka_broker")

def test_a_shared_broker(session_kafka_broker):
    send(session_kafka_broker, "shared")
    assert values(session_kafka_broker, "shared") == []

def test_a_fault_that_never_fires(kafka_cluster, kafka_faults):
    kafka_faults.on("Produce", topic="other").drop("after")
    send(kafka_cluster, "clustered")

@pytest.fixture
def sent(kafka_broker):
    send(kafka_broker, "setup")
    assert values(kafka_broker, "setup") == []

def test_a_setup(sent): ...

def test_skips(kafka_broker):
    send(kafka_broker, "skipping")
    pytest.skip("later")
""",
    )
    result.assert_outcomes(passed=2, failed=3, errors=2, skipped=1)
    text = result.stdout.str()
    titles = [line.strip("- ") for line in result.outlines if line.startswith("---")]
    assert titles == [
        "Captured requests of kafka_cluster teardown",
        "Captured requests of kafka_broker setup",
        "Captured requests of kafka_broker call",
        "Captured requests of kafka_broker call",
        "Captured requests of session_kafka_broker call",
    ]
    for topic in ("passing", "skipping"):
        assert f"{topic}[" not in text
    for topic, times in {"failing": 2, "shared": 1, "clustered": 1, "setup": 1}.items():
        lines = [line for line in result.outlines if " Produce v" in line and topic in line]
        assert len(lines) == times, (topic, text)
        assert all(" ok " in line and " ms " in line and "B of records" in line for line in lines)
    assert text.count("fault 1: delayed the response by 0 ms") == 2


# Other plugins.


def test_each_worker_of_xdist_has_its_own_broker(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_SUPPORT + """
import pathlib

@pytest.mark.parametrize("turn", range(4))
def test_shared(turn, session_kafka_broker, worker_id):
    send(session_kafka_broker, "orders")
    pathlib.Path(f"{worker_id}.{turn}").write_text(session_kafka_broker.bootstrap_servers)
    mine = list(pathlib.Path().glob(f"{worker_id}.*"))
    assert len(values(session_kafka_broker, "orders")) == len(mine)
""")
    options = ("--strict-markers", "-n", "2", "--dist", "each")
    result = process(tmp_path, "-m", "pytest", *_FEWER, *options, "test_it.py")
    assert result.returncode == 0, result.stdout
    addresses = {file.name: file.read_text() for file in tmp_path.glob("gw*")}
    assert len(addresses) == 8 and len(set(addresses.values())) == 2


def test_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function")
    run_file(
        pytester,
        """
import asyncio
from aiokafka import AIOKafkaProducer

async def test_producer(kafka_broker, kafka_topic):
    async def send_later():
        async with AIOKafkaProducer(**kafka_broker.clients.aiokafka, client_id="shop") as producer:
            await producer.send(kafka_topic, b"one")

    task = asyncio.create_task(send_later())
    # The producer needs the event loop while the test waits.
    (record,) = await asyncio.to_thread(kafka_broker.wait_for_records, kafka_topic, 1)
    await task
    assert record.value == b"one"
    assert kafka_broker.produced_by("shop") == [record]
""",
    ).assert_outcomes(passed=1)


# What the plugin costs everybody else.


def test_the_plugin_imports_nothing_but_pytest() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import krammar.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    assert process(Path(), "-c", code).stdout.split() == ["krammar", "krammar.pytest_plugin"]


def test_a_run_without_the_fixtures_imports_nothing_of_krammar(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("""
import sys

def test_nothing():
    loaded = [name for name in sys.modules if name.partition(".")[0] in ("krammar", "kafka_wire")]
    assert sorted(loaded) == ["krammar", "krammar.pytest_plugin"]
""")
    result = process(tmp_path, "-m", "pytest", *_FEWER, "test_it.py")
    assert result.returncode == 0, result.stdout
