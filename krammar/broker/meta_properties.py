"""``meta.properties``: the cluster and the node that a log directory belongs to.

Version 1 has ``cluster.id``, ``node.id`` and ``directory.id`` (KIP-858). Version 0, of clusters
that used ZooKeeper, has ``cluster.id`` and ``broker.id``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from krammar.broker.config.definitions import BROKER_CONFIGS
from krammar.broker.errors import BrokerError
from krammar.logfiles.uuids import format_uuid, parse_uuid
from krammar.util.durable import make_folders, write_atomically
from krammar.util.properties import decode, parse_properties
from krammar.util.regular_files import read_small
from krammar.util.settings import SettingError

NAME = "meta.properties"
LARGEST = 64 << 10  # bytes
# Kafka writes UUIDs of 22 characters, but older clusters can have other ids.
_CLUSTER_ID = re.compile(r"[!-~]{1,255}")


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


def read_meta_properties(directory: Path) -> MetaProperties:
    """Read a directory's file, which can be missing. Raises BrokerError."""
    path = directory / NAME
    try:
        data = read_small(path, LARGEST)
        # A power cut can leave such a file on some file systems. Without its content, the broker
        # would start as another cluster, whose clients refuse it.
        if not data.strip() or b"\0" in data:
            raise BrokerError(
                f"{path}: the file {'has zero bytes' if data.strip() else 'is empty'}, as a power cut can leave it,"
                " so the id of the cluster is unknown; restore the file from a copy, or remove it and"
                " start with --cluster-id ID (krammar.cluster.id) once"
            )
        lines = parse_properties(decode(data))
    except FileNotFoundError:
        return MetaProperties()
    except OSError as error:
        raise BrokerError(f"{path}: cannot be read: {error.strerror}") from None
    except SettingError as error:
        raise BrokerError(f"{path}: {error.origin}: {error.reason}") from None
    entries = {name: value.strip() for name, value, _ in lines}
    if entries.get("version", "0") not in ("0", "1"):
        raise BrokerError(
            f"{path}: unknown version {entries['version']} (0 and 1 are known); "
            "the directory was written by a newer Kafka"
        )
    cluster_id = entries.get("cluster.id") or None
    if cluster_id is not None and not _CLUSTER_ID.fullmatch(cluster_id):
        raise BrokerError(
            f"{path}: cluster.id={cluster_id[:300]!r} is not an id of up to 255 printable characters; restore the file"
            " from a copy"
        )
    node_id = entries.get("node.id", entries.get("broker.id"))
    directory_id = entries.get("directory.id")
    try:
        return MetaProperties(
            cluster_id,
            None if node_id is None else BROKER_CONFIGS["node.id"].parse(node_id),
            None if directory_id is None else parse_uuid(directory_id),
        )
    except ValueError as error:
        raise BrokerError(
            f"{path}: {error}; correct the line, or remove the file so that the broker writes a new one"
        ) from None


def write_meta_properties(
    directory: Path, cluster_id: str, node_id: int, directory_id: UUID, *, durable: bool = True
) -> None:
    """Write the file atomically, at version 1.

    Args:
        durable: force the file and the names of new folders to the disk

    Raises:
        BrokerError: the file cannot be written.
    """
    path = directory / NAME
    text = (
        f"#\nversion=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
        f"directory.id={format_uuid(directory_id)}\n"
    )
    try:
        make_folders(directory, durable=durable)
        write_atomically(path, text.encode(), durable=durable)
    except OSError as error:
        raise BrokerError(f"{path}: cannot be written: {error.strerror}") from None


def identify(
    directories: Iterable[Path],
    node_id: int,
    wanted: str | None,
    warn: Callable[[str], None],
    *,
    durable: bool = True,
) -> tuple[str, dict[Path, UUID]]:
    """Read the file of each directory, or create it for the cluster ``wanted``.

    Returns:
        The id of the cluster, and the id of each directory.

    Raises:
        BrokerError: a file is invalid or cannot be written, or belongs to another cluster.
    """
    found = {directory: read_meta_properties(directory) for directory in directories}
    ids = {
        known.cluster_id: directory
        for directory, known in found.items()
        if known.cluster_id is not None
    }
    if len(ids) > 1:
        listing = ", ".join(f"{directory} has {name}" for name, directory in ids.items())
        raise BrokerError(
            f"the log directories belong to different clusters: {listing}; "
            "remove the directories of other clusters from log.dirs"
        )
    found_id = next(iter(ids), None)
    if wanted is not None:
        wanted = format_uuid(parse_uuid(wanted))
        if found_id not in (None, wanted):
            raise BrokerError(
                f"{ids[found_id]} belongs to cluster {found_id}, not to {wanted}; choose another "
                "folder, or start without --cluster-id (krammar.cluster.id)"
            )
    cluster_id = found_id or wanted or format_uuid(random_uuid())
    directory_ids = {}
    for directory, known in found.items():
        writer = node_id if known.node_id is None else known.node_id
        if writer != node_id:
            warn(f"{directory} was written by node {writer}; this broker is node {node_id}")
        directory_id = directory_ids[directory] = known.directory_id or random_uuid()
        if known != MetaProperties(cluster_id, writer, directory_id):
            write_meta_properties(directory, cluster_id, writer, directory_id, durable=durable)
    return cluster_id, directory_ids
