"""Keys of the filter Encrypt: a service that wraps data keys, and the data keys in use.

A data key encrypts records of one topic. It is created by this process, which alone encrypts with it, and is stored only
wrapped: encrypted with a key that never leaves the key management service (KMS), or that is in a file.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from krammar.proxy.filters.envelope import WrappedKey, pack_wrapped, unpack_wrapped
from krammar.util.clock import monotonic
from krammar.util.extras import require

try:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap
except ModuleNotFoundError:
    require("the filter Encrypt", "encrypt")
    raise

# Bytes of data keys, and of keys in a file: AES-256.
_SIZE = 32
# Data keys that are remembered, for writing by topic, and for reading.
_WRITING = 10_000
_READING = 10_000


class CannotUnwrap(Exception):
    """A data key can never be unwrapped: it was changed, or the key that wrapped it does not exist."""


class Kms(Protocol):
    """A key management service. Its methods can be called at the same time for several connections.

    Other exceptions than CannotUnwrap close the client's connection, and the client tries again.
    """

    async def wrap(self, data_key: bytes) -> WrappedKey:
        """Encrypt a data key of 32 bytes with the current key of the service."""

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        """Decrypt a data key. Raises CannotUnwrap."""


class KeyFile:
    """Keys in a file, which wrap data keys with AES Key Wrap (RFC 3394).

    Each line has an id and 32 random bytes in base64. The last line wraps new data keys; the others unwrap old ones. The
    file is read again for each new data key, so a line that is added is used after the next rotation. Create a line with::

        echo "2026-11 $(openssl rand -base64 32)" >> keys.txt

    Raises:
        ValueError: a line has another form.
        OSError: the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._keys = self._read()

    def _read(self) -> dict[str, bytes]:
        keys: dict[str, bytes] = {}
        for number, line in enumerate(self._path.read_text("utf-8").splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            where = f"{self._path}:{number}"
            try:
                key = base64.b64decode(words[-1], validate=True)
            except binascii.Error:
                key = b""
            # The text of a line is not repeated, because it is secret.
            if len(words) != 2 or len(key) != _SIZE:
                raise ValueError(f"{where}: write an id and {_SIZE} bytes in base64")
            if words[0] in keys:
                raise ValueError(f"{where}: the id {words[0]!r} occurs twice")
            if len(words[0].encode()) > 255:
                raise ValueError(f"{where}: the id has more than 255 bytes")
            keys[words[0]] = key
        if not keys:
            raise ValueError(f"{self._path}: it has no key (write an id and 32 bytes in base64)")
        return keys

    async def wrap(self, data_key: bytes) -> WrappedKey:
        self._keys = self._read()
        key_id = next(reversed(self._keys))
        return WrappedKey(key_id, aes_key_wrap(self._keys[key_id], data_key))

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        if wrapped.key_id not in self._keys:
            self._keys = self._read()
        key = self._keys.get(wrapped.key_id)
        if key is None:
            raise CannotUnwrap(f"{self._path} has no key {wrapped.key_id!r}")
        try:
            return aes_key_unwrap(key, wrapped.data)
        except (InvalidUnwrap, ValueError):
            raise CannotUnwrap(f"the data key was not wrapped by {wrapped.key_id!r}") from None


class DataKey:
    """A data key for writing. ``wrapped`` are its bytes in envelopes."""

    __slots__ = ("cipher", "created", "records", "wrapped")

    def __init__(self, cipher: AESGCM, wrapped: bytes, created: float) -> None:
        self.cipher = cipher
        self.wrapped = wrapped
        self.created = created
        self.records = 0


class _Topic:
    """The current data key of a topic, and a lock, so that one connection alone replaces it."""

    __slots__ = ("key", "lock")

    def __init__(self) -> None:
        self.key: DataKey | None = None
        self.lock = asyncio.Lock()


class DataKeys:
    """The data keys in use.

    Args:
        kms: wraps them.
        max_age: seconds after which a topic gets another data key.
        max_records: records after which it does.
    """

    def __init__(self, kms: Kms, max_age: float, max_records: int) -> None:
        self._kms = kms
        self._max_age = max_age
        self._max_records = max_records
        self._writing: OrderedDict[str, _Topic] = OrderedDict()
        self._reading: OrderedDict[bytes, AESGCM] = OrderedDict()

    def now(self) -> float:
        """Return a time in seconds. Tests replace it."""
        return monotonic()

    async def for_writing(self, topic: str, records: int) -> DataKey:
        """Return the data key for so many records of a topic. Errors are those of the KMS."""
        entry = self._writing.setdefault(topic, _Topic())
        self._writing.move_to_end(topic)
        if len(self._writing) > _WRITING:
            self._writing.popitem(last=False)
        async with entry.lock:
            key = entry.key
            if (
                key is None
                or self.now() - key.created >= self._max_age
                or key.records + records > self._max_records
            ):
                key = entry.key = await self._create()
            key.records += records
        return key

    async def _create(self) -> DataKey:
        plain = os.urandom(_SIZE)
        wrapped = pack_wrapped(await self._kms.wrap(plain))
        return DataKey(AESGCM(plain), wrapped, self.now())

    async def for_reading(self, wrapped: bytes) -> AESGCM:
        """Return the cipher for envelopes with this wrapped key. Raises CannotUnwrap, and errors of the KMS."""
        cipher = self._reading.get(wrapped)
        if cipher is None:
            plain = await self._kms.unwrap(unpack_wrapped(wrapped))
            if len(plain) != _SIZE:
                raise CannotUnwrap(f"the data key has {len(plain)} bytes instead of {_SIZE}")
            cipher = self._reading[wrapped] = AESGCM(plain)
            if len(self._reading) > _READING:
                self._reading.popitem(last=False)
        else:
            self._reading.move_to_end(wrapped)
        return cipher


__all__ = ["CannotUnwrap", "DataKey", "DataKeys", "KeyFile", "Kms"]
