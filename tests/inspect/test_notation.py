"""``krammar show``: messages in the notation of Kafka's protocol guide."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.inspect.notation import show


def output(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["show", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_version_of_a_message() -> None:
    assert output("kafka_wire", "ApiVersionsResponse", "2") == (
        "ApiVersions Response (Version: 2) => error_code [api_keys] throttle_time_ms\n"
        "  error_code => INT16\n"
        "  api_keys => api_key min_version max_version\n"
        "    api_key => INT16\n"
        "    min_version => INT16\n"
        "    max_version => INT16\n"
        "  throttle_time_ms => INT32\n"
    )
    assert output("kafka_wire", "FetchResponse", "16").splitlines()[:4] == [
        "Fetch Response (Version: 16) => throttle_time_ms error_code session_id [responses] TAG_BUFFER",
        "  throttle_time_ms => INT32",
        "  error_code => INT16",
        "  session_id => INT32",
    ]


@pytest.mark.parametrize(
    ("name", "version", "title"),
    [
        ("RequestHeader", 2, "Request Header v2 =>"),
        ("ResponseHeader", 0, "Response Header v0 =>"),
        ("OffsetCommitValue", 3, "OffsetCommitValue (Version: 3) => version offset"),
        # One layout for any version.
        ("OffsetCommitKey", 1, "OffsetCommitKey => version group"),
        ("Record", 0, "Record => length attributes"),
    ],
)
def test_titles(name: str, version: int, title: str) -> None:
    (text,) = show("kafka_wire", name, version)
    assert text.startswith(title)


def test_marks_that_the_guide_does_not_have() -> None:
    (text,) = show("kafka_wire", "ConsumerGroupHeartbeatResponse", 0)
    assert " nullable(assignment) TAG_BUFFER\n" in text
    (text,) = show("kafka_wire", "FetchResponse", 17)
    assert " nullable[aborted_transactions] " in text
    assert "\n  <tag 0> [node_endpoints] => node_id host port rack TAG_BUFFER\n" in text
    (text,) = show("kafka_wire", "MetadataRequest", 12)
    assert "\n  allow_auto_topic_creation => BOOLEAN\n" in text


def test_all_versions_of_a_message() -> None:
    text = output("kafka_wire", "HeartbeatRequest")
    assert text.startswith(
        "Heartbeat API (Key: 12, group coordinator)\n\nHeartbeat Request (Version: 0) => group_id"
    )
    assert re.findall(r"\(Version: (\d)\)", text) == ["0", "1", "2", "3", "4"]
    assert "API" not in output("kafka_wire", "HeartbeatResponse")


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("FetchRequest", "Fetch API (Key: 1)"),
        ("AlterPartitionRequest", "AlterPartition API (Key: 56, admin, cluster action)"),
        ("ApiVersionsRequest", "ApiVersions API (Key: 18, response header 0)"),
    ],
)
def test_headings(name: str, heading: str) -> None:
    assert next(iter(show("kafka_wire", name))) == heading


def test_all_messages_of_a_package() -> None:
    text = output("wafka_wire")
    assert re.findall(r"^(\w.*?)(?: =>|$)", text, re.MULTILINE) == [
        "Produce API (Key: 0)",
        "Produce Request (Version: 3)",
        "Produce Response (Version: 3)",
        "Request Header v1",
        "Response Header v0",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_package"], "package 'no_such_package' cannot be imported"),
        (["kafka_wire", "Fetch"], "kafka_wire has no message 'Fetch'"),
        (["kafka_wire", "FetchRequest", "99"], "FetchRequest"),
        (["kafka_wire", "FetchRequest", "x"], "'x' is not a valid integer"),
    ],
)
def test_misuse(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["show", *arguments])
    assert result.exit_code == 2
    assert message in result.output
