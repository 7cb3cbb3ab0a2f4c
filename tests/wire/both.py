"""The engine and pure Python in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ClassMethodDescriptorType
from typing import Any

import pytest

from krammar.wire import message
from krammar.wire.engine_loading import ENGINE, status
from krammar.wire.message import Codec, Struct

needs_engine = pytest.mark.skipif(ENGINE is None, reason=status())


@contextmanager
def pure_python() -> Iterator[None]:
    """Put the methods that the engine has replaced back, for all classes."""
    engine = {name: vars(Codec)[name] for name in message.REPLACED}
    for name, function in message.REPLACED.items():
        of_class = isinstance(engine[name], ClassMethodDescriptorType)
        setattr(Codec, name, classmethod(function) if of_class else function)
    try:
        yield
    finally:
        for name, method in engine.items():
            setattr(Codec, name, method)


def outcome(run: Callable[[], Any]) -> Any:
    """Return what a call returns, or an error with all that callers see of it."""
    try:
        return shown(run())
    except Exception as error:
        seen = [getattr(error, name, None) for name in ("path", "offset", "version", "api_key")]
        return type(error).__name__, str(error), *seen


def shown(value: Any) -> Any:
    """Return a value in a form that compares all of it: types, and floats that are no numbers."""
    if isinstance(value, Struct):
        # Not the repr: it calls values that are equal the same, such as bytes and memoryviews.
        found = [shown(getattr(value, name, ...)) for name in value._fields]
        return type(value), found, shown(getattr(value, "_unknown_tags", ...) or None)
    if isinstance(value, tuple) or type(value) is list:
        return type(value), [shown(element) for element in value]
    if type(value) is memoryview:
        return type(value), value.format, value.readonly, bytes(value)
    return type(value), repr(value)


def compare(runs: Iterable[Callable[[], Any]], names: Iterable[Any] = ()) -> list[Any]:
    """Run functions with the engine and in pure Python. Returns the outcomes, which have to be the same."""
    calls = list(runs)
    ours = [outcome(call) for call in calls]
    with pure_python():
        theirs = [outcome(call) for call in calls]
    labels = list(names) or range(len(calls))
    different = [(label, a, b) for label, a, b in zip(labels, ours, theirs, strict=True) if a != b]
    assert not different, different[:3]
    return ours


def is_error(found: Any) -> bool:
    """Whether an outcome is an error."""
    return isinstance(found[0], str)
