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
from tests.interop import kmsg_messages

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
# Oracles: what other implementations confirm

The tests compare `kafka_wire` with kio, kafka-python, franz-go's kmsg and Apache Kafka's own classes. This page lists how
many message-versions each of them confirms, where an oracle is limited, and which message-versions neither kio nor
kafka-python knows. `python -m tests.generated.coverage --write` writes the page, and a test compares it with what the
oracles know.

`kafka_wire` has {total} message-versions: every version of every request, response, header and record that can be
encoded by itself. For each message-version that an oracle knows, the tests take values: nulls, empty and long strings
and arrays, the smallest and largest integers, tagged fields with default and other values, unknown tagged fields. The
oracle reads krammar's bytes, and the tests compare every field. krammar reads the oracle's bytes, which must equal
krammar's own.

| Oracle | Message-versions |
|---|---|
| kio {kio_version} | {kio} |
| kafka-python {kafka_python_version} | {kafka_python} |
| both of them | {both} |
| at least one of them | {either} |
| none of them | {none} |
| kmsg {kmsg_version} | {kmsg} |
| Apache Kafka's own classes | {apache} |

`tests/generated/test_apache_kafka.py` reads and writes the same values with the classes in Kafka's jars: 4.4 first, and
3.9 for the versions that Kafka 4 dropped. `make interop` fetches the jars and runs it. It needs a JDK and Maven.

`tests/interop/test_kmsg.py` passes krammar's bytes to kmsg, which decodes them and encodes them again. The bytes must be
the same, and so must whole frames of requests and messages of defaults. `make interop` runs it. It needs Go.

Every message-version also has tests without an oracle: values and bytes survive a round trip, the layout-driven reader
and writer agree with the generated code, and mutated, truncated and invalid input is refused. Some message-versions have
manually written bytes (`tests/generated/test_vectors.py`).

## Limits of the oracles

- kio raises `KeyError` for unknown tagged fields, which a reader should skip. kafka-python keeps them, but does not write
  them, and fails on them inside a tagged struct. One of kafka-python's older classes and Kafka itself keep and write
  them, and confirm krammar's bytes.
- kio's error codes are the enum of its release. The tests compare no other codes with it.
- kio converts times and durations to `datetime` and `timedelta`, through floating-point seconds. The tests limit values
  to the range of these types.
- kio reads -1 in `LogAppendTimeMs` of `ProduceResponse` as null. Kafka's schema does not.
- kafka-python reads every ApiVersionsResponse with an error as version 0, although only UNSUPPORTED_VERSION is answered
  in version 0 (KIP-511). The tests compare this response without an error.
- kafka-python's older class of DescribeLogDirsRequest version 0 has one integer where Kafka's schema has an array. It
  does not count as known.
- kafka-python's classes accept versions below the ones that they declare valid, but then lack the fields that Kafka's
  schemas have dropped since. For these versions the tests use its older classes.
- Kafka and kio refuse null `Records` in ShareFetchResponse from version 1 on. A definition cannot state that a field is
  no longer nullable, so krammar accepts null in every version.
- kmsg has `IsKRaftController` of StopReplicaRequest version 4 in another place than Kafka, and writes ControlledShutdownRequest
  version 0 without its body in frames. It reads null keys of record headers as empty ones, and writes the
  generation -1 of a sticky assignor's data as version 0, without a generation.
- kmsg's nullable fields are null by default, where Kafka's are empty. `TimeoutMs` has a default in six of its requests,
  where Kafka's is 0, `ReplicaId` of ListOffsetsRequest is -1, and `AllowAutoTopicCreation` of MetadataRequest is false.

## Message-versions that neither kio nor kafka-python knows

kmsg confirms {only_kmsg} of these message-versions.
Messages in *italics* have no schema in Kafka either: Kafka's own code reads and writes them manually.

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
    """Return the text of docs/oracles.md."""
    everything = [
        (m.name, version)
        for m in messages()
        if m.package is not wafka_wire
        for version in m.versions
    ]
    oracles = known()
    either = oracles["kio"] | oracles["kafka-python"]
    kmsg = {(message.name, version) for message, version in kmsg_messages.known()}
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
        kmsg_version=kmsg_messages.kmsg_version(),
        kmsg=len(kmsg),
        only_kmsg=len(kmsg - either),
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
