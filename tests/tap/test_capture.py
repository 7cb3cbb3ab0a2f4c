"""Captures: written, read, cut at every byte, replayed."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import closing
from io import FileIO
from pathlib import Path
from typing import Any

import kafka_wire
import pytest
from kafka_wire import HeartbeatRequest, HeartbeatResponse

from krammar.tap import capture as capture_module
from krammar.tap.capture import (
    MAGIC,
    Capture,
    CaptureError,
    CaptureRecord,
    CaptureWriter,
    Flag,
    Kind,
    replay,
)
from krammar.tap.frame import Frame, Status
from krammar.wire.connection import ClientConnection, RequestReceived, ServerConnection
from krammar.wire.package import package_of
from tests.tap.support import Recorder, inspector

PACKAGE = package_of(kafka_wire)


def conversation() -> list[Frame]:
    client, server = ClientConnection(kafka_wire), ServerConnection(kafka_wire)
    seen = inspector()
    data = client.send_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    server.receive_data(data)
    event = server.next_event()
    assert isinstance(event, RequestReceived)
    answer = server.send_response(event, HeartbeatResponse(error_code=27))
    changed = seen.response(answer[4:], 2_500_000)  # nothing waits yet: undecodable
    changed.note = "something"
    frames = [
        changed,
        seen.request(data[4:], 1_000_000_000),
        seen.response(answer[4:], 1_002_500_000),
        seen.oversized(True, data[4:20], 300_000_000, 1_003_000_000),
        seen.raw(True, b"\0\0\0\x09abc", 1_004_000_000),
    ]
    assert [frame.status for frame in frames] == [
        Status.UNDECODABLE,
        Status.OK,
        Status.OK,
        Status.UNDECODABLE,
        Status.UNDECODABLE,
    ]
    return frames


def write(path: Path) -> list[Frame]:
    """Write a capture of a conversation, and return its frames."""
    frames = conversation()
    writer = CaptureWriter(path)
    writer.opened(5, 1, "127.0.0.1:1", "[::1]:2")
    for frame in frames:
        writer.frame(frame)
    writer.closed(6, 1, "by the client")
    writer.close()
    return frames


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    frames = write(path)
    capture = Capture(path)
    records = list(capture)
    assert capture.torn == ""
    assert records[0] == CaptureRecord(
        5, 1, Kind.OPENED, Flag(0), -1, -1, -1, 19, b"127.0.0.1:1 [::1]:2"
    )
    assert records[-1].kind == Kind.CLOSED
    assert records[-1].data == b"by the client"
    assert [record.data for record in records[1:-1]] == [frame.data for frame in frames]
    assert [record.time_ns for record in records[1:-1]] == [frame.time_ns for frame in frames]
    unmatched, request, response, cut, raw = records[1:-1]
    assert (request.api_key, request.version, request.correlation_id) == (12, 4, 0)
    assert (response.api_key, response.version, response.correlation_id) == (12, 4, 0)
    assert (request.kind, response.kind) == (Kind.REQUEST, Kind.RESPONSE)
    assert request.size == len(request.data)
    assert (cut.flags, cut.size, len(cut.data)) == (Flag.CUT, 300_000_000, 16)
    assert (raw.flags, raw.api_key) == (Flag.RAW, -1)
    assert unmatched.flags == Flag.CHANGED
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_format_is_the_one_that_is_documented(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    writer = CaptureWriter(path)
    frame = Frame(0x0102030405060708, 9, False, b"body", 4, api_key=3, version=12, correlation_id=7)
    frame.note = "x"
    writer.frame(frame)
    writer.close()
    assert path.read_bytes() == (
        b"krammar tap 1\n"
        b"\0\0\0\x1e"
        b"\x01\x02\x03\x04\x05\x06\x07\x08"
        b"\0\0\0\x09"
        b"\x01"
        b"\x01"
        b"\0\x03\0\x0c\0\0\0\x07"
        b"\0\0\0\x04"
        b"body"
    )


def test_a_capture_is_readable_up_to_any_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    write(path)
    data = path.read_bytes()
    whole = list(Capture(path))
    ends = [len(MAGIC)]
    for record in whole:
        ends.append(ends[-1] + 30 + len(record.data))
    assert ends[-1] == len(data)
    for cut in range(len(MAGIC), len(data)):
        path.write_bytes(data[:cut])
        capture = Capture(path)
        complete = sum(end <= cut for end in ends) - 1
        assert list(capture) == whole[:complete]
        if cut in ends:
            assert capture.torn == ""
        else:
            assert capture.torn.startswith(f"the record at offset {ends[complete]} is incomplete: ")
            assert f"it has {cut - ends[complete]} " in capture.torn


def test_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    path.write_bytes(MAGIC + b"\0\0\0\x05" + bytes(100))
    capture = Capture(path)
    assert list(capture) == []
    assert capture.torn == "the record at offset 14 is damaged: its length is 5"
    path.write_bytes(MAGIC + b"\xff\xff\xff\xff" + bytes(100))
    capture = Capture(path)
    assert list(capture) == []
    assert capture.torn == ("the record at offset 14 is incomplete: it has 104 of 4294967299 bytes")


def test_what_is_no_capture(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader,\nthis is no capture\n")
    with pytest.raises(CaptureError, match="is not a capture: it does not begin with"):
        Capture(path)
    with pytest.raises(CaptureError, match="is not a capture, so it is not overwritten"):
        CaptureWriter(path)
    assert path.read_text().startswith("Dear reader")
    with pytest.raises(FileNotFoundError):
        CaptureWriter(tmp_path / "nowhere" / "a.tap")


def test_an_older_capture_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    write(path)
    path.chmod(0o644)
    with closing(CaptureWriter(path)) as writer:
        writer.start()
    assert path.read_bytes() == MAGIC
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"")
    with closing(CaptureWriter(path)) as writer:
        writer.start()
    assert list(Capture(path)) == []


def test_a_capture_that_is_not_started_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    CaptureWriter(path).close()
    assert not path.exists()
    write(path)
    before = path.read_bytes()
    CaptureWriter(path).close()
    assert path.read_bytes() == before


def test_records_before_the_start_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    with closing(CaptureWriter(path)) as writer:
        writer.opened(5, 1, "127.0.0.1:1", "[::1]:2")
        writer.start()
    assert [record.kind for record in Capture(path)] == [Kind.OPENED]


def test_two_writers_of_one_capture(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "a.tap"
    with closing(CaptureWriter(path)) as writer:
        writer.start()
        with pytest.raises(CaptureError, match=r"another process writes .*; name another file"):
            CaptureWriter(path)
        assert path.read_bytes() == MAGIC
    CaptureWriter(path).close()


def test_a_replay_finds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    frames = write(path)
    recorder = Recorder()
    replay(Capture(path), PACKAGE, [recorder])
    assert recorder.connections == {1: ("127.0.0.1:1", "[::1]:2")}
    assert recorder.ended == {1: "by the client"}
    assert recorder.frames[0].note == "changed by the tap"
    fields = ("api", "status", "error", "size", "latency_ns", "message", "header", "is_request")
    for was, found in zip(frames, recorder.frames, strict=True):
        assert [getattr(found, name) for name in fields] == [getattr(was, name) for name in fields]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=os.strerror)
def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Each write fails once, after half of its bytes. The records before it can be read, and nothing follows it."""
    frames = conversation()
    for at in range(len(frames) + 2):
        path = tmp_path / f"{at}.tap"
        calls = 0

        class Disk(FileIO):
            def write(self, data: Any, /, at: int = at) -> int:
                nonlocal calls
                calls += 1
                if calls == at + 1:
                    super().write(data[: len(data) // 2])
                    raise OSError(number, os.strerror(number))
                return super().write(data)

        with monkeypatch.context() as patch:
            patch.setattr(capture_module, "FileIO", Disk)
            writer = CaptureWriter(path)
            failures = []
            for frame in frames:
                try:
                    writer.frame(frame)
                except OSError as failure:
                    failures.append(failure)
            writer.close()
        named = [(failure.errno, failure.filename) for failure in failures]
        assert named == ([(number, str(path))] if at <= len(frames) else [])
        if at == 0:
            with pytest.raises(CaptureError, match="is not a capture"):
                Capture(path)
            write(path)  # and is replaced nevertheless
            assert list(Capture(path))
            continue
        capture = Capture(path)
        assert len(list(capture)) == at - 1
        assert ("is incomplete" in capture.torn) == (at <= len(frames))


def test_a_closed_capture_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tap"
    real, synced = os.fsync, []

    def fsync(file: int) -> None:
        synced.append([os.path.samestat(os.fstat(file), each.stat()) for each in (path, tmp_path)])
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    write(path)
    assert synced == [[True, False], [False, True]]

    def broken(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match=r"Input/output error: .*a\.tap"):
        write(path)
    assert len(list(Capture(path))) == len(conversation()) + 2


def test_zeros_at_the_end_are_reported(tmp_path: Path) -> None:
    """Zeros at the end of a capture, as a power cut may leave them."""
    path = tmp_path / "a.tap"
    write(path)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(600))
    capture = Capture(path)
    assert len(list(capture)) == len(conversation()) + 2
    assert capture.torn == f"the record at offset {size} is damaged: its length is 0"
