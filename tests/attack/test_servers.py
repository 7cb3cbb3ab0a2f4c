"""A part of `make attack`: each server, and an attack of each kind, which a stop interrupts in the end.

Times are processor time of the server, so other programs of the machine do not count. They still get longer when both
halves of a core are busy, so a turn may take twice as long here, and the median of three counts.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attack import kafka
from tests.attack.__main__ import ALL, repeated
from tests.attack.measure import MEMORY, STOP, TURN, WAIT, Attack, Cost, Other, measure, stop_during
from tests.attack.servers import BUILDS, KINDS, Build, Running

pytestmark = pytest.mark.xdist_group("attacks")

# The attacks, by a part of their names, with at least one for each server.
CHOSEN = (
    "topic gzip, zstd: 1,000,000 empty headers",
    "20,000 ApiVersions",
    "1,000 connections without a login, each with 50 ApiVersions",
    "1,000 TLS handshakes",
    "1,000 first messages of SCRAM",
    "100 fetch sessions",
    "a batch of 60 MB, and 24 connections",
    "24,000 strings for a partition of a topic",
    "a header of 20 MB",
)
# Of those that are thousands otherwise.
CONNECTIONS = 100


def chosen(kind: str) -> Iterator[Attack]:
    """Yield the attacks on a server."""
    for kinds, attack in ALL:
        if kind in kinds and any(part in attack.name for part in CHOSEN):
            yield attack


# They differ from the plain broker in how connections begin, and in whom requests reach.
LONG = ("tls", "sasl", "nodes")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.sweep] * (kind in LONG)) for kind in KINDS],
)
def test_server(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("memory is read from /proc, which does not exist")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
    monkeypatch.setattr(kafka, "CONNECTIONS", CONNECTIONS)
    monkeypatch.setattr(kafka, "SESSIONS", 10)
    attacks = list(chosen(kind))
    assert attacks
    build = Build("asyncio" if KINDS.index(kind) % 2 else "uvloop")
    with Running(kind, build, tmp_path) as running:
        kafka.fill(running.server)
        costs: list[Cost] = []
        with Other(running.server) as other:
            for attack in attacks:
                costs.append(measure(running.server, attack, other))
        for cost in costs:
            assert not cost.error, cost
            if cost.turn > 2 * TURN:
                cost = repeated(kind, build, cost)
            assert cost.turn <= 2 * TURN, cost
            assert cost.memory <= cost.attack.memory, cost
        _, used = stop_during(running.server, attacks[0])
        assert used <= STOP


def test_a_cost_over_a_limit_is_named() -> None:
    attack = Attack("", lambda server: 0)
    cost = Cost(attack, turn=TURN * 2, wait=WAIT * 2, memory=MEMORY * 2)
    assert cost.over() == ["turn", "wait", "memory"]
    assert cost.part == 2
    assert Cost(attack).over() == []
    crowd = Cost(Attack("", lambda server: 0, crowd=True), wait=WAIT * 2, error="closed")
    assert crowd.over() == ["closed"]


def test_all_builds_differ() -> None:
    assert len({str(build) for build in BUILDS}) == 4
