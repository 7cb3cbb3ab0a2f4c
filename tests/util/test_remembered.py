"""A mapping that forgets: krammar.util.remembered."""

from __future__ import annotations

from krammar.util.remembered import Remembered


def test_the_entry_that_was_stored_first_is_forgotten() -> None:
    names: Remembered[int, str] = Remembered(2)
    for number, name in enumerate("abc"):
        names[number] = name
    assert list(names.items()) == [(1, "b"), (2, "c")]


def test_storing_again_and_use_make_an_entry_new() -> None:
    names: Remembered[int, str] = Remembered(3)
    for number, name in enumerate("abc"):
        names[number] = name
    names[0] = "A"
    assert names.use(1) == "b"
    names[3] = "d"
    assert list(names.items()) == [(0, "A"), (1, "b"), (3, "d")]


def test_a_look_changes_nothing() -> None:
    names: Remembered[int, str] = Remembered(2)
    names[0], names[1] = "a", "b"
    assert names.get(0) == "a"
    assert names.use(7) is None
    names[2] = "c"
    assert list(names) == [1, 2]
