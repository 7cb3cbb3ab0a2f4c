"""Our bytes against kio and kafka-python: for every message and version that they know.

One value goes both ways: we encode and they decode, field by field; they encode what they decoded
and what was built from the same plain value, and both are our bytes; we decode theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from random import Random
from typing import Any

import kafka_wire
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.old.admin import (
    ListPartitionReassignmentsRequest_v0 as OldListPartitionReassignmentsRequest,
)
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map

from krammar.wire.layout import Layout, default_of
from tests.generated.oracles import (
    KINDS,
    NOT_SAID,
    ORACLES,
    Known,
    Shape,
    inner,
    kafka_python,
    kio,
    pairs,
)
from tests.generated.strategies import Maker, plain_values, samples
from tests.generated.values import Plain, build, content, same, without_unknown_tags
from tests.support.groups import in_groups


def by_message() -> list[list[Known]]:
    """The versions that an oracle knows of a message, for each oracle and message."""
    found = []
    for known in ORACLES.values():
        versions: dict[str, list[Known]] = {}
        for (name, _), one in known().items():
            versions.setdefault(name, []).append(one)
        found += [each for _, each in sorted(versions.items())]
    return found


def id_of(versions: list[Known]) -> str:
    """The name of a case: ``kio-FetchRequest``."""
    return f"{versions[0].oracle}-{versions[0].message.name}"


def agree(known: Known, plain: Plain) -> None:
    """Raise AssertionError unless the oracle and we read and write the same bytes."""
    message, version = known.message, known.version
    layout = message.layout(version)
    plain = known.fit(plain)
    data = message.encode(build(message, layout, plain), version)

    theirs = known.decode(data[known.skip :])
    found = known.content(theirs)
    here = {name: value for name, value in plain.items() if name in found}
    assert same(found, here), f"{known} reads {found} where we wrote {here}"
    assert plain.keys() - found.keys() <= {message.version_field}

    written = without_unknown_tags(plain)
    expected = message.encode(build(message, layout, written), version)
    assert known.encode(theirs) == expected[known.skip :]
    made = known.encode(known.build(plain))
    assert made == expected[known.skip :]

    ours = message.decode(expected[: known.skip] + made, version)
    assert same(content(ours, layout), written)
    assert message.encode(ours, version) == expected


@in_groups("versions", by_message(), ids=id_of)
def test_samples_agree(versions: list[Known]) -> None:
    assert versions
    for known in versions:
        for plain in samples(known.message, known.version, seed=1, extra=4):
            agree(known, plain)


@pytest.mark.sweep
@pytest.mark.parametrize("versions", by_message(), ids=id_of)
@settings(
    max_examples=20,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_any_value_agrees(versions: list[Known], data: st.DataObject) -> None:
    known = data.draw(st.sampled_from(versions))
    unknown = known.shape.unknown is not None
    agree(known, data.draw(plain_values(known.message, known.version, unknown_tags=unknown)))


# ---- facts about fields besides bytes ----------------------------------------------------------

# Field names that differ. A release later than the oracle's renamed the first; kafka-python patches
# the others; kio cuts "_ms" from what it makes a timedelta or a date.
RENAMED = {
    "generation_id_or_member_epoch": "generation_id",
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
}

# Nullability that differs.
NULLS = {
    # int64 in Kafka's schema; kio makes -1 None.
    ("kio", "ProduceResponse.PartitionProduceResponse", "log_append_time_ms"),
    # Nullable in version 0 only, which definitions cannot say: nullability has no end there.
    ("kio", "ShareFetchResponse.PartitionData", "records"),
}

# Defaults that differ.
DEFAULTS = {
    # Kafka's generator gives fields of type "records" the default null.
    ("kafka-python", "FetchResponse.PartitionData", "records"),
    ("kafka-python", "ProduceRequest.PartitionProduceData", "records"),
    # kafka-python patches Kafka's schema, which has no default here.
    ("kafka-python", "ListOffsetsRequest", "replica_id"),
}


def fields(oracle: str) -> Iterator[tuple[Known, Layout, Any, Any]]:
    """Yield every field of every struct of an oracle, with our field."""

    def walk(
        known: Known, layout: Layout, shape: Shape
    ) -> Iterator[tuple[Known, Layout, Any, Any]]:
        for item, slot in pairs(layout, shape):
            yield known, layout, item, slot
            if slot.shape is not None:
                yield from walk(known, inner(item), slot.shape)

    for known in ORACLES[oracle]().values():
        yield from walk(known, known.layout, known.shape)


@pytest.mark.parametrize("oracle", ["kio", "kafka-python"])
def test_fields_have_the_same_names(oracle: str) -> None:
    def plain(name: str) -> str:
        return name.replace("_", "")

    different = {
        f"{known}: {layout.name}.{item.name}, {slot.name} in {oracle}"
        for known, layout, item, slot in fields(oracle)
        if plain(slot.name) not in (plain(item.name), plain(RENAMED.get(item.name, "")))
        and not (oracle == "kio" and item.name == slot.name + "_ms")
    }
    assert not different


@pytest.mark.parametrize("oracle", ["kio", "kafka-python"])
def test_the_same_fields_are_nullable_in_the_same_versions(oracle: str) -> None:
    different = {
        (oracle, layout.name, item.name)
        for known, layout, item, slot in fields(oracle)
        if slot.nullable is not None and slot.nullable != getattr(item.type, "nullable", False)
    }
    assert different == {entry for entry in NULLS if entry[0] == oracle}


@pytest.mark.parametrize("oracle", ["kio", "kafka-python"])
def test_fields_have_the_same_defaults(oracle: str) -> None:
    def plain(slot: Any) -> Any:
        if slot.default is None and (slot.array or slot.kind is KINDS["datetime_i64"]):
            return None if slot.array else -1
        to_plain = slot.kind.to_plain
        return [to_plain(one) for one in slot.default] if slot.array else to_plain(slot.default)

    different = set()
    for known, layout, item, slot in fields(oracle):
        if slot.default is NOT_SAID or slot.shape is not None:
            continue
        ours = default_of(item)
        # The class and the layout have the same default.
        fresh = attrgetter(layout.name)(known.message.package)()
        assert same(getattr(fresh, item.name), ours)
        if not same(plain(slot), ours):
            different.add((oracle, layout.name, item.name))
    assert different == {entry for entry in DEFAULTS if entry[0] == oracle}


def test_error_codes_are_those_of_kio() -> None:
    """kio follows an older release, which knows fewer codes."""
    ours = {code.value: code for code in kafka_wire.ErrorCode}
    for code in KioErrorCode:
        assert ours[code.value].name == code.name.upper()
        assert ours[code.value].retriable == code.retriable


def test_api_keys_are_those_of_kio() -> None:
    assert len(api_key_map) > 60
    for key, name in api_key_map.items():
        assert kafka_wire.ApiKey(key).name == name.upper()
        assert kafka_wire.request_class(key).__name__ == name.title().replace("_", "") + "Request"


def test_header_versions_are_those_of_kio() -> None:
    seen = 0
    for (name, version), known in kio().items():
        key = known.message.key
        if key is None:
            continue
        versions = kafka_wire.header_versions(key, version)
        ours = versions.request if name.endswith("Request") else versions.response
        entity = type(known.build(Maker(Random(0), "default").message(known.message, version)))
        assert entity.__header_schema__.__version__ == ours, f"{known}"
        seen += 1
    assert seen > 500


# ---- what oracles do with unknown tags ------------------------------------------------------------


def tagged_request() -> Any:
    """A value with unknown tags at both levels."""
    topic = kafka_wire.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
        name="t", partition_indexes=[1, 2]
    )
    topic.unknown_tags = {0: b"", 300: b"topic"}
    value = kafka_wire.ListPartitionReassignmentsRequest(timeout_ms=5, topics=[topic])
    value.unknown_tags = {3: b"request", 127: b"x" * 200}
    return value


def test_kio_fails_on_unknown_tags() -> None:
    """So kio's values do not contain them. A release of kio that skips them fails here."""
    known = kio()["ListPartitionReassignmentsRequest", 0]
    with pytest.raises(KeyError, match="Unknown tagged field tag"):
        known.decode(tagged_request().encode(0))


def test_kafka_python_reads_unknown_tags_and_does_not_write_them() -> None:
    known = kafka_python()["ListPartitionReassignmentsRequest", 0]
    value = tagged_request()
    theirs = known.decode(value.encode(0))
    assert same(known.content(theirs), content(value, known.layout))
    assert b"topic" not in known.encode(theirs)


def test_kafka_pythons_old_classes_write_unknown_tags() -> None:
    value = tagged_request()
    data = value.encode(0)
    theirs = OldListPartitionReassignmentsRequest.decode(data)
    assert theirs.tags == value.unknown_tags
    assert theirs.topics == [("t", [1, 2], {0: b"", 300: b"topic"})]
    assert theirs.encode() == data
    made = OldListPartitionReassignmentsRequest(
        timeout_ms=5,
        topics=[("t", [1, 2], {0: b"", 300: b"topic"})],
        tags={3: b"request", 127: b"x" * 200},
    )
    assert kafka_wire.ListPartitionReassignmentsRequest.decode(made.encode(), 0) == value
