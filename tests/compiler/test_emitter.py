"""Writing packages: deterministic output, only files that differ, and only our own files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.compiler.write import CACHE_FOLDER, Belongings, write
from tests.compiler.support import gen

ALPHA = """\
ARequest => key 0, max version 1
  A: int8

AResponse =>
  A: int8
"""
BETA = "B => not top level\n  B: string\n"


def generated(source: Path, out: Path, *more: str) -> str:
    result = gen(source, out, *more)
    assert result.exit_code == 0, result.output
    return result.output


def files(folder: Path) -> list[Path]:
    """The files of an output; not the notes that the emitter keeps for itself."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if path.parent.name != CACHE_FOLDER]


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files(folder)}


def age(folder: Path) -> dict[Path, int]:
    """Set every file's time back, so that a later write shows; returns the times, in nanoseconds."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, ns=(10**18, 10**18))
    return times(folder)


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in files(folder)}


def changed(folder: Path, before: dict[Path, int]) -> list[str]:
    now = times(folder)
    return sorted(
        path.relative_to(folder).as_posix()
        for path in now.keys() | before.keys()
        if now.get(path) != before.get(path)
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "definitions"
    for name, text in {"one/a.krm": ALPHA, "one/b.krm": BETA, "two/c.krm": BETA}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# -- the same each time --------------------------------------------------------------------------


def test_two_runs_into_two_folders_are_the_same(source: Path, tmp_path: Path) -> None:
    generated(source, tmp_path / "first")
    generated(source, tmp_path / "deep" / "second")

    assert tree(tmp_path / "first") == tree(tmp_path / "deep" / "second")


def test_where_the_source_lies_does_not_matter(source: Path, tmp_path: Path) -> None:
    generated(source, tmp_path / "first")
    (tmp_path / "else").mkdir()
    moved = source.rename(tmp_path / "else" / source.name)
    generated(moved, tmp_path / "second")

    assert tree(tmp_path / "first") == tree(tmp_path / "second")


def test_files_of_a_package(source: Path, out: Path) -> None:
    assert "21 written, 0 unchanged, 0 removed" in generated(source, out)
    assert sorted(tree(out)) == [
        "one/__init__.py",
        "one/_api_keys.py",
        "one/_codecs/__init__.py",
        "one/_codecs/a.py",
        "one/_codecs/b.py",
        "one/_codecs/kafka_headers.py",
        "one/a.py",
        "one/b.py",
        "one/kafka_headers.py",
        "one/layouts/__init__.py",
        "one/layouts/a.py",
        "one/layouts/b.py",
        "one/layouts/kafka_headers.py",
        "one/py.typed",
        "two/__init__.py",
        "two/_codecs/__init__.py",
        "two/_codecs/c.py",
        "two/c.py",
        "two/layouts/__init__.py",
        "two/layouts/c.py",
        "two/py.typed",
    ]


def test_nested_folders_and_a_root_are_mirrored(tmp_path: Path, out: Path) -> None:
    source = tmp_path / "protocol"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "none").mkdir()
    (source / "none" / "README.md").write_text("Nothing here.\n")
    (source / ".hidden").mkdir()
    (source / ".hidden" / "x").write_text("not a definition\n")
    (source / "root.krm").write_text(BETA)
    (source / "deep" / "er" / "d.krm").write_text(ALPHA)

    generated(source, out)

    files = set(tree(out))
    assert {"__init__.py", "root.py", "deep/er/__init__.py", "deep/er/d.py"} <= files
    assert "deep/__init__.py" not in files
    assert not any("hidden" in file or "none" in file for file in files)


def test_one_file_is_a_source_too(source: Path, out: Path) -> None:
    generated(source / "one" / "b.krm", out)

    assert {"__init__.py", "b.py"} <= set(tree(out))


# -- only changed files --------------------------------------------------------------------------


def test_a_second_run_writes_nothing(source: Path, out: Path) -> None:
    generated(source, out)
    before = age(out)

    assert "0 written, 21 unchanged, 0 removed" in generated(source, out)
    assert changed(out, before) == []


def test_only_what_changed_is_written(source: Path, out: Path) -> None:
    generated(source, out)
    before = age(out)
    (source / "one" / "b.krm").write_text(BETA.replace("string", "bytes"))

    generated(source, out)

    assert changed(out, before) == ["one/_codecs/b.py", "one/b.py", "one/layouts/b.py"]


def test_a_comment_that_belongs_to_nothing_changes_nothing(source: Path, out: Path) -> None:
    generated(source, out)
    before = age(out)
    (source / "one" / "b.krm").write_text("// Nothing.\n\n" + BETA)

    generated(source, out)

    assert changed(out, before) == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_text(path.read_text() + "\nx = 1\n"), id="added"),
        pytest.param(lambda path: path.write_text(""), id="emptied"),
        pytest.param(lambda path: path.unlink(), id="deleted"),
    ],
)
@pytest.mark.parametrize("name", ["one/a.py", "one/__init__.py", "one/layouts/a.py"])
def test_damaged_output_is_mended(source: Path, out: Path, name: str, damage: object) -> None:
    generated(source, out)
    whole = tree(out)
    assert callable(damage)
    damage(out / name)
    before = age(out)

    assert gen(source, out, "--check").exit_code == 1
    generated(source, out)

    assert tree(out) == whole
    assert changed(out, before) == [name]


def test_files_that_krammar_did_not_write_are_not_replaced(tmp_path: Path) -> None:
    source = tmp_path / "protocol"
    source.mkdir()
    (source / "a.krm").write_text(ALPHA)
    out = tmp_path / "src" / "myapp"
    out.mkdir(parents=True)
    mine = '"""My application.\n\nGenerated by krammar? No."""\n\nVERSION = 1\n'
    (out / "__init__.py").write_text(mine)
    (out / "a.py").write_bytes(b"\xff\xfe\0")

    for more in ((), ("--check",)):
        result = gen(source, out, *more)

        assert result.exit_code == 2
        assert f"krammar did not write {out}/__init__.py, {out}/a.py" in result.output
        assert "--force" in result.output
        assert tree(out) == {"__init__.py": mine.encode(), "a.py": b"\xff\xfe\0"}

    generated(source, out, "--force")
    whole = tree(out)
    assert whole["__init__.py"].startswith(b"# Generated by krammar.")
    assert "0 written" in generated(source, out)
    # A file that lost its header is somebody's own.
    (out / "a.py").write_bytes(whole["a.py"].split(b"\n", 3)[3])
    assert gen(source, out).exit_code == 2
    generated(source, out, "--force")
    assert tree(out) == whole


def test_files_of_the_first_version_are_replaced(source: Path, out: Path) -> None:
    generated(source, out)
    whole = tree(out)
    head = (
        "# Generated by krammar from definitions/one/a.krm. Do not edit: change the definitions.\n"
    )
    (out / "one" / "a.py").write_text(head)

    generated(source, out)

    assert tree(out) == whole


# -- read files ----------------------------------------------------------------------------------


def test_only_krm_files_are_read(source: Path, out: Path) -> None:
    before = {
        name: f"{name}: no definition  \n\n\n"
        for name in ("notes.txt", "a.krm~", "a.krm.orig", "Makefile", "LICENSE", ".b.krm", "x.md")
    }
    for name, text in before.items():
        (source / "one" / name).write_text(text)
        (source / name).write_text(text)

    generated(source, out)

    assert not (out / "__init__.py").exists()
    assert sorted(path.stem for path in (out / "one").glob("[a-z]*.py")) == [
        "a",
        "b",
        "kafka_headers",
    ]
    for verb in ("check", "fmt"):
        assert CliRunner().invoke(main, [verb, str(source)]).exit_code == 0
    assert {name: (source / name).read_text() for name in before} == before
    assert {name: (source / "one" / name).read_text() for name in before} == before


def test_a_folder_without_krm_has_files_without_a_suffix(tmp_path: Path, out: Path) -> None:
    source = tmp_path / "generate" / "definitions"
    source.mkdir(parents=True)
    (source / "00_alpha").write_text(ALPHA)
    (source / "enums").write_text("// The codes.\nCode int8 (\n  0: OK\n)\n")
    (source / "LICENSE").write_text("All rights => reserved.\n")
    (source / "main.go").write_text("package main\n")

    generated(source.parent, out)

    assert sorted(path.name for path in (out / "definitions").glob("[a-z]*.py")) == [
        "alpha.py",
        "enums.py",
        "kafka_headers.py",
    ]


@pytest.mark.parametrize("verb", ["gen", "check", "fmt", "docs"])
def test_a_folder_of_other_files_gets_a_hint(tmp_path: Path, out: Path, verb: str) -> None:
    source = tmp_path / "protocol"
    source.mkdir()
    (source / "alpha.txt").write_text(ALPHA)
    more = ["-o", str(out)] if verb in ("gen", "docs") else []

    refused = CliRunner().invoke(main, [verb, str(source), *more])

    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert "contains no definition files (*.krm), only other files such as 'alpha.txt'" in said
    assert "--all-files" in said
    for given in ([str(source), "--all-files"], [str(source / "alpha.txt")]):
        result = CliRunner().invoke(main, [verb, *given, *more])
        assert result.exit_code == 0, result.output


# -- difficult names -----------------------------------------------------------------------------

# A comment that is code if the file is read as `unicode_escape`.
ATTACK = (
    "// \\n\\nimport pathlib; pathlib.Path('attacked').touch()\nS => not top level\n  A: int8\n"
)


@pytest.mark.parametrize(
    "name",
    [
        "coding=unicode_escape .krm",
        "coding:unicode_escape.krm",
        "a b.krm",
        "a\nimport os.krm",
        "é.krm",
        "coding=unicode_escape /a.krm",
    ],
)
@pytest.mark.parametrize("verb", ["gen", "check", "fmt", "docs"])
def test_names_that_are_not_plain_are_refused(
    tmp_path: Path, out: Path, name: str, verb: str
) -> None:
    path = tmp_path / "protocol" / name
    path.parent.mkdir(parents=True)
    path.write_text(ATTACK)
    more = ["-o", str(out)] if verb in ("gen", "docs") else []

    for given in (tmp_path / "protocol", path):
        result = CliRunner().invoke(main, [verb, str(given), *more])
        if given is path and path.name == "a.krm":
            continue  # the folder of a file that is given is not part of any name
        assert result.exit_code == 2
        assert "would become part of generated code" in result.output
    assert not out.exists() or name.endswith("/a.krm")


@pytest.mark.parametrize("label", ["coding=unicode_escape ", "a\nimport os", 'quo"""te', "{{ x }}"])
def test_the_name_of_the_source_reaches_no_code(
    tmp_path: Path, out: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / label
    source.mkdir()
    (source / "a.krm").write_text(ATTACK)

    generated(source, out)

    monkeypatch.chdir(tmp_path)
    for path in files(out):
        lines = path.read_text().split("\n")
        if lines != [""]:
            assert lines[0].startswith("# Generated by krammar. Do not edit")
            assert re.fullmatch(r"# krammar: inputs \w+ output \w+ source \w+", lines[1])
            code = compile(path.read_bytes(), str(path), "exec")
            if path.parent.name != "_codecs":  # which imports the classes beside it
                exec(code, {"__name__": "attacked"})
    assert not (tmp_path / "attacked").exists()


# -- --check -------------------------------------------------------------------------------------


def test_check_says_what_would_change_and_writes_nothing(source: Path, out: Path) -> None:
    generated(source, out)
    assert gen(source, out, "--check").exit_code == 0
    before = age(out)
    (source / "one" / "b.krm").rename(source / "one" / "z.krm")

    result = gen(source, out, "--check")

    assert result.exit_code == 1
    assert f"would change {out}/one/z.py\n" in result.output
    assert f"would remove {out}/one/b.py\n" in result.output
    assert f"run `krammar gen {source} -o {out}`" in result.output
    assert changed(out, before) == []


def test_check_of_what_was_never_generated(source: Path, out: Path) -> None:
    assert gen(source, out, "--check").exit_code == 1
    assert not out.exists()


# -- removed files -------------------------------------------------------------------------------


def test_stale_files_are_removed_and_nothing_else(source: Path, out: Path) -> None:
    generated(source, out)
    foreign = {
        "one/hand_written.py": "# Generated by krammar? No: by hand.\n",
        "one/b_test.py": "import krammar\n",
        "README": "Generated files are below.\n",
        "own/__init__.py": "",
    }
    for name, text in foreign.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(text)
    (source / "one" / "b.krm").unlink()

    output = generated(source, out)

    assert "3 removed" in output
    files = tree(out)
    assert "one/b.py" not in files
    assert "one/layouts/b.py" not in files
    assert {name: files[name].decode() for name in foreign} == foreign
    assert "one/a.py" in files


def test_a_package_that_is_gone_leaves_no_folder(source: Path, out: Path) -> None:
    generated(source, out)
    for cache in (out / "two" / "__pycache__", out / "two" / "layouts" / "__pycache__"):
        cache.mkdir()
        (cache / "c.cpython-311.pyc").write_bytes(b"\0")
    (source / "two" / "c.krm").unlink()

    generated(source, out)

    assert not (out / "two").exists()
    assert (out / "one" / "a.py").exists()


def test_a_folder_with_other_files_stays(source: Path, out: Path) -> None:
    generated(source, out)
    (out / "two" / "mine.txt").write_text("mine")
    (source / "two" / "c.krm").unlink()

    generated(source, out)

    assert [path.name for path in (out / "two").iterdir() if path.suffix != ".typed"] == [
        "mine.txt"
    ]


def test_other_sources_output_in_the_same_folder_stays(
    source: Path, tmp_path: Path, out: Path
) -> None:
    other = tmp_path / "more"
    (other / "three").mkdir(parents=True)
    (other / "three" / "d.krm").write_text(BETA)
    generated(other, out)
    before = tree(out)

    generated(source, out)
    generated(other, out)

    assert before.items() <= tree(out).items()
    assert "one/a.py" in tree(out)


# -- errors --------------------------------------------------------------------------------------


def test_with_errors_nothing_is_written(source: Path, out: Path) -> None:
    generated(source, out)
    before = age(out)
    (source / "one" / "b.krm").write_text(BETA.replace("string", "strin"))
    (source / "two" / "c.krm").write_text(BETA.replace("B:", "C:"))

    result = gen(source, out)

    assert result.exit_code == 1
    assert "E204" in result.output
    assert "nothing was written" in result.output
    assert changed(out, before) == []


def test_style_does_not_stop_generation(source: Path, out: Path) -> None:
    (source / "one" / "b.krm").write_text(BETA + "\n\n")

    output = generated(source, out)

    assert (out / "one" / "b.py").exists()
    # But `gen` reports it, as `check` does.
    assert "b.krm:3:1: warning W903: a blank line at the end of the file" in output


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"layouts/a.krm": BETA, "b.krm": BETA}, id="a folder called layouts"),
        pytest.param({"a/b.krm": BETA, "a.krm": BETA}, id="a folder called as a module"),
    ],
)
def test_two_outputs_at_one_place_are_refused(
    tmp_path: Path, out: Path, files: dict[str, str]
) -> None:
    for name, text in files.items():
        path = tmp_path / "protocol" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    result = gen(tmp_path / "protocol", out)

    assert result.exit_code == 2
    assert "both" in result.output
    assert not out.exists()


# -- templates of one's own ----------------------------------------------------------------------

OWN = {
    "{module}.txt.j2": (
        "# {{ generated }}\n"
        "# {{ stamp }}\n"
        '{% import "macros/m.j2" as m %}\n'
        "{% for item in structs %}\n"
        "{{ m.title(item.struct.name) }} {{ item.struct.fields | join(' ', 'python_name') }}\n"
        "{% endfor %}\n"
    ),
    "INDEX.j2": "# {{ generated }}\n# {{ stamp }}\n{{ names | join(' ') }}\n",
    "code/{module}_names.py.j2": (
        "# {{ generated }}\n# {{ stamp }}\nNAMES = ['{{ modules[file.module] | join(\"', '\") }}']\n"
    ),
    "macros/m.j2": "{% macro title(name) %}struct {{ name }}:{% endmacro %}\n",
}


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    folder = tmp_path / "templates"
    for name, text in OWN.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_backend_of_ones_own(source: Path, out: Path, templates: Path) -> None:
    assert "10 written" in generated(source, out, "--templates", str(templates))

    files = {name: data.decode() for name, data in tree(out).items()}
    assert sorted(files) == [
        "one/INDEX",
        "one/a.txt",
        "one/b.txt",
        "one/code/a_names.py",
        "one/code/b_names.py",
        "one/code/kafka_headers_names.py",
        "one/kafka_headers.txt",
        "two/INDEX",
        "two/c.txt",
        "two/code/c_names.py",
    ]
    assert files["one/a.txt"].split("\n")[2:] == ["struct ARequest: a", "struct AResponse: a", ""]
    assert files["two/INDEX"].endswith("\nB\n")
    assert 'NAMES = ["ARequest", "AResponse"]' in files["one/code/a_names.py"]


def test_a_template_with_the_name_of_the_package(source: Path, out: Path, templates: Path) -> None:
    (templates / "{name}.list.j2").write_text("# {{ generated }}\n# {{ stamp }}\n")
    generated(source, out, "--templates", str(templates))
    assert {"one/one.list", "two/two.list"} <= set(tree(out))


def test_a_backend_of_ones_own_is_incremental(source: Path, out: Path, templates: Path) -> None:
    generated(source, out, "--templates", str(templates))
    before = age(out)

    assert " 0 written" in generated(source, out, "--templates", str(templates))
    assert changed(out, before) == []
    (source / "one" / "b.krm").unlink()
    generated(source, out, "--templates", str(templates))
    assert "one/b.txt" not in tree(out)
    assert "one/code/b_names.py" not in tree(out)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% for %}", "INDEX.j2:1: Expected an expression, got 'end of statement block'"),
        ("\n{{ nothing }}", "INDEX.j2:2: 'nothing' is undefined"),
        ("\n\n{{ 1 + 'a' }}", "INDEX.j2:3: TypeError("),
        ("{{ 1 // 0 }}", "INDEX.j2:1: ZeroDivisionError("),
        ("{{ names | nofilter }}", "INDEX.j2:1: No filter named 'nofilter'."),
        ("{% import 'missing.j2' as m %}", "INDEX.j2:1: 'missing.j2' not found"),
        (
            "{% import 'macros/m.j2' as m %}\n{{ m.title() }}",
            "macros/m.j2:1: parameter 'name' was not provided",
        ),
        (b"\xff", "INDEX.j2: UnicodeDecodeError("),
    ],
)
def test_a_broken_template_is_one_error(
    source: Path, out: Path, templates: Path, text: str | bytes, message: str
) -> None:
    (templates / "INDEX.j2").write_bytes(text.encode() if isinstance(text, str) else text)

    result = gen(source, out, "--templates", str(templates))

    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert f"{templates}/{message}" in result.output
    assert not out.exists()


def test_a_template_that_makes_no_python_is_one_error(
    source: Path, out: Path, templates: Path
) -> None:
    (templates / "broken.py.j2").write_text("# {{ generated }}\n# {{ stamp }}\ndef (:\n")

    result = gen(source, out, "--templates", str(templates))

    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert "the template of one/broken.py rendered invalid Python" in result.output
    assert not out.exists()


def test_a_folder_without_templates(source: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()

    result = gen(source, out, "--templates", str(tmp_path / "none"))

    assert result.exit_code == 2
    assert "contains no templates (*.j2)" in result.output


# -- progress ------------------------------------------------------------------------------------


def test_progress_counts_what_is_done(tmp_path: Path) -> None:
    long = "x = [" + "1, " * 1000 + "]\n"
    rendered = {
        Path(f"{number}.py"): f"# {{{{ stamp }}}}\n{text}"
        for number, text in enumerate([long, *(f"x={number}\n" for number in range(20))])
    }
    done: list[int] = []

    belongings = Belongings("source", dict.fromkeys(rendered, ""), {}, set())
    write(tmp_path, belongings, rendered, format_whole=True, progress=done.append)

    assert (tmp_path / "0.py").read_text().splitlines()[1] == "x = ["
    assert (tmp_path / "20.py").read_text().splitlines()[1] == "x = 19"
    assert len(done) > len(rendered)
    assert sum(done) == sum(map(len, rendered.values()))
