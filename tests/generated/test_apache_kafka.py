"""Our bytes against Apache Kafka itself: the classes in its jars read them and write them again.

Needs a JDK and the jars of a few releases, which ``make interop`` fetches into ``build/interop`` as
``apache_kafka/jars.xml`` names them; other jars on the machine are ignored. Releases are asked from the
newest on, so the newest answers for all that it still knows, and 3.9 for what Kafka 4 dropped. Field by
field, and byte by byte, it covers all that Kafka has a schema for, unknown tagged fields included.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from krammar.wire.layout import Array, Field, Nested
from tests.generated.catalogue import Message, by_name
from tests.generated.strategies import samples
from tests.generated.values import Plain, build

SOURCE = Path(__file__).parent / "apache_kafka" / "KafkaOracle.java"
POM = SOURCE.with_name("jars.xml")
JARS = (
    Path(__file__).parents[2]
    / "build"
    / "interop"
    / f"message-classes-{hashlib.sha256(POM.read_bytes()).hexdigest()[:16]}"
)

# Messages without a schema in Kafka's jars, whose code is written manually there.
WITHOUT_SCHEMA = frozenset(
    {
        "CooperativeStickyAssignorUserData",
        "Header",
        "MessageV0",
        "MessageV1",
        "OffsetIndexEntry",
        "Record",
        "RecordBatch",
        "StickyAssignorUserData",
        "TimeIndexEntry",
    }
)

# Classes that are called otherwise in Kafka.
NAMES = {"LegacyOffsetCommitKey": "OffsetCommitKey"}

# Keys of internal topics have any version here; in Kafka 4.0 their version is the number of the kind,
# since then it is 0. This one has been in 4.0 only.
VERSIONS = {"ShareGroupPartitionMetadataKey": 9}

# Structs that Kafka reads with their version field; it reads that of the others before them.
WITH_VERSION = frozenset(
    {
        "KRaftVersionRecord",
        "LeaderChangeMessage",
        "SnapshotFooterRecord",
        "SnapshotHeaderRecord",
        "VotersRecord",
    }
)


def fetch_jars() -> None:
    """Have Maven put the jars into ``JARS``, all or none. Raises CalledProcessError."""
    if JARS.is_dir():
        return
    JARS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS.parent) as fresh:
        output = Path(fresh) / "jars"
        goal = ("dependency:copy", f"-DoutputDirectory={output}")
        subprocess.run(
            ["mvn", "-q", "-B", "-f", str(POM), *goal], check=True, capture_output=True, timeout=600
        )
        output.rename(JARS)


def releases() -> list[str]:
    """The oracle's arguments for the releases, newest first."""
    found = defaultdict(list)
    for jar in sorted(JARS.glob("kafka-*.jar")):
        found[jar.stem.rpartition("-")[2]].append(str(jar))
    logging = [str(jar) for jar in JARS.glob("slf4j-api-*.jar")]
    newest_first = sorted(found, key=lambda name: [*map(int, name.split("."))], reverse=True)
    return [":".join([name, *found[name], *logging]) for name in newest_first]


def fitted(message: Message, version: int, plain: Any) -> Any:
    """``plain`` without what Kafka refuses: tags of an unknown field that has the tag in another version,
    and null in ShareFetch responses after version 0, which definitions cannot forbid."""
    if isinstance(plain, list):
        return [fitted(message, version, element) for element in plain]
    if not isinstance(plain, dict):
        return plain
    fit: Plain = {name: fitted(message, version, value) for name, value in plain.items()}
    if "unknown_tags" in fit:
        tags = {tag: data for tag, data in plain["unknown_tags"].items() if tag > 100}
        fit = {name: value for name, value in fit.items() if name != "unknown_tags"}
        if tags:
            fit["unknown_tags"] = tags
    if message.name == "ShareFetchResponse" and version and "records" in fit:
        fit["records"] = fit["records"] or b""
    return fit


def compare(item: Field, ours: Any, theirs: Any, path: str) -> list[str]:
    """Return the differences between a plain value and the one that Kafka read."""
    type_ = item.type
    if ours is None or theirs is None:
        return [] if ours is theirs is None else [f"{path}: {ours!r} is not {theirs!r}"]
    if isinstance(type_, Array):
        if len(ours) != len(theirs):
            return [f"{path}: {len(ours)} elements are not {len(theirs)}"]
        inner = Field(item.name, type_.element, item.versions)
        return [
            difference
            for index, pair in enumerate(zip(ours, theirs, strict=True))
            for difference in compare(inner, *pair, f"{path}[{index}]")
        ]
    if isinstance(type_, Nested):
        return compare_structs((*type_.layout.fields, *type_.layout.tags), ours, theirs, path)
    if isinstance(ours, bytes):
        same = ours == base64.b64decode(theirs)
    elif isinstance(ours, UUID):
        same = str(ours) == theirs
    elif isinstance(ours, float):
        same = ours == float(theirs.replace("Infinity", "inf"))
    else:
        same = ours == theirs and type(ours) is type(theirs)
    return [] if same else [f"{path}: {ours!r} is not {theirs!r}"]


def compare_structs(fields: Any, ours: Plain, theirs: dict[str, Any], path: str) -> list[str]:
    by_name = {name.lower(): value for name, value in theirs.items()}
    found = []
    for item in fields:
        name = item.name.rstrip("_").replace("_", "")
        # A field "Version" besides the version prefix is "BodyVersion" here.
        name = "version" if name == "bodyversion" else name
        if name not in by_name:
            found.append(f"{path}.{item.name} is none of {sorted(by_name)}")
            continue
        found += compare(item, ours[item.name], by_name[name], f"{path}.{item.name}")
    unknown = {tag: base64.b64decode(data) for tag, data in theirs["_unknownTaggedFields"] or []}
    if unknown != ours.get("unknown_tags", {}):
        found.append(f"{path}: unknown tags {ours.get('unknown_tags')} are not {unknown}")
    return found


@pytest.mark.skipif(not shutil.which("javac"), reason="needs a JDK")
@pytest.mark.skipif(not JARS.is_dir(), reason="needs Kafka's jars, which `make interop` fetches")
def test_apache_kafka_reads_and_writes_the_same() -> None:
    compare_messages()


def compare_messages() -> None:
    """Raises AssertionError with everything that Apache Kafka reads or writes otherwise."""
    lines = []
    cases = []
    for message in by_name().values():
        if message.name in WITHOUT_SCHEMA:
            continue
        name = NAMES.get(message.name, message.name)
        skip = 2 if message.version_field and message.name not in WITH_VERSION else 0
        for version in message.versions:
            layout = message.layout(version)
            fields = (*layout.fields, *layout.tags)[1 if skip else 0 :]
            for made in samples(message, version, seed=12):
                plain = fitted(message, version, made)
                data = message.encode(build(message, layout, plain), version)[skip:]
                lines.append(f"{name} {VERSIONS.get(name, version)} {data.hex()}")
                cases.append((message, version, fields, plain, data))

    java = subprocess.run(
        ["java", str(SOURCE), *releases()],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    answers = java.stdout.splitlines()
    assert len(answers) == len(cases), java.stderr

    wrong: dict[str, str] = {}
    for (message, version, fields, plain, data), answer in zip(cases, answers, strict=True):
        verdict, _, rest = answer.partition(" ")
        where = f"{message.name} v{version}"
        if verdict != "ok":
            wrong.setdefault(where, answer)
            continue
        release, again, fields_read = rest.split(" ", 2)
        if again != data.hex():
            wrong.setdefault(where, f"{release} writes {again} where we wrote {data.hex()}")
        different = compare_structs(fields, plain, json.loads(fields_read), message.name)
        if different:
            wrong.setdefault(where, f"{release}: {different[0]}")
    assert not wrong, "\n".join(f"{where}: {said}" for where, said in sorted(wrong.items()))
