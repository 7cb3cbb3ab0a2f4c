"""``krammar gen``, twice, and what must be true after a power cut.

``python -m tests.powercut.packages FOLDER DEFINITIONS`` writes two versions of definitions, and generates a package
from each.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner

from krammar.cli import main as krammar
from krammar.compiler.write import CACHE_FOLDER
from tests.powercut.disk import State

# The second version has another file, without one of the first.
VERSIONS: list[dict[str, str]] = [
    {
        "shop/orders.krm": "Order => not top level\n  Customer: string\n",
        "shop/old.krm": "Old => not top level\n  A: int8\n",
        "bank/payments.krm": "Payment => not top level\n  Amount: int64\n",
    },
    {
        "shop/orders.krm": "Order => not top level\n  Customer: string\n  Amount: int64\n",
        "bank/payments.krm": "Payment => not top level\n  Amount: int64\n",
        "more/more.krm": "More => not top level\n  A: int8\n",
    },
]


def _write(definitions: Path, version: int) -> None:
    shutil.rmtree(definitions, ignore_errors=True)
    for name, text in VERSIONS[version].items():
        path = definitions / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _generate(definitions: Path, out: Path) -> None:
    done = CliRunner().invoke(krammar, ["gen", str(definitions), "-o", str(out)])
    if done.exit_code:
        raise RuntimeError(done.output)


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and CACHE_FOLDER not in path.parts and not path.name.endswith(".tmp")
    }


@cache
def _trees(definitions: Path) -> list[dict[str, bytes]]:
    """The files of both versions; the definitions of the second one remain."""
    trees = []
    for version in range(len(VERSIONS)):
        _write(definitions, version)
        with TemporaryDirectory() as out:
            _generate(definitions, Path(out))
            trees.append(_tree(Path(out)))
    return trees


def main() -> None:
    out, definitions = Path(sys.argv[1]), Path(sys.argv[2])
    for version in range(len(VERSIONS)):
        _write(definitions, version)
        _generate(definitions, out)
        print(f"generated {version}", flush=True)


def problems(folder: Path, state: State, *, definitions: Path) -> Iterator[str]:
    """Yield which files are damaged or missing, and whether another run completes the packages."""
    trees = _trees(definitions)
    found = _tree(folder)
    for name, data in found.items():
        if data not in [tree.get(name) for tree in trees]:
            yield f"{name} has {len(data)} other bytes"
    if len(state.marks) == 1:
        both = trees[0].keys() & trees[1].keys()
        if missing := both - found.keys():
            yield f"{missing} are missing"
    if len(state.marks) == 2 and found != trees[1]:
        yield f"the second version is not complete: {sorted(found)}"
    _generate(definitions, folder)
    if _tree(folder) != trees[1]:
        yield f"another run does not complete the packages: {sorted(_tree(folder))}"


if __name__ == "__main__":
    main()
