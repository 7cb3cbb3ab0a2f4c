"""Representations of generated structs: text, and dictionaries for JSON."""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Any
from uuid import UUID

from krammar.wire.errors import EncodeError
from krammar.wire.layout import Array, Nested, Scalar, Sized, Text, Versioned
from krammar.wire.tables import generated_base, table_of


def kinds_of(cls: type[Any]) -> Mapping[str, str]:
    """Return the types that a JSON value does not show, by attribute.

    They are ``":uuid"``, ``":bytes"``, the name of a struct's class, or the name of an integer's enum.
    """
    return table_of(cls).kinds


def named(cls: type[Any], name: str) -> Any:
    """Return the class ``name``, such as ``FetchRequest.FetchTopic``, of the package that contains ``cls``."""
    found: Any = sys.modules[generated_base(cls).__module__.rpartition(".")[0]]
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
    if isinstance(value, list):
        return f"[{', '.join(_show(element, kind, cls) for element in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if kind is None or value is None:
        return repr(value)
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
    types = {item.name: item.type for item in table_of(cls).fields}
    for name, value in values.items():
        if name == "unknown_tags":
            tags = _tags(value, cls)
            continue
        if name not in types:
            raise EncodeError(f"{cls.__name__} has no field {name!r}", path=str(name))
        arguments[name] = _from_plain(value, types[name], cls, name)
    result = cls(**arguments)
    result._unknown_tags = tags
    return result


def _tags(values: Any, cls: type[Any]) -> dict[int, bytes]:
    if not isinstance(values, dict):
        raise _wrong(values, "an object of tags", cls, "unknown_tags")
    found = {}
    for tag, data in values.items():
        try:
            found[int(tag)] = base64.b64decode(data, validate=True)
        except (ValueError, TypeError):
            raise _wrong({tag: data}, "a tag and its bytes", cls, "unknown_tags") from None
        if not 0 <= int(tag) <= 0xFFFFFFFF:
            raise _wrong(tag, "a tag", cls, "unknown_tags")
    return found


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


def _from_plain(value: Any, type_: Any, cls: type[Any], path: str) -> Any:
    # In which versions a value can be null is checked when it is encoded.
    accepted: tuple[type, ...]
    if value is None:
        return None
    match type_:
        case Array(element):
            if not isinstance(value, (list, tuple)):
                raise _wrong(value, "array", cls, path)
            return [_from_plain(v, element, cls, f"{path}[{i}]") for i, v in enumerate(value)]
        case Nested() | Versioned():
            struct = type_.name if isinstance(type_, Versioned) else type_.layout.name
            try:
                return named(cls, struct).from_dict(value)
            except EncodeError as error:
                inner = f"{path}.{error.path}" if error.path else path
                raise EncodeError(f"{cls.__name__}: {inner}: {error}", path=inner) from None
        case Scalar(code="16s"):
            kind, accepted = "uuid", (str,)
        case Text(kind="bytes") | Sized():
            kind, accepted = "bytes", (str,)
        case Text():
            kind, accepted = "string", (str,)
        case Scalar(code="?"):
            kind, accepted = "bool", (bool,)
        case Scalar(code="d" | "f"):
            kind, accepted = "float", (int, float)
        case _:
            kind, accepted = getattr(type_, "enum", "") or "int", (int,)
    if not isinstance(value, accepted):
        raise _wrong(value, kind, cls, path)
    try:
        if kind == "uuid":
            return UUID(str(value))
        return base64.b64decode(str(value), validate=True) if kind == "bytes" else value
    except ValueError:
        raise _wrong(value, kind, cls, path) from None


def _wrong(value: Any, kind: str, cls: type[Any], path: str) -> EncodeError:
    return EncodeError(
        f"{cls.__name__}: {path}: {value!r} is not a JSON value of {kind}", path=path
    )
