"""Where a write with ``delivery=journal`` stores its intents."""

from __future__ import annotations

import os

from krammar.spark.errors import OptionError
from krammar.spark.options import Options
from krammar.spark.paths import local_path

FOLDER = "krammar-intents"


def intent_folder(options: Options, is_stream: bool) -> str:
    """Return the folder in which intents are stored.

    Raises:
        OptionError: no folder is given, or the driver has not mounted it.
    """
    if options.given("intents"):
        return _local("intents", options["intents"])
    if not is_stream:
        raise OptionError(
            "intents",
            "is required for batch writes with delivery=journal: a folder in which the driver stores what it is "
            "about to acknowledge. Use the same folder for later writes",
        )
    if not options.given("checkpointLocation"):
        raise OptionError(
            "checkpointLocation",
            "is required with delivery=journal, unless the option intents is set",
        )
    checkpoint = _local("checkpointLocation", options["checkpointLocation"])
    # Spark writes this file when the query starts. A path without a scheme may belong to HDFS.
    if not os.path.exists(os.path.join(checkpoint, "metadata")):
        raise OptionError(
            "checkpointLocation",
            f"{checkpoint} is not in a file system that the driver has mounted, which delivery=journal "
            "requires; name a folder in such a file system with the option intents",
        )
    return os.path.join(checkpoint, FOLDER)


def _local(name: str, path: str) -> str:
    try:
        return local_path(path)
    except OptionError:
        raise OptionError(
            name,
            f"{path!r} is not in a file system that the driver has mounted, which delivery=journal requires; "
            "name a folder in such a file system with the option intents",
        ) from None
