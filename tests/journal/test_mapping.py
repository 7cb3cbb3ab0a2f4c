"""Mappings: FNV-1a against published vectors, stability, and what moves when journals come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krammar.journal import (
    EmptyListError,
    JournalSpec,
    even_rendezvous_mapping,
    fnv1a,
    framing_by_content_type,
    modulo_mapping,
    random_mapping,
    rendezvous_mapping,
)


@pytest.mark.parametrize(
    ("text", "value"),
    # From the test vectors that Noll publishes with FNV (32 bits, 1a).
    [
        (b"", 0x811C9DC5),
        (b"a", 0xE40C292C),
        (b"b", 0xE70C2DE5),
        (b"f", 0xE30C2799),
        (b"fo", 0x6222E842),
        (b"foo", 0xA9F37ED7),
        (b"foob", 0x3F5076EF),
        (b"fooba", 0x39AAA18A),
        (b"foobar", 0xBF9CF968),
    ],
)
def test_fnv1a(text: bytes, value: int) -> None:
    assert fnv1a(text) == value


def specs(count: int, first: int = 0) -> list[JournalSpec]:
    return [JournalSpec(f"orders/part-{n:03}") for n in range(first, first + count)]


def key(message: str) -> bytes:
    return message.encode()


KEYS = [f"customer-{n}" for n in range(4_000)]


def test_modulo_is_the_hash_modulo_the_number_of_journals() -> None:
    listed = specs(7)
    mapping = modulo_mapping(key, lambda: listed)
    # 0xbf9cf968 = 3214735720 = 7 * 459247960 + 0; 0xe40c292c = 3826002220 = 7 * 546571745 + 5.
    assert mapping("foobar")[0] == "orders/part-000"
    assert mapping("a")[0] == "orders/part-005"


@pytest.mark.parametrize("make", [modulo_mapping, even_rendezvous_mapping])
def test_keys_stay_and_spread(make: object) -> None:
    listed = specs(8)
    mapping = make(key, lambda: listed)  # type: ignore[operator]
    chosen = [mapping(k)[0] for k in KEYS]
    assert chosen == [mapping(k)[0] for k in KEYS]
    assert chosen == [make(key, lambda: specs(8))(k)[0] for k in KEYS]  # type: ignore[operator]
    counts = Counter(chosen)
    assert len(counts) == 8
    # 500 each, with a standard deviation of 21.
    assert all(350 < count < 650 for count in counts.values())


@pytest.mark.parametrize(
    ("text", "of_seven", "of_three"),
    # What Gazette v0.100.0 chooses, of orders/part-000 … 006 and of orders/0 … 2.
    [
        ("a", 4, 1),
        ("b", 6, 1),
        ("foobar", 6, 1),
        ("customer-1", 2, 0),
        ("customer-2", 3, 0),
        ("customer-3", 4, 1),
        ("customer-42", 6, 1),
        ("ключ", 5, 1),
        ("7", 2, 0),
        ("41", 0, 2),
        ("zz", 6, 1),
    ],
)
def test_rendezvous_chooses_as_gazette_does(text: str, of_seven: int, of_three: int) -> None:
    listed = specs(7)
    mapping = rendezvous_mapping(key, lambda: listed)
    assert mapping(text)[0] == mapping(text)[0] == f"orders/part-{of_seven:03}"
    few = [JournalSpec(f"orders/{n}") for n in range(3)]
    assert rendezvous_mapping(key, lambda: few)(text)[0] == f"orders/{of_three}"


def test_the_first_of_equal_weights_wins() -> None:
    # Two names with the same FNV-1a: 0x950546ac.
    pair = [JournalSpec("orders/195518"), JournalSpec("orders/1110864")]
    assert fnv1a(pair[0].name.encode()) == fnv1a(pair[1].name.encode())
    for make in (rendezvous_mapping, even_rendezvous_mapping):
        for listed in (pair, pair[::-1]):
            assert make(key, lambda listed=listed: listed)("k")[0] == listed[0].name  # type: ignore[misc]


@pytest.mark.parametrize("make", [rendezvous_mapping, even_rendezvous_mapping])
def test_rendezvous_moves_no_key_between_journals_that_stay(make: object) -> None:
    listed: Sequence[JournalSpec] = specs(9)
    mapping = make(key, lambda: listed)  # type: ignore[operator]
    before = {k: mapping(k)[0] for k in KEYS}
    listed = specs(10)
    after = {k: mapping(k)[0] for k in KEYS}
    moved = {k for k in KEYS if before[k] != after[k]}
    assert {after[k] for k in moved} == {"orders/part-009"}
    if make is even_rendezvous_mapping:
        # A tenth.
        assert 250 < len(moved) < 550
    gone = listed[4].name
    listed = [spec for spec in listed if spec.name != gone]
    last = {k: mapping(k)[0] for k in KEYS}
    assert {k for k in KEYS if last[k] != after[k]} == {k for k in KEYS if after[k] == gone}
    if make is even_rendezvous_mapping:
        assert len({last[k] for k in KEYS if after[k] == gone}) == 9


@given(st.permutations(specs(6)), st.text(max_size=8))
def test_rendezvous_does_not_ask_for_an_order(listed: list[JournalSpec], text: str) -> None:
    assert (
        rendezvous_mapping(key, lambda: listed)(text)[0]
        == rendezvous_mapping(key, lambda: specs(6))(text)[0]
    )


def test_random_chooses_all() -> None:
    listed = specs(5)
    mapping = random_mapping(lambda: listed)
    counts = Counter(mapping(None)[0] for _ in range(5_000))
    assert set(counts) == {spec.name for spec in listed}
    assert all(count > 700 for count in counts.values())


def test_a_mapping_gives_the_journals_own_framing() -> None:
    listed = [JournalSpec("a", "application/x-ndjson"), JournalSpec("b", "application/x-ndjson")]
    mapping = modulo_mapping(key, lambda: listed)
    assert mapping("x")[1] is framing_by_content_type("application/x-ndjson")


@pytest.mark.parametrize(
    "mapping",
    [
        modulo_mapping(key, list),
        rendezvous_mapping(key, list),
        even_rendezvous_mapping(key, list),
        random_mapping(list),
    ],
)
def test_no_journals(mapping: object) -> None:
    with pytest.raises(EmptyListError, match="the list of journals is empty"):
        mapping("x")  # type: ignore[operator]


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "..", "a/../b", ".", "a b", "ä", "a\n"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name of a journal"):
        JournalSpec(name)


def test_names() -> None:
    assert JournalSpec("a.b/..c/=x%20,y@1:2+3_4-5").name == "a.b/..c/=x%20,y@1:2+3_4-5"
