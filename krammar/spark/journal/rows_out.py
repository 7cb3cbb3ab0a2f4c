"""Rows to messages: the message ``Row`` for key, value and headers, or one of a class of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import journal_wire as wire
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from krammar.spark.errors import OptionError, SchemaError
from krammar.spark.kafka.rows_out import Group, OutColumns, RowError
from krammar.spark.options import Options
from krammar.spark.typed.classes import find_class
from krammar.spark.typed.types import mapped_class
from krammar.wire.errors import WireError
from krammar.wire.message import Codec

Make = Callable[[Group, int], Any]

_UUID = "uuid"


class RowMessages:
    """Messages ``Row``, of columns as all sinks have them."""

    cls: type[Codec] = wire.Row

    def __init__(self, schema: StructType, topic: str | None) -> None:
        """Raises SchemaError."""
        self.columns = OutColumns.of(schema, topic)

    def prepare(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Make]:
        """The batch to be lined up, and what makes a message of a row of one of its groups. Raises RowError,
        as that does."""
        return batch, _row


def _row(group: Group, index: int) -> wire.Row:
    keys, headers = group.keys, group.headers
    return wire.Row(
        key=None if keys is None else keys[index],
        value=group.values[index],
        headers=(
            [wire.RowHeader(key=key, value=value) for key, value in headers[index] or ()]
            if headers is not None
            else []
        ),
    )


class TypedMessages(RowMessages):
    """Messages of a generated class: column ``value`` is a struct with fields of its definition, of which
    those that are missing have their defaults. ``key`` only chooses the journal."""

    def __init__(self, schema: StructType, topic: str | None, name: str) -> None:
        """Raises OptionError and SchemaError."""
        self.cls = message_class("message", name)
        plain = StructType()
        kind = None
        for field in schema.fields:
            if field.name == "value" and kind is None:
                kind = field.dataType
                # Rows are lined up with their numbers for values.
                plain = plain.add("value", BinaryType())
            else:
                plain = plain.add(field)
        super().__init__(plain, topic)
        if not isinstance(kind, StructType):
            assert kind is not None
            raise SchemaError(
                f"column 'value' is {kind.simpleString()}, but has to be a struct with fields of "
                f"{self.cls.__name__}"
            )
        unknown = sorted(set(kind.names) - set(self.cls._fields))
        if unknown:
            raise SchemaError(
                f"column 'value' has the field {unknown[0]!r}, which {self.cls.__name__} has not; that "
                f"has: {', '.join(self.cls._fields)}"
            )

    def prepare(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Make]:
        index = self.columns.value
        values = batch.column(index).to_pylist()
        numbers = pa.array([b"%d" % number for number in range(len(values))], pa.binary())
        columns = [numbers if at == index else batch.column(at) for at in range(batch.num_columns)]
        convert = mapped_class(self.cls).from_spark
        assert convert is not None
        name = self.cls.__name__

        def make(group: Group, index: int) -> Any:
            row = values[int(group.values[index] or b"")]
            if row is None:
                raise RowError(f"topic {group.topic!r}: a row has a null value, which is no {name}")
            row.pop(_UUID, None)  # messages get their own
            try:
                return convert(row)
            except (WireError, TypeError, ValueError, AttributeError) as error:
                raise RowError(f"topic {group.topic!r}: a row is no {name}: {error}") from None

        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), make


def message_class(option: str, name: str) -> type[Codec]:
    """The generated class of that name, if it is one of messages. Raises OptionError."""
    cls = find_class(option, name)
    if not hasattr(cls, "get_uuid"):
        raise OptionError(option, f"{cls.__name__} is no message: it has no field UUID: uuid")
    return cls


def messages_of(options: Options, schema: StructType) -> RowMessages:
    """Raises OptionError and SchemaError."""
    if options.given("message"):
        return TypedMessages(schema, options["topic"], options["message"])
    return RowMessages(schema, options["topic"])
