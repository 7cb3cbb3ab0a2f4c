"""The paths that were passed to ``load``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from krammar.spark.errors import OptionError

if TYPE_CHECKING:
    from krammar.spark.options import Options

# A scheme of one letter is a drive of Windows.
_URI = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]+):(?://[^/]*)?(?P<path>.*)", re.DOTALL)


def paths_of(options: Options) -> list[str]:
    """Return the paths, at least one.

    Raises:
        OptionError: no path is given, or a path is not local.
    """
    if options.given("path"):
        return [local_path(options["path"])]
    if not options.given("paths"):
        raise OptionError("path", f"is required for source={options.source}: call load(path)")
    try:
        paths = json.loads(options["paths"])
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths:
        raise OptionError("paths", "needs a list of paths")
    return [local_path(str(path)) for path in paths]


def local_path(path: str) -> str:
    """Return the file system path of ``path``, which may be a ``file:`` URI.

    As for Spark itself, ``%`` and ``#`` are characters of names in URIs too.

    Raises:
        OptionError: the URI has another scheme.
    """
    found = _URI.fullmatch(path)
    if found is None:
        return path
    if found["scheme"].lower() != "file":
        raise OptionError(
            "path",
            f"{path!r}: only files in a file system that each executor has mounted can be read",
        )
    return found["path"]
