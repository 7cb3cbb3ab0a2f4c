"""Many small cases of a test in few items of pytest.

An item costs pytest, pytest-xdist and their processes about ten milliseconds, which is more than many cases take.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def in_groups(
    names: str | tuple[str, ...],
    cases: Iterable[Any],
    *,
    ids: Callable[[Any], str] = str,
    sweeps: Iterable[Any] = (),
    size: int = 20,
) -> Callable[[Test], Test]:
    """Run a test once per case, as ``pytest.mark.parametrize`` does, but several cases in one item.

    A failure names its case, and hides the cases after it in the group. Cases share the fixtures of a group, and must
    not skip.

    Args:
        names: the argument that a case is passed to, or the arguments for its elements.
        cases: the cases.
        ids: returns the name of a case.
        sweeps: cases that only run as sweeps.
        size: the cases of an item.
    """
    arguments = (names,) if isinstance(names, str) else names

    def items(
        found: Iterable[Any], kind: str, marks: tuple[pytest.MarkDecorator, ...]
    ) -> Iterator[Any]:
        named = [(ids(case), (case,) if isinstance(names, str) else case) for case in found]
        for begin in range(0, len(named), size):
            group = named[begin : begin + size]
            yield pytest.param(group, id=f"{kind}{group[0][0]} to {group[-1][0]}", marks=marks)

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(group: list[tuple[str, tuple[Any, ...]]], **fixtures: Any) -> None:
            for name, values in group:
                try:
                    test(**dict(zip(arguments, values, strict=True)), **fixtures)
                except BaseException as error:
                    error.add_note(f"in the case {name}")
                    raise

        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in arguments]
        first = inspect.Parameter("group", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        # pytest reads the names of fixtures from it.
        run.__signature__ = signature.replace(parameters=[first, *fixtures])  # type: ignore[attr-defined]
        groups = [*items(cases, "", ()), *items(sweeps, "sweep: ", (pytest.mark.sweep,))]
        return pytest.mark.parametrize("group", groups)(run)

    return decorate
