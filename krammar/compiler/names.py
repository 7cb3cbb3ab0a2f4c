"""Converts names of definitions to names in Python."""

from __future__ import annotations

import keyword
import re
from functools import lru_cache

# Names that every generated class defines. A field with such a name gets a trailing underscore.
STRUCT_NAMES = frozenset(
    {"self", "to_dict", "from_dict", "unknown_tags", "with_lengths", "with_unknown_tags"}
)
CODEC_NAMES = frozenset(
    {
        "encode",
        "encode_into",
        "decode",
        "decode_from",
        "min_version",
        "max_version",
        "flexible_from",
    }
)
MESSAGE_NAMES = frozenset(
    {"api_key", "request_class", "response_class", "routing", "throttle_from"}
)
# Further names of a struct with a field `UUID: uuid`, which is a message of krammar.journal.
JOURNAL_NAMES = frozenset({"get_uuid", "set_uuid", "new_acknowledgement"})
# Names that every generated package defines or imports. A module with such a name gets a trailing underscore.
PACKAGE_NAMES = frozenset(
    {
        "_codecs",
        "annotations",
        "header_versions",
        "layout",
        "layouts",
        "parse_push",
        "parse_request",
        "parse_response",
        "pushes",
        "request_class",
        "requests",
        "response_class",
    }
)

_WORD = re.compile(r"[A-Z]+s(?![a-z])|[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z][a-z0-9]*|[0-9]+")
# Statuses and Viruses, but not Houses, Causes or Uses.
_LATIN_US = re.compile(r"[a-z][^aeiouAEIOU\W]uses$|Buses$")
_CONSONANT_Y = re.compile(r"[^aeiouAEIOU]ies$")


def words(name: str) -> list[str]:
    """Split a name into words.

    ``TopicID`` becomes Topic, ID; ``ISRNodes`` becomes ISR, Nodes; ``ApiKeys`` becomes Api, Keys; ``ISRs`` is one
    word.
    """
    parts: list[str] = []
    for match in _WORD.finditer(name):
        part = match.group()
        # Digits belong to the word before them: `Field1` and `SHA256` are one word each.
        if parts and part[0].isdigit():
            parts[-1] += part
        else:
            parts.append(part)
    return parts


# Protocols repeat the names of their fields.
@lru_cache(maxsize=1 << 14)
def snake_case(name: str) -> str:
    """Convert ``TopicID`` to ``topic_id``."""
    return "_".join(word.lower() for piece in name.split("_") for word in words(piece))


def function_name(name: str) -> str:
    """Return the part of a function's name that identifies a struct, such as ``fetch_request``.

    Functions of a version end with ``_v3``, so that others must not.
    """
    result = "__".join(snake_case(part) for part in name.split("."))
    return f"{result}_" if re.search(r"_v\d+$", result) else result


def python_name(name: str, taken: frozenset[str] = frozenset()) -> str:
    """Return the attribute for a field: in snake case, with an underscore after keywords and ``taken`` names."""
    result = snake_case(name) or name
    if keyword.iskeyword(result) or result in taken:
        result += "_"
    return result


def constant_name(name: str) -> str:
    """Convert ``PrepareCommit`` to ``PREPARE_COMMIT``. Names without lower case are unchanged."""
    return snake_case(name).upper() if any(c.islower() for c in name) else name


def singular(name: str) -> str:
    """Return the singular of a plural name.

    ``Batches`` becomes ``Batch``, ``Statuses`` ``Status``, ``Topologies`` ``Topology``, ``ISRs`` ``ISR``. A name that
    is not a plural is unchanged.
    """
    for plural, single in _IRREGULAR.items():
        if name.endswith(plural):
            return name[: -len(plural)] + single
    if _CONSONANT_Y.search(name):
        return name[:-3] + "y"
    if name.endswith(("ches", "shes", "sses", "xes", "zzes")) or _LATIN_US.search(name):
        return name[:-2]
    if name.endswith("s") and not name.endswith(("ss", "us", "is")):
        return name[:-1]
    return name


# Plurals that the rules of ``singular`` do not cover.
_IRREGULAR = {
    "Caches": "Cache",
    "Indices": "Index",
    "Indexes": "Index",
    "Vertices": "Vertex",
    "Matrices": "Matrix",
    "Children": "Child",
    "Series": "Series",
    "Movies": "Movie",
}


def module_name(file_name: str) -> str:
    """Return the module for a definition file: its name without suffix and leading number.

    ``00_produce`` and ``produce.krm`` both become ``produce``. The result is an identifier.
    """
    stem = file_name.rsplit(".", 1)[0] if "." in file_name.lstrip(".") else file_name
    stem = re.sub(r"\W", "_", stem)
    stripped = re.sub(r"^[0-9_]+", "", stem) or f"_{stem}"
    result = stripped.lower()
    if keyword.iskeyword(result) or result in PACKAGE_NAMES:
        result += "_"
    return result
