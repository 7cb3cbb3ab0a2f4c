"""Journals: append-only streams of messages that readers see exactly once.

Each message has a UUID, which orders the messages of a producer. A producer may write a message twice, or never
acknowledge it. Readers of committed messages see each acknowledged message once. Journals are stored in files or in
topics, and follow the documented behaviour of Gazette's message package (v0.83).

```python
journals = FileJournals("/data/journals")
for part in range(4):
    journals.create(f"orders/part-{part:03}")
publisher = Publisher(journals)
mapping = modulo_mapping(lambda order: order.customer.encode(), journals.partitions("orders/"))
publisher.publish_committed(mapping, Order(customer="a")).result()

for envelope in ReadCommittedIter(journals.reader("orders/part-000"), Order):
    print(envelope.begin, envelope.message)
```

``Order`` is a class that ``krammar gen`` generated from a definition with a field ``UUID: uuid``. See docs/journal.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from krammar.journal.checkpoints import (
    AckIntent,
    Checkpoint,
    decode_intents,
    encode_intents,
    store_bytes,
)
from krammar.journal.csv_framing import CSV_CONTENT_TYPE, CSVFraming, CSVRecord
from krammar.journal.errors import (
    AppendError,
    CheckpointError,
    ClockError,
    ContentTypeError,
    CorruptJournalError,
    DesyncDetectedError,
    EmptyListError,
    FrameError,
    JournalError,
    MessageError,
    MustStartReplayError,
    SequencerError,
    UnknownJournalError,
)
from krammar.journal.fixed_framing import (
    FIXED_CONTENT_TYPE,
    FIXED_FRAME_HEADER_LENGTH,
    FixedFraming,
)
from krammar.journal.frames import Framing
from krammar.journal.framing import (
    JSON_CONTENT_TYPE,
    PROTOBUF_CONTENT_TYPE,
    JSONFraming,
    framing_by_content_type,
    register_framing,
    unpack_line,
)
from krammar.journal.iterators import ReadCommittedIter, ReadUncommittedIter
from krammar.journal.journals import AsyncAppend, Journals, Reader, append_intents
from krammar.journal.mapping import (
    Mapping,
    MappingKey,
    Partitions,
    even_rendezvous_mapping,
    fnv1a,
    modulo_mapping,
    random_mapping,
    rendezvous_mapping,
)
from krammar.journal.messages import Envelope, Message, MessageClass
from krammar.journal.producers import JournalProducer, ProducerState
from krammar.journal.publisher import Publisher
from krammar.journal.sequencer import Sequencer
from krammar.journal.specs import JournalSpec
from krammar.journal.uuids import (
    NULL_UUID,
    Clock,
    Flags,
    ProducerID,
    build_uuid,
    clock_at,
    get_clock,
    get_flags,
    get_producer_id,
    time_of,
)

if TYPE_CHECKING:
    from krammar.journal.files import FileJournals
    from krammar.journal.topics import TopicJournals

# Imported on first use: files need flock, and topics need the client.
_LATER = {"FileJournals": "krammar.journal.files", "TopicJournals": "krammar.journal.topics"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


__all__ = [
    "CSV_CONTENT_TYPE",
    "FIXED_CONTENT_TYPE",
    "FIXED_FRAME_HEADER_LENGTH",
    "JSON_CONTENT_TYPE",
    "NULL_UUID",
    "PROTOBUF_CONTENT_TYPE",
    "AckIntent",
    "AppendError",
    "AsyncAppend",
    "CSVFraming",
    "CSVRecord",
    "Checkpoint",
    "CheckpointError",
    "Clock",
    "ClockError",
    "ContentTypeError",
    "CorruptJournalError",
    "DesyncDetectedError",
    "EmptyListError",
    "Envelope",
    "FileJournals",
    "FixedFraming",
    "Flags",
    "FrameError",
    "Framing",
    "JSONFraming",
    "JournalError",
    "JournalProducer",
    "JournalSpec",
    "Journals",
    "Mapping",
    "MappingKey",
    "Message",
    "MessageClass",
    "MessageError",
    "MustStartReplayError",
    "Partitions",
    "ProducerID",
    "ProducerState",
    "Publisher",
    "ReadCommittedIter",
    "ReadUncommittedIter",
    "Reader",
    "Sequencer",
    "SequencerError",
    "TopicJournals",
    "UnknownJournalError",
    "append_intents",
    "build_uuid",
    "clock_at",
    "decode_intents",
    "encode_intents",
    "even_rendezvous_mapping",
    "fnv1a",
    "framing_by_content_type",
    "get_clock",
    "get_flags",
    "get_producer_id",
    "modulo_mapping",
    "random_mapping",
    "register_framing",
    "rendezvous_mapping",
    "store_bytes",
    "time_of",
    "unpack_line",
]
