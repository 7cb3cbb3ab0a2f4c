"""The documentation of fields, from the docstrings of generated modules."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from functools import cache
from itertools import pairwise

# What generated docstrings say about versions, tags and defaults, at their end.
_FACTS = re.compile(r"\s*\((?:v\d|tag \d|default |ignorable)[^\n]*\)$")


@cache
def docs_of(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of all fields of a module, by class and attribute. Empty without a source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    found: dict[str, dict[str, str]] = {}

    def visit(body: list[ast.stmt], name: str) -> None:
        docs = found.setdefault(name, {})
        for statement, after in pairwise(body):
            if not (
                isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            ):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = inspect.cleandoc(str(after.value.value))
                docs[statement.target.id] = _FACTS.sub("", text)
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                visit(statement.body, f"{name}.{statement.name}" if name else statement.name)

    visit(tree.body, "")
    return found
