"""Layouts at run time: they describe the fields of a struct at a version, and locate errors.

Like Kafka's ``Schema`` and ``Struct``, a layout lists the fields and their types, and decodes to dictionaries.
Generated packages contain layouts in separate modules, which are imported on first use: by
``kafka_wire.layout(cls, version)``, by ``krammar inspect``, and to find the invalid field after a codec has
failed.

```python
layout = kafka_wire.layout(kafka_wire.MetadataRequest, 12)
print(layout)                                    # the notation of Kafka's protocol guide
layout.field("topics").default, layout.field(0).type
layout.size_of({"topics": [{"name": "orders"}]})
layout.validate({"topics": [{"name": 5}]})       # EncodeError: … topics[0].name: needs a str
```

These modules make no decisions. The generated layouts contain which fields exist, how lengths are written, and
what is nullable.
"""

from krammar.wire.layout.explain import explain_decode, explain_encode
from krammar.wire.layout.fields import DEFAULTS, NO_DEFAULT, Field, default_of
from krammar.wire.layout.reader import Node
from krammar.wire.layout.scalars import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    UUID_,
    UVARINT,
    UVARLONG,
    VARINT,
    VARLONG,
    Scalar,
    Type,
    VarInteger,
)
from krammar.wire.layout.structs import Layout, Nested
from krammar.wire.layout.types import Array, Sized, Text, Versioned

__all__ = [
    "BOOL",
    "DEFAULTS",
    "FLOAT32",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "NO_DEFAULT",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "UUID_",
    "UVARINT",
    "UVARLONG",
    "VARINT",
    "VARLONG",
    "Array",
    "Field",
    "Layout",
    "Nested",
    "Node",
    "Scalar",
    "Sized",
    "Text",
    "Type",
    "VarInteger",
    "Versioned",
    "default_of",
    "explain_decode",
    "explain_encode",
]
