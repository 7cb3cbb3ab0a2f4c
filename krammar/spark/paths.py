"""What was given to ``load``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from krammar.spark.errors import OptionError

if TYPE_CHECKING:
    from krammar.spark.options import Options


def paths_of(options: Options) -> list[str]:
    """The paths, of which there is at least one. Raises OptionError."""
    if options.given("path"):
        return [local_path(options["path"])]
    if not options.given("paths"):
        raise OptionError("path", f"is needed for source={options.source}: load(path)")
    try:
        paths = json.loads(options["paths"])
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths:
        raise OptionError("paths", "needs a list of paths")
    return [local_path(str(path)) for path in paths]


def local_path(path: str) -> str:
    """The path in the file system that ``path``, maybe a ``file:`` URI, stands for. Raises OptionError."""
    parts = urlsplit(path)
    if not parts.scheme or len(parts.scheme) == 1:
        return path
    if parts.scheme != "file":
        raise OptionError(
            "path", f"{path!r}: files are read from file systems that each executor has mounted"
        )
    return unquote(parts.path)
