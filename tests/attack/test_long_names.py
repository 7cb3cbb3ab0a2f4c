"""Requests with the longest strings, in every version: error messages that repeat them still fit into responses."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.attack.generate import served
from tests.attack.kafka import requests_of
from tests.attack.servers import Build, Running

pytestmark = pytest.mark.xdist_group("attacks")


@pytest.mark.sweep
def test_every_response_can_carry_its_error(tmp_path: Path) -> None:
    sent = 0
    with Running("plain", Build("asyncio"), tmp_path) as running:
        for key, version in served():
            for attack in requests_of(key, version):
                if attack.name.endswith(", long"):
                    # The broker closes the connection for some, with a reason.
                    with suppress(ConnectionError):
                        attack.run(running.server)
                    sent += 1
                    assert not running.server.process.problems, attack.name
    assert sent > 100
