"""The samples of docs/filters.md and docs/encrypt.md, and settings of the filters in a file."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.client import Client
from krammar.proxy.settings import read_settings
from krammar.testing import KafkaBroker
from tests.proxy.filters.encrypted import line
from tests.support.waiting import PATIENCE

FOLDER = Path(__file__).parents[3]


def blocks(page: str, language: str) -> list[str]:
    text = (FOLDER / "docs" / page).read_text()
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", text, re.M | re.S)
    return [textwrap.dedent(code) for _, code in found]


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys.txt").write_text(line("2026-11"))
    (tmp_path / "order.schema.json").write_text("{}")
    (tmp_path / "my_kms.py").write_text(blocks("encrypt.md", "python")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []
    for page in ("filters.md", "encrypt.md"):
        for text in blocks(page, "toml"):
            (tmp_path / "proxy.toml").write_text(text)
            names += [type(each).__name__ for each in read_settings(Path("proxy.toml")).filters]
    assert names == [
        "Deny",
        "Deny",
        "Authorize",
        "Limit",
        "Mask",
        "Validate",
        "Validate",
        "Encrypt",
        "Encrypt",
    ]


@pytest.mark.parametrize(
    ("name", "argument", "error"),
    [
        ("deny:Deny", "topics = 'x'", "topics = 'x': write a list"),
        ("limit:Limit", "produce = 0", "produce = 0: write bytes per second, more than 0"),
        ("mask:Mask", "function = 'x'", "function: 'x' is not \"module:name\""),
        (
            "validate:Validate",
            "schema = 'no.json'",
            "schema = 'no.json': No such file or directory",
        ),
        ("encrypt:Encrypt", "keys = 'bad.txt'", "keys: bad.txt:1: write an id and 32 bytes"),
        ("encrypt:Encrypt", "keys = 'no.txt'", "keys = 'no.txt': No such file or directory"),
        ("encrypt:Encrypt", "key = 'k'", "unexpected keyword argument 'key'"),
    ],
)
def test_wrong_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, argument: str, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.txt").write_text("key\n")
    Path("proxy.toml").write_text(
        f'upstream = "x:1"\n[[filter]]\nclass = "krammar.proxy.filters.{name}"\n{argument}\n'
    )
    result = CliRunner().invoke(main, ["proxy", "proxy.toml"])
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert f"Error: proxy.toml: [[filter]] 1: krammar.proxy.filters.{name}: " in text
    assert error in text


@pytest.mark.parametrize("extra", ["cryptography", "jsonschema"])
def test_a_missing_extra(tmp_path: Path, extra: str) -> None:
    filters = {
        "cryptography": ("encrypt:Encrypt", "keys = 'k'", "krammar[encrypt]"),
        "jsonschema": ("validate:Validate", "schema = 's'", "krammar[schema]"),
    }
    name, argument, command = filters[extra]
    (tmp_path / "proxy.toml").write_text(
        f'upstream = "x:1"\n[[filter]]\nclass = "krammar.proxy.filters.{name}"\n{argument}\n'
    )
    code = f"import sys; sys.modules[{extra!r}] = None; from krammar.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, "proxy", "proxy.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2, run.stderr
    assert f"needs {extra}: pip install '{command}'" in " ".join(run.stderr.split())


def test_a_filter_of_records_and_its_test(tmp_path: Path) -> None:
    example, test = blocks("filters.md", "python")
    (tmp_path / "my_filters.py").write_text(example)
    (tmp_path / "test_my_filters.py").write_text(test)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_filters.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_example() -> None:
    path = FOLDER / "examples" / "proxy" / "audit.py"
    assert len(path.read_text().splitlines()) <= 30
    with KafkaBroker.start() as broker:
        process = subprocess.Popen(
            [sys.executable, path, broker.bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[3].rstrip(";")
            with Client(address, client_id="me") as client:
                client.admin.create_topic("orders")
            lines = [process.stdout.readline() for _ in range(2)]
            process.communicate("\n", timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()
    assert re.fullmatch(r"me at 127\.0\.0\.1:\d+: CreateTopicsRequest\n", lines[0])
    assert lines[1] == "topic orders: error 0\n"
    assert process.returncode == 0
