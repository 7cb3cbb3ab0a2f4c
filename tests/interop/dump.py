"""Apache Kafka's own reading of a folder's files: DumpLogSegments, and its complaints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.interop.apache import tool
from tests.support.waiting import PATIENCE

_MAIN = "org.apache.kafka.tools.DumpLogSegments"
_RECORD = re.compile(
    r"\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+)"
)
_BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) .* isvalid: (true|false)")
_COMPLAINT = re.compile(
    r"exception|mismatch|out of order|invalid|isvalid: false|could not|error|corrupt|failed|found ",
    re.IGNORECASE,
)


class Record(NamedTuple):
    """A record as the tool prints it; sizes in bytes, -1 for null."""

    offset: int
    timestamp: int
    key_size: int
    value_size: int
    sequence: int


@dataclass
class Dump:
    """One run of the tool over some files."""

    output: str
    complaints: list[str] = field(default_factory=list)
    records: dict[str, list[Record]] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)


def dump(folder: Path, files: Iterable[Path], *flags: str) -> Dump:
    """Run the tool over ``files``, all in ``folder``, with flags such as ``--offsets-decoder``.

    Every line that is not a record's is searched for complaints; so are the exit code and what is on
    standard error.
    """
    names = [str(file) for file in sorted(files)]
    assert names, f"nothing to dump in {folder}"
    done = tool(_MAIN, *flags, "--files", ",".join(names), timeout=PATIENCE, check=False)
    result = Dump(done.stdout)
    if done.returncode:
        result.complaints.append(f"exit code {done.returncode}")
    result.complaints += [f"stderr: {line}" for line in _without_gaps(done.stderr)]
    current = "?"
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            current = str(Path(line.removeprefix("Dumping ")).relative_to(folder))
            result.records[current] = []
            result.batches[current] = 0
            continue
        record = _RECORD.match(line)
        if record:
            result.records[current].append(Record(*map(int, record.groups())))
            continue
        if batch := _BATCH.match(line):
            result.batches[current] += 1
            if batch[3] == "true":
                continue
        if _COMPLAINT.search(line):
            result.complaints.append(f"{current}: {line[:300]}")
    return result


def _without_gaps(said: str) -> list[str]:
    """Standard error but for what says nothing: gaps between offsets where compaction made them, and the
    first offset of a file that is not the log's first, which the tool calls a gap too."""
    left: list[str] = []
    where = ""
    for line in filter(str.strip, said.splitlines()):
        if line.startswith("Non-consecutive offsets in "):
            where = line
        elif " is followed by " in line and where:
            compacted = Path(where).parent.name.startswith(("compacted-", "__"))
            if not compacted and not line.startswith("  -1 is followed by "):
                left.append(f"{where} {line}")
        else:
            left.append(line)
    return left


def files(folder: Path, pattern: str) -> list[Path]:
    """What matches below ``folder``, without what waits for its deletion."""
    return [
        file
        for file in sorted(folder.glob(pattern))
        if not file.name.endswith(".deleted") and not file.parent.name.endswith("-delete")
    ]
