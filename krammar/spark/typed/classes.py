"""Finds the generated class that an option names, and checks the version of its messages."""

from __future__ import annotations

from krammar.spark.errors import OptionError
from krammar.wire import classes
from krammar.wire.errors import UnsupportedVersionError
from krammar.wire.message import Codec


def named_class(option: str, name: str) -> type[Codec]:
    """Find ``OffsetCommitValue`` (in kafka_wire) or ``mypkg.orders.OrderPlaced``.

    Only generated packages are imported.

    Args:
        option: the option's name, for errors.

    Raises:
        OptionError: ``name`` is not a message that can be decoded by itself.
    """
    try:
        return classes.find_class(name, generated_only=True)
    except classes.NotFound as error:
        raise OptionError(option, str(error)) from None


def check_version(option: str, cls: type[Codec], version: int | None) -> None:
    """Raise OptionError if ``version`` is unknown, or missing although the bytes do not contain it."""
    if version is None:
        if classes.needs_version(cls):
            raise OptionError(
                option,
                f"is required: the bytes of {cls.__name__} do not contain their version; "
                f"versions {cls.min_version} to {cls.max_version} are known",
            )
        return
    try:
        cls._known_version(version)
    except UnsupportedVersionError as error:
        raise OptionError(option, str(error)) from None
