"""``krammar doctor`` checks what Spark jobs need."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from krammar import __version__
from krammar.cli.options import examples
from krammar.cli.output import echo
from krammar.util.printable import escape

OLDEST_JAVA = 17
OLDEST_PYSPARK = (4, 1)
# Spark opens a file per shuffle block and per Python worker, and two sockets for each worker.
FEWEST_FILES = 4096
_PATIENCE = 60  # seconds

OK, SLOW, NOTE, FAILS = "ok", "slow", "note", "fails"
_COLOURS = {OK: "green", SLOW: "yellow", NOTE: "cyan", FAILS: "red"}
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

# Runs in the Python of Spark's workers.
_PROBE = """
import json, sys
found = {"version": sys.version.split()[0]}
try:
    import krammar, pyarrow, pyspark_krammar
    from krammar.wire.engine_loading import ENGINE
    found["krammar"] = krammar.__version__
    found["engine"] = ENGINE is not None
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Result:
    """What one check found, and how to fix it."""

    status: str
    text: str
    fix: str = ""


@click.command(epilog=examples("krammar doctor", "PYSPARK_PYTHON=.venv/bin/python krammar doctor"))
def doctor() -> None:
    """Check Java, PySpark and the Python of Spark's workers.

    Each line that is not "ok" says how to fix it. Exit code: 0 if Spark jobs can run, 1 if not.
    """
    failed = False
    for check in CHECKS:
        for result in check():
            failed = failed or result.status == FAILS
            status = click.style(f"{result.status:5}", _COLOURS[result.status])
            echo(f"{status}  {escape(result.text)}", styled=True)
            if result.fix:
                echo(f"       fix: {result.fix}")
    if failed:
        raise click.exceptions.Exit(1)


def check_java() -> Iterator[Result]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    install = f"install Java {OLDEST_JAVA} or newer, and set JAVA_HOME to its folder"
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "no java in the PATH"
        yield Result(FAILS, f"Java: {where}", install)
        return
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_PATIENCE
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Result(FAILS, f"Java: {java} does not run: {error}", install)
        return
    found = re.search(r'version "(\d+)[^"]*"', said)
    first = said.strip().partition("\n")[0]
    if found is None:
        yield Result(FAILS, f"Java: {java} printed no version: {first or 'nothing'}", install)
        return
    if int(found[1]) < OLDEST_JAVA:
        yield Result(FAILS, f"Java: {java} is too old: {first}", install)
        return
    yield Result(OK, f"Java {found[1]} ({java})")


def check_pyspark() -> Iterator[Result]:
    install = "pip install 'krammar[spark]'"
    try:
        number = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        yield Result(FAILS, "PySpark is not installed", install)
        return
    least = ".".join(map(str, OLDEST_PYSPARK))
    if tuple(int(part) for part in re.findall(r"\d+", number)[:2]) < OLDEST_PYSPARK:
        yield Result(FAILS, f"PySpark {number} is too old, krammar needs {least}", install)
        return
    yield Result(OK, f"PySpark {number}")
    if find_spec("pyarrow") is None:
        yield Result(FAILS, "pyarrow is not installed", install)


def check_zips() -> Iterator[Result]:
    home = _spark_home()
    if home is None:
        return
    zips = sorted((home / "python" / "lib").glob("*.zip"))
    if not zips:
        yield Result(
            OK, f"Python workers import PySpark with its bytecode ({home} has no zip files)"
        )
        return
    yield Result(
        SLOW,
        "Python workers import PySpark from zip files: each new worker starts about a second later,\n"
        "       and on a busy machine Spark reports 'Python worker failed to connect back'",
        f"create sessions with krammar.spark.session(), or: rm {home}/python/lib/*.zip",
    )


def check_workers() -> Iterator[Result]:
    given = os.environ.get("PYSPARK_PYTHON")
    found_at = shutil.which(given or "python3")
    source = f"PYSPARK_PYTHON={given}" if given else "PYSPARK_PYTHON is not set, Spark runs python3"
    fix = f"export PYSPARK_PYTHON={sys.executable}"
    if not given:
        fix += ", or create sessions with krammar.spark.session()"
    if found_at is None:
        yield Result(FAILS, f"Python of workers: {source}, which does not exist", fix)
        return
    python = os.path.abspath(found_at)
    found = _probe(python)
    if "error" in found:
        yield Result(
            FAILS,
            f"Python of workers: {source} ({python}), which cannot import krammar: "
            f"{found['error']}",
            fix,
        )
        return
    if _minor(found["version"]) != _minor(platform.python_version()):
        yield Result(
            FAILS,
            f"Python of workers: {source} is Python {found['version']}, the driver's is"
            f" {platform.python_version()}; Spark refuses that",
            fix,
        )
        return
    if found["krammar"] != __version__:
        yield Result(
            FAILS,
            f"krammar of workers is {found['krammar']}, the driver's is {__version__}",
            f"{python} -m pip install 'krammar[spark]=={__version__}'",
        )
        return
    yield Result(OK, f"Python of workers: {source} ({python}), which imports krammar {__version__}")
    if found["engine"]:
        yield Result(OK, "the engine of krammar decodes records")
    else:
        yield Result(
            SLOW,
            "workers decode records in Python, several times more slowly than with the engine of krammar",
            "install a wheel for this platform (pip install --only-binary krammar krammar), and unset"
            " KRAMMAR_PURE_PYTHON",
        )


def check_pushdown() -> Iterator[Result]:
    folder = os.environ.get("SPARK_CONF_DIR")
    home = _spark_home()
    path = Path(folder) if folder else home and home / "conf"
    if path and (path / "spark-defaults.conf").is_file():
        text = (path / "spark-defaults.conf").read_text("utf-8", errors="replace")
        if re.search(rf"^\s*{re.escape(_PUSHDOWN)}[\s=]+true\s*$", text, re.MULTILINE):
            yield Result(OK, f"filters are pushed down ({path / 'spark-defaults.conf'})")
            return
    yield Result(
        NOTE,
        "filters are not pushed down by default: Spark reads a topic before it filters",
        f"krammar.spark.register(spark, pushdown=True), or set {_PUSHDOWN}=true",
    )


def check_open_files() -> Iterator[Result]:
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEWEST_FILES:
        shown = "unlimited" if soft == resource.RLIM_INFINITY else soft
        yield Result(OK, f"open files: {shown}")
        return
    allowed = hard == resource.RLIM_INFINITY or hard >= FEWEST_FILES
    raised = f"ulimit -n {65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)}"
    yield Result(
        SLOW,
        f"open files: at most {soft}; large shuffles and many workers need {FEWEST_FILES}",
        raised if allowed else "raise the hard limit in /etc/security/limits.conf",
    )


CHECKS: tuple[Callable[[], Iterator[Result]], ...] = (
    check_java,
    check_pyspark,
    check_zips,
    check_workers,
    check_pushdown,
    check_open_files,
)


def _spark_home() -> Path | None:
    """Return the folder that Spark starts from, as PySpark finds it."""
    if given := os.environ.get("SPARK_HOME"):
        return Path(given)
    found = find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def _probe(python: str) -> dict[str, Any]:
    """Return what a Python interpreter reports about krammar."""
    try:
        # Not from this folder, which Spark's workers do not import from.
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_PATIENCE, cwd="/"
        )
        result: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        return {"error": f"it does not run: {error}"}
    except ValueError:
        said = done.stderr.strip().rpartition("\n")[2]
        return {"error": f"it does not run: {said or 'it printed nothing'}"}
    return result


def _minor(number: str) -> list[str]:
    return number.split(".")[:2]
