"""Turns rows into messages: ``journal_wire.Row`` for key, value and headers, or a class of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import journal_wire as wire
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType

from krammar.spark.errors import OptionError, SchemaError
from krammar.spark.kafka.rows_out import Group, OutColumns, RowError
from krammar.spark.options import Options
from krammar.spark.typed.classes import named_class
from krammar.spark.typed.types import mapped_class
from krammar.wire.errors import WireError
from krammar.wire.message import Codec

Make = Callable[[Group, int], Any]

_UUID = "uuid"


class RowMessages:
    """Builds messages ``journal_wire.Row`` from the columns that all sinks have."""

    cls: type[Codec] = wire.Row

    def __init__(self, schema: StructType, topic: str | None) -> None:
        """Find the columns.

        Raises:
            SchemaError: a column is missing or has another type.
        """
        self.columns = OutColumns.of(schema, topic)

    def prepare(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Make]:
        """Return a batch for ``groups``, and a function that builds the message of one row of a group.

        Raises:
            RowError: raised by the returned function if a row is not a message.
        """
        return batch, _row


def _row(group: Group, index: int) -> wire.Row:
    keys, headers = group.keys, group.headers
    return wire.Row(
        key=None if keys is None else keys[index],
        value=group.values[index],
        headers=(
            [wire.Row.Header(key=key, value=value) for key, value in headers[index] or ()]
            if headers is not None
            else []
        ),
    )


class TypedMessages(RowMessages):
    """Builds messages of a generated class.

    Column ``value`` is a struct with fields of the class; missing fields have their defaults. Column ``key`` only
    chooses the journal.
    """

    def __init__(self, schema: StructType, topic: str | None, name: str) -> None:
        """Find the class and the columns.

        Raises:
            OptionError: ``name`` is not a class of messages.
            SchemaError: a column is missing, has another type, or has unknown fields.
        """
        self.cls = message_class("message", name)
        plain = StructType()
        kind = None
        for field in schema.fields:
            if field.name == "value" and kind is None:
                kind = field.dataType
                # While rows are grouped, row numbers take the place of values.
                plain = plain.add("value", BinaryType())
            else:
                plain = plain.add(field)
        super().__init__(plain, topic)
        if not isinstance(kind, StructType):
            assert kind is not None
            raise SchemaError(
                f"column 'value' is {kind.simpleString()}, but must be a struct with fields of "
                f"{self.cls.__name__}"
            )
        unknown = sorted(set(kind.names) - set(self.cls._fields))
        if unknown:
            raise SchemaError(
                f"column 'value' has the field {unknown[0]!r}, which {self.cls.__name__} does not have; its "
                f"fields are: {', '.join(self.cls._fields)}"
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
                raise RowError(f"topic {group.topic!r}: a row has a null value instead of a {name}")
            row.pop(_UUID, None)  # each message gets a UUID when it is published
            try:
                return convert(row)
            except (WireError, TypeError, ValueError, AttributeError) as error:
                raise RowError(f"topic {group.topic!r}: a row is not a {name}: {error}") from None

        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), make


def message_class(option: str, name: str) -> type[Codec]:
    """Return the generated class with that name.

    Raises:
        OptionError: there is no such class, or it has no UUID and cannot be a message.
    """
    cls = named_class(option, name)
    if not hasattr(cls, "get_uuid"):
        raise OptionError(
            option, f"{cls.__name__} is not a message: its definition has no field UUID: uuid"
        )
    return cls


def messages_of(options: Options, schema: StructType) -> RowMessages:
    """Return what builds messages, as the option ``message`` asks for.

    Raises:
        OptionError: ``message`` is not a class of messages.
        SchemaError: a column is missing, has another type, or has unknown fields.
    """
    if options.given("message"):
        return TypedMessages(schema, options["topic"], options["message"])
    return RowMessages(schema, options["topic"])
