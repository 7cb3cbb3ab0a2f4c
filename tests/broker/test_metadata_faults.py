"""The files of the cluster after power cuts and failures of the disk: meta.properties and the metadata log."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import BrokerError
from krammar.broker.log.files import StorageError
from krammar.wire.batches import read_batches
from tests.broker.faulty_disk import Disk
from tests.broker.support import new_topic

LOG = f"__cluster_metadata-0/{0:020}.log"


class Here:
    """A folder with cluster metadata."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []

    def open(self, fsync: str = "interval", **settings: Any) -> ClusterMetadata:
        config = BrokerConfig.defaults(log_dirs=[self.path], fsync=fsync, **settings)
        return ClusterMetadata(config, now_ms=lambda: 1_700_000_000_000, warn=self.warnings.append)

    def names(self) -> list[str]:
        """The topics that a start after a crash would find."""
        copy = self.path.with_name("copy")
        shutil.copytree(self.path, copy)
        cluster = Here(copy).open()
        cluster.close()
        shutil.rmtree(copy)
        return list(cluster.topics)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "data")


@pytest.fixture
def disk(here: Here, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(here.path, monkeypatch)


# meta.properties.


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (bytes(90), "the file has zero bytes"),
        (b"version=1\ncluster.id=abc\n" + bytes(60), "the file has zero bytes"),
    ],
)
def test_an_emptied_file_is_an_error(here: Here, content: bytes, problem: str) -> None:
    cluster = here.open()
    cluster.close()
    path = here.path / "meta.properties"
    path.write_bytes(content)
    with pytest.raises(BrokerError) as caught:
        here.open()
    text = str(caught.value)
    assert text.startswith(f"{path}: {problem}, as a power cut can leave it")
    assert "restore the file from a copy, or remove it and start with --cluster-id" in text
    assert path.read_bytes() == content
    # The advice of the message works.
    path.unlink()
    again = here.open(cluster_id=cluster.cluster_id)
    assert again.cluster_id == cluster.cluster_id
    again.close()


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
def test_the_file_is_forced_to_the_disk(here: Here, disk: Disk, fsync: str) -> None:
    here.open(fsync).close()
    at = disk.calls.index(("replace", "meta.properties"))
    assert disk.calls[at - 1] == ("fsync", "meta.properties.tmp")
    assert disk.calls[at + 1] == ("fsync", ".")


# The metadata log.


@pytest.mark.parametrize("fsync", ["always", "interval", "never", "off"])
def test_each_record_is_forced_to_the_disk(here: Here, disk: Disk, fsync: str) -> None:
    """With `never` too, as Kafka does: a block of producer ids must not be issued twice."""
    cluster = here.open(fsync)
    disk.calls.clear()
    cluster.allocate_producer_ids(1000)
    assert (("fsync", LOG) in disk.calls) == (fsync != "off")
    cluster._snapshot()
    assert any(call == "fsync" for call, _ in disk.calls) == (fsync != "off")
    cluster.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failed_write_changes_nothing(here: Here, disk: Disk, call: str, error: int) -> None:
    cluster = here.open()
    new_topic(cluster, "before", 1)
    with disk.failing(call, LOG, error):
        for _ in range(2):
            with pytest.raises(StorageError, match="nothing has changed"):
                new_topic(cluster, "failed", 1)
    assert list(cluster.topics) == here.names() == ["before"]
    disk.calls.clear()
    new_topic(cluster, "after", 1)
    # After a failed fsync, the kernel may have dropped the data in its cache. So a copy replaces the file.
    copied = disk.calls[:4] == [
        ("open", f"{LOG}.tmp"),
        ("pwrite", f"{LOG}.tmp"),
        ("fsync", f"{LOG}.tmp"),
        ("replace", LOG),
    ]
    assert copied == (call == "fsync")
    assert here.names() == ["before", "after"]
    assert (here.path / LOG).stat().st_mode & 0o777 == 0o600  # it holds credentials
    disk.calls.clear()
    new_topic(cluster, "later", 1)
    assert [name for name, _ in disk.calls] == ["write", "fsync"]
    cluster.close()
    assert here.names() == ["before", "after", "later"]


def test_a_failed_write_that_cannot_be_undone_at_once(here: Here, disk: Disk) -> None:
    cluster = here.open()
    new_topic(cluster, "before", 1)
    disk.fail("fsync|ftruncate", LOG)
    for _ in range(2):
        with pytest.raises(StorageError, match="Input/output error"):
            new_topic(cluster, "failed", 1)
    assert any("cannot be truncated: Input/output error" in line for line in here.warnings)
    disk.mend()
    new_topic(cluster, "after", 1)
    cluster.close()
    list(read_batches((here.path / LOG).read_bytes(), allow_partial=False))
    assert here.names() == ["before", "after"]


def test_a_log_that_is_damaged_after_a_failed_fsync(here: Here, disk: Disk) -> None:
    """The kernel may show older bytes as soon as it reads a page from the disk again."""
    cluster = here.open()
    new_topic(cluster, "before", 1)
    with disk.failing("fsync", LOG), pytest.raises(StorageError):
        new_topic(cluster, "failed", 1)
    path = here.path / LOG
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes(20))
    with pytest.raises(StorageError, match="is damaged after a failed fsync; restart the broker"):
        new_topic(cluster, "after", 1)
    path.write_bytes(content)
    new_topic(cluster, "after", 1)
    cluster.close()
    assert here.names() == ["before", "after"]


@pytest.mark.parametrize("call", ["open", "pwrite", "fsync", "replace"])
def test_a_snapshot_that_fails_leaves_no_file(here: Here, disk: Disk, call: str) -> None:
    cluster = here.open()
    new_topic(cluster, "before", 1)
    with disk.failing(call, r"__cluster_metadata-0/.*checkpoint.*", errno.ENOSPC):
        cluster._snapshot()
    assert "cannot write a snapshot: No space left on device" in here.warnings[-1]
    assert not list((here.path / "__cluster_metadata-0").glob("*.checkpoint*"))
    new_topic(cluster, "after", 1)
    cluster._snapshot()
    cluster.close()
    assert here.names() == ["before", "after"]
