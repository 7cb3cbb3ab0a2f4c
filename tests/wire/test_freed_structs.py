"""Structs that the engine has decoded are freed as objects of any class in Python, although it frees them itself."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.wire import every_form
from tests.wire.both import needs_engine

pytestmark = needs_engine


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return every_form.load(tmp_path_factory.mktemp("every_form"))


@pytest.fixture
def pair(package: Any) -> Iterator[type[Any]]:
    """A generated class that the engine has decoded, and nobody else uses."""
    cls = package.Pair
    cls.decode(cls().encode(0), 0)
    yield cls
    if "__del__" in vars(cls):
        del cls.__del__


def decoded(cls: Any) -> Any:
    return cls.decode(cls().encode(0), 0)


def test_values_and_the_class_lose_their_references(pair: Any) -> None:
    name = "a name that nothing else refers to"
    before = sys.getrefcount(name), sys.getrefcount(pair)
    structs = [decoded(pair) for _ in range(100)]
    for each in structs:
        setattr(each, pair._fields[0], name)
    assert sys.getrefcount(name) == before[0] + 100
    assert sys.getrefcount(pair) >= before[1] + 100
    del structs, each
    assert (sys.getrefcount(name), sys.getrefcount(pair)) == before


def test_a_chain_of_any_length(pair: Any) -> None:
    """Freeing it does not need a stack of that depth."""
    first = decoded(pair)
    for _ in range(300_000):
        struct = decoded(pair)
        setattr(struct, pair._fields[0], first)
        first = struct
    before = sys.getrefcount(pair)
    del first, struct
    assert sys.getrefcount(pair) < before - 299_000


def test_a_finalizer_runs_once(pair: Any) -> None:
    seen = []
    struct = decoded(pair)
    pair.__del__ = lambda self: seen.append(type(self))
    del struct
    assert seen == [pair]


def test_a_finalizer_can_keep_the_struct(pair: Any) -> None:
    kept: list[Any] = []
    struct = decoded(pair)
    pair.__del__ = lambda self: kept.append(self)
    del struct
    (struct,) = kept
    assert struct == pair()
    kept.clear()
    del struct
    gc.collect()
    assert kept == []  # it is called once for an object


SUBCLASSES = {
    "with a dictionary": {},
    "without slots": {"__slots__": ()},
    "with a slot": {"__slots__": ("more",)},
}


@pytest.mark.parametrize("body", SUBCLASSES.values(), ids=SUBCLASSES)
def test_subclasses(pair: Any, body: dict[str, Any]) -> None:
    seen: list[Any] = []
    cls: Any = type("Mine", (pair,), body | {"__del__": lambda self: seen.append(self.right)})
    struct = decoded(cls)
    seen.clear()  # of the default that was encoded
    struct.right = value = object()
    assert type(struct) is cls
    if hasattr(struct, "__dict__") or "more" in body.get("__slots__", ()):
        struct.more = value
    del struct
    assert seen == [value]
    seen.clear()
    assert sys.getrefcount(value) == 2


def test_weak_references(pair: Any) -> None:
    cls: Any = type("Mine", (pair,), {})
    struct = decoded(cls)
    reference = weakref.ref(struct)
    del struct
    assert reference() is None
