"""Which generated files a run removes: those of its own source, and no others.

Random projects: folders of definitions and of output, inside each other, moved, renamed, copied and edited.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import Result

from krammar.compiler.write import CACHE_FOLDER
from tests.compiler.support import gen

# -- single cases --------------------------------------------------------------------------------------


def define(path: Path, text: str = "") -> None:
    """Write a definition file with one struct, named after the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.stem.capitalize()
    path.write_text(text or f"{name} => not top level\n  A: int8\n")


def run(source: Path, out: Path, *more: str, code: int = 0) -> str:
    result = gen(source, out, *more)
    assert result.exit_code == code, result.output
    return result.output


def test_a_package_of_another_source_with_the_same_name_stays(tmp_path: Path) -> None:
    """Its output is below the output of the second one."""
    define(tmp_path / "billing" / "definitions" / "beta" / "b.krm")
    define(tmp_path / "definitions" / "alpha" / "a.krm")
    run(tmp_path / "billing" / "definitions", tmp_path / "billing" / "src")
    before = tree(tmp_path)

    output = run(tmp_path / "definitions", tmp_path)

    assert "0 removed" in output
    assert before.items() <= tree(tmp_path).items()


def test_two_sources_cannot_generate_one_file(tmp_path: Path) -> None:
    for place in ("one", "two"):
        define(tmp_path / place / "definitions" / "p" / f"{place}.krm")
    out = tmp_path / "out"
    run(tmp_path / "one" / "definitions", out)
    before = tree(out)

    output = run(tmp_path / "two" / "definitions", out, code=2)

    assert tree(out) == before
    expected = (
        f"{out}/p/__init__.py and 3 more would be replaced, but krammar generated the file from "
        f"{tmp_path}/one/definitions, so nothing was written."
    )
    assert expected in output
    run(tmp_path / "two" / "definitions", out, "--force")
    assert tree(out).keys() - before.keys() == {"p/two.py", "p/_codecs/two.py", "p/layouts/two.py"}
    # From now on, the package belongs to the second source, and the first one has to ask for it.
    run(tmp_path / "two" / "definitions", out)
    run(tmp_path / "one" / "definitions", out, code=2)


def test_a_source_that_has_moved_keeps_its_files(tmp_path: Path) -> None:
    define(tmp_path / "one" / "definitions" / "p" / "a.krm")
    define(tmp_path / "one" / "definitions" / "p" / "b.krm")
    out = tmp_path / "out"
    run(tmp_path / "one" / "definitions", out)
    (tmp_path / "one").rename(tmp_path / "two")
    (tmp_path / "two" / "definitions" / "p" / "b.krm").unlink()

    assert "3 removed" in run(tmp_path / "two" / "definitions", out)


def test_a_file_that_was_edited_is_not_removed(tmp_path: Path) -> None:
    source, out = tmp_path / "definitions", tmp_path / "out"
    define(source / "a.krm")
    define(source / "b.krm")
    run(source, out)
    (out / "b.py").write_text((out / "b.py").read_text() + "\nMINE = 1\n")
    (source / "b.krm").unlink()

    for more in ("--check", ""):
        output = run(source, out, *filter(None, [more]), code=1 if more else 0)
        assert f"{out / 'b.py'} is not removed, because it was changed after krammar" in output
    assert "MINE" in (out / "b.py").read_text()
    assert not (out / "layouts" / "b.py").exists()


def test_an_empty_file_next_to_a_package_stays(tmp_path: Path) -> None:
    source, out = tmp_path / "definitions", tmp_path / "src"
    define(source / "app" / "wire" / "a.krm")
    define(source / "other" / "b.krm")
    run(source, out)
    (out / "app" / "py.typed").touch()
    shutil.rmtree(source / "app")

    run(source, out)

    assert not (out / "app" / "wire").exists()
    assert (out / "app" / "py.typed").exists()


def test_a_package_that_is_gone_stays_without_proof(tmp_path: Path) -> None:
    """In a new clone, nothing says which source generated it."""
    source, out = tmp_path / "definitions", tmp_path / "out"
    define(source / "one" / "a.krm")
    define(source / "two" / "b.krm")
    run(source, out)
    shutil.rmtree(out / CACHE_FOLDER)
    shutil.rmtree(source / "two")
    before = tree(out)

    run(source, out)

    assert tree(out) == before


@pytest.mark.parametrize("note", [b"", b"[]", b"{}", b'{"source": 1}', b"\xff"])
def test_damaged_notes_are_ignored(tmp_path: Path, note: bytes) -> None:
    source, out = tmp_path / "definitions", tmp_path / "out"
    define(source / "a.krm")
    run(source, out)
    for path in (out / CACHE_FOLDER).glob("*.json"):
        path.write_bytes(note)

    assert "0 written" in run(source, out)


# -- random projects -----------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes]:
    """All files by path, without krammar's notes and empty files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != CACHE_FOLDER and path.stat().st_size
    }


# A source, a folder of output and a backend.
Run = tuple[str, str, str]


@dataclass
class Project:
    """Files of a user and of several sources, and what each run has generated."""

    root: Path
    scratch: Path
    random: random.Random
    generated: dict[Run, set[str]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    SOURCES = ("definitions", "billing/definitions", "billing/src/definitions", "out/definitions")
    OUTS = ("out", "out/billing", "billing/src", ".", "billing")
    PACKAGES = ("", "alpha", "beta", "alpha/beta", "billing", "src/alpha")

    def step(self) -> None:
        steps = [self.add, self.add, self.remove, self.move, self.run, self.run, self.run]
        self.random.choice([*steps, self.edit, self.copy, self.own_file])()

    def sources(self) -> list[str]:
        return [each for each in self.SOURCES if any((self.root / each).rglob("*.krm"))]

    def add(self) -> None:
        place = f"{self.random.choice(self.SOURCES)}/{self.random.choice(self.PACKAGES)}"
        path = self.root / place / f"{self.random.choice('abc')}.krm"
        self.done.append(f"define {path.relative_to(self.root)}")
        define(path)

    def remove(self) -> None:
        found = sorted(path for path in self.root.rglob("*") if path.suffix == ".krm")
        if found:
            path = self.random.choice(found)
            whole = self.random.random() < 0.5
            self.done.append(f"remove {path.parent if whole else path}")
            if whole:
                for each in path.parent.glob("*.krm"):
                    each.unlink()
            else:
                path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()

    def move(self) -> None:
        if not self.sources():
            return
        old, new = self.random.choice(self.sources()), self.random.choice(self.SOURCES)
        if not (self.root / new).exists():
            self.done.append(f"move {old} to {new}")
            (self.root / new).parent.mkdir(parents=True, exist_ok=True)
            moved = {name for name in tree(self.root) if name.startswith(f"{old}/")}
            (self.root / old).rename(self.root / new)
            for files in self.generated.values():
                files -= moved

    def edit(self) -> None:
        """A user edits a generated file, or makes it a file of the project."""
        path = self._any_generated()
        if path is not None:
            self.done.append(f"edit {path}")
            (self.root / path).write_bytes((self.root / path).read_bytes() + b"\n")
            for files in self.generated.values():
                files.discard(path)

    def copy(self) -> None:
        path = self._any_generated()
        if path is not None:
            target = f"{self.random.choice(self.OUTS)}/copy/{Path(path).name}"
            self.done.append(f"copy {path} to {target}")
            (self.root / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.root / path, self.root / target)

    def own_file(self) -> None:
        place = f"{self.random.choice(self.OUTS)}/{self.random.choice(self.PACKAGES)}"
        path = self.root / place / f"{self.random.choice('abc')}.txt"
        self.done.append(f"write {path.relative_to(self.root)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")

    def _any_generated(self) -> str | None:
        found = sorted(
            path
            for files in self.generated.values()
            for path in files
            if (self.root / path).is_file()
        )
        return self.random.choice(found) if found else None

    def run(self) -> None:
        if not self.sources():
            return
        source, out = self.random.choice(self.sources()), self.random.choice(self.OUTS)
        backend = self.random.choice(["python", *["json-schema"] * 4])
        self.done.append(f"gen {source} -o {out} --backend {backend}")
        before = tree(self.root)
        result = self._gen(source, self.root / out, backend)
        after = tree(self.root)
        if result.exit_code:
            # Another source generates a file to the same path.
            assert "would be replaced" in result.output or "would be written" in result.output
            assert after == before
            return
        fresh = self._fresh(source, out, backend)
        mine = self.generated.pop((source, out, backend), set())
        # The files of a source that does not exist any more can be removed by one with its name.
        orphans = {
            path
            for (other, place, kind), files in self.generated.items()
            for path in files
            if other not in self.sources() and (place, kind) == (out, backend)
        }
        kept = {path: data for path, data in before.items() if path not in mine | orphans}
        assert {path: after.get(path) for path in kept.keys() - fresh.keys()} == {
            path: data for path, data in kept.items() if path not in fresh
        }
        assert {path: after.get(path) for path in fresh} == fresh
        assert not (mine - fresh.keys()) & after.keys()
        assert after.keys() <= before.keys() | fresh.keys()
        for files in self.generated.values():
            files -= fresh.keys() | (before.keys() - after.keys())
        self.generated[source, out, backend] = set(fresh)
        if self.random.random() < 0.7:
            return
        check = gen(self.root / source, self.root / out, "--backend", backend, "--check")
        assert check.exit_code == 0, check.output

    def _gen(self, source: str, out: Path, backend: str) -> Result:
        return gen(self.root / source, out, "--backend", backend)

    def _fresh(self, source: str, out: str, backend: str) -> dict[str, bytes]:
        """What the source generates into an empty folder, by path in the project."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        assert self._gen(source, self.scratch, backend).exit_code == 0
        return {(Path(out) / path).as_posix(): data for path, data in tree(self.scratch).items()}


def _try(tmp_path: Path, seed: int, steps: int) -> None:
    project = Project(tmp_path / "project", tmp_path / "scratch", random.Random(seed))
    project.root.mkdir()
    try:
        for _ in range(steps):
            project.step()
    except AssertionError as error:
        error.add_note("\n".join([f"seed {seed}", *project.done]))
        raise
    assert any(line.startswith("gen") for line in project.done)


@pytest.mark.parametrize("seed", range(5))
def test_a_run_changes_only_files_of_its_source(tmp_path: Path, seed: int) -> None:
    _try(tmp_path, seed, 30)


@pytest.mark.search
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_a_run_changes_only_files_of_its_source_in_many_projects(tmp_path: Path, seed: int) -> None:
    _try(tmp_path, seed, 60)
