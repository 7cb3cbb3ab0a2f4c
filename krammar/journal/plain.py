"""Converts Python values to values that JSON can represent, and back."""

from __future__ import annotations

import types
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from krammar.journal.errors import MessageError


def to_plain(value: Any) -> Any:
    """Return a plain value for one that JSON cannot represent; values inside of it may need the same.

    Generated structs are converted without ``to_dict``: 3 µs instead of 5.5 µs for a message of five fields.

    Raises:
        TypeError: the value cannot be converted.
    """
    cls = value.__class__
    if cls is UUID:
        return str(value)
    if cls is bytes or cls is bytearray or cls is memoryview:
        return b64encode(value).decode()
    if getattr(value, "_unknown_tags", cls) is None:
        return {name: getattr(value, name) for name in cls._fields}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{cls.__name__} is not a mapping or dataclass, and has no to_dict")


def from_plain(cls: type[Any], values: dict[str, Any]) -> Any:
    """Build a dataclass or mapping from plain values.

    Fields that are annotated as UUID, bytes or dataclasses, also in sequences, are converted.

    Raises:
        MessageError: an annotation cannot be resolved. Errors of ``cls`` are raised unchanged.
    """
    if not is_dataclass(cls):
        return values if cls is dict else cls(values)
    hints = _hints(cls)
    return cls(
        **{
            name: _restored(hints[name], value) if name in hints else value
            for name, value in values.items()
        }
    )


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError as error:
        raise MessageError(
            f"{cls.__name__}: an annotation cannot be resolved ({error}); define its name in the module of the class"
        ) from error


def _restored(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = get_origin(hint)
    if origin is Union or origin is types.UnionType:
        # In a union of several types, JSON does not say which one it was.
        kinds = [each for each in get_args(hint) if each is not types.NoneType]
        return _restored(kinds[0], value) if len(kinds) == 1 else value
    if isinstance(origin, type) and issubclass(origin, Sequence) and isinstance(value, list):
        items = [_restored(get_args(hint)[0], item) for item in value]
        return tuple(items) if origin is tuple else items
    if hint is UUID:
        return UUID(value)
    if hint is bytes or hint is bytearray:
        return hint(b64decode(value, validate=True))
    if isinstance(hint, type) and isinstance(value, dict) and is_dataclass(hint):
        return from_plain(hint, value)
    return value
