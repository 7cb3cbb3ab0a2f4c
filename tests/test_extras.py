"""Without an extra's packages, what needs them names the ``pip install`` that helps, and all else works."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from krammar.util.extras import MODULES
from tests.support.waiting import PATIENCE

_HIDE = "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split()))\n"
_ALL = " ".join(sorted({"uvloop", *(module for each in MODULES.values() for module in each)}))
_MAIN = "from krammar.cli import main; main()"
_PING = "PingRequest => key 0, max version 0\n  Text: string\n\nPingResponse =>\n"


def run(
    hidden: str, code: str, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code without some modules."""
    command = [sys.executable, "-c", _HIDE + code, hidden, *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ping").mkdir()
    (tmp_path / "ping" / "ping.krm").write_text(_PING)
    return tmp_path


def test_every_extra_is_known() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    # Without uvloop, the broker runs on asyncio's own loop.
    assert {*MODULES, "uvloop", "all"} == set(extras)
    assert extras["all"] == [f"krammar[{','.join(sorted({*MODULES, 'uvloop'}))}]"]


@pytest.mark.parametrize(
    ("hidden", "code", "error"),
    [
        ("pyspark", "from krammar.spark import register", "krammar.spark needs pyspark: "),
        ("pyarrow", "from krammar.spark import register", "krammar.spark needs pyarrow: "),
        ("pyspark pyarrow", "import pyspark_krammar", "krammar.spark needs pyspark and pyarrow: "),
        ("pyspark", "import krammar.spark.functions", "krammar.spark needs pyspark: "),
        (
            "pyarrow",
            "import krammar.wire.batches.arrow",
            "krammar.wire.batches.arrow needs pyarrow: ",
        ),
        (
            "joserfc",
            "import krammar.auth.jwt",
            "sasl.oauthbearer.jwks.endpoint.url needs joserfc: ",
        ),
        ("joserfc", "import krammar.testing.tokens", "krammar.testing.tokens needs joserfc: "),
        (
            "cryptography",
            "import krammar.proxy.filters.encrypt",
            "the filter Encrypt needs cryptography: ",
        ),
        (
            "jsonschema",
            "from krammar.proxy.filters.validate import Validate; Validate(schema={})",
            "a JSON Schema needs jsonschema: ",
        ),
        ("lark", "import krammar.compiler.front.source", "krammar.compiler needs lark: "),
        (
            _ALL,
            "import krammar.compiler.backends.python",
            "krammar.compiler needs black, jinja2 and lark: ",
        ),
    ],
)
def test_an_import(hidden: str, code: str, error: str) -> None:
    if "krammar.spark" in error and "pyspark" not in hidden:
        pytest.importorskip("pyspark")  # or it would be named too
    done = run(hidden, code)
    last = done.stderr.splitlines()[-1]
    known = {
        "spark": "spark",
        "compiler": "compiler",
        "arrow": "arrow",
        "cryptography": "encrypt",
        "jsonschema": "schema",
    }
    extra = next((extra for word, extra in known.items() if word in error), "oauth")
    assert last == f"krammar.util.extras.MissingExtra: {error}pip install 'krammar[{extra}]'"


@pytest.mark.parametrize(
    "arguments",
    [
        "gen ping -o ping_wire",
        "check ping",
        "fmt ping",
        "diff ping ping",
        "docs ping -o site",
        "import ping -o out",
    ],
)
def test_a_verb_of_the_compiler(folder: Path, arguments: str) -> None:
    done = run(_ALL, _MAIN, *arguments.split(), cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "Error: krammar.compiler needs black, jinja2 and lark: pip install 'krammar[compiler]'\n",
    )


def test_lsp(folder: Path) -> None:
    done = run(_ALL, _MAIN, "lsp", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "Error: krammar.lsp needs black, jinja2, lark, lsprotocol and pygls: "
        "pip install 'krammar[lsp]'\n",
    )


def test_every_other_module_can_be_imported() -> None:
    done = run(
        _ALL,
        "import pkgutil, krammar\n"
        "from importlib import import_module\n"
        "needing = ('krammar.compiler', 'krammar.lsp', 'krammar.spark', 'krammar.wire.batches.arrow',"
        " 'krammar.auth.jwt', 'krammar.broker.security.jwt', 'krammar.testing.tokens',"
        " 'krammar.proxy.filters.encrypt', 'krammar.proxy.filters.envelope', 'krammar.proxy.filters.keys')\n"
        "def walk(path, prefix):\n"
        "    for found in pkgutil.iter_modules(path, prefix):\n"
        "        if not found.name.startswith(needing) and not found.name.endswith('__main__'):\n"
        "            module = import_module(found.name)\n"
        "            walk(getattr(module, '__path__', []), found.name + '.')\n"
        "            print(found.name)\n"
        "walk(krammar.__path__, 'krammar.')\n",
    )
    assert done.returncode == 0, done.stderr
    assert {"krammar.cli.broker", "krammar.client.client", "krammar.tap.run"} <= set(
        done.stdout.split()
    )


def test_every_other_verb_works(folder: Path) -> None:
    (folder / "lines").write_text("one\ntwo\n")
    done = run(
        _ALL,
        "from krammar.broker import Broker\n"
        "from krammar.cli import main\n"
        "def run(*arguments):\n"
        "    main(arguments, standalone_mode=False)\n"
        "with Broker.start(data_dir='data') as broker:\n"
        "    where = '-b', broker.bootstrap_servers\n"
        "    run('topics', 'create', 'orders', *where)\n"
        "    for codec in ('none', 'gzip', 'snappy', 'lz4', 'zstd'):\n"
        "        run('produce', 'orders', '-l', 'lines', '-z', codec, *where)\n"
        "    run('consume', 'orders', '-e', *where)\n"
        "run('broker-user', 'list', '--data-dir', 'data')\n"
        "run('inspect', 'kafka_wire', 'MetadataRequest', '12')\n",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:11] == ["orders created with 1 partition", *["one", "two"] * 5]
