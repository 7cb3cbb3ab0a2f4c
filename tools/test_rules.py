"""Check that every test can fail, and that shared helpers explain themselves: ``python tools/test_rules.py``.

A test breaks a rule if

- it asserts nothing, neither itself nor through the helpers of ``tests/`` that it calls; or
- it asserts only inside loops or branches that might not run. A loop certainly runs if it goes over a literal, a
  constant with a literal, a class such as an enum, or ``range`` of positive numbers. For any other loop, assert first
  that there is something to go over: ``assert names``.

A helper breaks a rule if

- another file imports it, and it has no docstring; or
- it waits until a deadline, and its assertion has no message that says what it waited for.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

Function = ast.FunctionDef | ast.AsyncFunctionDef
_WRAPPERS = {"enumerate", "sorted", "reversed", "list", "tuple", "set", "zip", "product", "iter"}
_RAISERS = {"raises", "warns", "fail", "xfail", "deprecated_call"}


@dataclass
class Module:
    """What a test file defines and imports."""

    name: str
    path: Path
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    methods: dict[str, list[Function]] = field(default_factory=dict)
    literals: dict[str, ast.expr] = field(default_factory=dict)
    # Local name to (module, name there).
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)


def module(name: str, path: Path, text: str | bytes) -> Module:
    """Read a test file."""
    made = Module(name, path, ast.parse(text))
    for node in made.tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                made.functions[node.name] = node
            case ast.ClassDef():
                for each in node.body:
                    if isinstance(each, Function):
                        made.methods.setdefault(each.name, []).append(each)
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                made.literals[target] = value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                made.literals[target] = value
    for node in ast.walk(made.tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                made.imported[alias.asname or alias.name] = (node.module, alias.name)
    return made


class Rules:
    """Judges the functions of some test files."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.modules = {each.name: each for each in modules}
        self._judged: dict[tuple[int, bool], bool] = {}

    # Which functions assert.

    def function(self, home: Module, node: Function, *, always: bool) -> bool:
        """Whether a function asserts something: in each call with ``always``, else in some."""
        key = (id(node), always)
        if key not in self._judged:
            self._judged[key] = False  # for functions that call themselves
            scope = Scope(self, home, node)
            self._judged[key] = scope.block(node.body) if always else scope.anywhere(node)
        return self._judged[key]

    def called(self, home: Module, call: ast.expr, *, always: bool) -> bool:
        """Whether the function or method of a call, as written, asserts something."""
        if isinstance(call, ast.Name):
            if call.id in home.functions:
                return self.function(home, home.functions[call.id], always=always)
            origin, name = home.imported.get(call.id, ("", ""))
            other = self.imported(home, origin)
            if other is not None and name in other.functions:
                return self.function(other, other.functions[name], always=always)
        if isinstance(call, ast.Attribute):
            if isinstance(call.value, ast.Name) and call.value.id in home.imported:
                origin, name = home.imported[call.value.id]
                other = self.imported(home, f"{origin}.{name}")
                if other is not None and call.attr in other.functions:
                    return self.function(other, other.functions[call.attr], always=always)
            return any(
                self.function(each, method, always=always)
                for each in self._visible(home)
                for method in each.methods.get(call.attr, ())
            )
        return False

    def _visible(self, home: Module) -> Iterator[Module]:
        yield home
        for name in {origin for origin, _ in home.imported.values()}:
            other = self.imported(home, name)
            if other is not None:
                yield other

    def imported(self, home: Module, name: str) -> Module | None:
        """The test file that ``home`` imports by a name, which can lack the folder."""
        return self.modules.get(name) or self.modules.get(f"{home.name.rpartition('.')[0]}.{name}")

    # The rules.

    def problems(self, home: Module) -> Iterator[tuple[int, str]]:
        """The lines of a file that break a rule, and how."""
        for node in ast.walk(home.tree):
            if isinstance(node, Function) and node.name.startswith("test_"):
                if not self.function(home, node, always=False):
                    yield node.lineno, f"{node.name} asserts nothing"
                elif not self.function(home, node, always=True):
                    yield node.lineno, f"{node.name} asserts only in loops or branches"
            if isinstance(node, ast.Assert) and node.msg is None and _is_deadline(node.test):
                yield node.lineno, "this assertion does not say what it waited for"

    def undocumented(self) -> Iterator[tuple[Module, int, str]]:
        """The functions without a docstring that another file imports."""
        used = {
            (other.name, name)
            for each in self.modules.values()
            for origin, name in each.imported.values()
            if (other := self.imported(each, origin)) is not None
        }
        for each in self.modules.values():
            for name, node in each.functions.items():
                shared = (each.name, name) in used and not name.startswith("test_")
                if shared and ast.get_docstring(node) is None:
                    yield each, node.lineno, f"{name} is shared and has no docstring"


class Scope:
    """Judges the statements of one function."""

    def __init__(self, rules: Rules, home: Module, function: Function) -> None:
        self._rules = rules
        self._home = home
        self._values = dict(home.literals)
        self._inner: dict[str, Function] = {}
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._values[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self._values[name] = value
                case ast.FunctionDef() | ast.AsyncFunctionDef() if node is not function:
                    self._inner[node.name] = node
        for argument in [*function.args.args, *function.args.kwonlyargs]:
            self._values.pop(argument.arg, None)

    def anywhere(self, function: Function) -> bool:
        """Whether any statement, in a loop or not, asserts something."""
        return any(self._asserts(node, always=False) for node in ast.walk(function))

    def block(self, body: list[ast.stmt]) -> bool:
        """Whether statements that run one after the other always assert something."""
        return any(self._statement(each) for each in body)

    def _statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return False
            case ast.If():
                return self.block(node.body) and self.block(node.orelse)
            case ast.For() | ast.AsyncFor():
                if self._expression(node.iter) or self.block(node.orelse):
                    return True
                return self._has_elements(node.iter) and self.block(node.body)
            case ast.While():
                # A loop that waits asserts its condition.
                return self._expression(node.test) or self.block(node.body)
            case ast.With() | ast.AsyncWith():
                items = any(self._expression(item.context_expr) for item in node.items)
                return items or self.block(node.body)
            case ast.Try():
                caught = bool(node.handlers) and all(
                    self.block(each.body) for each in node.handlers
                )
                normal = self.block(node.body) or self.block(node.orelse)
                if self.block(node.finalbody):
                    return True
                return normal and (caught or not node.handlers or self.block(node.body))
            case ast.Match():
                return all(self.block(case.body) for case in node.cases) and bool(node.cases)
            case _:
                return self._expression(node)

    def _expression(self, node: ast.AST) -> bool:
        """Whether an assertion, or a call that asserts, is in a simple statement or an expression."""
        if self._asserts(node, always=True):
            return True
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp) and not all(
            self._has_elements(each.iter) for each in node.generators
        ):
            return False
        return any(self._expression(each) for each in ast.iter_child_nodes(node))

    def _asserts(self, node: ast.AST, *, always: bool) -> bool:
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Name) and node.id in self._inner and isinstance(node.ctx, ast.Load):
            return self._rules.function(self._home, self._inner[node.id], always=always)
        if isinstance(node, ast.Name):  # called, or passed on to be called
            return self._rules.called(self._home, node, always=always)
        if not isinstance(node, ast.Call):
            return False
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in _RAISERS and ast.unparse(node.func).startswith("pytest."):
            return True
        if any(word.arg == "check" and _is_true(word.value) for word in node.keywords):
            return True  # subprocess.run
        if name in ("check_call", "check_output") or name.startswith("assert_"):
            return True
        return self._rules.called(self._home, node.func, always=always)

    def _has_elements(self, node: ast.expr | None) -> bool:
        """Whether an iterable certainly has an element."""
        match node:
            case ast.Tuple() | ast.List() | ast.Set():
                return any(
                    not isinstance(each, ast.Starred) or self._has_elements(each.value)
                    for each in node.elts
                )
            case ast.Dict():
                return any(key is not None for key in node.keys)
            case ast.Constant(value=str() | bytes() as value):
                return bool(value)
            case ast.Name(id=name) if name in self._values:
                value = self._values.pop(name)  # for names that refer to themselves
                found = self._has_elements(value)
                self._values[name] = value
                return found
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return _is_class(name) or self._is_shared_literal(name)
            case ast.BinOp(op=ast.Add() | ast.BitOr()):
                return self._has_elements(node.left) or self._has_elements(node.right)
            case ast.BinOp(op=ast.Mult()):
                return self._has_elements(node.left) or self._has_elements(node.right)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return all(not p.ifs and self._has_elements(p.iter) for p in node.generators)
            case ast.Call(func=ast.Attribute(value=value, attr="items" | "values" | "keys")):
                return self._has_elements(value)
            case ast.Call(func=ast.Name(id="range")):
                return _counts(node)
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in _WRAPPERS:
                return bool(node.args) and all(self._has_elements(each) for each in node.args)
            case ast.Starred():
                return self._has_elements(node.value)
        return False

    def _is_shared_literal(self, name: str) -> bool:
        origin, there = self._home.imported.get(name, ("", ""))
        other = self._rules.imported(self._home, origin)
        if other is None or there not in other.literals:
            return False
        match other.literals[there]:
            case ast.Tuple(elts=[_, *_]) | ast.List(elts=[_, *_]) | ast.Dict(keys=[_, *_]):
                return True
        return False


def _counts(call: ast.Call) -> bool:
    try:
        values = [eval(compile(ast.Expression(each), "", "eval"), {}) for each in call.args]
    except NameError:
        # ``range(count)``: a constant in capitals is positive.
        return all(
            (isinstance(each, ast.Name) and each.id.isupper()) or isinstance(each, ast.Constant)
            for each in call.args
        )
    return bool(range(*values))


def _is_class(name: str) -> bool:
    return name[:1].isupper() and not name.isupper() and name.isalnum()


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_deadline(test: ast.expr) -> bool:
    """Whether an assertion compares the time with one moment."""
    return ast.unparse(test).startswith("time.monotonic() <") and (
        isinstance(test, ast.Compare) and len(test.ops) == 1
    )


def read() -> list[Module]:
    """Read all files of ``tests/``."""
    return [
        module(".".join(path.relative_to(ROOT).with_suffix("").parts), path, path.read_bytes())
        for path in sorted((ROOT / "tests").rglob("*.py"))
    ]


def main() -> int:
    rules = Rules(read())
    found = [
        f"{each.path.relative_to(ROOT)}:{line}: {text}"
        for each in rules.modules.values()
        for line, text in rules.problems(each)
    ]
    found += [
        f"{each.path.relative_to(ROOT)}:{line}: {text}" for each, line, text in rules.undocumented()
    ]
    print("\n".join(found) or "every test can fail, and every shared helper has a docstring")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
