"""A writer and a reader of journals in files, and what must be true after a power cut.

``python -m tests.powercut.journals FOLDER fsync`` (or ``plain``) publishes messages to a journal of each framing,
alone and in transactions, and reads them with a checkpoint that it stores after each step. With ``broken``, its
fsyncs do nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from journal_wire import Row

from krammar.journal import (
    JSON_CONTENT_TYPE,
    Checkpoint,
    FileJournals,
    Framing,
    JournalSpec,
    Publisher,
    ReadCommittedIter,
    Sequencer,
    append_intents,
    decode_intents,
    encode_intents,
    store_bytes,
)
from krammar.journal.journal_file import JournalFile
from tests.powercut.disk import State

SPECS = [JournalSpec("fixed"), JournalSpec("deep/json", JSON_CONTENT_TYPE)]
STEPS = 10


def _row(number: int) -> Row:
    return Row(value=b"%d " % number + bytes([65 + number % 26]) * (900 if number % 3 else 30))


def _number(row: Row) -> int:
    """The number of a row, which must have been written as it is."""
    text = bytes(row.value or b"")
    number = int(text.split(b" ")[0])
    if text != _row(number).value:
        raise ValueError(f"row {number} is damaged")
    return number


def main() -> None:
    folder, fsync = Path(sys.argv[1]), sys.argv[2] != "plain"
    if sys.argv[2] == "broken":
        os.fsync = lambda file: None
    journals = FileJournals(folder / "journals", fsync=fsync, fragment_bytes=4000, linger_ms=1e6)
    for spec in SPECS:
        journals.create(spec)
    print("created", flush=True)
    publisher = Publisher(journals)
    for step in range(STEPS):
        # As if 5 seconds had passed.
        JournalFile.unsynced_seconds = 0 if step % 4 == 3 else 1e9
        number = 10 * step
        for spec in SPECS:
            publisher.publish_committed(_to(spec), _row(number)).result()
            print(f"{spec.name} {number}", flush=True)
        for spec in SPECS:
            for more in (1, 2):
                publisher.publish_uncommitted(_to(spec), _row(number + more))
        intents = publisher.build_ack_intents()
        store_bytes(folder / "intents", encode_intents(intents))
        append_intents(journals, intents)
        for spec in SPECS:
            print(f"{spec.name} {number + 1}\n{spec.name} {number + 2}", flush=True)
        if step % 4 == 3:
            print("synced", flush=True)
        for spec in SPECS:
            _read_on(folder, journals, spec)
    journals.close()
    print("synced", flush=True)


def _to(spec: JournalSpec) -> object:
    target: tuple[str, Framing] = spec.name, spec.framing
    return lambda message: target


def _read_on(folder: Path, journals: FileJournals, spec: JournalSpec) -> list[int]:
    """Read from the stored checkpoint; store the next one with all numbers that were seen, and return these."""
    path = folder / f"checkpoint-{spec.name.replace('/', '-')}"
    checkpoint, seen = Checkpoint({spec.name: 0}), []
    if path.exists():
        data = path.read_bytes()
        size = int.from_bytes(data[:4], "big")
        checkpoint, seen = Checkpoint.decode(data[4 : 4 + size]), json.loads(data[4 + size :])
    reader = journals.reader(spec.name, checkpoint.read_through[spec.name])
    messages = ReadCommittedIter(reader, Row, Sequencer(checkpoint.states))
    for envelope in messages:
        seen.append(_number(envelope.message))
    data = messages.checkpoint().encode()
    store_bytes(path, len(data).to_bytes(4, "big") + data + json.dumps(seen).encode())
    return seen  # type: ignore[no-any-return]


def problems(folder: Path, state: State, *, fsync: bool) -> Iterator[str]:
    """Yield what contradicts docs/durability.md if the programs continue after a power cut."""
    with FileJournals(folder / "journals", fsync=fsync, linger_ms=1e6) as journals:
        present = {spec.name for spec in journals.list()}
        if "created" in state.marks and present != {spec.name for spec in SPECS}:
            yield f"only the journals {sorted(present)} exist"
        if (folder / "intents").exists():
            intents = decode_intents((folder / "intents").read_bytes())
            append_intents(journals, [one for one in intents if one.journal in present])
        for spec in SPECS:
            journals.create(spec)
            yield from _problems_of(folder, state, journals, spec, fsync)


def _problems_of(
    folder: Path, state: State, journals: FileJournals, spec: JournalSpec, fsync: bool
) -> Iterator[str]:
    stored = list(state.marks)
    if not fsync:
        last = max((n for n, mark in enumerate(stored) if mark == "synced"), default=0)
        stored = stored[:last]
    expected = [int(m.split()[1]) for m in stored if m.startswith(f"{spec.name} ")]
    messages = ReadCommittedIter(journals.reader(spec.name), Row)
    found = [_number(envelope.message) for envelope in messages]
    if lost := sorted(set(expected) - set(found)):
        yield f"{spec.name} has lost {lost}"
    if found != sorted(set(found)):
        yield f"{spec.name} returns {found}"
    for number in found:
        if number % 10 in (1, 2) and {number // 10 * 10 + 1, number // 10 * 10 + 2} - set(found):
            yield f"{spec.name} returns a part of a transaction: {number}"
    # A reader with a checkpoint sees what comes next, and all that it has not seen, once.
    begin = journals.offsets(spec.name)[1]
    append = Publisher(journals).publish_committed(_to(spec), _row(1000)).result()  # type: ignore[arg-type]
    if append.begin < begin:
        yield f"{spec.name} uses offset {append.begin} again"
    seen = _read_on(folder, journals, spec)
    if sorted(set(seen)) != seen or seen[-1:] != [1000]:
        yield f"a reader of {spec.name} with a checkpoint has seen {seen}"
    if missed := sorted(set(found) - set(seen)):
        yield f"a reader of {spec.name} with a checkpoint has missed {missed}"


if __name__ == "__main__":
    main()
