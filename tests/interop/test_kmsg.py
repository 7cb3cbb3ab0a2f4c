"""Our bytes against franz-go's package kmsg: it decodes them, and encodes them again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from typing import Any

import kafka_wire
import pytest

from krammar.wire.connection import ClientConnection
from tests.generated.catalogue import Message, by_name
from tests.generated.strategies import MAX_TAG, samples
from tests.generated.test_apache_kafka import fitted
from tests.generated.values import Plain, build
from tests.interop.go import go_program
from tests.interop.kmsg_messages import (
    DEFAULTS,
    FOLDER,
    ONLY_IN_KMSG,
    OTHERS,
    UNKNOWN,
    WRONG,
    WRONG_FRAMES,
    address,
    kmsg_version,
    known,
)
from tests.interop.processes import Unavailable

Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def run() -> Run:
    """Run the program in Go with arguments and lines of input; returns the lines of its output."""
    try:
        program = go_program(FOLDER)
    except Unavailable as missing:
        pytest.skip(str(missing))

    def ran(*arguments: str, lines: Iterable[str] = ()) -> list[str]:
        done = subprocess.run(
            [program, *arguments],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        return done.stdout.splitlines()

    return ran


def held(message: Message, plain: Plain) -> Plain:
    """Return the value without what kmsg cannot hold.

    - It reads null keys of record headers as empty ones. Kafka refuses them.
    - It writes a sticky assignor's generation -1 as version 0, without a generation. Kafka writes -1.
    """
    if message.name == "StickyAssignorUserData" and plain.get("generation") == -1:
        return {**plain, "generation": 0}
    if message.name == "Header":
        return {**plain, "key": plain["key"] or ""}
    if message.name == "Record":
        return {**plain, "headers": [{**one, "key": one["key"] or ""} for one in plain["headers"]]}
    return plain


def tagged(plain: Any) -> Any:
    """Return the value with the same unknown tags in every struct."""
    if isinstance(plain, list):
        return [tagged(element) for element in plain]
    if not isinstance(plain, dict):
        return plain
    fields = {name: tagged(value) for name, value in plain.items() if name != "unknown_tags"}
    return {**fields, "unknown_tags": {300: b"", 16384: b"tag" * 50, MAX_TAG: b"\0"}}


def values(message: Message, version: int, seed: int) -> list[Plain]:
    """Return values of all styles, for flexible versions also with unknown tags in every struct."""
    made = [fitted(message, version, plain) for plain in samples(message, version, seed, extra=6)]
    if message.layout(version).flexible:
        made += [tagged(plain) for plain in made]
    return [held(message, plain) for plain in made]


def differences(
    run: Run, messages: Iterable[tuple[Message, int]]
) -> tuple[set[tuple[str, int]], dict[str, str]]:
    """Return the compared message-versions, and the first difference of each that differs."""
    cases = []
    for message, version in messages:
        layout = message.layout(version)
        for plain in values(message, version, seed=7):
            data = message.encode(build(message, layout, plain), version)
            cases.append((message, version, data))
    answers = run(lines=(f"{address(m, version)} {data.hex()}" for m, version, data in cases))
    wrong: dict[str, str] = {}
    for (message, version, data), answer in zip(cases, answers, strict=True):
        if answer != f"ok {data.hex()}":
            where = f"{message.name} v{version}"
            wrong.setdefault(where, f"{answer} where we wrote {data.hex()}")
    return {(message.name, version) for message, version, _ in cases}, wrong


def test_kmsg_reads_and_writes_the_same(run: Run) -> None:
    compared, wrong = differences(run, known())
    print(f"compared {len(compared)} message-versions with kmsg {kmsg_version()}")
    assert not wrong, "\n".join(f"{where}: {said}" for where, said in wrong.items())
    keys = {message.key for message in by_name().values() if message.key is not None}
    assert keys >= set(range(95))
    assert len(compared) >= 770


def test_all_that_kmsg_knows_is_compared(run: Run) -> None:
    """A new release of kmsg or new definitions fail here until the tables of kmsg_messages say so."""
    listed = run("list")
    theirs: set[tuple[str, int]] = set()
    ours = {message.name: message for message in by_name().values()}
    for kind, which, *newest in (line.split() for line in listed):
        if kind != "other":
            cls = getattr(kafka_wire, f"{kind}_class")(int(which))
            versions = range(min(ours[cls.__name__].versions), int(newest[0]) + 1)
            theirs.update((cls.__name__, version) for version in versions)
    here = {(message.name, version) for message, version in known() if message.key is not None}
    assert theirs == here | WRONG
    assert not theirs & UNKNOWN
    others = {which for kind, which, *_ in map(str.split, listed) if kind == "other"}
    assert others == {*OTHERS.values()} | ONLY_IN_KMSG


def test_what_kmsg_has_wrong_is_still_wrong(run: Run) -> None:
    messages = [(by_name()[name], version) for name, version in WRONG]
    _, wrong = differences(run, messages)
    assert wrong.keys() == {f"{name} v{version}" for name, version in WRONG}


def test_new_messages_are_the_same(run: Run) -> None:
    """kmsg's nullable fields are null by default. Kafka's are empty, except for those with the default null."""
    cases = []
    for message, version in known():
        if message.key is None:
            continue
        layout = message.layout(version)
        present = {item.name for item in (*layout.fields, *layout.tags)}
        value = message.cls()
        for item in layout.fields:
            if getattr(item.type, "nullable", False) and not getattr(value, item.name):
                setattr(value, item.name, None)
        for name, default in DEFAULTS.get(message.name, {}).items():
            if name in present:
                setattr(value, name, default)
        cases.append((message, version, message.encode(value, version)))
    assert len(cases) >= 730
    answers = run(lines=(f"{address(message, version)} new" for message, version, _ in cases))
    different = {
        f"{message.name} v{version}: {answer} where we wrote {data.hex()}"
        for (message, version, data), answer in zip(cases, answers, strict=True)
        if answer != f"ok {data.hex()}"
    }
    assert not different, "\n".join(sorted(different))


def test_frames_of_requests_are_the_same(run: Run) -> None:
    """Size, header and body of a request, as a client sends them."""
    names, lines, frames = [], [], []
    for message, version in known():
        if not message.name.endswith("Request"):
            continue
        plain = fitted(message, version, samples(message, version)[-1])
        value = build(message, message.layout(version), plain)
        client = ClientConnection(kafka_wire, client_id="kmsg")
        names.append((message.name, version))
        frames.append(client.send_request(value, version).hex())
        lines.append(f"frame {message.key} {version} {value.encode(version).hex()}")
    assert len(frames) >= 365
    answers = run(lines=lines)
    different = {
        name
        for name, frame, answer in zip(names, frames, answers, strict=True)
        if answer != f"ok {frame}"
    }
    assert different == WRONG_FRAMES
