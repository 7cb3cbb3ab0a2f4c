"""``krammar inspect`` of log folders: it prints what a consumer reads, and reports damage."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from krammar.cli import main
from krammar.inspect.files import FilesError, Item, inspect_path
from krammar.logfiles.names import stem
from krammar.wire.batches import Record, encode_batch, read_headers
from tests.support.files import flip

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from tests.spark.logs_support import CODECS, Folder, fill


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    path = tmp_path_factory.mktemp("data")
    yield fill(path)
    shutil.rmtree(path)


def krammar(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def items(path: Path) -> list[dict[str, Any]]:
    result = krammar(path, "--records", "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in found if item["kind"] == kind]


def content(record: dict[str, Any], name: str) -> bytes | None:
    if f"{name}Hex" in record:
        return bytes.fromhex(record[f"{name}Hex"])
    return None if record[name] is None else str(record[name]).encode()


@pytest.mark.parametrize("topic", [f"codec-{codec}" for codec in CODECS] + ["segments", "sizes"])
def test_records_are_those_that_a_consumer_gets(folder: Folder, topic: str) -> None:
    expected = sorted(folder.rows[topic], key=lambda row: (row.partition, row.offset))
    found = [
        (
            content(record, "key"),
            content(record, "value"),
            partition,
            record["offset"],
            record["CreateTime"],
            tuple((h["key"], content(h, "value")) for h in record.get("headers", ())) or None,
        )
        for partition in range(3 if topic.startswith("codec-") else 1)
        for record in of_kind(items(folder.path / f"{topic}-{partition}"), "record")
    ]
    assert found == [
        (r.key, r.value, r.partition, r.offset, r.timestamp_ms, r.headers) for r in expected
    ]


def test_batches_and_index_entries_are_those_of_the_files(folder: Folder) -> None:
    found = items(folder.path / "segments-0")
    batches = of_kind(found, "batch")
    headers = [
        header
        for path in sorted((folder.path / "segments-0").glob("*.log"))
        for header in read_headers(path.read_bytes())
    ]
    assert [(b["baseOffset"], b["position"], b["size"], b["crc"]) for b in batches] == [
        (h.base_offset, h.position, h.size_in_bytes, h.crc) for h in headers
    ]
    assert all(b["isvalid"] and b["compresscodec"] == "none" for b in batches)
    places = {(b["lastOffset"], b["position"]) for b in batches}
    entries = of_kind(found, "entry")
    by_offset = [e for e in entries if "position" in e]
    assert len(by_offset) > 20 and {(e["offset"], e["position"]) for e in by_offset} <= places
    times = [e for e in entries if "timestamp" in e]
    assert {(e["timestamp"], e["offset"]) for e in times} <= {
        (b["CreateTime"], b["lastOffset"]) for b in batches
    }
    assert {Path(file["path"]).parent.name for file in of_kind(found, "file")} == {"segments-0"}


def test_transactions(folder: Folder) -> None:
    found = items(folder.path / "ledger-0")
    markers = [
        record["endTxnMarker"] for record in of_kind(found, "record") if "endTxnMarker" in record
    ]
    assert markers == ["COMMIT", "ABORT", "COMMIT", "ABORT"]
    texts = {r["offset"]: r.get("value") for r in of_kind(found, "record")}
    aborted = [(t["firstOffset"], t["lastOffset"]) for t in of_kind(found, "transaction")]
    assert [str(texts[first])[:7] for first, _ in aborted] == ["abort 1", "abort 3"]
    assert all(texts[last] is None for _, last in aborted)
    (open_,) = (
        {
            p["currentTxnFirstOffset"]
            for p in of_kind(found, "producer")
            if p["currentTxnFirstOffset"] is not None
        }
        - {first for first, _ in aborted}
        - {o for o, t in texts.items() if str(t).startswith("commit")}
    )
    assert texts[open_] == "open"


def test_internal_topics_are_decoded(folder: Folder) -> None:
    commits = of_kind(items(folder.path / "__consumer_offsets-0"), "record")
    offsets = {
        (r["key"]["group"], r["key"]["topic"], r["key"]["partition"]): r["value"]["offset"]
        for r in commits
        if r["type"] == "OffsetCommit"
    }
    assert offsets == folder.offsets
    states = of_kind(items(folder.path / "__transaction_state-0"), "record")
    assert {r["key"]["transactional_id"] for r in states} == {"ledger-0", "ledger-1", "ledger-open"}
    metadata = of_kind(items(folder.path / "__cluster_metadata-0"), "record")
    topics = {r["value"]["name"] for r in metadata if r["type"] == "TopicRecord"}
    assert topics >= {*folder.rows, "__consumer_offsets"}
    assert metadata[0]["type"] == "LeaderChangeMessage"
    assert not any("error" in record for record in commits + states + metadata)


def test_a_log_dir_is_all_of_its_partitions(folder: Folder) -> None:
    result = krammar(folder.path)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    dumped = [line.removeprefix("Dumping ") for line in lines if line.startswith("Dumping ")]
    endings = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [path for path in folder.path.glob("*-*/*") if path.suffix in endings]
    assert sorted(dumped) == sorted(map(str, files))
    assert "| " not in result.output and "DAMAGED" not in result.output
    one = krammar(folder.path / "ledger-0" / f"{stem(0)}.log", "--records").output
    assert '| offset: 5 CreateTime: 1700000000000 key: null value: "plain 0"\n' in one


# Damage.


def segment(folder: Path, count: int = 6, **options: Any) -> tuple[Path, list[int]]:
    folder.mkdir()
    path = folder / f"{stem(0)}.log"
    batches = [
        encode_batch([Record(n, 5, b"k", b"v%d" % n)], base_offset=n, **options)
        for n in range(count)
    ]
    path.write_bytes(b"".join(batches))
    return path, [header.position for header in read_headers(path.read_bytes())]


def damage(path: Path) -> tuple[list[int], list[tuple[str, int]]]:
    """The offsets of the records that are printed, and the cases and positions of damage."""
    result = krammar(path, "--records", "--json")
    assert result.exit_code == 1
    found = [json.loads(line) for line in result.output.splitlines()]
    assert all(
        str(d["position"]) in d["message"] or d["case"] != "crc" for d in of_kind(found, "damage")
    )
    cases = [(item["case"], item["position"]) for item in of_kind(found, "damage")]
    return [record["offset"] for record in of_kind(found, "record")], cases


def test_a_wrong_crc(tmp_path: Path) -> None:
    path, positions = segment(tmp_path / "a-0")
    flip(path, positions[2] + 65)
    assert damage(path) == ([0, 1, 3, 4, 5], [("crc", positions[2])])
    assert f"DAMAGED case: crc position: {positions[2]} message: " in krammar(path).output


def test_what_is_no_batch_and_what_is_cut_off(tmp_path: Path) -> None:
    path, positions = segment(tmp_path / "a-0")
    path.write_bytes(path.read_bytes()[:-3])
    assert damage(path) == ([0, 1, 2, 3, 4], [("torn", positions[5])])
    flip(path, positions[3] + 16)
    assert damage(path) == ([0, 1, 2], [("no batch", positions[3])])


def test_offsets_that_do_not_rise_and_a_header_that_cannot_be(tmp_path: Path) -> None:
    path, positions = segment(tmp_path / "a-0")
    data = bytearray(path.read_bytes())
    data[positions[4] + 7] = 1
    data[positions[2] + 57] = 0xFF
    path.write_bytes(data)
    cases = [("header", positions[2]), ("offsets", positions[4])]
    assert damage(path) == ([0, 1, 3, 1, 5], cases)


def test_records_that_cannot_be_decoded(tmp_path: Path) -> None:
    path, positions = segment(tmp_path / "__consumer_offsets-0")
    offsets, cases = damage(path)
    assert offsets == [0, 1, 2, 3, 4, 5]
    assert cases == [("records", position) for position in positions]


def test_files_beside_a_segment(tmp_path: Path) -> None:
    path, positions = segment(tmp_path / "a-0")
    path.with_suffix(".index").write_bytes(
        b"".join(n.to_bytes(4, "big") for n in (1, positions[1], 3, positions[3] + 1))
    )
    path.with_suffix(".timeindex").write_bytes(bytes([1]) * 13)
    path.with_suffix(".txnindex").write_bytes(b"\1" * 34)
    path.with_suffix(".snapshot").write_bytes(b"\0\1" + bytes(8))
    _, cases = damage(tmp_path / "a-0")
    assert cases == [
        ("index", 8),
        ("index", 12),
        ("transaction index", 0),
        ("snapshot", 2),
    ]


def test_memory_is_that_of_one_batch(tmp_path: Path) -> None:
    folder = tmp_path / "a-0"
    folder.mkdir()
    one = encode_batch([Record(value=bytes(200_000))])
    (folder / f"{stem(0)}.log").write_bytes(
        b"".join(offset.to_bytes(8, "big") + one[8:] for offset in range(200))
    )

    def walk(found: Iterator[Item]) -> int:
        return sum(1 for item in found if item.kind == "record")

    walk(inspect_path(str(folder), records=True))
    tracemalloc.start()
    assert walk(inspect_path(str(folder), records=True)) == 200
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 << 20


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nowhere"], "there is no file or folder 'nowhere'"),
        (["."], "contains no file of a log"),
        ([__file__], "is not a file of a log"),
        ([".", "--hex", "00"], "--hex needs PACKAGE and NAME"),
        (["kafka_wire", "FetchRequest", "--json"], "need a single PATH"),
    ],
)
def test_misuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = krammar(*arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / f"{stem(0)}.log").mkdir()
    with pytest.raises(FilesError, match="Is a directory"):
        list(inspect_path(str(tmp_path)))


def test_pipes_are_refused(tmp_path: Path) -> None:
    """Opening one would wait forever for a program that writes."""
    path = tmp_path / "00000000000000000000.log"
    os.mkfifo(path)
    for given in (path, tmp_path):
        with pytest.raises(FilesError, match=r"\.log: is a pipe, not a regular file"):
            list(inspect_path(str(given)))
