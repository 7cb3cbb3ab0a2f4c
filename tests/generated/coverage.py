"""Which messages and versions other implementations confirm, and which none does.

    python -m tests.generated.coverage            print docs/oracles.md
    python -m tests.generated.coverage --write    write it
"""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from itertools import groupby
from pathlib import Path

import wafka_wire

from tests.generated.catalogue import messages
from tests.generated.oracles import kafka_python, kafka_python_old, kio
from tests.generated.test_apache_kafka import WITHOUT_SCHEMA

PATH = Path(__file__).parents[2] / "docs" / "oracles.md"

# Classes that test_record_classes compares with the oracles' builders and readers of records.
RECORDS = {
    "kio": {("Header", 0), ("Record", 0), ("RecordBatch", 0)},
    "kafka-python": {
        ("Header", 0),
        ("MessageV0", 0),
        ("MessageV1", 0),
        ("Record", 0),
        ("RecordBatch", 0),
    },
}

TEMPLATE = """\
# What other implementations confirm

Written by `python -m tests.generated.coverage --write`; a test compares it with what the oracles know.

`kafka_wire` has {total} message-versions: every version of every request, response, header and record
that can be encoded alone. For each one that an oracle knows, the tests take values (nulls, empty and long
strings and arrays, the least and greatest integers, tagged fields at their defaults and not, unknown tagged
fields) and compare both ways: our bytes read by the oracle, field by field; the oracle's bytes, which must be
ours; and those read by us.

| oracle | message-versions |
|---|---|
| kio {kio_version} | {kio} |
| kafka-python {kafka_python_version} | {kafka_python} |
| both of them | {both} |
| at least one of them | {either} |
| none of them | {none} |
| Apache Kafka's own classes | {apache} |

`tests/generated/test_apache_kafka.py` lets the classes in Kafka's jars (4.4 first, 3.9 for what Kafka 4
dropped) read and write the same values. It runs where a JDK and those jars are at hand.

Every message-version also has tests that need no oracle: value to bytes to value, bytes to value to bytes,
agreement with the layout-driven reader and writer, mutated and truncated bytes, and refusals. Some have bytes
written by hand (`tests/generated/test_vectors.py`).

## What limits an oracle

- kio fails on unknown tagged fields (`KeyError`), where a reader should skip them. kafka-python keeps them,
  but does not write them, and fails on them inside of a tagged struct. One of kafka-python's older classes
  and Kafka itself keep and write them, and confirm ours.
- kio's error codes are an enum of its release's; other codes are not compared with it.
- kio makes times and durations `datetime` and `timedelta`, by way of floating-point seconds: values beyond
  what those hold are brought into their range.
- kio takes -1 in `ProduceResponse`'s `LogAppendTimeMs` for null, which Kafka's schema does not.
- kafka-python reads every ApiVersionsResponse with an error as version 0, though only UNSUPPORTED_VERSION is
  answered so (KIP-511): that response is compared without an error.
- kafka-python's older class of DescribeLogDirsRequest version 0 has one integer where Kafka's schema has an
  array; it does not count as known.
- kafka-python's classes take versions below those that they declare valid; what they make of them lacks the
  fields that Kafka's schemas have dropped since. Its older classes serve there.
- Null `Records` in ShareFetchResponse are refused by Kafka and kio from version 1 on. A definition cannot say
  that a field ceases to be nullable, so here null is taken in every version.

## What neither kio nor kafka-python knows

Those in *italics* have no schema in Kafka either: its own code reads and writes them by hand.

{unknown}
"""


def known() -> dict[str, set[tuple[str, int]]]:
    """What each of the two oracles knows, as names and versions."""
    return {
        "kio": set(kio()) | RECORDS["kio"],
        "kafka-python": {*kafka_python(), *kafka_python_old()} | RECORDS["kafka-python"],
    }


def ranges(numbers: list[int]) -> str:
    """``0-2, 5`` for 0, 1, 2 and 5."""
    parts = []
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(parts)


def text() -> str:
    """What docs/oracles.md has to say."""
    everything = [
        (m.name, version)
        for m in messages()
        if m.package is not wafka_wire
        for version in m.versions
    ]
    oracles = known()
    either = oracles["kio"] | oracles["kafka-python"]
    assert either <= set(everything)
    missing: dict[str, list[int]] = {}
    for name, version in everything:
        if (name, version) not in either:
            missing.setdefault(name, []).append(version)
    lines = []
    for name, versions in missing.items():
        shown = f"*{name}*" if name in WITHOUT_SCHEMA else name
        lines.append(f"- {shown} {ranges(versions)}")
    return TEMPLATE.format(
        total=len(everything),
        kio_version=installed("kio"),
        kio=len(oracles["kio"]),
        kafka_python_version=installed("kafka-python"),
        kafka_python=len(oracles["kafka-python"]),
        both=len(oracles["kio"] & oracles["kafka-python"]),
        either=len(either),
        none=len(everything) - len(either),
        apache=sum(name not in WITHOUT_SCHEMA for name, _ in everything),
        unknown="\n".join(lines),
    )


def main() -> None:
    if "--write" in sys.argv[1:]:
        PATH.write_text(text())
        print(f"wrote {PATH}")
    else:
        print(text(), end="")


if __name__ == "__main__":
    main()
