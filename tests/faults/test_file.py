"""Rules in a file: what they do, and every diagnostic with its complete text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import kafka_wire
import pytest
import wafka_wire
from kafka_wire import ErrorCode, HeartbeatRequest

from krammar.faults import Faults
from krammar.faults.errors import CODES
from krammar.faults.file import FaultsFileError, read_rules
from krammar.faults.limits import Limits
from tests.faults.support import Talk, exchange


def read(folder: Path, text: str, protocol: object = kafka_wire) -> Faults:
    """Read the rules of a file with a text."""
    faults = Faults(protocol, sees=("principal", "clock"))  # type: ignore[arg-type]
    path = folder / "faults.toml"
    path.write_text(dedent(text))
    read_rules(faults, path)
    return faults


def limits(faults: Faults, number: int) -> Limits:
    return faults.rules[number]._limits


EVERYTHING = """
# All keys.
[[fault]]
name = "first"
api = ["Produce", "Fetch"]
versions = "4-"
client_id = "billing"
principal = ["User:alice", "User:bob"]
connection = 3
node = [1, 2]
topic = 'orders'
partition = [0, 1]
answer = { code = "NOT_LEADER_OR_FOLLOWER", after = true }
times = 3

[[fault]]
api = "Heartbeat"
group = "g"
versions = "1-"
where = '''generation_id == -1'''
once = true
delay_ms = { ms = 5.5, of = "request" }
throttle_ms = 100
trickle = { bytes = 10, every_ms = 1 }

[[fault]]
api = "Metadata"
versions = "1-"
after = "first"
probability = 0.5
seed = 9
every = 2
between = [2020-01-01T00:00:00Z, 2021-01-01T00:00:00Z]
truncate = 3
flip_bits = 2
correlation_id = 1
reorder = { ms = 10 }
[fault.change]
"brokers[*].port" = 1
controller_id = -1

[[fault]]
transactional_id = "t"
nth = 4
between = [1, 2.5]
drop = { when = "middle", at = 10 }
reorder = true

[[fault]]
api = "ApiVersions"
offer = { Produce = "3-7", Fetch = false }
black_hole = true
advance_clock_ms = 1000
expect = 2

[[fault]]
api = "Fetch"
corrupt = "crc"
answer = "OFFSET_OUT_OF_RANGE"
"""


def test_a_file_has_all_that_the_methods_have(tmp_path: Path) -> None:
    faults = Faults(kafka_wire, sees=("principal", "clock"))
    path = tmp_path / "faults.toml"
    path.write_text(EVERYTHING)
    (expected,) = read_rules(faults, path)
    rules = faults.rules
    assert expected.rule is rules[4] and expected.times == 2
    assert [[action.key for action in rule.actions] for rule in rules] == [
        ["answer"],
        ["delay_ms", "throttle_ms", "trickle"],
        ["truncate", "flip_bits", "correlation_id", "reorder", "change", "change"],
        ["drop", "reorder"],
        ["offer", "black_hole", "advance_clock_ms"],
        ["corrupt", "answer"],
    ]
    assert rules[0].name == "first"
    assert limits(faults, 0).times == 3 and limits(faults, 1).times == 1
    third = limits(faults, 2)
    assert third.after is rules[0] and third.probability == 0.5 and third.every == 2
    assert third.between == [datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)]
    assert limits(faults, 3).nth == 4 and limits(faults, 3).between == [1, 2.5]


def test_a_rule_of_a_file_acts(tmp_path: Path) -> None:
    text = """
        [[fault]]
        api = "Heartbeat"
        answer = "REBALANCE_IN_PROGRESS"
    """
    verdict = Talk(read(tmp_path, text)).request(exchange(HeartbeatRequest(), 4))
    assert verdict is not None and verdict.outcome is not None
    assert verdict.outcome.error_code == ErrorCode.REBALANCE_IN_PROGRESS


# (text, the diagnostics without the path)
MISTAKES = {
    "text": (
        '[[fault]]\napi = "Produce\n',
        """
        :2:15: error F101: Illegal character '\\n'
          |
        2 | api = "Produce
          |               ^
        """,
    ),
    "names": (
        """\
        [[fault]]
        api = ["Fetch", "Prodce"]
        drop = "before"
        [[fault]]
        api = "Produce"
        anser = "NONE"
        [[fault]]
        api = "Produce"
        answer = { code = "NOT_LEADER_OR_FOLOWER", at = "x" }
        [[faults]]
        """,
        """
        :2:18: error F201: the API "Prodce" does not exist
          |
        2 | api = ["Fetch", "Prodce"]
          |                  ^^^^^^
          = hint: did you mean "Produce"?

        :6:1: error F201: the key "anser" does not exist
          |
        6 | anser = "NONE"
          | ^^^^^
          = hint: did you mean "answer"?

        :9:20: error F201: ErrorCode: "NOT_LEADER_OR_FOLOWER" does not exist
          |
        9 | answer = { code = "NOT_LEADER_OR_FOLOWER", at = "x" }
          |                    ^^^^^^^^^^^^^^^^^^^^^
          = hint: did you mean "NOT_LEADER_OR_FOLLOWER"?

        :10:1: error F201: the table "faults" does not exist
           |
        10 | [[faults]]
           | ^^^^^^^^^^
           = hint: did you mean "fault"?
        """,
    ),
    "fields": (
        """\
        [[fault]]
        api = "Produce"
        where = ['acks == -1',
                 'topic_data[*].nme == "orders"']
        drop = "before"
        [[fault]]
        api = "Metadata"
        [fault.change]
        "brokers[*].prt" = 5
        "brokers[*].port" = "a"
        """,
        """
        :4:25: error F201: ProduceRequest.TopicProduceData: the field "nme" does not exist
          |
        4 |          'topic_data[*].nme == "orders"']
          |                         ^^^
          = hint: did you mean "name"?

        :9:13: error F201: MetadataResponse.Broker: the field "prt" does not exist
          |
        9 | "brokers[*].prt" = 5
          |             ^^^
          = hint: did you mean "port"?

        :10:22: error F301: "a" does not fit brokers[*].port: needs an integer, not str 'a'
           |
        10 | "brokers[*].port" = "a"
           |                      ^
        """,
    ),
    "values": (
        """\
        [[fault]]
        api = "Fetch"
        times = "3"
        delay_ms = true
        [[fault]]
        api = "Fetch"
        times = 0
        between = [1]
        after = "nobody"
        drop = { wen = "middle" }
        trickle = { bytes = "x", every_ms = 1 }
        reorder = false
        corrupt = "crcc"
        delay_ms = 5
        [[fault]]
        name = "a"
        drop = "before"
        [[fault]]
        name = "a"
        between = [2020-01-01T00:00:00, 2020-01-01T00:00:01]
        drop = "before"
        """,
        """
        :3:9: error F301: times needs a whole number
          |
        3 | times = "3"
          |         ^^^

        :4:12: error F301: delay_ms needs a number or a table
          |
        4 | delay_ms = true
          |            ^^^^

        :7:9: error F301: times must be a whole number from 1, not 0
          |
        7 | times = 0
          |         ^

        :8:11: error F301: between needs two moments, not 1
          |
        8 | between = [1]
          |           ^^^

        :9:10: error F201: an earlier rule called "nobody" does not exist
          |
        9 | after = "nobody"
          |          ^^^^^^

        :10:10: error F201: the key "wen" does not exist
           |
        10 | drop = { wen = "middle" }
           |          ^^^
           = hint: did you mean "when"?

        :11:22: error F301: bytes needs a whole number
           |
        11 | trickle = { bytes = "x", every_ms = 1 }
           |                      ^

        :12:11: error F301: reorder needs true
           |
        12 | reorder = false
           |           ^^^^^
           = hint: or leave it out

        :13:12: error F301: corrupt cannot be "crcc"
           |
        13 | corrupt = "crcc"
           |            ^^^^
           = hint: did you mean "crc"?

        :19:8: error F301: two rules have the name "a"
           |
        19 | name = "a"
           |        ^^^
           = hint: rename one

        :20:11: error F301: 2020-01-01 00:00:00 has no time zone
           |
        20 | between = [2020-01-01T00:00:00, 2020-01-01T00:00:01]
           |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
           = hint: add Z for UTC
        """,
    ),
    "versions": (
        """\
        [[fault]]
        api = "OffsetFetch"
        answer = { code = "NOT_COORDINATOR", at = "error_code" }
        [[fault]]
        api = "Produce"
        throttle_ms = 5
        [[fault]]
        api = "Produce"
        versions = "20-"
        drop = "before"
        [[fault]]
        api = "Heartbeat"
        topic = "orders"
        drop = "before"
        """,
        """
        :3:44: error F401: OffsetFetchResponse v0 has no error code at "error_code"
          |
        3 | answer = { code = "NOT_COORDINATOR", at = "error_code" }
          |                                            ^^^^^^^^^^
          = hint: write versions = "2-7"

        :6:15: error F401: ProduceResponse v0 has no throttle_time_ms
          |
        6 | throttle_ms = 5
          |               ^
          = hint: write versions = "1-13"

        :9:13: error F401: Produce has no version 20 or newer
          |
        9 | versions = "20-"
          |             ^^^
          = hint: it has the versions 0 to 13

        :13:9: error F401: HeartbeatRequest v0 names no topic
           |
        13 | topic = "orders"
           |         ^^^^^^^^
        """,
    ),
    "tables": (
        """\
        [[fault]]
        api = "Produce"
        drop = { at = 3 }
        [[fault]]
        api = "Produce"
        trickle = { bytes = 10 }
        [[fault]]
        api = "ApiVersions"
        offer = { Produce = true }
        [[fault]]
        api = "Produce"
        corrupt = "magic"
        [[fault]]
        api = "Metadata"
        change = { "topics[*].topic_id" = "x" }
        [[fault]]
        api = "Metadata"
        trickle = 10
        [[fault]]
        api = "Metadata"
        answer = { code = 1.5 }
        """,
        """
        :3:8: error F301: drop needs when
          |
        3 | drop = { at = 3 }
          |        ^^^^^^^^^^
          = hint: write drop = { when = … }

        :6:11: error F301: trickle needs every_ms
          |
        6 | trickle = { bytes = 10 }
          |           ^^^^^^^^^^^^^^
          = hint: write trickle = { bytes = 10, every_ms = 5 }

        :9:21: error F301: offer: Produce needs a range of versions, or false
          |
        9 | offer = { Produce = true }
          |                     ^^^^
          = hint: write "3-7", or false

        :12:12: error F301: corrupt cannot be "magic"
           |
        12 | corrupt = "magic"
           |            ^^^^^
           = hint: write crc, count or codec

        :15:36: error F301: "x" is not a uuid
           |
        15 | change = { "topics[*].topic_id" = "x" }
           |                                    ^

        :18:11: error F301: trickle needs a table
           |
        18 | trickle = 10
           |           ^^
           = hint: write trickle = { bytes = 10, every_ms = 5 }

        :21:19: error F301: code needs a whole number or a string or an array
           |
        21 | answer = { code = 1.5 }
           |                   ^^^
        """,
    ),
    "parts": (
        """\
        [[fault]]
        api = "Heartbeat"
        where = "response.error_code == 27"
        drop = "before"
        [[fault]]
        api = "Heartbeat"
        """,
        """
        :4:8: error F501: the rule "fault 1" looks at the response, so it cannot act on the request
          |
        4 | drop = "before"
          |        ^^^^^^^^
          = hint: use an action on the response, or a condition on the request

        :5:1: error F501: the rule does nothing
          |
        5 | [[fault]]
          | ^^^^^^^^^
          = hint: add one of answer, drop, delay_ms, throttle_ms, trickle, bandwidth, black_hole, truncate, \
flip_bits, correlation_id, offer, corrupt, reorder, advance_clock_ms, change, observe
        """,
    ),
    "shape": (
        '\n[fault]\napi = "Heartbeat"\n',
        """
        :2:1: error F101: rules are an array of tables
          |
        2 | [fault]
          | ^^^^^^^
          = hint: write [[fault]]
        """,
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_diagnostics(mistake: str, tmp_path: Path) -> None:
    text, expected = MISTAKES[mistake]
    with pytest.raises(FaultsFileError) as error:
        read(tmp_path, text)
    shown = str(error.value).replace(str(tmp_path / "faults.toml"), "")
    assert shown == dedent(expected).strip("\n")


def test_every_code_has_an_example() -> None:
    assert {code for code in CODES if any(code in out for _, out in MISTAKES.values())} == set(
        CODES
    )


def test_a_file_with_a_mistake_adds_no_rule(tmp_path: Path) -> None:
    faults = Faults(kafka_wire)
    path = tmp_path / "faults.toml"
    path.write_text('[[fault]]\napi = "Fetch"\ndrop = "before"\n[[fault]]\napi = "x"\n')
    with pytest.raises(FaultsFileError):
        read_rules(faults, path)
    assert faults.rules == ()
    path.write_bytes(b'[[fault]]\napi = "\xff"\n')
    with pytest.raises(FaultsFileError, match=":2:1: error F101: the file is not UTF-8"):
        read_rules(faults, path)


@pytest.mark.parametrize("quotes", ['"', "'"])
@pytest.mark.parametrize("more", [0, 1, 2])
def test_texts_that_end_with_quotes(tmp_path: Path, quotes: str, more: int) -> None:
    """TOML's texts of several lines can. An error after them still has its place."""
    text = f"where = [{quotes * 3}acks == 1{quotes * 3}]\nname = {quotes * 3}n{quotes * (3 + more)}"
    with pytest.raises(FaultsFileError, match=r":5:13: error F301: delay_ms needs"):
        read(tmp_path, f'[[fault]]\n{text}\napi = "Produce"\n delay_ms = true\n')


def test_a_text_in_an_array_that_ends_with_a_quote(tmp_path: Path) -> None:
    where = """where = [\"\"\"topic_data[*].name == "orders\"\"\"\"]"""
    faults = read(tmp_path, f'[[fault]]\napi = "Produce"\n{where}\ndrop = "before"\n')
    assert len(faults.rules) == 1


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('fault = [{ api = "Produce", drop = "befor" }]', ":1:37: error F301: drop cannot be"),
        ('[["fa\\u0075lt"]]\napi = "Produce"\ndrop = "befor"', ":1:1: error F301: drop cannot be"),
        (
            '[[fault]]\napi = "Produce"\n[fault.chnge]\nacks = 1',
            ':3:8: error F201: the key "chnge"',
        ),
        (
            '[[fault]]\n# drop = "befor"\n\'drop\' = "befor" # when',
            ":3:11: error F301: drop cannot",
        ),
        (
            '[[fault]]\nanswer.code = "NONEX"\nanswer.at = "x"',
            ':2:16: error F201: ErrorCode: "NONEX"',
        ),
    ],
)
def test_other_forms_of_keys_and_tables(tmp_path: Path, text: str, place: str) -> None:
    """An error has its place in them too, or the first one of the file."""
    with pytest.raises(FaultsFileError, match=re.escape(place)):
        read(tmp_path, text)


def test_names_come_from_the_protocol(tmp_path: Path) -> None:
    text = """
        [[fault]]
        api = "Produce"
        topic = "orders"
        answer = "KAFKA_STORAGE_ERROR"
    """
    faults = read(tmp_path, text, wafka_wire)
    request = wafka_wire.ProduceRequest(
        topic_data=[
            wafka_wire.ProduceRequest.TopicData(
                name="orders",
                partition_data=[wafka_wire.ProduceRequest.PartitionData(index=2)],
            )
        ]
    )
    verdict = Talk(faults).request(exchange(request, 3))
    assert verdict is not None and verdict.outcome is not None
    (partition,) = verdict.outcome.topics[0].partitions
    assert (partition.index, partition.error_code) == (2, 56)
    with pytest.raises(FaultsFileError, match='ErrorCode: "NOT_LEADER_OR_FOLLOWER" does not exist'):
        read(tmp_path, text.replace("KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER"), wafka_wire)
