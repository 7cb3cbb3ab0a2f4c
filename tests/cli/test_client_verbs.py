"""The verbs topics, produce and consume, with librdkafka on the other side."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tty
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click import ClickException
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_wire import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue

from krammar.broker import Broker
from krammar.cli.connection import errors
from krammar.cli.consume import consume
from krammar.cli.output import print_table
from krammar.cli.produce import produce
from krammar.cli.topics import topics
from krammar.client.errors import UnsupportedError
from tests.client.test_producing import read_by_librdkafka
from tests.support.waiting import PATIENCE

VERBS = {"topics": topics, "produce": produce, "consume": consume}
START = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(properties={"auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with two partitions."""
    name = "t" + str(abs(hash(request.node.name)))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 2)])[name].result()
    return name


def run(
    broker: Broker, verb: str, *arguments: str, code: int = 0, stdin: bytes | None = None
) -> Result:
    given = [*arguments, "-b", broker.bootstrap_servers]
    result = CliRunner().invoke(VERBS[verb], given, input=stdin)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def error_of(broker: Broker, verb: str, *arguments: str, code: int = 1) -> str:
    """The one line of an error."""
    result = run(broker, verb, *arguments, code=code)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    if code == 1:
        assert len(lines) == 1, lines
    return lines[-1].removeprefix("Error: ")


def write(broker: Broker, topic: str, records: list[dict[str, Any]], **settings: Any) -> None:
    """Write with librdkafka; a record's time is START and its number unless it says so."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **settings}
    )
    for i, record in enumerate(records):
        producer.produce(topic, **{"partition": 0, "timestamp": START + i, **record})
    assert producer.flush(PATIENCE) == 0


def numbers(broker: Broker, topic: str, count: int = 10) -> None:
    write(broker, topic, [{"value": b"%d" % i} for i in range(count)])


def sent(broker: Broker, topic: str, count: int) -> list[tuple[Any, ...]]:
    messages = read_by_librdkafka(broker, topic, count)
    return [(m.partition(), m.key(), m.value(), m.headers() or []) for m in messages]


# Topics.


def test_topics_are_created_listed_described_and_deleted(broker: Broker) -> None:
    made = run(broker, "topics", "create", "made", "-p", "3", "--config", "retention.ms=60000")
    assert made.stdout == "made created with 3 partitions\n"
    write(broker, "made", [{"value": b"x", "partition": 1}] * 4)

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert len(admin.list_topics().topics["made"].partitions) == 3

    head, *rows = run(broker, "topics").stdout.splitlines()
    assert head.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL"]
    assert ["made", "3", "1"] in [row.split() for row in rows]
    assert run(broker, "topics", "list").stdout.splitlines() == [head, *rows]
    for arguments in (["--json"], ["list", "--json"], ["--json", "list"]):
        told = json.loads(run(broker, "topics", *arguments).stdout)
        (mine,) = [each for each in told if each["name"] == "made"]
        assert (mine["partitions"], mine["replicas"], mine["internal"]) == (3, 1, False)

    described = run(broker, "topics", "describe", "made").stdout.splitlines()
    assert described[0].startswith("made  id ")
    assert described[1] == "  retention.ms = 60000"
    assert described[2].split() == [
        "PARTITION",
        "LEADER",
        "EPOCH",
        "REPLICAS",
        "ISR",
        "BEGIN",
        "END",
    ]
    assert [row.split()[0] + " " + row.split()[-1] for row in described[3:]] == [
        "0 0",
        "1 4",
        "2 0",
    ]
    told = json.loads(run(broker, "topics", "describe", "made", "--json").stdout)
    assert told["configs"] == {"retention.ms": "60000"}
    assert [(p["begin"], p["end"]) for p in told["partitions"]] == [(0, 0), (0, 4), (0, 0)]

    assert run(broker, "topics", "delete", "made").stdout == "made deleted\n"
    assert (
        "made"
        not in AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics().topics
    )


def test_errors_of_topics_are_one_line(broker: Broker, topic: str) -> None:
    assert "UNKNOWN_TOPIC_OR_PARTITION" in error_of(broker, "topics", "describe", "none")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in error_of(broker, "topics", "delete", "none")
    assert "TOPIC_ALREADY_EXISTS" in error_of(broker, "topics", "create", topic)
    bad = error_of(broker, "topics", "create", "bad", "--config", "no.such=1")
    assert "INVALID_CONFIG" in bad
    assert "KEY=VALUE" in error_of(broker, "topics", "create", "bad", "--config", "x", code=2)


# How to get to the cluster.


def test_settings_of_files_and_options(broker: Broker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"# a comment\nmetadata.broker.list = {broker.bootstrap_servers}\nclient.id=me\n"
    )
    for arguments in (
        ["-F", str(file), "describe", topic],
        ["describe", topic, "--config", str(file)],
        ["describe", topic, "-X", f"bootstrap.servers={broker.bootstrap_servers}"],
        ["-b", broker.bootstrap_servers, "describe", topic],
        # The later and the more specific setting wins.
        ["-b", "localhost:1", "describe", topic, "-b", broker.bootstrap_servers],
    ):
        result = CliRunner().invoke(topics, arguments)
        assert result.exit_code == 0, result.output
    file.write_text("bootstrap.servers=localhost:1\n")
    run(broker, "topics", "describe", topic, "-F", str(file))


def test_bad_settings_are_misuse(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=\\u12\n")
    assert 'did you mean "fetch.min.bytes"' in error_of(
        broker, "topics", "-X", "fetch.min.byte=1", code=2
    )
    assert "KEY=VALUE" in error_of(broker, "topics", "-X", "acks", code=2)
    assert "client.properties" in error_of(broker, "topics", "-F", str(file), code=2)


def test_invalid_setting_in_properties_file(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# of the test\nrequest.timeout.ms=abc\n")
    invalid = "request.timeout.ms: 'abc': needs a whole number"
    arguments = ["-F", str(file), "list"]
    assert error_of(broker, "topics", *arguments, code=2) == f"{file}:2: {invalid}"
    run(broker, "topics", *arguments, "-X", "request.timeout.ms=5000")
    own = invalid.replace("abc", "x")
    assert error_of(broker, "topics", *arguments, "-X", "request.timeout.ms=x", code=2) == own
    no_port = CliRunner().invoke(topics, ["-b", "localhost"])
    assert no_port.exit_code == 2 and "'localhost' is not host:port" in no_port.stderr


def test_an_unreachable_server_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for verb, *arguments in (
            ["topics"],
            ["consume", "t"],
            ["produce", "t", "-X", "max.block.ms=300"],
        ):
            given = [*arguments, "-b", address, "-X", "default.api.timeout.ms=300"]
            result = CliRunner().invoke(VERBS[verb], given, input=b"one\n")
            assert result.exit_code == 1
            assert address in result.stderr
            assert "Traceback" not in result.output


# Producing.


def test_lines_are_records(broker: Broker, topic: str) -> None:
    result = run(broker, "produce", topic, "-p", "1", stdin=b"one\n\nth\xffree\nfour")
    assert result.stderr == f"4 records sent to {topic}\n"
    assert result.stdout == ""
    values = [b"one", b"", b"th\xffree", b"four"]
    assert sent(broker, topic, 4) == [(1, None, value, []) for value in values]


def test_keys_headers_nulls_and_delimiters(broker: Broker, topic: str) -> None:
    options = ["-p", "0", "-z", "zstd", "-H", "a=1", "-H", "b", "-H", "c=x=y"]
    run(broker, "produce", topic, *options, "-k", "key", "-D", "\\x00;", stdin=b"one\0;two\0;\0;")
    run(broker, "produce", topic, "-p", "0", "-K", "::", "-Z", stdin=b"k::v::w\nk::\n::v\nv\n\n")
    headers = [("a", b"1"), ("b", None), ("c", b"x=y")]
    assert sent(broker, topic, 8) == [
        (0, b"key", b"one", headers),
        (0, b"key", b"two", headers),
        (0, b"key", b"", headers),
        (0, b"k", b"v::w", []),
        (0, b"k", None, []),
        (0, None, b"v", []),
        (0, None, b"v", []),
        (0, None, None, []),
    ]


def test_files_are_records_or_have_lines(broker: Broker, topic: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"a\nb\n")
    second.write_bytes(b"c")
    run(broker, "produce", topic, "-p", "0", str(first), str(second))
    run(broker, "produce", topic, "-p", "0", "-l", str(first), str(second))
    values = [value for _, _, value, _ in sent(broker, topic, 5)]
    assert values == [b"a\nb\n", b"c", b"a", b"b", b"c"]


@pytest.mark.parametrize("more", [["-X", "acks=1"], ["-X", "acks=0"], ["-X", "transactional.id=x"]])
def test_other_ways_to_send(broker: Broker, topic: str, more: list[str]) -> None:
    data = b"".join(b"%d\n" % i for i in range(3000))
    result = run(broker, "produce", topic, "-p", "0", *more, stdin=data)
    assert result.stderr == f"3000 records sent to {topic}\n"
    assert [int(value) for _, _, value, _ in sent(broker, topic, 3000)] == [*range(3000)]


def test_records_that_are_not_sent_are_listed(broker: Broker, topic: str) -> None:
    data = b"one\n" + b"x" * 3000 + b"\nthree\n"
    small = ["-p", "0", "-X", "max.request.size=2000", "-X", "batch.size=500"]
    result = run(broker, "produce", topic, *small, stdin=data, code=1)
    failed, counted = result.stderr.splitlines()
    assert failed.startswith("not sent: line 2: ") and "MESSAGE_TOO_LARGE" in failed
    assert counted == f"2 records sent to {topic}, 1 not sent"
    assert [value for _, _, value, _ in sent(broker, topic, 2)] == [b"one", b"three"]

    aborted = [*small, "-X", "transactional.id=aborted"]
    result = run(broker, "produce", topic, *aborted, stdin=data, code=1)
    assert "the transaction was aborted" in result.stderr
    run(broker, "produce", topic, "-p", "0", stdin=b"last")
    values = [value for _, _, value, _ in sent(broker, topic, 3)]
    assert values == [b"one", b"three", b"last"]


def test_many_failures_are_counted(broker: Broker, topic: str) -> None:
    data = b"".join(b"x" * 3000 + b"\n" for _ in range(25))
    result = run(broker, "produce", topic, "-X", "max.request.size=2000", stdin=data, code=1)
    lines = result.stderr.splitlines()
    assert [line.split(": ")[1] for line in lines[:10]] == [f"line {i}" for i in range(1, 11)]
    assert lines[10:] == ["not sent: 15 more", f"0 records sent to {topic}, 25 not sent"]


def test_an_error_of_all_records_stops_produce(broker: Broker) -> None:
    result = run(broker, "produce", "none", "-X", "max.block.ms=200", stdin=b"a\nb\nc\n", code=1)
    failed, counted = result.stderr.splitlines()
    assert failed.startswith("not sent: line 1: ")
    assert counted == "0 records sent to none, 1 not sent; the rest of the input was not read"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-k", "a", "-K", "b"],
        ["-l"],
        ["-D", ""],
        ["-D", "\\q"],
        ["-D", "\\x1"],
        ["-H", "=x"],
        ["-z", "rar"],
        ["-p", "-1"],
        ["no such file"],
        ["-X", "enable.idempotence=true", "-X", "acks=1"],
    ],
)
def test_misuse_of_produce(broker: Broker, arguments: list[str]) -> None:
    run(broker, "produce", "t", *arguments, code=2)


# Consuming.


def test_values_and_delimiters(broker: Broker, topic: str) -> None:
    records: list[dict[str, Any]] = [
        {"key": b"k", "value": b"v\xff"},
        {"key": None, "value": b""},
        {"key": b"", "value": None},
    ]
    write(broker, topic, records, **{"compression.type": "lz4"})
    for arguments, expected in (
        ([], b"v\xff\n\n\n"),
        (["-D", "\\0"], b"v\xff\0\0\0"),
        (["-D", ""], b"v\xff"),
        (["-K", "="], b"k=v\xff\n=\n=\n"),
        (["-K", "=", "-Z"], b"k=v\xff\nNULL=\n=NULL\n"),
        (["-f", "%K %S;"], b"1 2;-1 0;0 -1;"),
    ):
        assert run(broker, "consume", topic, "-e", *arguments).stdout_bytes == expected


def test_formats(broker: Broker, topic: str) -> None:
    headers = [("a", b"1"), ("n", None)]
    write(broker, topic, [{"key": b"k", "value": b"v", "headers": headers, "partition": 1}])
    format_ = "%t\\t%p %o %T [%h] %k=%s %K %S 100%% \\x21\\n"
    result = run(broker, "consume", topic, "-e", "-f", format_)
    assert result.stdout == f"{topic}\t1 0 {START} [a=1,n=NULL] k=v 1 1 100% !\n"


def test_json_lines(broker: Broker, topic: str) -> None:
    headers = [("a", b"1"), ("n", None), ("b", b"\xff")]
    write(
        broker,
        topic,
        [{"key": "ключ".encode(), "value": b"v\xff", "headers": headers}, {"value": None}],
    )
    lines = run(broker, "consume", topic, "-e", "-J").stdout.splitlines()
    common = {"topic": topic, "partition": 0}
    assert [json.loads(line) for line in lines] == [
        {
            **common,
            "offset": 0,
            "ts": START,
            "headers": ["a", "1", "n", None, "b", {"base64": "/w=="}],
            "key": "ключ",
            "payload": {"base64": "dv8="},
        },
        {**common, "offset": 1, "ts": START + 1, "headers": [], "key": None, "payload": None},
    ]


HOSTILE = "red \x1b[31m, back \u202e, C1 \x9b, del \x7f, cr \r, tab \t, lines\nä".encode() + b"\xff"


def on_terminal(broker: Broker, *arguments: str) -> bytes:
    """What ``krammar consume`` writes to a terminal."""
    main, terminal = os.openpty()
    tty.setraw(terminal)  # which does not translate line feeds
    command = [sys.executable, "-c", "from krammar.cli.consume import consume; consume()"]
    with subprocess.Popen(
        [*command, *arguments, "-b", broker.bootstrap_servers], stdout=terminal
    ) as process:
        os.close(terminal)
        written = b""
        with suppress(OSError), os.fdopen(main, "rb", buffering=0) as stream:  # EIO is its end
            while part := stream.read(4096):
                written += part
    assert process.returncode == 0
    return written


@pytest.mark.parametrize(
    ("form", "raw", "shown"),
    [
        (["-f", "\\x1b[1m%k=%s;%h\\n"], b"\x1b[1m%s=%s;\x1b=%s\n", b"\x1b[1m%s=%s;\\x1b=%s\n"),
        (["-K", "\\x07", "-D", "\\r"], b"%s\x07%s\r", b"%s\x07%s\r"),
    ],
)
def test_control_characters_on_a_terminal(
    broker: Broker, topic: str, form: list[str], raw: bytes, shown: bytes
) -> None:
    write(broker, topic, [{"key": HOSTILE, "value": HOSTILE, "headers": [("\x1b", HOSTILE)]}])
    escaped = (
        r"red \x1b[31m, back \u202e, C1 \x9b, del \x7f, cr \r, tab " + "\t, lines\nä" + r"\xff"
    ).encode()
    times = raw.count(b"%s")
    piped = run(broker, "consume", topic, "-e", *form).stdout_bytes
    assert piped == raw % ((HOSTILE,) * times)
    assert on_terminal(broker, topic, "-e", *form) == shown % ((escaped,) * times)


def test_control_characters_of_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    """In tables and errors: no name or setting needs them."""
    print_table(("TOPIC",), [("a\x1b[31m\u202e",)])
    assert capsys.readouterr().out.splitlines()[1] == r"a\x1b[31m\u202e"
    with pytest.raises(ClickException) as caught, errors():
        raise UnsupportedError("a\x1b[31m\u202e")
    assert caught.value.message == r"a\x1b[31m\u202e"


def test_control_characters_of_json_on_a_terminal(broker: Broker, topic: str) -> None:
    text = HOSTILE[:-1].decode()
    write(broker, topic, [{"key": HOSTILE[:-1], "value": HOSTILE, "headers": [(text, None)]}])
    written = on_terminal(broker, topic, "-e", "-J")
    assert written.endswith(b"\n") and written[:-1].decode().isprintable()
    assert json.loads(written) == json_lines(run(broker, "consume", topic, "-e", "-J"))[0]
    assert json.loads(written)["key"] == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-e"], range(10)),
        (["-e", "-o", "beginning"], range(10)),
        (["-e", "-o", "end"], []),
        (["-e", "-o", "7"], range(7, 10)),
        (["-e", "-o", "10"], []),
        (["-e", "-o", "-3"], range(7, 10)),
        (["-e", "-o", "-300"], range(10)),
        (["-e", "-o", f"s@{START + 4}"], range(4, 10)),
        (["-e", "-o", f"s@{START + 40}"], []),
        (["-o", f"e@{START + 4}"], range(4)),
        (["-o", f"e@{START + 40}"], range(10)),
        (["-o", f"s@{START + 2}", "-o", f"e@{START + 4}"], range(2, 4)),
        (["-o", "-1", "-o", f"e@{START + 4}"], []),
        (["-c", "3"], range(3)),
        (["-o", "2", "-c", "3"], range(2, 5)),
    ],
)
def test_parts_of_a_partition(
    broker: Broker, topic: str, arguments: list[str], expected: list[int]
) -> None:
    numbers(broker, topic)
    result = run(broker, "consume", topic, "-p", "0", *arguments)
    assert [int(line) for line in result.stdout.split()] == [*expected]


def test_some_partitions(broker: Broker, topic: str) -> None:
    write(broker, topic, [{"value": b"%d" % i, "partition": i % 2} for i in range(6)])
    assert run(broker, "consume", topic, "-e", "-p", "1").stdout.split() == ["1", "3", "5"]
    both = run(broker, "consume", topic, "-e", "-p", "1", "-p", "0").stdout.split()
    assert sorted(both) == ["0", "1", "2", "3", "4", "5"]
    last = run(broker, "consume", topic, "-e", "-o", "-1").stdout.split()
    assert sorted(last) == ["4", "5"]


def test_isolation(broker: Broker, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions()
    for value, finish in (
        ("no", producer.abort_transaction),
        ("yes", producer.commit_transaction),
        ("open", producer.flush),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        finish()
    committed = run(broker, "consume", topic, "-e", "--isolation", "read_committed")
    assert committed.stdout.split() == ["yes"]
    every = run(broker, "consume", topic, "-e")
    assert every.stdout.split() == ["no", "yes", "open"]
    by_setting = run(broker, "consume", topic, "-e", "-X", "isolation.level=read_committed")
    assert by_setting.stdout.split() == ["yes"]
    producer.abort_transaction()


def test_errors_of_consume_are_one_line(broker: Broker, topic: str) -> None:
    numbers(broker, topic)
    assert error_of(broker, "consume", "none", "-e") == (
        f"topic 'none' does not exist on {broker.bootstrap_servers} "
        "(create it with `krammar topics create none`)"
    )
    count = len(broker.cluster.topics[topic].partitions)
    assert error_of(broker, "consume", topic, "-e", "-p", "7") == (
        f"partition 7 of topic {topic!r} does not exist: the topic has the partitions 0 to {count - 1}"
    )
    for more in ([], ["-e"]):
        out_of_range = error_of(broker, "consume", topic, "-p", "0", "-o", "11", *more)
        assert "11" in out_of_range and "0 to 10" in out_of_range


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "middle"],
        ["-o", "s@"],
        ["-o", "x@1"],
        ["-o", "--1"],
        ["-o", "s@-1"],
        ["-o", "@1"],
        ["-o", "1", "-o", "2"],
        ["-o", "e@1", "-o", "e@2"],
        ["-o", str(2**63)],
        ["-c", "0"],
        ["-p", "x"],
        ["-f", "%q"],
        ["-f", "100%"],
        ["-f", "\\y"],
        ["-J", "-f", "%s"],
        ["-J", "-Z"],
        ["-f", "%s", "-D", ";"],
        ["--isolation", "none"],
        ["--decode", "NoSuchMessage"],
        ["--decode", "ErrorCode"],
        ["--decode", "no.such.Message"],
        ["--decode", "OffsetCommitValue:x"],
        ["--decode", "OffsetCommitValue:99"],
        ["--decode", "MetadataRequest"],
        ["--decode", "auto"],
        ["--no-such-option"],
    ],
)
def test_misuse_of_consume(broker: Broker, arguments: list[str]) -> None:
    run(broker, "consume", "t", *arguments, code=2)


# Decoding.


def json_lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_committed_offsets(broker: Broker, topic: str) -> None:
    """The records of a real group: offsets and the group itself, which differ by their keys."""
    numbers(broker, topic)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    for message in consumer.consume(10, 60):
        consumer.commit(message, asynchronous=False)
    consumer.close()

    asked = ["__consumer_offsets", "-e", "-J", "--decode"]
    offsets = run(broker, "consume", *asked, "OffsetCommitValue")
    seen = [
        each["payload"]["offset"]
        for each in json_lines(offsets)
        if (each["key"]["group"], each["key"]["partition"]) == (topic, 0)
    ]
    assert seen == [*range(1, 11)]
    assert "of other kinds" in offsets.stderr

    groups = json_lines(run(broker, "consume", *asked, "GroupMetadataValue"))
    states = [each["payload"] for each in groups if each["key"]["group"] == topic]
    assert "consumer" in {state["protocol_type"] for state in states}

    everything = json_lines(run(broker, "consume", *asked, "auto"))
    assert len(everything) > len(groups)
    assert [e for e in everything if "protocol_type" in (e["payload"] or {})] == [
        g for g in groups if g["payload"]
    ]


def test_transactions_are_decoded(broker: Broker, topic: str) -> None:
    run(broker, "produce", topic, "-X", f"transactional.id={topic}", stdin=b"x\n")
    result = run(
        broker, "consume", "__transaction_state", "-e", "-f", "%k %s\\n", "--decode", "auto"
    )
    mine = [line for line in result.stdout.splitlines() if f'"{topic}"' in line]
    assert mine and all('"producer_id": ' in line for line in mine)


def test_records_that_cannot_be_decoded_are_printed(broker: Broker, topic: str) -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3).encode()
    value = OffsetCommitValue(version=3, offset=7, metadata="m")
    other = GroupMetadataKey(group="g").encode()
    write(
        broker,
        topic,
        [
            {"key": key, "value": value.encode()},
            {"key": key, "value": None},
            {"key": other, "value": b"whatever"},
            {"key": key, "value": value.encode()[:-3]},
            {"key": b"\0", "value": value.encode()},
            {"key": key, "value": b"\x00\x63"},
        ],
    )
    decoded = ["-e", "--decode", "OffsetCommitValue"]
    result = run(broker, "consume", topic, *decoded, "-J", code=1)
    assert result.stderr.splitlines() == [
        "skipped 1 record of other kinds",
        "3 records could not be decoded",
    ]
    first, null, cut, no_kind, version = json_lines(result)
    assert first["payload"] == value.to_dict()
    assert first["key"] == {"version": 1, "group": "g", "topic": "t", "partition": 3}
    assert null["payload"] is None
    assert "OffsetCommitValue" in cut["payload"]["error"] and "base64" in cut["payload"]
    assert "too short" in no_kind["key"]["error"] and no_kind["payload"]["offset"] == 7
    assert "99" in version["payload"]["error"]

    lines = run(broker, "consume", topic, *decoded, "-Z", code=1).stdout.splitlines()
    assert json.loads(lines[0])["offset"] == 7
    assert lines[1] == "NULL"
    assert lines[2].startswith("<cannot be decoded: OffsetCommitValue") and "0x0003" in lines[2]


def test_a_class_of_a_given_version(broker: Broker, topic: str) -> None:
    from kafka_wire import MetadataRequest

    request = MetadataRequest(allow_auto_topic_creation=False)
    write(broker, topic, [{"key": b"k", "value": request.encode(12)}])
    for name in ("MetadataRequest:12", "kafka_wire.metadata.MetadataRequest:12"):
        (line,) = json_lines(run(broker, "consume", topic, "-e", "-J", "--decode", name))
        assert line["key"] == "k"
        assert line["payload"] == request.to_dict()


# Ends from outside.


def start(
    broker: Broker | str, verb: str, *arguments: str, before: str = ""
) -> subprocess.Popen[bytes]:
    code = f"{before}from krammar.cli.{verb} import {verb}; {verb}()"
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "-b", servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize(("more", "code"), [([], 0), (["-c", "2"], 130)])
def test_ctrl_c_ends_consume(broker: Broker, topic: str, more: list[str], code: int) -> None:
    numbers(broker, topic, 1)
    with start(broker, "consume", topic, *more) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == (b"", b"")
        assert process.returncode == code


@pytest.mark.parametrize("verb", [["topics"], ["consume", "t"], ["produce", "t"]], ids=" ".join)
def test_ctrl_c_while_nobody_answers(verb: list[str]) -> None:
    mute = socket.create_server(("127.0.0.1", 0))
    with mute, start(f"127.0.0.1:{mute.getsockname()[1]}", *verb) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        connection, _ = mute.accept()
        with connection:
            assert connection.recv(1)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130


@pytest.mark.parametrize("verb", [["topics"], ["consume", "t"], ["produce", "t"]], ids=" ".join)
def test_nobody_listens(verb: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"127.0.0.1:{listener.getsockname()[1]}"
    result = CliRunner().invoke(VERBS[verb[0]], [*verb[1:], "-b", server], input=b"one\n")
    assert result.exit_code == 1
    assert f"no server can be reached: {server} (Connection refused) (check" in result.stderr


def test_a_broken_pipe_ends_consume(broker: Broker, topic: str) -> None:
    numbers(broker, topic, 1)
    with start(broker, "consume", topic) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        numbers(broker, topic, 1)
        process.wait(PATIENCE)
        assert process.stderr.read() == b""


def test_lines_are_sent_while_input_is_waited_for(broker: Broker, topic: str) -> None:
    """Ctrl-C ends produce after the records that were sent."""
    with start(broker, "produce", topic) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert [value for _, _, value, _ in sent(broker, topic, 1)] == [b"one"]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        assert process.stderr.read() == f"1 record sent to {topic}\n".encode()


def test_ctrl_c_while_a_named_pipe_is_waited_for(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with start(broker, "produce", topic, str(pipe)) as process:
        with pipe.open("wb"):  # as soon as it is read from
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        assert process.stderr.read() == f"0 records sent to {topic}\n".encode()


def test_produce_where_ctrl_c_is_ignored(broker: Broker, topic: str) -> None:
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    with start(broker, "produce", topic, "-p", "0", before=ignore) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert len(sent(broker, topic, 1)) == 1
        process.send_signal(signal.SIGINT)
        output = process.communicate(b"two\n", timeout=PATIENCE)
        assert output == (b"", f"2 records sent to {topic}\n".encode())
        assert process.returncode == 0


# Runs produce again and again, each time with Ctrl-C some calls of the client's functions later, until it ends
# before that. Generators are left out: Python ignores exceptions while it disposes of one.
_STRIKES = """
import inspect, io, json, os, signal, sys
from contextlib import redirect_stderr
import krammar.client, krammar.client.produce
from krammar.cli.produce import produce

client = os.path.dirname(krammar.client.__file__)
file, times, step, *arguments = sys.argv[1:]

def run(number):
    left = number * int(step) + 1

    def profile(frame, event, _):
        nonlocal left
        code = frame.f_code
        is_plain = not code.co_flags & inspect.CO_GENERATOR
        if event == "call" and is_plain and code.co_filename.startswith(client):
            left -= 1
            if not left:
                sys.setprofile(None)
                for _ in range(int(times)):
                    os.kill(os.getpid(), signal.SIGINT)

    with open(file, "w") as lines:
        lines.writelines(f"{number} {line}\\n" for line in range(3))
    with redirect_stderr(io.StringIO()) as said:
        sys.setprofile(profile)
        try:
            produce(["-l", *arguments, file])
        except SystemExit as end:
            code = end.code
        finally:
            sys.setprofile(None)
    print(json.dumps([code, said.getvalue()]))
    return left <= 0

number = 0
while run(number):
    number += 1
"""


def strikes(
    broker: Broker, topic: str, times: int, step: int, folder: Path, *more: str
) -> tuple[list[tuple[int, str]], Counter[int]]:
    """Return the output of each run, and the number of its records."""
    given = [str(folder / "lines"), str(times), str(step), topic, "-p", "0", *more]
    done = subprocess.run(
        [sys.executable, "-c", _STRIKES, *given, "-b", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
        check=True,
    )
    runs = [(code, text) for code, text in map(json.loads, done.stdout.splitlines())]
    committed = run(broker, "consume", topic, "-e", "--isolation", "read_committed").stdout
    return runs, Counter(int(line.split()[0]) for line in committed.splitlines())


def test_reports_are_true_wherever_ctrl_c_comes(broker: Broker, topic: str, tmp_path: Path) -> None:
    runs, found = strikes(broker, topic, 1, 5, tmp_path)
    assert runs.pop() == (0, f"3 records sent to {topic}\n")
    none, unsent = f"0 records sent to {topic}\n", f"0 records sent to {topic}, 1 not sent\n"
    told = {0: (none, unsent), 3: (f"3 records sent to {topic}\n",)}
    assert {found[number] for number in range(len(runs))} == {0, 3}
    for number, (code, text) in enumerate(runs):
        assert code == 130
        if text or found[number]:  # it may not have begun
            assert text in told[found[number]]


def test_ctrl_c_anywhere_in_a_transaction(broker: Broker, topic: str, tmp_path: Path) -> None:
    runs, found = strikes(broker, topic, 1, 11, tmp_path, "-X", f"transactional.id={topic}")
    sent_all = f"3 records sent to {topic}"
    assert runs.pop() == (0, f"{sent_all}\n")
    aborted = f"{sent_all}; the transaction was aborted: consumers with isolation.level=read_committed will not see them\n"
    assert {text for _, text in runs} >= {"", aborted, f"{sent_all}\n"}
    for number, (code, text) in enumerate(runs):
        assert code == 130
        assert found[number] == (3 if text == f"{sent_all}\n" else 0), text


def test_a_second_ctrl_c_ends_produce_at_once(broker: Broker, topic: str, tmp_path: Path) -> None:
    runs, found = strikes(broker, topic, 2, 7, tmp_path)
    assert runs.pop() == (0, f"3 records sent to {topic}\n")
    form = re.compile(
        rf"(\d) records? sent to {topic}(?:, 1 not sent|; (\d) may or may not have been sent)?\n"
    )
    for number, (code, text) in enumerate(runs):
        assert code == 130
        if text or found[number]:
            told = form.fullmatch(text)
            assert told is not None, text
            assert int(told[1]) <= found[number] <= int(told[1]) + int(told[2] or 0)
    assert f"0 records sent to {topic}; 3 may or may not have been sent\n" in {
        text for _, text in runs
    }
