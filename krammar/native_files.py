"""What the files of compiled modules are called: the compiler writes them, the runtime looks for them.

``_native/metadata-c972f895c2fe1ec9-1.0.1.0-4be0a311.cpython-311-x86_64-linux-gnu.so`` is the module
``metadata``, from the generated text with that digest, for format 1 and krammar 0.1.0, by a compiler with
that digest, for that Python. So a name alone says whether a build is current.
"""

from __future__ import annotations

import re
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING

from krammar import __version__

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "_native"
# Goes up when compiled modules and krammar.wire.native no longer fit together.
FORMAT = 1
SUFFIX = EXTENSION_SUFFIXES[0]

_STAMP = re.compile(rb"krammar: inputs [0-9a-f]{16} output ([0-9a-f]{16})")

# Record batches are krammar's own and no module of a package; each package's folder has them too.
RECORDS = "@records"


def source_digest(path: Path | str) -> str:
    """The digest of its text that a generated module's stamp says; empty where there is none."""
    try:
        with open(path, "rb") as file:
            found = _STAMP.search(file.read(600))
    except OSError:
        return ""
    return "" if found is None else found[1].decode()


def stem(module: str, source: str) -> str:
    """What the name of a compiled module begins with; the compiler's digest and ``SUFFIX`` follow."""
    return f"{module}-{source}-{FORMAT}.{__version__}-"


def extension_name(module: str) -> str:
    """What the extension module calls itself, for Python's ``PyInit_`` functions."""
    return f"krammar_native_{module}"
