"""Measure the structure of ``krammar/``: ``python tools/architecture.py [circles] [walks] [names]``.

``circles``  prints lines, files and circles of files that import each other. Imports for type checkers and
             imports inside functions count.
``walks``    runs four real operations and prints, for each, how many functions of krammar/ and generated/ are called
             from another file, and how many files contain them: a reader who follows the operation opens these files.
             Needs PySpark for the last walk.
``names``    also prints these functions, in the order of their first calls.
"""

from __future__ import annotations

import ast
import inspect
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROPERTIES = {"property", "cached_property", "functools.cached_property"}
# Special methods that a reader follows. Operators, len() and str() read like those of built-in types.
FOLLOWED = {"__init__", "__call__", "__enter__", "__exit__", "__iter__", "__next__", "__getitem__"}


# Circles.


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
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
    """Whether code is a function or a method that a reader follows, and not a property, a lambda, a module or a class."""
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
    wanted = sys.argv[1:] or ["circles", "walks"]
    found = print_circles() if "circles" in wanted else 0
    if {"walks", "names"} & set(wanted):
        print_walks()
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
