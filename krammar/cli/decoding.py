"""``krammar consume --decode``: decodes keys and values with generated classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.options import find_packages_here
from krammar.cli.output import one_line

if TYPE_CHECKING:
    from krammar.wire.message import Codec
    from krammar.wire.versioned import VersionedCodec

_INTERNAL = {
    "__consumer_offsets": "kafka_wire.consumer_offsets",
    "__share_group_state": "kafka_wire.share_group_state",
    "__transaction_state": "kafka_wire.transaction_state",
}


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Bytes that --decode cannot read, and why."""

    data: bytes
    error: str


# A key or value: bytes, None, a decoded dictionary, or Undecodable.
Part = Any


class RecordPartDecoder:
    """Decodes keys and values. ``skipped`` counts the records of other kinds.

    Args:
        kinds: the classes of key and value by kind, which is the number in the first two bytes of a key.
            If it is empty, keys are not decoded.
        cls: the class of all values. None: the kind of the record selects it.
        version: the version of values that do not contain theirs.
    """

    def __init__(
        self,
        kinds: Mapping[int, tuple[type[VersionedCodec], type[Codec]]],
        cls: type[Codec] | None = None,
        version: int | None = None,
    ) -> None:
        self._kinds = kinds
        self._cls = cls
        self._version = version
        self.skipped = 0

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Part, Part] | None:
        """Return the key and the value to print, or None for a record of another kind."""
        if not self._kinds:
            return key, self._read(self._cls, value)
        if key is None:
            return None, self._read(self._cls, value)
        if len(key) < 2:
            # The key is malformed, so the record is not skipped as another kind.
            error = "the key is too short to contain a kind"
            return Undecodable(key, error), self._read(self._cls, value)
        kind = int.from_bytes(key[:2], "big", signed=True)
        if kind in self._kinds:
            key_class, value_class = self._kinds[kind]
            return self._read(key_class, key), self._read(self._cls or value_class, value)
        if self._cls is not None:
            self.skipped += 1
            return None
        return Undecodable(key, f"unknown kind of key: {kind}"), self._read(None, value)

    def _read(self, cls: type[Codec] | None, data: bytes | None) -> Part:
        from krammar.wire import classes
        from krammar.wire.errors import WireError

        if data is None:
            return None
        if cls is None:
            return Undecodable(data, "the key does not say which class the value has")
        try:
            version = self._version if cls is self._cls else None
            return classes.decode_as(cls, data, version).to_dict()
        except WireError as error:
            text = one_line(error)
            named = text.startswith(cls.__name__)
            return Undecodable(data, text if named else f"{cls.__name__}: {text}")


def decoder_for(text: str, topic: str) -> RecordPartDecoder:
    """Build the decoder for ``--decode TEXT``.

    Args:
        text: ``CLASS``, ``CLASS:VERSION`` or ``auto``.
        topic: the topic, which ``auto`` needs.

    Raises:
        UsageError: the class or the version does not exist, or ``auto`` does not know the topic.
    """
    from krammar.wire import classes
    from krammar.wire.errors import UnsupportedVersionError

    if text == "auto":
        if topic not in _INTERNAL:
            known = ", ".join(sorted(_INTERNAL))
            raise click.UsageError(f"--decode auto works only with the topics {known}")
        module = classes.import_package(_INTERNAL[topic])
        # The classes of new records also read old ones.
        names = [name for name in dir(module) if not name.startswith("Legacy")]
        return RecordPartDecoder(
            _kinds(*(getattr(module, name) for name in names if name.endswith("Value")))
        )
    name, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"--decode {text}: the version must be a number, not {number!r}")
    version = int(number) if colon else None
    find_packages_here()
    try:
        cls = classes.find_class(name)
        if version is not None:
            cls._known_version(version)
    except (classes.NotFound, UnsupportedVersionError) as error:
        raise click.UsageError(f"--decode {text}: {one_line(error)}") from error
    if version is None and classes.needs_version(cls):
        raise click.UsageError(
            f"--decode {text}: add the version, from {cls.min_version} to {cls.max_version}, because "
            f"the bytes do not contain it (--decode {text}:{cls.max_version})"
        )
    return RecordPartDecoder(_kinds(cls), cls, version)


def _kinds(
    *value_classes: type[Codec],
) -> dict[int, tuple[type[VersionedCodec], type[Codec]]]:
    """The classes of key and value by kind."""
    from krammar.wire.classes import key_class

    return {
        kind: (found[0], cls)
        for cls in value_classes
        if (found := key_class(cls)) is not None
        for kind in found[1]
    }
