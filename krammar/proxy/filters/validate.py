"""Validate: refuses records whose values are not JSON, do not match a JSON Schema, or are no message.

```python
from krammar.proxy import Proxy
from krammar.proxy.filters.validate import Validate

filters = [
    Validate(topics=["orders-*"], schema="order.schema.json"),
    Validate(topics=["offsets"], message="kafka_wire:OffsetCommitValue"),
]
with Proxy.start(upstream="localhost:9092", filters=filters) as proxy:
    ...
```
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kafka_wire import ErrorCode

from krammar.proxy.filters.batches import Allowance
from krammar.proxy.filters.produced import PartitionRefused, ProduceFilter
from krammar.proxy.interface import Exchange
from krammar.util.extras import require
from krammar.util.load import LoadError, load
from krammar.wire.batches import Record, read_batches
from krammar.wire.errors import WireError
from krammar.wire.message import Codec
from krammar.wire.versioned import VersionedCodec

# Invalid records that a response names, and characters of each error.
_MOST = 1_000
_TEXT = 300

# Returns what is wrong with a value, or None.
Check = Callable[[bytes], str | None]


class Validate(ProduceFilter):
    """Checks the values of records before they are written.

    A batch with an invalid record is refused with INVALID_RECORD. The response names each invalid record with its
    error (Produce v8 and newer, KIP-467). Batches for other partitions are written.

    Args:
        topics: patterns of the topics.
        schema: a JSON Schema, as a file or a mapping. Needs ``krammar[schema]``. References to other documents are not
            loaded. Without ``schema`` and ``message``, values only have to be JSON.
        message: instead: the class of a generated package that values must be. In a file of settings it is text,
            ``package:Class``.
        version: the version of the message. Default: its newest, or for a message with a version field, its own.
        nulls: whether null values, which delete keys in compacted topics, are valid.

    Raises:
        ValueError: an argument is invalid, or the schema cannot be read; the text begins with its name.
        MissingExtra: jsonschema is not installed.
    """

    def __init__(
        self,
        topics: Iterable[str] = ("*",),
        schema: Mapping[str, Any] | str | Path | None = None,
        message: type[Any] | str | None = None,
        version: int | None = None,
        nulls: bool = True,
    ) -> None:
        super().__init__(topics)
        if schema is not None and message is not None:
            raise ValueError("schema, message: give one of them")
        if version is not None and message is None:
            raise ValueError("version: needs message")
        self._nulls = nulls
        self._check: Check
        if message is not None:
            self._check = _message_check(message, version)
        elif schema is not None:
            self._check = _schema_check(schema)
        else:
            self._check = _json_check

    async def produced(
        self, topic: str, records: bytes, exchange: Exchange, allowance: Allowance
    ) -> bytes:
        for batch in read_batches(records, allow_partial=False):
            decoded = await allowance.run(batch, batch.records)
            allowance.spend(decoded)
            found = await allowance.run(batch, self._errors, decoded)
            if found:
                index, text = found[0]
                more = " or more" if len(found) == _MOST else ""
                raise PartitionRefused(
                    ErrorCode.INVALID_RECORD,
                    f"{len(found)}{more} of {len(decoded)} records are invalid; the first is record {index}: {text}",
                    found,
                )
        return records

    def _errors(self, records: list[Record]) -> list[tuple[int, str]]:
        found = []
        for index, record in enumerate(records):
            if record.value is None:
                text = None if self._nulls else "the value is null"
            else:
                text = self._check(record.value)
            if text is not None:
                found.append((index, text[:_TEXT]))
                if len(found) == _MOST:
                    break
        return found


def _parsed(value: bytes) -> Any:
    return json.loads(value.decode(), parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")  # Python's extension


def _json_check(value: bytes) -> str | None:
    try:
        _parsed(value)
    except (ValueError, RecursionError) as error:
        return f"the value is not JSON: {error}"
    return None


def _message_check(message: type[Any] | str, version: int | None) -> Check:
    try:
        cls = load(message) if isinstance(message, str) else message
    except LoadError as error:
        raise ValueError(f"message: {error}") from error
    if not (isinstance(cls, type) and issubclass(cls, Codec)):
        raise ValueError(f"message = {message!r}: it is no message of a generated package")
    if version is None and not issubclass(cls, VersionedCodec):
        version = cls.max_version
    if version is not None and not cls.min_version <= version <= cls.max_version:
        raise ValueError(
            f"version = {version}: {cls.__name__} has versions {cls.min_version} to {cls.max_version}"
        )
    decode: Any = cls.decode

    def check(value: bytes) -> str | None:
        try:
            decode(value, version)
        except WireError as error:
            return str(error)
        return None

    return check


def _schema_check(schema: Mapping[str, Any] | str | Path) -> Check:
    require("a JSON Schema", "schema")
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    where = "schema"
    if not isinstance(schema, Mapping):
        where = f"schema = {str(schema)!r}"
        try:
            schema = json.loads(Path(schema).read_bytes())
        except OSError as error:
            raise ValueError(f"{where}: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"{where}: it is not JSON: {error}") from error
    cls = validator_for(schema)
    try:
        cls.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"{where}: {error.json_path}: {error.message}") from error
    # An empty registry: no reference is loaded from the network.
    validator = cls(schema, registry=Registry())

    def check(value: bytes) -> str | None:
        try:
            content = _parsed(value)
            error = next(validator.iter_errors(content), None)
        except Unresolvable as missing:
            raise ValueError(f"{where}: a reference leads to nothing: {missing}") from missing
        except (ValueError, RecursionError) as broken:
            return f"the value is not JSON: {broken}"
        return None if error is None else f"{error.json_path}: {error.message}"

    return check


__all__ = ["Validate"]
