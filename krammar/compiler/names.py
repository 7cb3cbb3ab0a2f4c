"""How names in definitions become names in Python."""

from __future__ import annotations

import keyword
import re

# What every generated class defines for itself; a field of that name gets a trailing underscore.
STRUCT_NAMES = frozenset({"self", "to_dict", "from_dict", "unknown_tags"})
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
# What a struct with a field `UUID: uuid` defines besides: it is a message of krammar.journal.
JOURNAL_NAMES = frozenset({"get_uuid", "set_uuid", "new_acknowledgement"})
# What a generated package defines at its top; a module of that name gets a trailing underscore.
PACKAGE_NAMES = frozenset(
    {
        "header_versions",
        "layout",
        "layouts",
        "parse_request",
        "parse_response",
        "request_class",
        "response_class",
    }
)

_WORD = re.compile(r"[A-Z]+s(?![a-z])|[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z][a-z0-9]*|[0-9]+")
# Statuses and Viruses, but not Houses, Causes or Uses.
_LATIN_US = re.compile(r"[a-z][^aeiouAEIOU\W]uses$|Buses$")
_CONSONANT_Y = re.compile(r"[^aeiouAEIOU]ies$")


def words(name: str) -> list[str]:
    """``TopicID`` is Topic, ID; ``ISRNodes`` is ISR, Nodes; ``ApiKeys`` is Api, Keys; ``ISRs`` one word."""
    parts: list[str] = []
    for match in _WORD.finditer(name):
        part = match.group()
        # A digit run belongs to the word before it: `Field1` and `SHA256` are one word each.
        if parts and part[0].isdigit():
            parts[-1] += part
        else:
            parts.append(part)
    return parts


def snake_case(name: str) -> str:
    """``TopicID`` → ``topic_id``."""
    return "_".join(word.lower() for piece in name.split("_") for word in words(piece))


def python_name(name: str, taken: frozenset[str] = frozenset()) -> str:
    """The attribute for a field: snake case, with an underscore behind keywords and ``taken`` names."""
    result = snake_case(name) or name
    if keyword.iskeyword(result) or result in taken:
        result += "_"
    return result


def constant_name(name: str) -> str:
    """``PrepareCommit`` → ``PREPARE_COMMIT``; names without lower case stay."""
    return snake_case(name).upper() if any(c.islower() for c in name) else name


def singular(name: str) -> str:
    """The singular of a plural field name: ``Batches`` → ``Batch``, ``Statuses`` → ``Status``,
    ``Topologies`` → ``Topology``, ``ISRs`` → ``ISR``. A name that is no plural stays."""
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


# What the rules below would miss.
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
    """The module for a definition file: its stem without a leading number (``00_produce`` and
    ``produce.krm`` are both ``produce``), made an identifier."""
    stem = file_name.rsplit(".", 1)[0] if "." in file_name.lstrip(".") else file_name
    stem = re.sub(r"\W", "_", stem)
    stripped = re.sub(r"^[0-9_]+", "", stem) or f"_{stem}"
    result = stripped.lower()
    if keyword.iskeyword(result) or result in PACKAGE_NAMES:
        result += "_"
    return result
