"""Record batches: the content of the ``records`` field of Produce and Fetch, and of log segments.

```python
from krammar.wire.batches import Compression, Record, encode_batch, read_batches

records = encode_batch([Record(value=b"one"), Record(value=b"two")], compression=Compression.LZ4)
for batch in read_batches(records):
    if not batch.is_control:
        for record in batch:
            print(record.offset, record.key, record.value)
```

krammar reads and writes batches of format v2 (KIP-98), and reads message sets v0 and v1. A batch is a header and
its records, which are compressed together. They are decompressed and decoded when a caller iterates over them.

``header`` knows the offsets and sizes in headers, ``crc`` computes checksums, and ``records`` reads and writes the
content of batches. ``bounds`` limits the size of batches that are decoded. ``arrow`` reads records into Arrow
columns; it is not imported here, because it needs pyarrow.
"""

from __future__ import annotations

from krammar.wire.batches.batch import RecordBatch, read_batches
from krammar.wire.batches.bounds import Bounds
from krammar.wire.batches.compression import Compression
from krammar.wire.batches.control import ControlRecord, ControlRecordType
from krammar.wire.batches.crc import crc32c
from krammar.wire.batches.encode import encode_batch, encode_control_batch
from krammar.wire.batches.header import BatchHeader, TimestampType, read_headers
from krammar.wire.batches.records.model import HeaderKey, Record
from krammar.wire.errors import BatchLimitError, CorruptRecordError

__all__ = [
    "BatchHeader",
    "BatchLimitError",
    "Bounds",
    "Compression",
    "ControlRecord",
    "ControlRecordType",
    "CorruptRecordError",
    "HeaderKey",
    "Record",
    "RecordBatch",
    "TimestampType",
    "crc32c",
    "encode_batch",
    "encode_control_batch",
    "read_batches",
    "read_headers",
]
