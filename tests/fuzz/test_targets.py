"""What the fuzzer runs, on the inputs that it starts from and a few mutations of them."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz import targets
from tests.generated.mutations import mutations

# One worker makes the seeds, which takes seconds.
pytestmark = pytest.mark.xdist_group("fuzz")


@pytest.fixture(scope="module")
def seeds() -> tuple[bytes, ...]:
    return tuple(targets.seeds())


def test_seeds_are_read_without_error(seeds: tuple[bytes, ...]) -> None:
    kinds = set()
    for seed in seeds:
        targets.READERS[seed[0]](seed[1:])
        kinds.add(seed[0])
    assert kinds == set(range(len(targets.READERS)))


@pytest.mark.parametrize("kind", range(1, len(targets.READERS)))
def test_mutations(seeds: tuple[bytes, ...], kind: int) -> None:
    """Of frames, records and streams; messages have theirs in test_hostile."""
    found = [seed[1:] for seed in seeds if seed[0] == kind]
    assert found
    for data in mutations(found, Random(f"fuzz {kind}"), 3000):
        targets.check(bytes([kind]) + data)


def test_a_broken_promise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def reader(data: bytes) -> None:
        raise IndexError(data)

    monkeypatch.setattr(targets, "READERS", (reader,))
    with pytest.raises(IndexError):
        targets.check(b"\0")
