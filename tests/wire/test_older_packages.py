"""Packages that krammar generated before codecs had modules of their own still work, also with the engine.

``older_wire`` is such a package, as that krammar wrote it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from krammar.wire.errors import DecodeError, EncodeError
from tests.wire import older_wire
from tests.wire.both import pure_python

Request: Any = older_wire.ReportRequest


def report(**changes: Any) -> Any:
    reading = Request.Reading(at_millis=1, value=2.0)
    return Request(**{"sensor": "a", "readings": [reading]} | changes)


def as_it_is_and_in_pure_python(test: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        test()
        with pure_python():
            test()

    return both


@as_it_is_and_in_pure_python
def test_messages() -> None:
    for version in (0, 1):
        data = report().encode(version)
        assert Request.decode(data, version) == report()
        for end in range(len(data)):
            with pytest.raises(DecodeError):
                Request.decode(data[:end], version)


@as_it_is_and_in_pure_python
def test_versions_that_lack_a_field() -> None:
    with pytest.raises(EncodeError, match="note: version 0 has no such field"):
        report(note="n").encode(0)
    assert report(note="n").encode(1).endswith(b"\1\0\2\2n")


@as_it_is_and_in_pure_python
def test_frames() -> None:
    header = older_wire.RequestHeader(key=1, version=1, correlation_id=5)
    header, message = older_wire.parse_request(header.encode(1) + report().encode(1))
    assert (header.correlation_id, message) == (5, report())
