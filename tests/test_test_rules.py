"""The check that every test can fail, and the helper with which tests wait."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support import waiting
from tests.support.waiting import until
from tools.test_rules import Rules, module

HELPERS = """\
def check(value):
    assert value

def wait(condition):
    while not condition():
        assert time.monotonic() < deadline

class Client:
    def expect(self, value):
        if not value:
            raise AssertionError

def ordinary():
    return 1
"""
FINE = {
    "an assertion": "assert f()",
    "a refusal": "with pytest.raises(ValueError):\n    f()",
    "a helper": "check(f())",
    "a helper that is passed on": "retried(check)",
    "a helper that waits": "wait(f)",
    "a loop over a literal": "for each in (1, 2):\n    assert f(each)",
    "a loop over a constant": "for each in NAMES:\n    assert f(each)",
    "a loop over its items": "for number, each in enumerate(NAMES):\n    assert f(each)",
    "a loop that was checked": "assert names()\nfor each in names():\n    assert f(each)",
    "a loop over numbers": "for each in range(3):\n    assert f(each)",
    "a loop over an enum": "for each in ErrorCode:\n    assert f(each)",
    "both branches": "if f():\n    assert g()\nelse:\n    assert h()",
    "a function inside": "async def talk():\n    assert f()\nasyncio.run(talk())",
    "a finally": "try:\n    f()\nfinally:\n    assert g()",
}
SOMETIMES = {
    "a loop over a result": "for each in names():\n    assert f(each)",
    "a loop over an empty constant": "for each in NONE:\n    assert f(each)",
    "a loop over no numbers": "for each in range(0):\n    assert f(each)",
    "a branch": "if f():\n    assert g()",
    "a handler": "try:\n    f()\nexcept OSError:\n    assert g()",
    "a comprehension": "[check(each) for each in names()]",
    "a function that is not called": "def talk():\n    assert f()\nf()\nif f():\n    check(1)",
    "a method that asserts sometimes": "Client().expect(f())",
}
NEVER = {
    "a call": "f()",
    "a helper that asserts nothing": "ordinary()",
    "a loop": "for each in names():\n    f(each)",
}


def problems(body: str, *, helpers: str = HELPERS) -> list[str]:
    """What is wrong with a test that has a body."""
    test = "\n".join(f"    {line}" for line in body.splitlines())
    text = (
        "from tests.made.support import Client, check, ordinary, wait\n"
        f'NAMES = ["a"]\nNONE = []\n\ndef test_it(f, g, h):\n{test}\n'
    )
    home = module("tests.made.test_it", Path("test_it.py"), text)
    rules = Rules([module("tests.made.support", Path("support.py"), helpers), home])
    return [problem for _, problem in rules.problems(home)]


@pytest.mark.parametrize("body", FINE.values(), ids=FINE)
def test_a_test_that_asserts(body: str) -> None:
    assert problems(body) == []


@pytest.mark.parametrize("body", SOMETIMES.values(), ids=SOMETIMES)
def test_a_test_that_asserts_sometimes(body: str) -> None:
    assert problems(body) == ["test_it asserts only in loops or branches"]


@pytest.mark.parametrize("body", NEVER.values(), ids=NEVER)
def test_a_test_that_cannot_fail(body: str) -> None:
    assert problems(body) == ["test_it asserts nothing"]


def test_waiting_has_a_message() -> None:
    bare = "while f():\n    assert time.monotonic() < ends"
    assert problems(bare) == ["this assertion does not say what it waited for"]
    assert problems(bare + ", 'for f'") == []


def test_shared_helpers_have_docstrings() -> None:
    text = "from tests.made.support import check\n\ndef own():\n    check(1)\n"
    support = module("tests.made.support", Path("support.py"), HELPERS)
    rules = Rules([support, module("tests.made.test_it", Path("test_it.py"), text)])
    assert list(rules.undocumented()) == [(support, 1, "check is shared and has no docstring")]


def test_until_returns_what_it_waited_for() -> None:
    values = iter([0, "", 7])
    polled: list[int] = []
    assert until(lambda: next(values), after=lambda: polled.append(1)) == 7
    assert polled == [1, 1]


def test_until_says_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 0)
    names: list[str] = []
    with pytest.raises(AssertionError) as caught:
        until(lambda: "orders" in names, state=lambda: names)
    assert '"orders" in names' in str(caught.value)
    assert "last seen: []" in str(caught.value)
    with pytest.raises(AssertionError, match=r"still false after 0 s: functools.partial"):
        until(partial(bool, 0))
