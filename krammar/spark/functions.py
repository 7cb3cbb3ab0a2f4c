"""Columns of bytes to typed ones and back, as ``from_avro`` and ``to_avro`` do it.

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
from krammar.spark.typed.classes import check_version, find_class
from krammar.spark.typed.columns import Decoder, Encoder, decode_column, to_array

if TYPE_CHECKING:
    from pyspark.sql import Column

MODES = ("FAILFAST", "PERMISSIVE")


def from_krammar(
    column: Column | str, name: str, version: int | None = None, mode: str = "FAILFAST"
) -> Column:
    """A struct of each message in a binary column.

    ``name``     a class of kafka_wire, or of any generated package: ``mypkg.orders.OrderPlaced``
    ``version``  of the message's layout, where its bytes do not say it
    ``mode``     FAILFAST ends the query at a malformed message, PERMISSIVE gives null

    Raises OptionError for a class or version that is not there.
    """

    mode = mode.upper()
    if mode not in MODES:
        raise OptionError("mode", f"{mode!r}: needs one of {', '.join(MODES)}")
    cls = find_class("name", name)
    check_version("version", cls, version)
    kind = Decoder(cls, version).type
    # Names travel to the executors, not classes: a decoder is made where it is used.
    decoders: list[Decoder] = []

    def decode(values: pa.Array) -> pa.Array:
        if not decoders:
            decoders.append(Decoder(find_class("name", name), version))
        rows = decode_column(values.to_pylist(), decoders[0], mode == "PERMISSIVE")
        return to_array(rows, arrow_type(kind))

    return _apply(decode, kind, column)


def to_krammar(column: Column | str, name: str, version: int | None = None) -> Column:
    """The bytes of each struct in a column, null for null; fields that the struct lacks have the
    definition's defaults. A value that the message cannot carry ends the query.

    Arguments and errors are those of ``from_krammar``.
    """
    cls = find_class("name", name)
    check_version("version", cls, version)
    encoders: list[Encoder] = []

    def encode(values: pa.Array) -> pa.Array:
        if not encoders:
            encoders.append(Encoder(find_class("name", name), version))
        encoder = encoders[0]
        rows = [None if row is None else encoder.bytes_of(row) for row in values.to_pylist()]
        return to_array(rows, arrow_type(BinaryType()))

    return _apply(encode, BinaryType(), column)


def _apply(function: Callable[[pa.Array], pa.Array], kind: DataType, column: Any) -> Column:
    # Its annotations, which decide what it is, would have to name types of one version of Spark.
    make: Any = arrow_udf
    result: Column = make(function, kind)(column)
    return result
