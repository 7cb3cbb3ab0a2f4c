"""Requests paired with their responses, filters, and the lines that show them."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import kafka_wire
import pytest
from kafka_wire import HeartbeatRequest, HeartbeatResponse, MetadataRequest

from krammar.tap.describe import Describer
from krammar.tap.exchanges import Exchanges, ExchangeSelection, Selected, State, TappedExchange
from krammar.tap.frame import Frame
from krammar.tap.inspector import Inspector
from krammar.tap.listing import ExchangeListing
from krammar.wire.package import package_of
from tests.tap.support import Recorder, inspector
from tests.tap.test_capture import write
from tests.tap.test_inspector import request, response
from tests.tap.test_listing import produce

PACKAGE = package_of(kafka_wire)
MS = 1_000_000


def beat(number: int = 1, error: int = 0) -> list[Frame]:
    """Return the frames of a Heartbeat and its response."""
    seen = inspector()
    asking = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return [
        seen.request(request(asking, 4, number), 10 * MS),
        seen.response(response(HeartbeatResponse(error_code=error), 4, number), 12 * MS),
    ]


def asking(topic: str, number: int = 7) -> Frame:
    """Return the frame of a Metadata request."""
    message = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
    return inspector().request(request(message, 12, number), 20 * MS)


def paired(frames: list[Frame], *, close: bool = True) -> list[TappedExchange]:
    found: list[TappedExchange] = []
    exchanges = Exchanges(Describer(PACKAGE), found.append)
    for frame in frames:
        exchanges.frame(frame)
    if close:
        exchanges.closed(30 * MS, 1, "by the client")
    return found


def test_a_request_and_its_response_are_one_exchange() -> None:
    (found,) = paired(beat())
    assert (found.state, found.client_id) == (State.OK, "c")
    assert [frame.is_request for frame in found.frames] == [True, False]


def test_responses_out_of_order() -> None:
    first, second = asking("a"), beat(2)
    first_answer = inspector()
    first_answer.request(first.data, 20 * MS)
    answer = first_answer.response(response(kafka_wire.MetadataResponse(), 12, 7), 25 * MS)
    found = paired([first, *second, answer])
    assert [(e.number, e.first.api, e.state) for e in found] == [
        (2, "Heartbeat", "ok"),
        (1, "Metadata", "ok"),
    ]


def test_error_codes_are_errors() -> None:
    (found,) = paired(beat(error=27))
    assert (found.state, found.is_error) == (State.ERROR, True)
    assert "REBALANCE_IN_PROGRESS" in found.text


def test_the_error_that_gives_a_member_its_id_is_expected() -> None:
    (found,) = paired(beat(error=kafka_wire.ErrorCode.MEMBER_ID_REQUIRED))
    assert (found.state, found.is_error) == (State.OK, False)
    assert found.text == "group g, generation 1, member m → MEMBER_ID_REQUIRED"


def test_a_bad_frame_is_an_error() -> None:
    seen = inspector()
    seen.request(beat()[0].data, 0)
    damaged = seen.response(response(HeartbeatResponse(), 4)[:-1], 5)
    (found,) = paired([beat()[0], damaged])
    assert found.state is State.BAD
    assert "needs" in found.text


def test_no_response_comes_to_produce_without_acks() -> None:
    message = produce()
    message.acks = 0
    (found,) = paired([inspector().request(request(message, 9), 0)])
    assert (found.state, found.is_error) == (State.SILENT, False)


def test_the_connection_ends_before_the_response() -> None:
    (found,) = paired([asking("orders")])
    assert found.state is State.UNANSWERED
    assert found.text == "orders; no response before the connection ended"


def test_the_end_of_a_capture_is_not_an_error() -> None:
    found: list[TappedExchange] = []
    exchanges = Exchanges(Describer(PACKAGE), found.append)
    exchanges.frame(asking("orders"))
    exchanges.close()
    assert [each.state for each in found] == [State.WAITING]


def test_a_response_without_a_request() -> None:
    (found,) = paired([inspector().response(beat()[1].data, 0)])
    assert (found.request, found.state) == (None, State.BAD)


def test_requests_without_responses_do_not_fill_the_memory() -> None:
    seen = inspector()
    data = [request(HeartbeatRequest(), 4, number) for number in range(Inspector.max_waiting + 5)]
    found = paired([seen.request(each, 0) for each in data], close=False)
    assert [each.number for each in found] == [1, 2, 3, 4, 5]
    # A correlation id twice: the first request gets no response any more.
    twice = paired([seen.request(data[0], 0), seen.request(data[0], 0)], close=False)
    assert [each.state for each in twice] == [State.UNANSWERED]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (ExchangeSelection(), "MOPE"),
        (ExchangeSelection(apis=("metadata",)), "MO"),
        (ExchangeSelection(topics=("orders",)), "OP"),
        (ExchangeSelection(apis=("Produce", "Metadata"), topics=("orders",)), "OP"),
        (ExchangeSelection(errors=True), "ME"),
        (ExchangeSelection(clients=("c",)), "MOPE"),
        (ExchangeSelection(clients=("other",)), ""),
    ],
)
def test_filters(select: ExchangeSelection, expected: str) -> None:
    message = produce()
    message.acks = 0
    message.topic_data[0].name = "orders"
    frames = [
        asking("other", 6),
        asking("orders", 7),
        inspector().request(request(message, 9, 8), 0),
        *beat(9, error=27),
    ]
    found = {each.number: each for each in paired(frames)}
    found[2].state = State.OK  # as if it had been answered
    names = dict(enumerate("MOPE", 1))
    assert "".join(names[n] for n in sorted(found) if select.matches(found[n])) == expected


def test_selected_frames_are_passed_on_when_the_response_is_there() -> None:
    recorder = Recorder()
    selected = Selected(Describer(PACKAGE), ExchangeSelection(errors=True), recorder)
    selected.opened(0, 1, "a:1", "b:2")
    frames = [*beat(1), *beat(2, error=27), asking("lost")]
    for frame in frames:
        selected.frame(frame)
    assert recorder.frames == frames[2:4]
    selected.closed(1, 1, "by the client")
    assert recorder.frames == [*frames[2:4], frames[4]]
    assert recorder.connections and recorder.ended


def lines(frames: list[Frame], **options: Any) -> list[str]:
    found: list[str] = []
    listing = ExchangeListing(Describer(PACKAGE), found.append, **options)
    listing.opened(0, 1, "a:1", "b:2")
    for frame in frames:
        listing.frame(frame)
    listing.closed(0, 1, "by the client")
    return found


def test_a_line() -> None:
    opened, line, closed = lines(beat(error=27))
    assert opened.split()[2:] == ["open", "a:1", "to", "b:2"]
    assert closed.split()[2:] == ["closed", "by", "the", "client"]
    asked, told = beat(error=27)
    assert (
        line.split()[1:]
        == (
            f"#1 Heartbeat v4 {asked.size} B {told.size} B 2.0 ms error "
            "group g, generation 1, member m → REBALANCE_IN_PROGRESS"
        ).split()
    )


@pytest.mark.parametrize("width", [40, 80, 109, 110, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    frames = [*beat(error=27), asking("o" * 150)]
    found = lines(frames, width=width)
    assert all(len(line) <= width for line in found)
    assert found[2].endswith("…") == (width < 150)
    if width >= 80:
        assert "Heartbeat v4" in found[1] and "2.0 ms" in found[1]
    if width == 200:
        assert "REBALANCE_IN_PROGRESS" in found[1]


def test_lines_in_a_real_terminal(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    write(tmp_path / "a.tap")
    reading, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "krammar.cli", "tap", str(tmp_path / "a.tap")]
    with subprocess.Popen(
        command, stdout=terminal, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(terminal)
        data = b""
        with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
            while piece := os.read(reading, 65_536):
                data += piece
        os.close(reading)
    assert process.returncode == 1
    found = data.decode().splitlines()
    assert len(found) > 3
    assert any(line.startswith("\x1b[31m") and line.endswith("…\x1b[0m") for line in found)
    assert max(len(line.removeprefix("\x1b[31m").removesuffix("\x1b[0m")) for line in found) == 60


def test_errors_are_red_in_a_terminal() -> None:
    found = lines([*beat(1), *beat(2, error=27)], width=200, colour=True)
    assert [line.startswith("\x1b[31m") for line in found] == [False, False, True, False]
    assert found[2].endswith("\x1b[0m")


def test_only_bad_and_selected_lines() -> None:
    assert lines(beat(), only_bad=True) == []
    assert lines(beat(), select=ExchangeSelection(errors=True)) == []
    assert len(lines(beat(error=27), select=ExchangeSelection(errors=True))) == 1


def test_hostile_names_are_escaped() -> None:
    (line,) = lines([asking("\x1b[2J\u202eevil")], select=ExchangeSelection(apis=("Metadata",)))
    assert "\x1b" not in line and "\u202e" not in line
    assert r"\x1b[2J\u202eevil" in line
