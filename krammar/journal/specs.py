"""What is known of a journal besides its content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from krammar.journal.framing import FIXED_CONTENT_TYPE, Framing, framing_by_content_type

# Parts of names become names of folders. Dots alone would lead elsewhere.
_NAME = re.compile(r"(?!\.+(?:/|$))[\w.=%+,@:-]+(?:/(?!\.+(?:/|$))[\w.=%+,@:-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class JournalSpec:
    """A journal: its name, its framing's content type, and labels that applications choose journals by.

    A name has one part or more with ``/`` between them, of letters, digits and ``_.=%+,@:-``.
    Raises ValueError for another name, ContentTypeError.
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
    """The name of a journal. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name of a journal: parts of letters, digits and _.=%+,@:- with / between"
        )
    return name
