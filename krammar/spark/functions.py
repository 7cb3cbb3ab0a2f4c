"""Converts columns of bytes to typed ones and back, similar to ``from_avro`` and ``to_avro``.

```python
from krammar.spark.functions import from_krammar, to_krammar

orders.select(from_krammar("value", "mypkg.orders.OrderPlaced", version=2).alias("order"))
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType

from krammar.spark.errors import OptionError
from krammar.spark.schema import arrow_type
from krammar.spark.typed.messages import (
    Decoder,
    Encoder,
    check_version,
    decode_column,
    named_class,
    to_array,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

MODES = ("FAILFAST", "PERMISSIVE")


def from_krammar(
    column: Column | str, name: str, version: int | None = None, mode: str = "FAILFAST"
) -> Column:
    """Decode each message in a binary column to a struct; null stays null.

    Args:
        name: a class of kafka_wire, or of any generated package: ``mypkg.orders.OrderPlaced``.
        version: the version of the messages, if their bytes do not contain it.
        mode: FAILFAST ends the query at a malformed message, PERMISSIVE returns null for it.

    Raises:
        OptionError: there is no such class, version or mode.
    """

    mode = mode.upper()
    if mode not in MODES:
        raise OptionError("mode", f"{mode!r}: needs one of {', '.join(MODES)}")
    cls = named_class("name", name)
    check_version("version", cls, version)
    kind = Decoder(cls, version).type
    # Executors get the name, not the class: they create their own decoder.
    decoders: list[Decoder] = []

    def decode(values: pa.Array) -> pa.Array:
        if not decoders:
            decoders.append(Decoder(named_class("name", name), version))
        rows = decode_column(values.to_pylist(), decoders[0], mode == "PERMISSIVE")
        return to_array(rows, arrow_type(kind))

    return _apply(decode, kind, column)


def to_krammar(column: Column | str, name: str, version: int | None = None) -> Column:
    """Encode each struct in a column to a message; null stays null.

    Fields that the struct lacks have the definition's defaults. A value that the message cannot carry ends the
    query. ``from_krammar`` describes the arguments.

    Raises:
        OptionError: there is no such class or version.
    """
    cls = named_class("name", name)
    check_version("version", cls, version)
    encoders: list[Encoder] = []

    def encode(values: pa.Array) -> pa.Array:
        if not encoders:
            encoders.append(Encoder(named_class("name", name), version))
        encoder = encoders[0]
        rows = [None if row is None else encoder.bytes_of(row) for row in values.to_pylist()]
        return to_array(rows, arrow_type(BinaryType()))

    return _apply(encode, BinaryType(), column)


def _apply(function: Callable[[pa.Array], pa.Array], kind: DataType, column: Any) -> Column:
    # Untyped, because its overloads differ between versions of PySpark.
    make: Any = arrow_udf
    result: Column = make(function, kind)(column)
    return result
