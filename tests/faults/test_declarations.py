"""One declaration for each action: the method, the key in files, and the documentation agree with it."""

from __future__ import annotations

import re
from dataclasses import fields
from inspect import getdoc, signature

import kafka_wire
import pytest

from krammar.faults import FaultError, Faults
from krammar.faults.action import Action
from krammar.faults.declared import declared
from krammar.faults.file import _KEYS
from krammar.faults.rules import ACTIONS, Rule
from tests.samples import ROOT

METHODS = {name: method.action for name, method in vars(Rule).items() if hasattr(method, "action")}
_CELLS = re.compile(r"^\|(.+?)\|(.+?)\|", re.MULTILINE)


def test_every_action_of_a_file_has_a_method() -> None:
    assert len(METHODS) == len(ACTIONS) + 1  # files cannot have functions
    for name, action in METHODS.items():
        assert action.key in ("", name, f"{name}_ms")


@pytest.mark.parametrize("name", METHODS)
def test_the_documentation_of_an_action(name: str) -> None:
    action = METHODS[name]
    text = (ROOT / "docs/faults.md").read_text("utf-8")
    key = next(key for method, key in _CELLS.findall(text) if f"`{name}(" in method)
    assert not action.key or f"`{action.key} = " in key
    api = (ROOT / "docs/api/faults.md").read_text("utf-8")
    assert re.search(rf"\b{action.__name__}\b", api)
    described = getdoc(action) or ""
    for field in fields(action):
        assert re.search(rf"^ *{field.name}: ", described, re.MULTILINE), field.name


@pytest.mark.parametrize("name", METHODS)
def test_the_signature_of_a_method(name: str) -> None:
    wanted = list(declared(METHODS[name]))
    assert list(signature(getattr(Rule, name)).parameters) == ["self", *wanted]


def test_the_documentation_of_selections_and_limits() -> None:
    cells = " ".join(key for _, key in _CELLS.findall((ROOT / "docs/faults.md").read_text("utf-8")))
    same = {"partition", "group", "transactional_id"}  # "the same" as in Python
    missing = [key for key in _KEYS if f"{key} = " not in cells and key not in same]
    assert missing == ["name", "expect"]  # described in the text


def wrong(action: type[Action], name: str) -> object:
    """A value that the field cannot have."""
    values = declared(action)[name]
    return "none of them" if values.choices else {3} if values.kinds else None


@pytest.mark.parametrize(
    ("method", "field"),
    [
        (method, field)
        for method, action in METHODS.items()
        for field, values in declared(action).items()
        if values.kinds
    ],
)
def test_fields_refuse_what_they_do_not_declare(method: str, field: str) -> None:
    """In Python, with an error that names the field or the action."""
    action = METHODS[method]
    examples: dict[str, object] = {"bytes": 1, "every_ms": 1, "ms": 1, "code": 3}
    examples |= {"bytes_per_second": 1, "path": "acks", "value": 1, "versions": {}}
    examples |= {"function": len}
    required = {name: examples[name] for name in declared(action) if name in examples}
    rule = Faults(kafka_wire, sees=("clock",)).on("Produce", "Fetch", "ApiVersions")
    label = f"({field}|{action.key})"
    with pytest.raises(FaultError, match=f"^{label} (needs|cannot be)"):
        getattr(rule, method)(**{**required, field: wrong(action, field)})
