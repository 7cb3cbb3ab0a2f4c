"""``meta.properties``: the cluster and the node that a log directory belongs to.

Version 1 has ``cluster.id``, ``node.id`` and ``directory.id`` (KIP-858). Version 0, of clusters that used
ZooKeeper, has ``cluster.id`` and ``broker.id``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from krammar.broker.errors import BrokerError
from krammar.broker.log.files import write_atomically
from krammar.logfiles.uuids import format_uuid, parse_uuid
from krammar.util.properties import PropertiesError, decode, parse_properties

NAME = "meta.properties"


def random_uuid() -> UUID:
    """Return a random UUID whose text does not begin with a dash, which marks options on command lines."""
    while True:
        value = uuid4()
        if not format_uuid(value).startswith("-"):
            return value


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of the file; None for missing entries."""

    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: UUID | None = None


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Read a directory's file. Returns None if it does not exist. Raises BrokerError."""
    path = directory / NAME
    try:
        lines = parse_properties(decode(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BrokerError(f"{path}: cannot be read: {error.strerror}") from None
    except PropertiesError as error:
        raise BrokerError(f"{path}: line {error.line}: {error.reason}") from None
    entries = {name: value.strip() for name, value, _ in lines}
    if entries.get("version", "0") not in ("0", "1"):
        raise BrokerError(
            f"{path}: unknown version {entries['version']} (0 and 1 are known); "
            "the directory was written by a newer Kafka"
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
            f"{path}: {error}; correct the line, or remove the file so that the broker writes a new one"
        ) from None


def write_meta_properties(directory: Path, properties: MetaProperties) -> None:
    """Write the file atomically, at version 1. Raises BrokerError."""
    path = directory / NAME
    lines = ["#", "version=1"]
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    if properties.node_id is not None:
        lines.append(f"node.id={properties.node_id}")
    if properties.directory_id is not None:
        lines.append(f"directory.id={format_uuid(properties.directory_id)}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise BrokerError(f"{path}: cannot be written: {error.strerror}") from None
