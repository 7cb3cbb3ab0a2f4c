"""Encrypt: values of records, and optionally headers, are encrypted on the way to the broker.

```python
from krammar.proxy import Proxy
from krammar.proxy.filters.encrypt import Encrypt

filters = [Encrypt(topics=["payments-*"], keys="keys.txt")]
with Proxy.start(upstream="localhost:9092", filters=filters) as proxy:
    ...
```

Needs ``krammar[encrypt]``. ``envelope`` describes the form of encrypted values, and ``keys`` the keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kafka_wire import ErrorCode

from krammar.proxy.filters.batches import Allowance, rewritten
from krammar.proxy.filters.envelope import (
    HEADERS,
    NONCE,
    VALUE,
    EnvelopeError,
    Sealed,
    context,
    is_sealed,
    pack_headers,
    seal,
    unpack_headers,
    unpack_sealed,
    unseal,
)
from krammar.proxy.filters.fetched import FetchFilter, Unreadable
from krammar.proxy.filters.keys import (
    CannotUnwrap,
    DataKey,
    DataKeys,
    KeyFile,
    Kms,
)
from krammar.proxy.filters.produced import PartitionRefused, ProduceFilter
from krammar.proxy.interface import Exchange
from krammar.util.load import LoadError, load
from krammar.wire.batches import Record, RecordBatch, read_batches

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# The only header of a record whose headers are encrypted.
HEADER = "krammar.encrypted"
# Data keys in one batch. A proxy writes a batch with one; tools that copy records can mix them.
_MOST_KEYS = 100
# Nonces are random. NIST SP 800-38D, 8.3, allows 2**32 of them for a key; a record needs two at most.
_MOST_RECORDS = 1 << 31


# A record, VALUE or HEADERS, and the envelope of it.
_Sealed = tuple[Record, int, Sealed]


class Encrypt(ProduceFilter, FetchFilter):
    """Encrypts values with AES-256-GCM when they are produced, and decrypts them for consumers.

    Keys, timestamps, offsets, compression, producer ids and transactions stay as they are. Null values, which delete keys in
    compacted topics, stay null.

    Args:
        topics: patterns of the topics. Records of other topics pass.
        keys: a file with keys, as ``KeyFile`` describes it.
        kms: instead: a key management service. In a file of settings it is text, ``module:Class``.
        kms_options: keyword arguments of that class.
        headers: whether headers are encrypted too, with their names. Encrypted ones are always decrypted.
        plaintext: ``"pass"`` passes values that are not encrypted to consumers, such as older records;
            ``"refuse"`` gives consumers CORRUPT_MESSAGE for them.
        max_age: seconds after which a topic gets another data key.
        max_records: records after which it does, at most 2**31.

    Raises:
        ValueError: an argument is invalid, or the keys cannot be read; the text begins with its name.
    """

    def __init__(
        self,
        topics: Iterable[str] = ("*",),
        keys: str | Path | None = None,
        kms: Kms | str | None = None,
        kms_options: Mapping[str, Any] | None = None,
        headers: bool = False,
        plaintext: Literal["refuse", "pass"] = "refuse",
        max_age: float = 3600,
        max_records: int = 1_000_000,
    ) -> None:
        FetchFilter.__init__(self, topics)
        ProduceFilter.__init__(self, topics)
        if (keys is None) == (kms is None):
            raise ValueError("keys, kms: give one of them")
        if plaintext not in ("refuse", "pass"):
            raise ValueError(f"plaintext = {plaintext!r}: write 'refuse' or 'pass'")
        if isinstance(max_age, bool) or not isinstance(max_age, int | float) or not max_age > 0:
            raise ValueError(f"max_age = {max_age!r}: write seconds, more than 0")
        if type(max_records) is not int or not 0 < max_records <= _MOST_RECORDS:
            raise ValueError(f"max_records = {max_records!r}: write a number from 1 to 2**31")
        self._keys = DataKeys(_kms(keys, kms, kms_options or {}), max_age, max_records)
        self._headers = headers
        self._passes_plaintext = plaintext == "pass"

    # -- to the broker

    async def produced(
        self, topic: str, records: bytes, exchange: Exchange, allowance: Allowance
    ) -> bytes:
        out = []
        for batch in read_batches(records, allow_partial=False):
            if batch.magic < 2:
                raise PartitionRefused(
                    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                    "only batches of format v2 can be encrypted (use a client with Produce v3 or newer)",
                )
            if batch.is_control:
                text = "clients must not write control records"
                raise PartitionRefused(ErrorCode.INVALID_RECORD, text)
            decoded = await allowance.run(batch, batch.records)
            allowance.spend(decoded)
            key = await self._keys.for_writing(topic, len(decoded))
            out.append(await allowance.run(batch, self._seal, topic, batch, decoded, key))
        return b"".join(out)

    def _seal(self, topic: str, batch: RecordBatch, records: list[Record], key: DataKey) -> bytes:
        nonces = memoryview(os.urandom(2 * NONCE * len(records)))
        at = 0
        for record in records:
            bound = context(topic, record.key)
            if record.value is not None:
                nonce = bytes(nonces[at : at + NONCE])
                record.value = seal(key.cipher, key.wrapped, VALUE, nonce, record.value, bound)
            # A plain header with this name would look like encrypted headers.
            if record.headers and (
                self._headers or any(name == HEADER for name, _ in record.headers)
            ):
                nonce = bytes(nonces[at + NONCE : at + 2 * NONCE])
                content = pack_headers(record.headers)
                sealed = seal(key.cipher, key.wrapped, HEADERS, nonce, content, bound)
                record.headers = [(HEADER, sealed)]
            at += 2 * NONCE
        return rewritten(batch, records)

    # -- to the consumer

    async def fetched(
        self, topic: str, batch: RecordBatch, exchange: Exchange, allowance: Allowance
    ) -> bytes | None:
        records, sealed = await allowance.run(batch, self._scan, batch)
        allowance.spend(records)
        if not sealed:
            return None
        try:
            ciphers = {
                each: await self._keys.for_reading(each)
                for each in {envelope.wrapped for _, _, envelope in sealed}
            }
        except CannotUnwrap as error:
            raise Unreadable(f"a data key cannot be unwrapped: {error}") from error
        return await allowance.run(batch, _open, topic, batch, records, sealed, ciphers)

    def _scan(self, batch: RecordBatch) -> tuple[list[Record], list[_Sealed]]:
        """Return the records of a batch, and their envelopes."""
        records = batch.records()
        keys = set()
        found: list[_Sealed] = []
        for record in records:
            value, headers = self._sealed_value(record), _sealed_headers(record)
            if value is not None:
                keys.add(value.wrapped)
                found.append((record, VALUE, value))
            if headers is not None:
                keys.add(headers.wrapped)
                found.append((record, HEADERS, headers))
            if len(keys) > _MOST_KEYS:
                raise Unreadable(f"more than {_MOST_KEYS} data keys in one batch")
        return records, found

    def _sealed_value(self, record: Record) -> Sealed | None:
        value = record.value
        if value is None:
            return None
        if not is_sealed(value):
            if self._passes_plaintext:
                return None
            raise Unreadable(
                f'the value at offset {record.offset} is not encrypted (plaintext = "pass" passes it)'
            )
        try:
            return unpack_sealed(value, VALUE)
        except EnvelopeError as error:
            raise Unreadable(f"the value at offset {record.offset}: {error}") from None


def _open(
    topic: str,
    batch: RecordBatch,
    records: list[Record],
    sealed: list[_Sealed],
    ciphers: dict[bytes, AESGCM],
) -> bytes:
    for record, kind, envelope in sealed:
        try:
            content = unseal(ciphers[envelope.wrapped], envelope, context(topic, record.key))
            if kind == VALUE:
                record.value = content
            else:
                record.headers = unpack_headers(content)
        except EnvelopeError as error:
            what = "value" if kind == VALUE else "headers"
            raise Unreadable(
                f"the {what} at offset {record.offset} cannot be decrypted: {error}"
            ) from None
    return rewritten(batch, records)


def _sealed_headers(record: Record) -> Sealed | None:
    headers = record.headers
    if len(headers) != 1 or headers[0][0] != HEADER:
        return None
    try:
        return unpack_sealed(headers[0][1] or b"", HEADERS)
    except EnvelopeError as error:
        raise Unreadable(f"the headers at offset {record.offset}: {error}") from None


def _kms(keys: str | Path | None, kms: Kms | str | None, options: Mapping[str, Any]) -> Kms:
    if keys is not None:
        try:
            return KeyFile(keys)
        except OSError as error:
            raise ValueError(f"keys = {str(keys)!r}: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"keys: {error}") from error
    if isinstance(kms, str):
        try:
            created: Kms = load(kms)(**options)
        except (LoadError, TypeError, ValueError) as error:
            raise ValueError(f"kms = {kms!r}: {error}") from error
        return created
    assert kms is not None
    return kms


__all__ = ["Encrypt"]
