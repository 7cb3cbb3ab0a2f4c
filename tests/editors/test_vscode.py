"""The extension of VS Code: its description, its grammar, and its package."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from krammar import __version__
from krammar.cli import main
from krammar.lsp.words import ANNOTATIONS, ENTITIES, MODIFIERS, TYPES
from tests.samples import blocks
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "editors" / "vscode"
GRAMMAR: dict[str, Any] = json.loads(
    (EXTENSION / "syntaxes" / "krammar.tmLanguage.json").read_text()
)
PACKAGE: dict[str, Any] = json.loads((EXTENSION / "package.json").read_text())
NETWORK = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|E40\d")


def test_the_version_is_that_of_krammar() -> None:
    assert PACKAGE["version"] == __version__
    assert f"krammar-{__version__}.vsix" in (ROOT / "docs" / "editors.md").read_text()


def test_the_extension_starts_a_command_that_exists() -> None:
    settings = PACKAGE["contributes"]["configuration"]["properties"]
    [(name, setting)] = settings.items()
    program, verb = setting["default"]
    assert program == "krammar" and main.get_command(None, verb) is not None  # type: ignore[arg-type]
    source = (EXTENSION / "extension.js").read_text()
    assert f'"{name}"' in source and f'"{name.removeprefix("krammar.")}"' in source
    [sample] = blocks("docs/editors.md", "json")
    assert json.loads(sample) == {name: [".venv/bin/krammar", "lsp"]}


def test_files_that_the_extension_names_exist() -> None:
    contributed = PACKAGE["contributes"]
    files = [
        PACKAGE["main"],
        *(each["configuration"] for each in contributed["languages"]),
        *(each["path"] for each in contributed["grammars"]),
    ]
    assert all((EXTENSION / each).is_file() for each in files)
    assert contributed["grammars"][0]["scopeName"] == GRAMMAR["scopeName"]
    assert (EXTENSION / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_grammar_knows_the_words_of_the_language() -> None:
    repository = GRAMMAR["repository"]
    type_ = next(
        each["match"]
        for each in repository["type"]["patterns"]
        if each["name"] == "support.type.krammar"
    )
    for word in (*TYPES, "length-field-minus", "nullable-bytes-v3+", "nullable-v9+"):
        assert re.fullmatch(type_, word), word
    modifier = repository["struct"]["patterns"][0]["match"]
    assert all(re.fullmatch(modifier, word) for word in MODIFIERS)
    entity, annotation = (each["match"] for each in repository["annotations"]["patterns"][1:3])
    assert all(re.fullmatch(entity, f"entity {word}") for word in ENTITIES)
    # The others are parts of types, or belong to lines of their own and to members of enums.
    types = {word for word in ANNOTATIONS if word.startswith("nullable")}
    assert all(re.fullmatch(type_, word) for word in types)
    words = ANNOTATIONS.keys() - types - {"reserved tag", "retriable", "camelcase"}
    assert all(re.fullmatch(annotation, word) for word in words)


def test_the_sample_for_helix() -> None:
    [sample] = blocks("docs/editors.md", "toml")
    settings = tomllib.loads(sample)
    assert settings["language-server"]["krammar"] == {"command": "krammar", "args": ["lsp"]}
    assert settings["language"][0]["language-servers"] == ["krammar"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension with its tools, as ``npm ci`` installs them."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("vscode") / "extension"
    shutil.copytree(EXTENSION, folder, ignore=shutil.ignore_patterns("node_modules", "*.vsix"))
    done = npm(folder, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    if done.returncode and NETWORK.search(done.stdout + done.stderr):
        pytest.skip("npm cannot reach its registry")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def npm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npm", *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.sweep
def test_the_grammar(installed: Path) -> None:
    done = npm(installed, "test")
    assert done.returncode == 0, done.stdout + done.stderr
    # The test notices a wrong scope.
    words = installed / "tests" / "words.krm"
    words.write_text(words.read_text().replace("enum.krammar", "struct.krammar"))
    assert npm(installed, "test").returncode != 0


@pytest.mark.sweep
def test_nothing_in_the_definitions_is_illegal(installed: Path) -> None:
    """The grammar marks unknown types; the definitions of the project have none."""
    script = installed / "illegal.js"
    script.write_text(_ILLEGAL)
    done = subprocess.run(
        ["node", str(script), *map(str, sorted((ROOT / "definitions").rglob("*.krm")))],
        cwd=installed,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines, illegal = json.loads(done.stdout)
    assert illegal == [] and lines > 5000


_ILLEGAL = """\
const fs = require("fs");
const { Registry, parseRawGrammar, INITIAL } = require("vscode-textmate");
const oniguruma = require("vscode-oniguruma");
const path = "syntaxes/krammar.tmLanguage.json";
(async () => {
  const wasm = fs.readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm"));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.length));
  const registry = new Registry({
    onigLib: { createOnigScanner: (p) => new oniguruma.OnigScanner(p), createOnigString: (s) => new oniguruma.OnigString(s) },
    loadGrammar: async () => parseRawGrammar(fs.readFileSync(path, "utf8"), path),
  });
  const grammar = await registry.loadGrammar("source.krammar");
  let lines = 0;
  const illegal = [];
  for (const file of process.argv.slice(2)) {
    let stack = INITIAL;
    for (const line of fs.readFileSync(file, "utf8").split("\\n")) {
      const found = grammar.tokenizeLine(line, stack);
      stack = found.ruleStack;
      lines++;
      for (const token of found.tokens) {
        const text = line.slice(token.startIndex, token.endIndex);
        const plain = token.scopes.length === 1 && /[^\\s()\\[\\],]/.test(text);
        if (plain || token.scopes.some((scope) => scope.startsWith("invalid"))) illegal.push([file, line, text]);
      }
    }
  }
  console.log(JSON.stringify([lines, illegal.slice(0, 20)]));
})();
"""


@pytest.mark.sweep
def test_the_package(installed: Path) -> None:
    subprocess.run(["node", "--check", "extension.js"], cwd=installed, check=True, timeout=PATIENCE)
    done = npm(installed, "run", "package")
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(installed / f"krammar-{__version__}.vsix") as package:
        names = set(package.namelist())
    assert {
        "extension/extension.js",
        "extension/package.json",
        "extension/syntaxes/krammar.tmLanguage.json",
        "extension/language-configuration.json",
        "extension/node_modules/vscode-languageclient/node.js",
    } <= names
    assert not any(
        name.startswith(("extension/tests/", "extension/node_modules/@vscode")) for name in names
    )
