"""UUIDs in the text form of Kafka's files."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

_UUID = re.compile(r"[A-Za-z0-9_-]{22}")


def format_uuid(value: UUID) -> str:
    """Return a UUID in Kafka's text form: 22 characters of url-safe base64 without padding."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID:
    """Parse a UUID, as the inverse of ``format_uuid``.

    Forms of other tools are accepted too: base64 with the standard alphabet, padding, hexadecimal digits with
    dashes. Raises ValueError.
    """
    if len(text) == 36:
        return UUID(text)
    text = text.rstrip("=").replace("+", "-").replace("/", "_")
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text!r} is not a uuid: needs 22 characters of url-safe base64")
    return UUID(bytes=urlsafe_b64decode(text + "=="))
