"""Types as other languages and Kafka's guide write them, and how definitions spell them.

A hint never replaces a type by one of another size or sign: a peer would read other bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from krammar.util.diagnostics import most_similar

# Types of the same size and sign.
_SAME = {
    "bool": "boolean",
    "int8": "byte i8 s8 sbyte tinyint",
    "int16": "short i16 s16 smallint",
    "int32": "int integer i32 s32",
    "int64": "long i64 s64 bigint",
    "uint8": "ubyte u8 uchar octet",
    "uint16": "ushort u16",
    "uint32": "uint u32",
    "uint64": "ulong u64",
    "float32": "float single f32",
    "float64": "double f64",
    "varint": "varint32 sint32",
    "varlong": "varint64 sint64",
    "uvarint": "uvarint32 varuint varuint32 unsigned_varint unsigned-varint",
    "uvarlong": "uvarint64 varuint64 unsigned_varlong unsigned-varlong",
    "uuid": "guid",
    "string": "str text varchar utf8 compact_string compact-string compactstring",
    "bytes": "binary blob bytearray buffer records compact_bytes compact-bytes compactbytes compact_records",
}
_OTHER = {other: name for name, others in _SAME.items() for other in others.split()}
_INTEGERS = "the integers are `int8` to `int64` and `uint8` to `uint64`"
# Types that do not exist here, and what to say about them.
_MISSING = {
    "int24 uint24 int128 uint128 i128 u128": f"no type has this size; {_INTEGERS}",
    "float16 half": "no type is a float of 16 bits; `float32` has 32",
    "union oneof variant choice": (
        "no field has one of several types; write an enum for the kind, and a nullable struct for each kind"
    ),
    "bit bits bitfield bit_field bit-field bitset flags": (
        "fields begin at bytes; write an unsigned integer such as `uint8`, and read its bits in your program"
    ),
    "cstring c_string c-string cstr asciiz asciz stringz string0 nulstring": (
        "no string ends with a zero byte; write a string with a length, such as `uvarint-string`"
    ),
    "char": "no type is a character; write `string`",
    "date datetime time timestamp": "a time is an integer; Kafka counts milliseconds since 1970 in `int64`",
    "map dict hashmap": "write an array of structs, `[=>]`, with a field for the key and one for the value",
    "struct object record message group": "write `=>`, and the fields on deeper lines",
    "enum": "write `enum-` and the name of the enum, as in `enum-ConfigType`",
    "any void null none": "every field needs a type of a known size",
    "list array vector set tuple": "an array is written with its elements, as in `[int32]`",
}
_EXPLAINED = {name: why for names, why in _MISSING.items() for name in names.split()}
# Longer texts are no types, and would be nested deeply.
_LONGEST = 100
NO_NULL = "only strings, bytes, arrays and structs can be null"
_NULLABLE = frozenset({"string", "bytes"})
_SIZES = re.compile(r"\d{1,9}")
_WORD = re.compile(r"[A-Za-z_][\w.-]*\+?")

# `list<int32>`, `Array(int32)`, `[]int32`, `int32[]` and others; the content is a type again.
_ARRAYS = (
    re.compile(
        r"(?:list|array|arraylist|vector|vec|set|seq|sequence) ?[<(\[](?P<of>.+)[>)\]]", re.I
    ),
    re.compile(r"(?:repeated|list of|array of) (?P<of>.+)", re.I),
    re.compile(r"\[\](?P<of>.+)"),
    re.compile(r"(?P<of>.+)\[\]"),
)
_NULLS = (
    re.compile(r"(?:nullable|optional|option|maybe) ?[<(](?P<of>.+)[>)]", re.I),
    re.compile(r"(?:nullable|optional|option)[ _-](?P<of>.+)", re.I),
    re.compile(r"(?:null \| ?|\?)(?P<of>.+)"),
    re.compile(r"(?P<of>.+?)(?:\?| ?\| ?null)"),
)
# After a match with `nullable`, the rest of these is a type of definitions itself.
_OWN_NULL = re.compile(r"nullable(?:-v\d+\+)?(?:\[|=>)|nullable-(?:string|bytes)(?:-v\d+\+)?$")
_COMPACT_NULL = re.compile(
    r"(?:compact_nullable|nullable_compact)_(?P<of>string|bytes|records)", re.I
)
_MAP = re.compile(r"(?:map|dict|hashmap) ?[<(\[].*", re.I)


def spelled(text: str) -> str | None:
    """Return how definitions spell a type of another language, or None if the text is none.

    ``list<int32>`` is ``[int32]``, ``string?`` is ``nullable-string``. Types with the right spelling are
    returned as they are.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    if _OWN_NULL.match(text) or text in ("=>", "[=>]"):
        return text
    if compact := _COMPACT_NULL.fullmatch(text):
        return _nullable(spelled(compact["of"].lower()))
    for pattern in _NULLS:
        if match := pattern.fullmatch(text):
            return _nullable(spelled(match["of"]))
    for pattern in _ARRAYS:
        if match := pattern.fullmatch(text):
            inner = spelled(match["of"])
            # Elements cannot be null.
            return None if inner is None or inner.startswith("nullable") else f"[{inner}]"
    if text.startswith("[") and text.endswith("]"):
        inner = spelled(text[1:-1])
        return None if inner is None or inner.startswith("nullable") else f"[{inner}]"
    if not _WORD.fullmatch(text) or text.lower() in _EXPLAINED:
        return None
    if text.lower() in _SAME:
        return text.lower()
    return _OTHER.get(text.lower(), text)


def _nullable(inner: str | None) -> str | None:
    if inner in _NULLABLE:
        return f"nullable-{inner}"
    if inner is not None and inner.startswith(("[", "=>")):
        return f"nullable{inner}"
    return None


def is_type(word: str) -> bool:
    """Whether a word is a type, here or in other languages."""
    return any(word.lower() in table for table in (_SAME, _OTHER, _EXPLAINED))


# Numbers in little endian, lengths of other forms, and versions after a form that has none.
_LITTLE = re.compile(
    r"(?:little[_-]?endian.*|le[_-]?[iu]\w*\d+|[a-z]+\d+[_-]?le|\w+[_-](?:le|little))", re.I
)
_OTHER_LENGTH = re.compile(r"(?:nullable-)?u?int\d+-(?:string|bytes)", re.I)
_VERSIONED = re.compile(r"(?:(?:u?varint|int16|int32)-)?(?:string|bytes)-v\d+(?:\+|-v\d+)?")


def explain(text: str) -> str:
    """Return why no type of definitions is the one of another language, or an empty text."""
    if len(text) > _LONGEST:
        return ""
    if _LITTLE.fullmatch(text):
        return (
            "numbers are big-endian; read the number as it is, and swap its bytes in your program"
        )
    if _OTHER_LENGTH.fullmatch(text):
        return "a length is an int16, an int32, a varint or a uvarint, as in `int16-string`"
    if _VERSIONED.fullmatch(text):
        return "only null can depend on the version, as in `nullable-string-v3+`"
    if _MAP.fullmatch(text):
        return _EXPLAINED["map"]
    words = re.findall(r"[A-Za-z_][\w-]*", text)
    for word in words:
        for name in (word.lower(), re.sub(r"^(?:nullable|optional)[-_]", "", word.lower())):
            if name in _EXPLAINED and (
                len(words) == 1 or name not in ("list", "array", "set", "vector", "null")
            ):
                return _EXPLAINED[name]
    match = next((m for p in _NULLS if (m := p.fullmatch(text))), None)
    inner = spelled(match["of"]) if match else None
    return NO_NULL if inner and is_type(inner) and _nullable(inner) is None else ""


def similar_type(text: str, known: Iterable[str]) -> str:
    """Return the known type that an unknown one may mean, or an empty text.

    Types of another size are not similar. A number that is not a size, such as in ``int9``, is a typing mistake.
    """
    if explain(text):
        return ""
    sizes = [size for size in _SIZES.findall(text) if int(size) % 8 == 0]
    if sizes:
        known = [name for name in known if _SIZES.findall(name) == sizes]
    return most_similar(text, known)
