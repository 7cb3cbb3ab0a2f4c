"""``meta.properties``: whose a log directory is, and uuids in the form that Kafka writes them.

The file stands in each log directory. Version 1 has ``cluster.id``, ``node.id`` and ``directory.id``
(KIP-858), version 0, of clusters that were with ZooKeeper, ``cluster.id`` and ``broker.id``.
"""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from krammar.broker.errors import BrokerError

NAME = "meta.properties"
_UUID = re.compile(r"[A-Za-z0-9_-]{22}")


def format_uuid(value: UUID) -> str:
    """A uuid in Kafka's text form: 22 characters of url-safe base64 without padding."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID:
    """The inverse of ``format_uuid``, which also takes what other tools write: base64 of the other
    alphabet, padding, hexadecimal digits with dashes. Raises ValueError."""
    if len(text) == 36:
        return UUID(text)
    text = text.rstrip("=").replace("+", "-").replace("/", "_")
    if not _UUID.fullmatch(text):
        raise ValueError(f"{text!r} is not a uuid: needs 22 characters of url-safe base64")
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def random_uuid() -> UUID:
    """A random uuid whose text does not begin with a dash, which command lines take for an option."""
    while True:
        value = uuid4()
        if not format_uuid(value).startswith("-"):
            return value


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """What the file says; None for what it leaves out."""

    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None


def read_properties(path: Path) -> dict[str, str]:
    """The entries of a Java properties file of plain ``key=value`` lines, without escapes."""
    entries = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, _, value = line.partition("=")
            entries[key.strip()] = value.strip()
    return entries


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """What the directory's file says, or None if it has none. Raises BrokerError."""
    path = directory / NAME
    try:
        entries = read_properties(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BrokerError(f"{path}: cannot be read: {error.strerror}") from None
    if entries.get("version", "0") not in ("0", "1"):
        raise BrokerError(
            f"{path}: version {entries['version']} is not known, only 0 and 1; "
            "the directory belongs to a newer Kafka"
        )
    node_id = entries.get("node.id", entries.get("broker.id"))
    directory_id = entries.get("directory.id")
    try:
        return MetaProperties(
            entries.get("cluster.id") or None,
            None if node_id is None else int(node_id),
            None if directory_id is None else parse_uuid(directory_id),
        )
    except ValueError as error:
        raise BrokerError(
            f"{path}: {error}; mend the line, or remove the file to have it made anew"
        ) from None


def write_meta_properties(directory: Path, properties: MetaProperties) -> None:
    """Write the file at version 1, whole or not at all. Raises BrokerError."""
    path = directory / NAME
    lines = ["#", "version=1"]
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    if properties.node_id is not None:
        lines.append(f"node.id={properties.node_id}")
    if properties.directory_id is not None:
        lines.append(f"directory.id={format_uuid(properties.directory_id)}")
    draft = directory / f"{NAME}.tmp"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.replace(draft, path)
    except OSError as error:
        raise BrokerError(f"{path}: cannot be written: {error.strerror}") from None
