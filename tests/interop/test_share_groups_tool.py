"""kafka-share-groups.sh: the same commands to our broker and to Apache Kafka, with the same output."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.requests import batch, create_topic, produce
from tests.broker.support import RawClient
from tests.interop.apache import java, tool
from tests.interop.conftest import java_program, ours_and_theirs
from tests.interop.processes import Server
from tests.interop.share_cases import ACCEPT, ShareTalk
from tests.support.waiting import until

_SOURCE = Path(__file__).parent / "ShareGroupTool.java"
# The groups, and the partitions of their topics. Kafka distributes several partitions by the topic's id.
_GROUPS = {"busy": 1, "idle": 2}


class Tool:
    """The tool's process for a broker."""

    def __init__(self, program: Path, server: Server) -> None:
        command = java(*("tools", "ShareGroupTool", server.bootstrap), level="off", classes=program)
        self.server = server
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def say(self, *arguments: str) -> str:
        """What the tool prints, without addresses, epochs and traces, its lines in order.

        Kafka initializes the states of a group after its first assignment, so its epochs are higher.
        """
        process = self._process
        assert process.stdin and process.stdout
        print("\t".join(arguments), file=process.stdin, flush=True)
        text: str = json.loads(process.stdout.readline())
        lines = [
            " ".join(line.replace(str(self.server.port), "PORT").split())
            for line in text.splitlines()
            if not re.match(r"\s+(at |\.\.\. )|Caused by", line)
        ]
        said = "\n".join(sorted(filter(None, lines)))
        return re.sub(r"(?<=Stable|.Empty) \d+ \d+|(?<= \d) \d+(?= \w+:)", " EPOCH", said)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def program(kafka_jars: str) -> Path:
    """The folder with the compiled program."""
    return java_program("tools", _SOURCE)


@pytest.fixture(scope="module")
def tools(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Tool]]:
    """Ours and Apache Kafka, each with a group that has two members, and one that has none."""
    folder = tmp_path_factory.mktemp("share-tool")
    settings = {
        "group.share.assignment.interval.ms": "0",
        "group.share.assignor.offload.enable": "false",
        "group.share.session.timeout.ms": "600000",
        "group.share.max.session.timeout.ms": "600000",
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    with ours_and_theirs(folder, settings) as servers, ExitStack() as opened:
        found = []
        for server in servers:
            for name in _GROUPS:
                opened.callback(_talk(server, name).close)
            found.append(Tool(program, server))
            opened.callback(found[-1].close)
        yield found


def _talk(server: Server, name: str) -> ShareTalk:
    """A group that has acknowledged some records of a topic with its name."""
    partitions = range(_GROUPS[name])
    talk = ShareTalk(server.port, name, len(partitions))
    for partition in partitions:
        talk.fill(5, 3, partition=partition)
    members = [talk.member(each).join() for each in ("first", "second")]
    for partition in partitions:
        members[0].fetch(partitions=[partition])
        # The first record is left: Kafka stores later start offsets with the next acknowledgement.
        members[0].ack((1, 1, ACCEPT), (3, 3, ACCEPT), partition=partition)
    if name == "idle":
        for member in members:
            member.leave()
    return talk


_READING = [
    ["--list"],
    ["--list", "--state"],
    ["--list", "--state", "empty"],
    ["--list", "--state", "stable,empty"],
    ["--list", "--state", "dead"],
    *(
        ["--describe", "--group", group, *how, *more]
        for group in (*_GROUPS, "nobody")
        for how in (["--members"], ["--offsets"], ["--state"])
        for more in ([], ["--verbose"])
    ),
    ["--describe", "--all-groups"],
    ["--describe", "--all-groups", "--members", "--verbose"],
]


@pytest.mark.parametrize("arguments", _READING, ids=" ".join)
def test_groups_are_described(tools: list[Tool], arguments: list[str]) -> None:
    ours, theirs = (each.say(*arguments) for each in tools)
    assert ours == theirs
    assert ours or arguments[-1] == "dead"


def _reset(*how: str, group: str = "idle", execute: bool = True) -> list[str]:
    end = "--execute" if execute else "--dry-run"
    return ["--reset-offsets", "--group", group, *how, end]


_CHANGES = [
    _reset("--to-earliest", "--all-topics", execute=False),
    _reset("--to-latest", "--topic", "idle:1", execute=False),
    _reset("--to-latest", "--topic", "idle:0"),
    _reset("--to-earliest", "--topic", "idle"),
    _reset("--to-datetime", "2023-11-14T22:13:20.002", "--all-topics"),
    _reset("--to-latest", "--all-topics"),
    _reset("--to-earliest", "--topic", "busy"),
    _reset("--to-earliest", "--topic", "nothing"),
    _reset("--to-earliest", "--topic", "idle:7"),
    _reset("--to-earliest", "--all-topics", group="busy"),
    _reset("--to-earliest", "--all-topics", group="nobody"),
    _reset("--to-earliest", "--topic", "idle", group="new"),
    ["--delete-offsets", "--group", "idle", "--topic", "idle"],
    ["--delete-offsets", "--group", "idle", "--topic", "idle"],
    ["--delete-offsets", "--group", "idle", "--topic", "nothing"],
    ["--delete-offsets", "--group", "busy", "--topic", "busy"],
    ["--delete-offsets", "--group", "nobody", "--topic", "idle"],
    ["--delete", "--group", "busy"],
    ["--delete", "--group", "nobody"],
    ["--delete", "--group", "idle"],
    ["--delete", "--group", "new"],
]


def test_groups_are_changed(tools: list[Tool]) -> None:
    """After each change, the groups have the same start offsets."""
    different = []
    for arguments in _CHANGES:
        ours, theirs = (
            [each.say(*arguments), each.say("--describe", "--all-groups", "--offsets")]
            for each in tools
        )
        if ours != theirs:
            different.append((arguments, ours, theirs))
    assert not different
    assert [each.say("--list") for each in tools] == ["busy", "busy"]


def test_groups_of_other_kinds_are_refused(tools: list[Tool]) -> None:
    found = []
    for each in tools:
        with RawClient(each.server.port) as client:
            create_topic(client, "plain")
            until(lambda client=client: produce(client, "plain", batch(b"v")).error_code == 0)
        tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", each.server.bootstrap, "--topic", "plain"),
            *("--group", "classic", "--from-beginning", "--max-messages", "1"),
        )
        found.append(
            [
                each.say("--describe", "--group", "classic"),
                each.say(*_reset("--to-earliest", "--topic", "plain", group="classic")),
                each.say("--delete-offsets", "--group", "classic", "--topic", "plain"),
                each.say("--delete", "--group", "classic"),
            ]
        )
    ours, theirs = found
    assert ours == theirs
    assert all(ours)
