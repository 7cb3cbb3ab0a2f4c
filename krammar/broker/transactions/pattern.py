"""Regular expressions of clients, in RE2's syntax (KIP-1152), matched in bounded time.

Python's own ``re`` has another syntax, and can take time without bound for an expression that a client
has sent, while nobody else is served. Here a text costs steps in proportion to its length times the
expression's.

Of what RE2 knows, the names of scripts (``\\p{Greek}``) are left out; general categories are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from krammar.broker.transactions.pattern_syntax import (
    Alternatives,
    Assertion,
    Characters,
    Node,
    Repeat,
    Sequence,
    parse,
)

# Expressions that come out larger are refused: a thousandfold repeat of a hundred characters.
_MOST_STATES = 100_000

# One step of a match: a test of a character or of a place with the step behind it, or a choice.
_Step: TypeAlias = tuple[Characters | Assertion | None, int, int]
_MATCHED = -1


def whole_match(pattern: str) -> Callable[[str], bool]:
    """Whether a text as a whole matches ``pattern``. Raises ValueError if that is no expression."""
    try:
        program = _Program()
        start = program.add(parse(pattern), _MATCHED)
    except RecursionError:
        raise ValueError("groups are nested too deep") from None
    return lambda text: program.matches(start, text)


class _Program:
    """A nondeterministic automaton. States are added from the end of the expression to its start."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []

    def _step(self, test: Characters | Assertion | None, one: int, other: int = _MATCHED) -> int:
        if len(self.steps) >= _MOST_STATES:
            raise ValueError("the expression is too large")
        self.steps.append((test, one, other))
        return len(self.steps) - 1

    def add(self, node: Node, following: int) -> int:
        """Add what matches ``node`` and goes on at ``following``; returns its first state."""
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                following = self.add(part, following)
            return following
        if isinstance(node, Alternatives):
            first = self.add(node.choices[-1], following)
            for choice in reversed(node.choices[:-1]):
                first = self._step(None, self.add(choice, following), first)
            return first
        if isinstance(node, Repeat):
            return self._repeat(node, following)
        return self._step(node, following)

    def _repeat(self, node: Repeat, following: int) -> int:
        if node.most is None:
            loop = self._step(None, _MATCHED, following)
            self.steps[loop] = (None, self.add(node.node, loop), following)
            first = loop
        else:
            first = following
            for _ in range(node.most - node.least):
                first = self._step(None, self.add(node.node, first), following)
        for _ in range(node.least):
            first = self.add(node.node, first)
        return first

    def matches(self, start: int, text: str) -> bool:
        states = self._reachable([start], text, 0)
        for position, character in enumerate(text):
            after = []
            for state in states - {_MATCHED}:
                test, following, _ = self.steps[state]
                if isinstance(test, Characters) and test.has(character):
                    after.append(following)
            if not after:
                return False
            states = self._reachable(after, text, position + 1)
        return _MATCHED in states

    def _reachable(self, begin: list[int], text: str, position: int) -> set[int]:
        """The states at ``position``, with those reached without a character."""
        seen: set[int] = set()
        stack = begin
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            if state == _MATCHED:
                continue
            test, one, other = self.steps[state]
            if test is None:
                stack += (one, other)
            elif isinstance(test, Assertion) and test.holds(text, position):
                stack.append(one)
        return seen
