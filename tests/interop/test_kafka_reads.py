"""Our broker writes a folder; Apache Kafka's DumpLogSegments reads every file of it without complaint."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from krammar.broker import BrokerConfig, cluster
from krammar.broker.cluster import ClusterMetadata
from tests.interop import content
from tests.interop.apache import apache_kafka
from tests.interop.conftest import AGAINST_APACHE, our_broker
from tests.interop.dump import dump, files

LOGS = "[!_]*/*.log"


@pytest.fixture(scope="module")
def written(
    kafka_jars: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A folder with all kinds of content, and the records that a client read before the broker stopped."""
    broker = our_broker(
        tmp_path_factory.mktemp("ours") / "data",
        log_cleaner_backoff_ms="100",
        log_retention_check_interval_ms="1000",
    )
    with broker:
        content.write(broker.bootstrap)
        content.wait_for_compaction(broker.bootstrap, "compacted", 3000)
        seen = content.observe(broker.bootstrap)
    return broker.folder, seen


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        (LOGS, ["--deep-iteration"]),
        ("__consumer_offsets-*/*.log", ["--offsets-decoder"]),
        ("__transaction_state-*/*.log", ["--transaction-log-decoder"]),
        ("__cluster_metadata-0/*.log", ["--cluster-metadata-decoder"]),
        ("*/*index", ["--index-sanity-check"]),
        ("*/*index", ["--verify-index-only"]),
        ("*/*index", []),
        ("[!_]*/*.snapshot", []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_no_complaint(written: tuple[Path, dict[str, Any]], pattern: str, flags: list[str]) -> None:
    folder, _ = written
    found = files(folder, pattern)
    if AGAINST_APACHE:
        # Which leaves the index of its metadata log as long as it was laid out, with zeros at its end.
        found = [
            file
            for file in found
            if file.parent.name != "__cluster_metadata-0" or file.suffix == ".log"
        ]
    result = dump(folder, found, *flags)
    assert result.complaints == []
    if pattern.endswith(".log"):
        assert sum(map(len, result.records.values())) > 0


@pytest.fixture(scope="module")
def with_snapshot(
    written: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A copy of the folder whose metadata log has given way to a snapshot, as it does at 20 MB."""
    if AGAINST_APACHE:
        pytest.skip("it is about our broker's snapshots")
    copy = tmp_path_factory.mktemp("snapshot") / "data"
    shutil.copytree(written[0], copy)
    settings = {"log.dirs": str(copy), "listeners": "PLAINTEXT://127.0.0.1:0"}
    config = BrokerConfig.defaults(**settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterMetadata, "snapshot_bytes", 1)
        metadata = cluster.ClusterMetadata(
            config, now_ms=lambda: int(time.time() * 1000), warn=print
        )
        # Any further record would be wrong; this one repeats the existing state.
        metadata.set_configs(2, "plain", {"max.message.bytes": "2000000"})
        metadata.close()
    assert files(copy, "__cluster_metadata-0/*.checkpoint")
    return copy


def test_a_metadata_snapshot_is_read(with_snapshot: Path) -> None:
    found = files(with_snapshot, "__cluster_metadata-0/*.checkpoint")
    result = dump(with_snapshot, found, "--cluster-metadata-decoder")
    assert result.complaints == []
    assert any(result.records.values())


def test_kafka_finds_the_records_that_clients_saw(written: tuple[Path, dict[str, Any]]) -> None:
    folder, seen = written
    result = dump(folder, files(folder, LOGS), "--print-data-log")
    assert result.complaints == []
    starts = {
        where: offsets["earliest, read_uncommitted"][0]
        for where, offsets in seen["offsets"].items()
    }
    for (topic, partition), records in seen["records"].items():
        prefix = f"{topic}-{partition}/"
        theirs = [
            (record.offset, record.key_size, record.value_size)
            for name, found in sorted(result.records.items())
            if name.startswith(prefix)
            for record in found
            if record.offset >= starts[topic, partition]
        ]
        ours = [(offset, _size(key), _size(value)) for offset, _, _, key, value, _ in records]
        # Markers of transactions are in the files, with keys of four bytes, and are shown to no client.
        markers = {offset for offset, *_ in theirs} - {offset for offset, *_ in ours}
        assert [record for record in theirs if record[0] not in markers] == ours, prefix
        assert markers == set() or topic in ("transactional", "open"), prefix


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


@pytest.mark.parametrize("kind", ["log", "snapshot"])
def test_kafka_starts_on_the_folder(
    written: tuple[Path, dict[str, Any]],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
) -> None:
    """And shows clients what our broker showed them."""
    if AGAINST_APACHE:
        pytest.skip("it does so in test_kafka_writes")
    folder, seen = written
    if kind == "snapshot":
        folder = request.getfixturevalue("with_snapshot")
    shutil.copytree(folder, tmp_path / "kafka")
    lazy = {"log.cleaner.backoff.ms": "600000"}
    with apache_kafka(tmp_path / "kafka", properties=lazy, standalone=False) as kafka:
        assert content.differences(seen, content.observe(kafka.bootstrap)) == []
