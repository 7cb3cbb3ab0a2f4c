"""Representations of generated structs: text, and dictionaries for JSON."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Any
from uuid import UUID

from krammar.wire.errors import EncodeError
from krammar.wire.tables import table_of


def kinds_of(cls: type[Any]) -> Mapping[str, str]:
    """Return the types that a JSON value does not show, by attribute.

    They are ``":uuid"``, ``":bytes"``, the name of a struct's class, or the name of an integer's enum.
    """
    return table_of(cls).kinds


def named(cls: type[Any], name: str) -> Any:
    """Return the class ``name``, such as ``FetchRequest.FetchTopic``, of the package that contains ``cls``."""
    found: Any = sys.modules[cls.__module__.rpartition(".")[0]]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def text_of(value: Any) -> str:
    """Return ``repr(value)``: an expression that builds the struct."""
    cls, kinds = type(value), kinds_of(type(value))
    parts = [f"{name}={_show(getattr(value, name), kinds.get(name), cls)}" for name in cls._fields]
    text = f"{cls.__qualname__}({', '.join(parts)})"
    tags = value._unknown_tags
    return f"{text}.with_unknown_tags({tags!r})" if tags else text


def _show(value: Any, kind: str | None, cls: type[Any]) -> str:
    if kind is None or value is None:
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_show(element, kind, cls) for element in value)}]"
    if kind[0] == ":":
        return repr(bytes(value) if isinstance(value, memoryview) else value)
    if isinstance(value, int):
        enum = named(cls, kind)
        if issubclass(enum, IntEnum) and value in enum._value2member_map_:
            return f"{enum.__name__}.{enum(value).name}"
    return repr(value)


def to_dict(value: Any) -> dict[str, Any]:
    """Return what ``Struct.to_dict`` returns."""
    result = {name: _to_plain(getattr(value, name)) for name in value._fields}
    if value._unknown_tags:
        result["unknown_tags"] = {
            str(tag): base64.b64encode(data).decode() for tag, data in value._unknown_tags.items()
        }
    return result


def from_dict(cls: type[Any], values: dict[str, Any]) -> Any:
    """Return what ``Struct.from_dict`` returns. Raises EncodeError."""
    if not isinstance(values, dict):
        raise EncodeError(
            f"{cls.__name__}.from_dict needs a dictionary, not {type(values).__name__}"
        )
    arguments = {}
    tags = None
    kinds = kinds_of(cls)
    for name, value in values.items():
        if name == "unknown_tags":
            tags = {int(tag): base64.b64decode(data) for tag, data in value.items()}
            continue
        if name not in cls._fields:
            raise EncodeError(f"{cls.__name__} has no field {name!r}", path=name)
        arguments[name] = _from_plain(value, kinds.get(name), cls, name)
    result = cls(**arguments)
    result._unknown_tags = tags
    return result


def _to_plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to_plain(element) for element in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return value.to_dict() if hasattr(value, "_fields") else value


def _from_plain(value: Any, kind: str | None, cls: type[Any], path: str) -> Any:
    if value is None or kind is None:
        return list(value) if isinstance(value, (list, tuple)) else value
    if isinstance(value, (list, tuple)):
        return [_from_plain(v, kind, cls, f"{path}[{i}]") for i, v in enumerate(value)]
    try:
        if kind == ":bytes":
            return base64.b64decode(value, validate=True)
        if kind == ":uuid":
            return UUID(value)
        if not isinstance(value, int):
            return named(cls, kind).from_dict(value)
    except EncodeError as error:
        inner = f"{path}.{error.path}" if error.path else path
        raise EncodeError(f"{cls.__name__}: {inner}: {error}", path=inner) from None
    except (ValueError, TypeError, AttributeError):
        raise EncodeError(
            f"{cls.__name__}: {path}: {value!r} is not a JSON value of {kind.lstrip(':')}",
            path=path,
        ) from None
    return value
