"""Changes of definitions, with the verdicts of `krammar diff` and of Apache Kafka's EvolutionVerifier.

``tests/interop/test_schema_checker.py`` asks Kafka. Where the two differ, the bytes in ``evolution_bytes`` show which
one is right.
"""

from __future__ import annotations

from dataclasses import dataclass

PLAIN = """\
ThingRequest => key 7, max version 3, min version 0, flexible v2+
  Name: string
  Count: int32
  Size: int32
  Owner: nullable-string
  Parts: [=>]
    Id: int64
    Label: string // v1+
  Place: nullable=>()
    City: string
  Marks: nullable[int16]
  Code: int16 // v1+

ThingResponse =>
  Code: int16
"""

TAGGED = """\
ThingRequest => key 7, max version 3, flexible v2+
  Name: string
  Note: nullable-string // tag 0
  Low: int32(7) // tag 1
  High: int32(7) // tag 2
  Home: => // tag 3
    City: string
    Zip: int32(5)
  Rows: [=>] // tag 4
    Width: int16(3)
  Late: int8 // v3+, tag 5

ThingResponse =>
  Code: int16
"""


# In ``Change.kafka``: Kafka's schemas cannot express the new definitions.
NO_SCHEMA = "no schema"


@dataclass(frozen=True)
class Change:
    """A change of definitions.

    ``codes`` are the diagnostics of `krammar diff`. ``kafka`` is a part of the message of Kafka's verifier, or empty
    if it accepts the change.
    """

    name: str
    old: str
    new: str
    codes: str = ""
    kafka: str = ""

    @property
    def breaks_peers(self) -> bool:
        """Whether `krammar diff --wire` reports the change."""
        return any(code.startswith("B1") for code in self.codes.split())

    @property
    def differs(self) -> bool:
        """Whether one of the two checkers accepts the change, and the other does not."""
        return self.kafka != NO_SCHEMA and self.breaks_peers is not bool(self.kafka)


def _edited(text: str, before: str, after: str) -> str:
    assert text.count(before) == 1, before
    return text.replace(before, after)


def plain(name: str, before: str, after: str, *, codes: str = "", kafka: str = "") -> Change:
    """Return a change of ``PLAIN``."""
    return Change(name, PLAIN, _edited(PLAIN, before, after), codes, kafka)


def tagged(name: str, before: str, after: str, *, codes: str = "", kafka: str = "") -> Change:
    """Return a change of ``TAGGED``."""
    return Change(name, TAGGED, _edited(TAGGED, before, after), codes, kafka)


def own(name: str, old: str, new: str, *, codes: str = "", kafka: str = "") -> Change:
    """Return a change of the fields of a request."""
    return Change(name, request(old), request(new), codes, kafka)


def request(fields: str) -> str:
    """Return a request with ``fields``, and its response."""
    header = "ThingRequest => key 7, max version 3, flexible v2+"
    return f"{header}\n{fields}\nThingResponse =>\n  Code: int16\n"


# fmt: off
CHANGES = [
    # Nothing, and documentation.
    own("nothing", "  A: int8\n", "  A: int8\n"),
    plain("documentation", "  Count: int32\n", "  // How many.\n  Count: int32\n"),
    plain("an entity", "  Name: string\n", "  Name: string // entity topicName\n"),
    own("another entity", "  A: string // entity topicName\n", "  A: string // entity groupId\n"),
    plain("ignorable", "Code: int16 // v1+", "Code: int16 // v1+, ignorable"),
    own("no longer ignorable", "  A: int8 // v1+, ignorable\n", "  A: int8 // v1+\n", codes="B204"),
    # The message.
    plain("a new version", "max version 3", "max version 4"),
    plain("two new versions", "max version 3", "max version 5"),
    plain("the last version is missing", "max version 3", "max version 2", codes="B103", kafka="maximum valid version"),
    plain("the first version is missing", "min version 0", "min version 1", codes="B103"),
    Change("an older version", PLAIN.replace("min version 0", "min version 1"), PLAIN, kafka="minimum valid version"),
    plain("a new version, and the first is missing", "max version 3, min version 0", "max version 4, min version 1", codes="B103"),
    plain("another key", "key 7", "key 8", codes="B102", kafka="apiKey"),
    plain("another key in a new version", "key 7, max version 3", "key 8, max version 4", codes="B102", kafka="apiKey"),
    plain("flexible earlier", "flexible v2+", "flexible v1+", codes="B104"),
    plain("flexible later", "flexible v2+", "flexible v3+", codes="B104", kafka="flexibleVersions"),
    plain("no longer flexible", ", flexible v2+", "", codes="B104", kafka="flexibleVersions"),
    Change("flexible in a new version", PLAIN.replace(", flexible v2+", ""), PLAIN.replace("max version 3", "max version 4").replace("v2+", "v4+", 1)),
    Change("flexible in an old version", PLAIN.replace(", flexible v2+", ""), PLAIN, codes="B104"),
    Change("another name of the messages", PLAIN, PLAIN.replace("Thing", "Item"), codes="B101", kafka="Field type"),
    Change("a field of the response in a new version", PLAIN, PLAIN.replace("max version 3", "max version 4") + "  More: int8 // v4+\n"),
    Change("a field of the response in old versions", PLAIN, PLAIN + "  More: int8\n", codes="B104", kafka="should be present"),
    # Fields.
    Change("a field in a new version", PLAIN, PLAIN.replace("max version 3", "max version 4").replace("  Count: int32\n", "  Count: int32\n  More: string // v4+\n")),
    Change("a last field in a new version", PLAIN, PLAIN.replace("max version 3", "max version 4").replace("  Code: int16 // v1+\n", "  Code: int16 // v1+\n  More: string // v4+\n")),
    Change("a field of a struct in a new version", PLAIN, PLAIN.replace("max version 3", "max version 4").replace("    Id: int64\n", "    Id: int64\n    More: string // v4+\n")),
    Change("a field ends before a new version", PLAIN, PLAIN.replace("max version 3", "max version 4").replace("  Count: int32\n", "  Count: int32 // v0-v3\n")),
    plain("a first field in old versions", "  Name: string\n", "  More: int8\n  Name: string\n", codes="B104", kafka="Field type"),
    plain("a last field in old versions", "  Code: int16 // v1+\n", "  Code: int16 // v1+\n  More: int8\n", codes="B104", kafka="should be present"),
    plain("a last field in one old version", "  Code: int16 // v1+\n", "  Code: int16 // v1+\n  More: int8 // v3+\n", codes="B104", kafka="should be present"),
    plain("a field of a struct in old versions", "    Id: int64\n", "    Id: int64\n    More: int8\n", codes="B104", kafka="Field type"),
    plain("the first field is missing", "  Name: string\n", "", codes="B104", kafka="Field type"),
    plain("a field is missing", "  Size: int32\n", "", codes="B104", kafka="Field type"),
    plain("the last field is missing", "  Code: int16 // v1+\n\n", "\n", codes="B104"),
    plain("the last field of a struct is missing", "    Label: string // v1+\n", "", codes="B104"),
    own("an ended field is missing", "  A: int8\n  B: int8 // v0-v1\n", "  A: int8\n", codes="B104"),
    plain("two fields of one type have moved", "  Count: int32\n  Size: int32\n", "  Size: int32\n  Count: int32\n", codes="B104"),
    plain("two fields have moved", "  Name: string\n  Count: int32\n", "  Count: int32\n  Name: string\n", codes="B104", kafka="Field type"),
    plain("another name of a field", "Name: string", "Title: string", codes="B202"),
    plain("another name of a struct", "Parts: [=>]", "Parts: [=>]Piece", codes="B202", kafka="Field type"),
    own("a field begins later", "  A: int8 // v1+\n", "  A: int8 // v2+\n", codes="B104", kafka="Minimum effective valid version"),
    own("a field begins earlier", "  A: int8 // v1+\n", "  A: int8\n", codes="B104", kafka="Minimum effective valid version"),
    own("a field ends", "  A: int8 // v1+\n", "  A: int8 // v1-v2\n", codes="B104", kafka="Maximum effective valid version"),
    own("a field does not end", "  A: int8 // v1-v2\n", "  A: int8 // v1+\n", codes="B104"),
    # Types.
    own("a wider integer", "  A: int32\n", "  A: int64\n", codes="B104", kafka="Field type"),
    own("an unsigned integer of four bytes", "  A: int32\n", "  A: uint32\n", codes="B104", kafka="Field type"),
    own("an unsigned integer of two bytes", "  A: int16\n", "  A: uint16\n", codes="B104", kafka="Field type"),
    own("a float", "  A: int64\n", "  A: float64\n", codes="B104", kafka="Field type"),
    own("a bool", "  A: int8\n", "  A: bool\n", codes="B104", kafka="Field type"),
    own("bytes instead of a string", "  A: string\n", "  A: bytes\n", codes="B104 B203", kafka="Field type"),
    own("a uuid instead of a string", "  A: string\n", "  A: uuid\n", codes="B104 B203", kafka="Field type"),
    own("records by their name", "  Data: nullable-bytes(null)\n", "  Records: nullable-bytes(null)\n", codes="B202", kafka="Field type"),
    own("an array instead of an element", "  A: int32\n", "  A: [int32]\n", codes="B104 B203", kafka="Field type"),
    own("wider elements", "  A: [int32]\n", "  A: [int64]\n", codes="B104", kafka="Field type"),
    own("a struct instead of an array", "  A: [=>]\n    B: int8\n", "  A: =>\n    B: int8\n", codes="B104 B203", kafka="Field type"),
    own("structs instead of integers", "  A: [int8]\n", "  A: [=>]\n    B: int8\n", codes="B104", kafka="Field type"),
    Change("an enum instead of its integer", request("  A: int8\n"), request("  A: enum-E\n") + "\nE int8 (\n  0: OK\n)\n"),
    Change("an enum of another integer", request("  A: enum-E\n") + "\nE int8 (\n  0: OK\n)\n", request("  A: enum-E\n") + "\nE int16 (\n  0: OK\n)\n", codes="B104 B106", kafka="Field type"),
    own("a spelling of throttling", "  ThrottleMillis(2)\n", "  ThrottleMillis: int32\n"),
    own("classic lengths", "  A: string\n", "  A: string // not flexible\n", codes="B104", kafka="flexibleVersions"),
    own("no classic lengths", "  A: string // not flexible\n", "  A: string\n", codes="B104", kafka="flexibleVersions"),
    Change("a struct with a name", request("  A: [=>]B\n    C: int8\n"), request("  A: [ThingRequest.B]\n") + "\nThingRequest.B => not top level, no encoding\n  C: int8\n"),
    Change("a struct without a name", request("  A: [ThingRequest.B]\n") + "\nThingRequest.B => not top level, no encoding\n  C: int8\n", request("  A: [=>]B\n    C: int8\n")),
    Change("a type in a shared struct", request("  A: [B]\n") + "\nB => not top level, no encoding\n  C: int8\n", request("  A: [B]\n") + "\nB => not top level, no encoding\n  C: int16\n", codes="B104", kafka="Field type"),
    # Null.
    plain("a string that can be null", "  Name: string\n", "  Name: nullable-string\n", codes="B104", kafka="Maximum effective nullable version"),
    plain("a string that cannot be null", "  Owner: nullable-string\n", "  Owner: string\n", codes="B104"),
    plain("an array that can be null", "Parts: [=>]", "Parts: nullable[=>]", codes="B104", kafka="Maximum effective nullable version"),
    plain("an array that cannot be null", "nullable[int16]", "[int16]", codes="B104"),
    plain("a struct that cannot be null", "Place: nullable=>()", "Place: =>", codes="B104 B203"),
    own("a struct that can be null", "  A: =>\n    B: int8\n", "  A: nullable=>()\n    B: int8\n", codes="B104 B203", kafka="Maximum effective nullable version"),
    own("null from an earlier version", "  A: nullable-string-v2+\n", "  A: nullable-string-v1+\n", codes="B104", kafka="Minimum effective nullable version"),
    own("null from a later version", "  A: nullable-string-v2+\n", "  A: nullable-string-v3+\n", codes="B104", kafka="Minimum effective nullable version"),
    own("null from no version", "  A: nullable-string-v2+\n", "  A: string\n", codes="B104", kafka="Minimum effective nullable version"),
    # Defaults.
    plain("another default", "Count: int32", "Count: int32(-1)", codes="B203", kafka="Default"),
    plain("a default of null", "Owner: nullable-string", "Owner: nullable-string(null)", codes="B203", kafka="Default"),
    plain("another default in a struct", "City: string", "City: string(Rome)", codes="B203", kafka="Default"),
    # Tagged fields.
    tagged("a new tagged field", "tag 5\n", "tag 5\n  More: string // tag 6\n", kafka="should be present"),
    tagged("a new tagged field in one version", "tag 5\n", "tag 5\n  More: string // v3+, tag 6\n", kafka="should be present"),
    Change("a new tagged field in a new version", TAGGED, TAGGED.replace("max version 3", "max version 4").replace("tag 5\n", "tag 5\n  More: string // v4+, tag 6\n")),
    tagged("a new tagged field of a struct", "    Zip: int32(5)\n", "    Zip: int32(5)\n    More: string // tag 0\n", kafka="should be present"),
    tagged("the last tagged field is missing", "  Late: int8 // v3+, tag 5\n", "", codes="B107 B201"),
    tagged("the last tagged field is missing, and its tag is reserved", "  Late: int8 // v3+, tag 5\n", "  reserved tag 5\n", codes="B201"),
    tagged("the first tagged field is missing, and its tag is reserved", "  Note: nullable-string // tag 0\n", "  reserved tag 0\n", codes="B201", kafka=NO_SCHEMA),
    Change("a tag is no longer reserved", TAGGED.replace("Late: int8 // v3+, tag 5", "reserved tag 5"), TAGGED.replace("  Late: int8 // v3+, tag 5\n", ""), codes="B107"),
    Change("a reserved tag is used", TAGGED.replace("Late: int8 // v3+, tag 5", "reserved tag 5"), TAGGED.replace("Late: int8", "Other: int64"), codes="B108", kafka="should be present"),
    tagged("a tag of another field", "Late: int8 // v3+, tag 5", "Other: string // v3+, tag 5", codes="B108", kafka="Field type"),
    tagged("another tag", "tag 5\n", "tag 6\n  reserved tag 5\n", codes="B104", kafka=NO_SCHEMA),
    tagged("two tags have moved", "  Low: int32(7) // tag 1\n  High: int32(7) // tag 2\n", "  Low: int32(7) // tag 2\n  High: int32(7) // tag 1\n", codes="B104 B108"),
    tagged("two tags in another order", "  Low: int32(7) // tag 1\n  High: int32(7) // tag 2\n", "  High: int32(7) // tag 2\n  Low: int32(7) // tag 1\n"),
    tagged("tags of two types in another order", "  Note: nullable-string // tag 0\n  Low: int32(7) // tag 1\n", "  Low: int32(7) // tag 1\n  Note: nullable-string // tag 0\n", kafka="Field type"),
    tagged("a tagged field before another field", "  Name: string\n  Note: nullable-string // tag 0\n", "  Note: nullable-string // tag 0\n  Name: string\n", kafka="Minimum effective valid version"),
    own("a field gets a tag", "  A: int8\n  B: int8 // v2+\n", "  A: int8\n  B: int8 // v2+, tag 0\n", codes="B104"),
    own("a field loses its tag", "  A: int8\n  B: int8 // v2+, tag 0\n", "  A: int8\n  B: int8 // v2+\n  reserved tag 0\n", codes="B104"),
    tagged("another name of a tagged field", "Note: nullable-string", "Remark: nullable-string", codes="B202"),
    tagged("another type of a tagged field", "Late: int8", "Late: int16", codes="B104", kafka="Field type"),
    tagged("a tagged field that cannot be null", "Note: nullable-string", "Note: string", codes="B104", kafka="Minimum effective nullable version"),
    tagged("a tagged field that can be null", "    City: string\n", "    City: nullable-string\n", codes="B104", kafka="Maximum effective nullable version"),
    tagged("another default of a tagged field", "Low: int32(7)", "Low: int32(8)", codes="B105", kafka="Default"),
    tagged("no default of a tagged field", "Low: int32(7)", "Low: int32", codes="B105", kafka="Default"),
    tagged("another default in a tagged struct", "Zip: int32(5)", "Zip: int32(6)", codes="B105", kafka="Default"),
    tagged("another default in a tagged array", "Width: int16(3)", "Width: int16(4)", codes="B203", kafka="Default"),
    tagged("a tag begins later", "Low: int32(7) // tag 1", "Low: int32(7) // v3+, tag 1", codes="B109", kafka="Minimum effective valid version"),
    tagged("a tag begins earlier", "v3+, tag 5", "tag 5", codes="B109", kafka="Minimum effective valid version"),
    own("a tag begins before flexible versions", "  A: int8\n  B: int8 // v2+, tag 0\n", "  A: int8\n  B: int8 // v1+, tag 0\n"),
    tagged("a field of a tagged struct in old versions", "    Zip: int32(5)\n", "    Zip: int32(5)\n    More: int8\n", codes="B104", kafka="should be present"),
    Change("a field of a tagged struct in a new version", TAGGED, TAGGED.replace("max version 3", "max version 4").replace("    Zip: int32(5)\n", "    Zip: int32(5)\n    More: int8 // v4+\n")),
]
# fmt: on
