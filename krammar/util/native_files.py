"""The names of compiled modules, which the compiler writes and the runtime searches for.

``_native/metadata-c972f895c2fe1ec9-2.0.1.0-4be0a311.cpython-311-x86_64-linux-gnu.so`` contains, in this
order: the module, the digest of its generated source, the format, krammar's version, the digest of the
compiler, and the Python. So the name alone shows whether a build is current.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import source_hash

import krammar

FOLDER = "_native"
# Incremented when older compiled modules no longer work with the parts of krammar.wire that they import.
FORMAT = 2
SUFFIX = EXTENSION_SUFFIXES[0]

# The name for the record batches' compiled module, which every package's folder contains too.
RECORDS = "@records"


# The loops of record batches in pure Python, which the compiled ones replace.
_PURE_LOOPS = (
    "arrow_columns.py",
    "records/check.py",
    "records/model.py",
    "records/read.py",
    "records/write.py",
)


def source_digest(*paths: str | os.PathLike[str]) -> str:
    """Return a digest of whole source files, which every edit changes; empty if one cannot be read.

    It is Python's own, of the kind that is in the bytecode's header (PEP 552): 0.1 ms for a message's
    module, where SHA-256 takes several times as long.
    """
    texts = []
    try:
        for path in paths:
            with open(path, "rb") as file:
                texts.append(file.read())
    except OSError:
        return ""
    return source_hash(b"".join(texts)).hex()


def records_digest() -> str:
    """Return the digest of the pure loops of record batches, of which compiled loops are the other form."""
    folder = os.path.join(krammar.__path__[0], "wire", "batches")
    return source_digest(*(os.path.join(folder, name) for name in _PURE_LOOPS))


def library_stem(module: str, source: str) -> str:
    """Return the first part of a compiled module's file name, before the compiler's digest."""
    return f"{module}-{source}-{FORMAT}.{krammar.__version__}-"


def extension_name(module: str) -> str:
    """Return the name of an extension module, as in its ``PyInit_`` function."""
    return f"krammar_native_{module}"
