"""The errors of rules, and the failure that a test gets when a fault never fired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from krammar.util.diagnostics import did_you_mean

# The codes of diagnostics, with their meaning. docs/faults.md lists them.
CODES = {
    "F101": "The text cannot be read.",
    "F201": "A name does not exist.",
    "F301": "A value does not fit.",
    "F401": "The rule cannot apply to a message-version that it names.",
    "F501": "Parts of the rule do not go together, or the rule needs krammar's broker.",
}


class FaultError(ValueError):
    """A rule that cannot be applied.

    ``hint`` says what to do, and ``code`` is a key of ``CODES``. ``key`` names the part of the rule that is
    wrong and ``word`` the wrong word in it, so that a file's diagnostic can point at it.
    """

    def __init__(
        self, message: str, *, hint: str = "", code: str = "F301", word: str = "", key: str = ""
    ) -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.message = message
        self.hint = hint
        self.code = code
        self.word = word
        self.key = key


class FaultNotFired(AssertionError):
    """A fault that a test expects did not fire, or not as often as expected."""


@contextmanager
def blaming(key: str) -> Iterator[None]:
    """Name the part of a rule that errors inside are about."""
    try:
        yield
    except FaultError as error:
        error.key = error.key or key
        raise


def unknown(kind: str, word: str, known: Iterable[str]) -> FaultError:
    """Return the error for a name that does not exist, with the nearest name that does."""
    names = list(known)
    hint = did_you_mean(word, names)
    if not hint and (near := [name for name in names if word and word.lower() in name.lower()]):
        hint = did_you_mean(near[0], near)  # "not_leader" for "NOT_LEADER_OR_FOLLOWER"
    if not hint and 0 < len(names) <= 12:
        hint = f"known: {', '.join(names)}"
    return FaultError(f'{kind} "{word}" does not exist', hint=hint, code="F201", word=word)
