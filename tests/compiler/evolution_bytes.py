"""Where `krammar diff` and Apache Kafka's EvolutionVerifier differ: the bytes that show which one is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.compiler.evolution import TAGGED

OLD, NEW = "old", "new"


@dataclass(frozen=True)
class Bytes:
    """What a request says to a peer with other definitions.

    ``writer`` has the old definitions, the new ones, or those of the text; so has ``reader``. ``read`` is what the
    reader reads, or a part of its error. None means that it reads what was written.
    """

    version: int
    value: Mapping[str, Any]
    hex: str
    read: Mapping[str, Any] | str | None = None
    writer: str = OLD
    reader: str = NEW


_REUSED = TAGGED.replace("Late: int8 // v3+, tag 5", "Other: bool // v3+, tag 5")

# fmt: off
BYTES = {
    # Kafka refuses these changes, but peers read what was written.
    "an older version": Bytes(1, {"name": "a", "owner": "b", "code": 3}, "00 01 61 00 00 00 00 00 00 00 00 00 01 62 00 00 00 00 01 00 00 00 00 00 00 00 03"),
    "another name of a struct": Bytes(3, {"parts": [{"id": 1, "label": "a"}]}, "01 00 00 00 00 00 00 00 00 01 02 00 00 00 00 00 00 00 01 02 61 00 01 01 00 01 00 00 00"),
    "records by their name": Bytes(0, {"data": "YWI="}, "00 00 00 02 61 62", {"records": "YWI="}),
    "another default": Bytes(0, {"count": 0}, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00"),
    "a default of null": Bytes(0, {"owner": ""}, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00"),
    "another default in a struct": Bytes(0, {"place": {"city": ""}}, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00"),
    "a new tagged field": Bytes(2, {"name": "a", "more": "b"}, "02 61 01 06 02 02 62", None, NEW, OLD),
    "a new tagged field in one version": Bytes(3, {"name": "a", "more": "b"}, "02 61 01 06 02 02 62", None, NEW, OLD),
    "a new tagged field of a struct": Bytes(2, {"home": {"city": "a", "zip": 1, "more": "b"}}, "01 01 03 0b 02 61 00 00 00 01 01 00 02 02 62", {"home": {"city": "a", "zip": 1}}, NEW, OLD),
    "tags of two types in another order": Bytes(2, {"note": "a", "low": 1}, "01 02 00 02 02 61 01 04 00 00 00 01"),
    "a tagged field before another field": Bytes(2, {"name": "a", "note": "b"}, "02 61 01 00 02 02 62"),
    "another default in a tagged array": Bytes(2, {"rows": [{"width": 3}, {"width": 4}]}, "01 01 04 07 03 00 03 00 00 04 00"),
    # Kafka accepts these changes, but peers fail, or read something else.
    "the first version is missing": Bytes(0, {"name": "a"}, "00 01 61 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00", "version 0"),
    "a new version, and the first is missing": Bytes(0, {"name": "a"}, "00 01 61 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00", "version 0"),
    "flexible earlier": Bytes(1, {"name": "a"}, "00 01 61 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00", "null at offset 0"),
    "flexible in an old version": Bytes(2, {"name": "a"}, "00 01 61 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00", "null at offset 0"),
    "the last field is missing": Bytes(1, {"code": 3}, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 03", "2 bytes left over at offset 23"),
    "the last field of a struct is missing": Bytes(1, {"parts": [{"id": 1, "label": "a"}]}, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 01 00 01 61 01 00 00 00 00 00 00 00 00", "presence byte 0x00 at offset 24"),
    "an ended field is missing": Bytes(0, {"a": 1, "b": 2}, "01 02", "left over at offset 1"),
    "two fields of one type have moved": Bytes(0, {"count": 1, "size": 2}, "00 00 00 00 00 01 00 00 00 02 00 00 00 00 00 00 01 00 00 00 00 00 00", {"count": 2, "size": 1}),
    "a field does not end": Bytes(3, {}, "00", "needs 1 byte at offset 1"),
    "a string that cannot be null": Bytes(0, {"owner": None}, "00 00 00 00 00 00 00 00 00 00 ff ff 00 00 00 00 01 00 00 00 00 00 00", "null at offset 10"),
    "an array that cannot be null": Bytes(0, {"marks": None}, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 ff ff ff ff", "null at offset 19"),
    "a struct that cannot be null": Bytes(0, {"place": {"city": "a"}}, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 01 61 00 00 00 00", "needs 256 bytes at offset 18"),
    "two tags have moved": Bytes(2, {"low": 1, "high": 2}, "01 02 01 04 00 00 00 01 02 04 00 00 00 02", {"low": 2, "high": 1}),
    "a field gets a tag": Bytes(2, {"a": 1, "b": 2}, "01 02 00", "needs 1 byte at offset 3"),
    "a field loses its tag": Bytes(2, {"a": 1, "b": 2}, "01 01 00 01 02", "2 bytes left over at offset 3"),
    # Without `reserved tag 5`, the next definitions can use the tag.
    "the last tagged field is missing": Bytes(3, {"late": 1}, "01 01 05 01 01", {"other": True}, OLD, _REUSED),
    "a tag is no longer reserved": Bytes(3, {"late": 1}, "01 01 05 01 01", {"other": True}, TAGGED, _REUSED),
}
# fmt: on
