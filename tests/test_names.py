"""The check that public names have one meaning."""

from __future__ import annotations

from tools.names import exceptions, problems


def test_problems_say_what_to_do() -> None:
    found = {"Place": ["a.py", "b.py"], "Other": ["a.py"], "Token": ["a.py", "c.py"]}
    assert problems(found, exceptions("# A comment\n\nOther: was two\nToken:\n")) == [
        "Place has 2 meanings: a.py, b.py; rename all but one",
        "Other has one meaning; remove it from names.txt",
        "Token has no reason in names.txt",
    ]
