"""Break down what pure Python needs for a Fetch response with ``copy=False``.

    python -m tests.bench.fetch_cost [--output FILE]

Writes its section of docs/benchmarks.md, or of FILE.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

# Before kafka_wire is imported: this is about the pure build.
os.environ["KRAMMAR_PURE_PYTHON"] = "1"

import kafka_wire.fetch as generated

from tests.bench.messages import Case, fetch_response
from tests.bench.page import put_file, section
from tests.bench.peers import KAFKA_PYTHON, KIO, contenders
from tests.bench.timing import OURS, Statement, Timing, measure

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_VERSION = 17
_TOPICS, _PARTITIONS = 2, 8
_EMPTY = "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.fetch_cost", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--output", type=Path, default=_PAGE, help="page that takes the section")
    output = parser.parse_args().output
    lines = list(_lines())
    put_file(output, section("fetch", "python -m tests.bench.fetch_cost", lines))
    print("\n".join(lines))


def _lines() -> Iterator[str]:
    one = _decode(1, 1)
    many = _decode(_TOPICS, _PARTITIONS)
    count = _TOPICS * _PARTITIONS
    each = (many.seconds(OURS) - one.seconds(OURS)) / (count - 1) * 1e9
    parts = _parts()
    yield "## The cost of a Fetch response in pure Python"
    yield ""
    yield "The figures apply to platforms without a wheel. 1 MB of records is decoded with `copy=False`, which copies"
    yield "no record. The aim is 5 times as fast as both peers, which copy the records. The engine meets it; pure Python meets"
    yield "it for few partitions only, because its time grows with the number of partitions:"
    yield ""
    yield f"- 1 partition: {_compared(one)}"
    yield f"- {count} partitions: {_compared(many)}"
    yield ""
    yield f"Every further partition takes {each:.0f} ns. For 5 times, it would have to take"
    yield f"{_fifth(many, KAFKA_PYTHON, count):.0f} ns (kafka-python) or {_fifth(many, KIO, count):.0f} ns (kio). The time goes to:"
    yield ""
    for name, nanoseconds in parts.items():
        yield f"- {name}: {nanoseconds:.0f} ns"
    yield f"- the loop, comparisons, positions and the tag count: {each - sum(parts.values()):.0f} ns"
    yield ""
    yield "The three structs are attributes that programs read and change, so each partition needs its own. Creating them on first"
    yield "access would turn the attributes into properties, which are slower to read and to encode."


def _compared(timing: Timing) -> str:
    peers = (f"{peer} {timing.ratio(peer):.1f} times as long" for peer in (KAFKA_PYTHON, KIO))
    return f"{timing.seconds(OURS) * 1e6:.1f} µs; {', '.join(peers)}"


def _fifth(timing: Timing, peer: str, count: int) -> float:
    """A fifth of the nanoseconds that a peer takes per partition."""
    return timing.seconds(peer) * 1e9 / count / 5


def _decode(topics: int, partitions: int) -> Timing:
    case = Case("", _VERSION, lambda: fetch_response(topics, partitions), copy=False)
    return measure({each.name: each.decode for each in contenders(case)}, rounds=31, slice_=0.004)


# The lines of the generated decoder, with a partition as `o`.
_STEPS = {
    "the partition's object": """\
p = _new(FetchResponse.PartitionData)
p._unknown_tags = None
p.aborted_transactions = None""",
    "the objects of its 3 tagged structs, with 9 attributes": """\
o.diverging_epoch = s = _new(FetchResponse.EpochEndOffset)
s._unknown_tags = None
s.epoch = -1
s.end_offset = -1
o.current_leader = s = _new(FetchResponse.LeaderIdAndEpoch)
s._unknown_tags = None
s.leader_id = -1
s.leader_epoch = -1
o.snapshot_id = s = _new(FetchResponse.SnapshotId)
s._unknown_tags = None
s.end_offset = -1
s.epoch = -1""",
    "fixed-width fields, with 2 calls of struct": """\
(
    o.partition_index,
    o.error_code,
    o.high_watermark,
    o.last_stable_offset,
    o.log_start_offset,
    n,
) = _r_ihqqqB(buf, pos)
o.preferred_read_replica, n = _r_iB(buf, pos)""",
    "the length of the records, a varint of 3 bytes": "n, p = _uvarint(buf, 1, 128)",
    "the memoryview of the records": "o.records = view[pos:65536]",
}


def _parts() -> dict[str, float]:
    """The nanoseconds of each step of one partition."""
    buf = b"\x80\x80\x04" + bytes(1 << 16)
    partition = generated._new(generated.FetchResponse.PartitionData)
    names = {**vars(generated), "o": partition, "buf": buf, "view": memoryview(buf), "pos": 4}
    statements = {name: Statement(step, names) for name, step in {_EMPTY: "pass", **_STEPS}.items()}
    timing = measure(statements, rounds=31, slice_=0.002)
    return {name: (timing.seconds(name) - timing.seconds(_EMPTY)) * 1e9 for name in _STEPS}


if __name__ == "__main__":
    main()
