"""The name, content type and labels of a journal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from krammar.journal.fixed_framing import FIXED_CONTENT_TYPE
from krammar.journal.frames import Framing
from krammar.journal.framing import framing_by_content_type

# Parts of names become names of folders, so "." and ".." are not allowed, and most file systems limit their length.
_PART = r"(?!\.+(?:/|$))[\w.=%+,@:-]{1,200}"
_NAME = re.compile(f"{_PART}(?:/{_PART})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class JournalSpec:
    """A journal's name, its framing's content type, and labels by which applications choose journals.

    A name consists of parts separated by ``/``, of at most 200 letters, digits and ``_.=%+,@:-``.

    Raises:
        ValueError: the name is not valid.
        ContentTypeError: no framing has the content type.
    """

    name: str
    content_type: str = FIXED_CONTENT_TYPE
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        framing_by_content_type(self.content_type)

    @property
    def framing(self) -> Framing:
        return framing_by_content_type(self.content_type)


def check_name(name: str) -> str:
    """Return the name of a journal. Raises ValueError if it is not valid."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid name of a journal: use parts separated by /, of at most 200 letters, digits and "
            "_.=%+,@:-"
        )
    return name
