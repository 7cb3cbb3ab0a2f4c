"""Text of Python modules: literals, docstrings, comments and names."""

from __future__ import annotations

import keyword
import re
import uuid
from collections.abc import Sequence
from functools import lru_cache

from krammar.compiler import ir, names

_WORDS = re.compile(r"\w+")


# Names that Python's enum classes use, and the property for the documentation of a member.
_ENUM_NAMES = frozenset(
    {"meaning", "mro", "name", "value"}
    # Attributes of int.
    | {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes"}
    | {"imag", "is_integer", "numerator", "real", "to_bytes"}
)
# What the bodies of enum classes use of Python.
_ENUM_BUILTINS = frozenset({"bool", "property", "str"})


def _clean(doc: str) -> str:
    return doc.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def docstring(doc: str, default: str = "") -> str:
    """Render a docstring. A space follows a quote at its end."""
    text = _clean(doc or default).strip()
    if "\n" in text:
        return f'"""{text}\n"""'
    return f'"""{text}{" " if text.endswith(chr(34)) else ""}"""'


def comment(doc: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in doc.split("\n"))


def on_one_line(doc: str) -> str:
    return " ".join(doc.split())


def member_name(name: str) -> str:
    return name + "_" if name in _ENUM_NAMES or keyword.iskeyword(name) else name


def shadowed(enum: ir.Enum) -> frozenset[str]:
    """Names of Python that the class of an enum cannot use, because members or properties have them."""
    return _ENUM_BUILTINS & {*(member.name for member in enum.members), *remarks_of(enum)}


def remark_name(remark: str) -> str:
    return names.python_name(remark, _ENUM_NAMES)


def remarks_of(enum: ir.Enum) -> list[str]:
    return sorted({remark for member in enum.members for remark in member.remarks})


def used_in(names_: Sequence[str], text: str) -> list[str]:
    """The names that occur in a rendered text."""
    found = _words_in(text)
    return [name for name in names_ if f"_{name}" in found]


def words_in(names_: Sequence[str], text: str) -> list[str]:
    """The names that occur as words in a rendered text."""
    found = _words_in(text)
    return [name for name in names_ if name in found]


@lru_cache(maxsize=4)
def _words_in(text: str) -> frozenset[str]:
    """The words of a text. A template asks several times for the names in one text."""
    return frozenset(_WORDS.findall(text))


def quoted(value: object) -> str:
    """The literal of a value, with double quotes where black wants them."""
    text = repr(value)
    if isinstance(value, str) and '"' not in value:
        return '"' + repr('"' + value)[2:-1].replace("\\'", "'") + '"'
    if isinstance(value, bytes) and b'"' not in value:
        return 'b"' + repr(b'"' + value)[3:-1].replace("\\'", "'") + '"'
    return text


def versions_literal(versions: Sequence[int]) -> str:
    """A literal of versions: a range if there are no gaps."""
    first, last = versions[0], versions[-1]
    if last - first + 1 != len(versions):
        return str(versions)
    return f"range({first}, {last + 1})" if first else f"range({last + 1})"


def field_doc(member: ir.Field) -> str:
    """The docstring of a field: its documentation, and its versions, tag and default in parentheses."""
    facts = []
    if member.versions != ir.ALL_VERSIONS:
        facts.append(str(member.versions))
    if member.tag is not None:
        facts.append(f"tag {member.tag}")
    plain = not isinstance(member.type, ir.StructType) and not isinstance(member.default, uuid.UUID)
    if plain and (member.default is None or member.default not in (0, "", b"", (), False)):
        facts.append(f"default {member.default!r}")
    return " ".join(part for part in (member.doc, f"({', '.join(facts)})" if facts else "") if part)


# Templates leave blank lines where they render nothing. black wants at most two, and one inside of a block.
_BLANK_LINES = re.compile(r"\n{4,}|\n{3,}(?= )")


def tidy(text: str) -> str:
    """Reduce blank lines to what black leaves."""

    def reduced(match: re.Match[str]) -> str:
        return "\n\n" if text[match.end() : match.end() + 1] == " " else "\n\n\n"

    stripped = _BLANK_LINES.sub(reduced, text).strip("\n")
    return f"{stripped}\n" if stripped else ""
