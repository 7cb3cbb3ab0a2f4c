"""Measure the structure of ``krammar/``: ``python tools/architecture.py [circles] [rooms] [walks] [names]``.

``circles``  prints lines, files and circles of files that import each other. Imports for type checkers and
             imports inside functions count.
``rooms``    prints what a reader must put together from several files, per package: code lines, files that one
             neighbour imports, chains of classes, and class names with two meanings. The section "Rooms" says what
             counts.
``walks``    runs four real operations and prints, for each, how many functions of krammar/ and generated/ are called
             from another file, and how many files contain them: a reader who follows the operation opens these files.
             Needs PySpark for the last walk.
``names``    also prints these functions, in the order of their first calls.
"""

from __future__ import annotations

import ast
import inspect
import re
import socket
import struct
import sys
import tempfile
import threading
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROPERTIES = {"property", "cached_property", "functools.cached_property"}
# Special methods that a reader follows. Operators, len() and str() read like those of built-in types.
FOLLOWED = {"__init__", "__call__", "__enter__", "__exit__", "__iter__", "__next__", "__getitem__"}


# Circles.


def module_name(path: Path, root: Path = ROOT) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """The modules of ``modules`` that a file imports, anywhere in its text."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{origin}.{alias.name}"
                if name in modules:
                    yield name
                elif origin in modules:
                    yield origin


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of two or more modules, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            start = stack.index(name)
            component = stack[start:]
            del stack[start:]
            if len(component) > 1:
                found.append(sorted(component))

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return found


def print_circles() -> int:
    files = sorted(
        path for folder in ("krammar", "pyspark_krammar") for path in (ROOT / folder).rglob("*.py")
    )
    modules = {module_name(path): path for path in files}
    arrows = {name: set(imports(path, modules)) - {name} for name, path in modules.items()}
    lines = sum(len(path.read_bytes().splitlines()) for path in files)
    print(f"{lines:,} lines in {len(files)} files")
    found = circles(arrows)
    print(f"{len(found)} circles")
    for circle in found:
        print(f"  {len(circle)} files: {', '.join(circle)}")
    return len(found)


# Rooms.
#
# A package is a folder of krammar/ with all folders in it, or a module of krammar/ itself. pyspark_krammar/, by which Spark
# finds the data source, is another one.
#
# Code lines are lines with a token of Python that is neither a comment nor a docstring. Blank lines have none.
#
# Importers of a file are the other files of krammar/ that import it, for type checkers and inside functions too. A
# name that is imported from a package's __init__ counts as an import of the file that the __init__ takes it from, and
# an __init__ that only passes names on is no importer, so it hides nobody. A file is a corridor if exactly one file
# imports it, and this is its neighbour: a file of the same package. These are never corridors:
#   - __init__ and __main__, which Python itself looks for;
#   - a file with a name in the __all__ of an __init__, or that a page of docs/ names as krammar.x.y: its importers
#     are users, whom nobody can count;
#   - a file that another package imports: it is a door of its own package, such as what a verb of the command line
#     calls;
#   - a file that no file imports: it is loaded by its name, as verbs and backends are;
#   - a file that an __init__ passes on with ``import x as x``: the package loads it by its name, as it does with handlers.
#
# A chain is a class, its base, the base's base and so on, as far as they are defined in krammar/. It is reported if it
# stretches over more than two files. A file counts if a reader may have to open it to find the code of a method, so
# these classes do not count:
#   - exceptions, because their bases only say which ``except`` catches them;
#   - protocols and other classes whose methods are all abstract, because they have no code;
#   - classes of a module ``interface``, because users derive from them, so the docs describe what each method does;
#   - classes with fields but no methods, such as the families of dataclasses in the IR, because they have no code;
#   - classes that only add ``with``, because nobody looks for the name of ``__enter__``.
#
# A class name has two meanings if two classes of one package have it, in two files or in one. Classes inside
# functions or conditions do not count, so a class may be defined once per platform. Names in several packages are
# listed too: they matter where files that are read together use both.

ABSTRACT = {"abstractmethod", "abc.abstractmethod"}
WITH = {"__enter__", "__exit__"}


@dataclass(slots=True)
class ClassFacts:
    """A class of krammar/: its place, the expressions of its bases, and whether a method of it has code."""

    module: str
    name: str
    bases: list[str]
    has_code: bool

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True)
class ModuleFacts:
    """What a file defines, imports and publishes.

    Attributes:
        names: each imported name, with the module that it comes from and its name there. The name there is empty for
            modules.
        imported: the modules and names of krammar/ that the file imports.
        published: the names in ``__all__``, and those that an ``__init__`` imports ``as`` themselves.
        used: the names that its code uses, so that an ``__init__`` that only passes names on is known.
    """

    name: str
    path: Path
    classes: dict[str, ClassFacts] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    imported: set[tuple[str, str]] = field(default_factory=set)
    published: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    @property
    def is_entry(self) -> bool:
        return self.path.name in ("__init__.py", "__main__.py")


def code_lines(path: Path) -> int:
    """Count the lines that have code: no blank lines, comments or docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    silent |= {tokenize.ENCODING, tokenize.ENDMARKER}
    lines: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in silent:
                lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def has_code(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a reader may look for a method's code. Abstract methods, overloads and empty ones have none."""
    if method.name in WITH:
        return False
    decorators = {ast.unparse(each) for each in method.decorator_list}
    if decorators & (ABSTRACT | {"overload", "typing.overload"}):
        return False
    statements = [
        ast.unparse(statement)
        for statement in method.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    return not all(each == "pass" or "NotImplementedError" in each for each in statements)


def read_classes(facts: ModuleFacts, body: list[ast.stmt], prefix: str = "") -> None:
    for node in body:
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [
            each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        bases = [
            ast.unparse(each.value if isinstance(each, ast.Subscript) else each)
            for each in node.bases
        ]
        name = prefix + node.name
        if any(each.rpartition(".")[2] == node.name for each in facts.classes):
            facts.repeated.append(node.name)
        code = not facts.name.endswith(".interface") and any(map(has_code, methods))
        facts.classes[name] = ClassFacts(facts.name, name, bases, code)
        read_classes(facts, node.body, f"{name}.")


def read_module(name: str, path: Path, modules: dict[str, Path]) -> ModuleFacts:
    tree = ast.parse(path.read_bytes())
    facts = ModuleFacts(name, path)
    read_classes(facts, tree.body)
    package = facts.name.split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            facts.used.add(node.id)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in modules:
                    facts.imported.add((alias.name, ""))
                    facts.names[alias.asname or alias.name] = (alias.name, "")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                module = f"{origin}.{alias.name}"
                if module in modules:
                    found = module, ""
                elif origin in modules:
                    found = origin, alias.name
                else:
                    continue
                facts.imported.add(found)
                facts.names[alias.asname or alias.name] = found
                if path.name == "__init__.py" and alias.asname == alias.name:
                    facts.published.add(alias.name)
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.List | ast.Tuple)
            and ast.unparse(node.targets[0]) == "__all__"
        ):
            facts.published.update(ast.literal_eval(node.value))
    return facts


class Rooms:
    """The files of a package, and what can be measured of them.

    Args:
        root: the folder that contains the package's folder.
        package: its name. Modules that it imports from elsewhere are ignored.
    """

    def __init__(self, root: Path = ROOT, package: str = "krammar") -> None:
        files = (
            path
            for folder in (package, f"pyspark_{package}")
            for path in sorted((root / folder).rglob("*.py"))
        )
        paths = {module_name(path, root): path for path in files}
        self.modules = {name: read_module(name, path, paths) for name, path in paths.items()}
        pages = [page.read_text("utf-8") for page in sorted((root / "docs").rglob("*.md"))]
        words = {word for page in pages for word in re.findall(rf"\b{package}(?:\.\w+)+", page)}
        self.documented = {
            name for name in paths if any(f"{word}.".startswith(f"{name}.") for word in words)
        }

    def origin(self, module: str, name: str) -> tuple[str, str]:
        """Follow a name through the ``__init__`` files that only pass it on."""
        while self.modules[module].path.name == "__init__.py":
            step = self.modules[module].names.get(name)
            if step is None:
                break
            module, name = step
        return module, name

    def importers(self) -> dict[str, set[str]]:
        """The files that import each file. An ``__init__`` that only passes on what it imports is none of them."""
        found: dict[str, set[str]] = {name: set() for name in self.modules}
        for facts in self.modules.values():
            imported = facts.imported
            if facts.path.name == "__init__.py":
                imported = {facts.names[name] for name in facts.used & facts.names.keys()}
            for module, name in imported:
                origin, _ = self.origin(module, name)
                if origin != facts.name:
                    found[origin].add(facts.name)
        return found

    def corridors(self) -> dict[str, str]:
        """The files that only one neighbour imports, and which."""
        published = {
            self.origin(facts.name, name)[0]
            for facts in self.modules.values()
            if facts.path.name == "__init__.py"
            for name in facts.published
        }
        found = {}
        for name, importers in sorted(self.importers().items()):
            public = name in published or name in self.documented or self.modules[name].is_entry
            if len(importers) == 1 and not public:
                (importer,) = importers
                if package_of(importer) == package_of(name):
                    found[name] = importer
        return found

    def find_class(self, module: str, expression: str) -> ClassFacts | None:
        """The class that an expression in a file means, if it is one of krammar/."""
        facts = self.modules[module]
        if expression in facts.classes:
            return facts.classes[expression]
        for end in range(len(expression), 0, -1):
            head, rest = expression[:end], expression[end:].lstrip(".")
            if head in facts.names:
                origin, name = self.origin(*facts.names[head])
                path = ".".join(each for each in (name, rest) if each)
                return None if origin == module else self.find_class(origin, path) if path else None
        return None

    def bases(self, cls: ClassFacts) -> list[ClassFacts]:
        found = (self.find_class(cls.module, expression) for expression in cls.bases)
        return [base for base in found if base is not None]

    def is_exception(self, cls: ClassFacts) -> bool:
        names = {"Exception", "BaseException", "Warning", "ClickException", "UsageError"}
        return any(
            base.rpartition(".")[2] in names or base.endswith(("Error", "Warning"))
            for base in cls.bases
        ) or any(self.is_exception(base) for base in self.bases(cls))

    def line(self, cls: ClassFacts) -> list[list[ClassFacts]]:
        """All paths from a class to its first ancestors, with the classes that have code."""
        own = [cls] if cls.has_code else []
        above = [path for base in self.bases(cls) for path in self.line(base)]
        return [[*own, *path] for path in above] or [own]

    def chains(self) -> list[list[ClassFacts]]:
        """The chains of classes over more than two files, without those that are part of a longer one."""
        found = [
            path
            for facts in self.modules.values()
            for cls in facts.classes.values()
            if not self.is_exception(cls)
            for path in self.line(cls)
            if len({each.module for each in path}) > 2
        ]
        return [
            path
            for path in found
            if not any(path is not other and path == other[-len(path) :] for other in found)
        ]

    def classes(self) -> dict[str, list[str]]:
        """The files that define each class name; a file with two such classes appears twice."""
        found: dict[str, list[str]] = defaultdict(list)
        for facts in self.modules.values():
            names = {name.rpartition(".")[2] for name in facts.classes}
            for name in [*sorted(names), *facts.repeated]:
                found[name].append(facts.name)
        return dict(sorted(found.items()))

    def repeated_classes(self) -> dict[str, list[tuple[str, list[str]]]]:
        """For each package, its class names with two meanings, and the files that define them."""
        found: dict[str, list[tuple[str, list[str]]]] = defaultdict(list)
        for name, places in self.classes().items():
            for package in sorted({package_of(place) for place in places}):
                here = [place for place in places if package_of(place) == package]
                if len(here) > 1:
                    found[package].append((name, here))
        return found

    def shared_classes(self) -> dict[str, list[str]]:
        """The public class names that several packages have, and the files that define them."""
        return {
            name: places
            for name, places in self.classes().items()
            if not name.startswith("_") and len({package_of(place) for place in places}) > 1
        }


def package_of(module: str) -> str:
    """The package that a module counts in: ``krammar.client`` for ``krammar.client.fetch``."""
    return ".".join(module.split(".")[:2])


def print_rooms() -> None:
    rooms = Rooms()
    corridors, chains = rooms.corridors(), rooms.chains()
    row = "{:24} {:>10} {:>6} {:>13} {:>6} {:>7} {:>13}"
    print(
        row.format(
            "package", "code lines", "files", "one neighbour", "share", "chains", "names twice"
        )
    )
    counts: list[tuple[int, int, int, int, int]] = []
    repeated = rooms.repeated_classes()
    for package in sorted({package_of(name) for name in rooms.modules}):
        files = [facts for name, facts in rooms.modules.items() if package_of(name) == package]
        counts.append(
            (
                sum(code_lines(facts.path) for facts in files),
                len(files),
                sum(package_of(name) == package for name in corridors),
                sum(package_of(chain[0].module) == package for chain in chains),
                len(repeated.get(package, ())),
            )
        )
        print_row(row, package, counts[-1])
    print_row(row, "total", tuple(map(sum, zip(*counts, strict=True))))
    print("\nFiles that one neighbour imports:")
    for name, importer in corridors.items():
        print(f"  {name} <- {importer}")
    print("\nChains of classes over more than two files:")
    for chain in chains:
        print(f"  {' -> '.join(map(str, chain))}")
    print("\nClass names with two meanings in a package:")
    for package, names in sorted(repeated.items()):
        for name, places in names:
            print(f"  {package}: {name} in {', '.join(places)}")
    print("\nPublic class names of several packages:")
    for name, places in rooms.shared_classes().items():
        print(f"  {name} in {', '.join(places)}")


def print_row(row: str, title: str, counts: tuple[int, ...]) -> None:
    lines, files, single, chains, repeated = counts
    share = f"{100 * single / files:.1f} %"
    print(row.format(title, f"{lines:,}", files, single, share, chains, repeated))


# Walks.


class Walk:
    """Collects the functions that are called from another file, while ``active``.

    Properties, operators and modules that are imported do not count: a reader does not open a file for them.
    """

    def __init__(self) -> None:
        self.active = False
        self.functions: dict[CodeType, None] = {}
        self._roots = tuple(str(ROOT / name) + "/" for name in ("krammar", "generated"))

    def start(self) -> None:
        self.functions.clear()
        self.active = True

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if not self.active or event != "call" or not code.co_filename.startswith(self._roots):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self._roots):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            self.functions.setdefault(code)

    def report(self, name: str) -> None:
        functions = [code for code in self.functions if is_function(code)]
        files = {code.co_filename for code in functions}
        print(
            f"{name:10} {len(functions):4} functions called from other files, in {len(files):3} files"
        )
        if "names" in sys.argv:
            for code in functions:
                print(f"    {Path(code.co_filename).relative_to(ROOT)}: {code.co_qualname}")


@cache
def properties(file: str) -> frozenset[int]:
    """The first lines, with decorators, of a file's properties."""
    return frozenset(
        min(each.lineno for each in node.decorator_list)
        for node in ast.walk(ast.parse(Path(file).read_bytes()))
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(each) in PROPERTIES for each in node.decorator_list)
    )


def is_function(code: CodeType) -> bool:
    """Whether code is a function or method that a reader follows: no property, lambda, module or class."""
    if code.co_name.startswith("__") and code.co_name not in FOLLOWED:
        return False
    if code.co_name.startswith("<") or not code.co_flags & inspect.CO_OPTIMIZED:
        return False
    return code.co_firstlineno not in properties(code.co_filename)


def _kafka_request(port: int) -> Callable[[bytes], bytes]:
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)

    def ask(frame: bytes) -> bytes:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
            answer += connection.recv(1 << 20)
        return answer

    return ask


def walk_broker() -> None:
    """The second Produce and the second Fetch of a connection, from the socket to the file and back."""
    from kafka_wire import FetchRequest, ProduceRequest, RequestHeader

    from krammar.broker import Broker
    from krammar.client import Client
    from krammar.wire.batches import Record, encode_batch

    produce = ProduceRequest.from_dict(
        {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                {"name": "orders", "partition_data": [{"index": 0}]},
            ],
        }
    )
    produce.topic_data[0].partition_data[0].records = encode_batch([Record(value=b"one")])
    fetch = FetchRequest.from_dict(
        {
            "max_wait_ms": 100,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "topics": [
                {
                    "topic": "orders",
                    "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}],
                },
            ],
        }
    )
    walk = Walk()
    threading.setprofile(walk.profile)
    try:
        with Broker.start() as broker:
            with Client(broker.bootstrap_servers) as client:
                client.admin.create_topic("orders", 1)
            ask = _kafka_request(int(broker.bootstrap_servers.rpartition(":")[2]))
            for name, request in ("Produce", produce), ("Fetch", fetch):
                header = RequestHeader(
                    request_api_key=request.api_key, request_api_version=12, client_id="walk"
                )
                frame = header.encode(2) + request.encode(12)
                ask(frame)
                walk.start()
                ask(frame)
                walk.active = False
                walk.report(name)
    finally:
        threading.setprofile(None)


_DEFINITIONS = """\
PingRequest => key 0, max version 1
  Text: string

PingResponse =>
  Text: string // v1+
"""


def walk_gen() -> None:
    """``krammar gen`` of one message pair, from its text to the files."""
    from click.testing import CliRunner

    from krammar.cli import main

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "protocol"
        source.mkdir()
        (source / "ping.krm").write_text(_DEFINITIONS)
        walk = Walk()
        walk.start()
        sys.setprofile(walk.profile)
        result = CliRunner().invoke(main, ["gen", str(source), "-o", f"{folder}/out"])
        sys.setprofile(None)
        if result.exit_code:
            raise SystemExit(result.output)
    walk.report("gen")


def walk_spark() -> None:
    """A batch read of one record: planning as the driver does it, and its task."""
    from krammar.broker import Broker
    from krammar.client import Client
    from krammar.spark.datasource import KrammarDataSource

    with Broker.start() as broker, Client(bootstrap_servers=broker.bootstrap_servers) as client:
        client.admin.create_topic("orders", 1)
        with client.producer() as producer:
            producer.send("orders", b"one")
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
        walk = Walk()
        walk.start()
        sys.setprofile(walk.profile)
        source = KrammarDataSource(options)
        reader = source.reader(source.schema())
        rows = [row for task in reader.partitions() for row in reader.read(task)]
        sys.setprofile(None)
    if not rows:
        raise SystemExit("the walk read no rows")
    walk.report("Spark read")


def print_walks() -> None:
    walk_broker()
    walk_gen()
    walk_spark()


def main() -> int:
    wanted = sys.argv[1:] or ["circles", "rooms", "walks"]
    found = print_circles() if "circles" in wanted else 0
    if "rooms" in wanted:
        print_rooms()
    if {"walks", "names"} & set(wanted):
        print_walks()
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
