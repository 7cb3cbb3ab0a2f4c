"""Mask: hides values of records from consumers.

```python
from krammar.proxy import Proxy
from krammar.proxy.filters.mask import Mask

filters = [Mask(fields=["card.number", "email"], topics=["orders-*"])]
with Proxy.start(upstream="localhost:9092", filters=filters) as proxy:
    ...
```
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, cast

from krammar.proxy.filters.batches import Allowance, rewritten
from krammar.proxy.filters.fetched import FetchFilter
from krammar.proxy.filters.topics import Patterns
from krammar.proxy.interface import Exchange
from krammar.util.load import LoadError, load
from krammar.wire.batches import Record, RecordBatch


class Mask(FetchFilter):
    """Replaces fields of JSON values, or values by a function, in records that consumers fetch.

    A value that is not JSON, or has a name twice in an object, is replaced as a whole. Null, keys and headers stay.

    Args:
        fields: names of fields. ``card.number`` is the field ``number`` in ``card``, also if ``card`` is an array.
        mask: what replaces them.
        function: instead of ``fields``: a function from a value to its replacement, bytes or None. In a file of
            settings it is text, ``module:function``. It can run in a thread.
        topics: patterns of the topics.

    Raises:
        ValueError: an argument is invalid; the text begins with its name.
    """

    def __init__(
        self,
        fields: Iterable[str] = (),
        mask: Any = "***",
        function: Callable[[bytes], bytes | None] | str | None = None,
        topics: Iterable[str] = ("*",),
    ) -> None:
        super().__init__(topics)
        self._paths = [each.split(".") for each in Patterns("fields", fields)]
        if bool(self._paths) == (function is not None):
            raise ValueError("fields, function: give one of them")
        try:
            self._whole = json.dumps(mask).encode()
        except TypeError as error:
            raise ValueError(f"mask: {error}") from error
        self._mask = mask
        if isinstance(function, str):
            try:
                function = cast(Callable[[bytes], bytes | None], load(function))
            except LoadError as error:
                raise ValueError(f"function: {error}") from error
        self._function = function or self._masked

    async def fetched(
        self, topic: str, batch: RecordBatch, exchange: Exchange, allowance: Allowance
    ) -> bytes | None:
        records = await allowance.run(batch, batch.records)
        allowance.spend(records)
        return await allowance.run(batch, self._all, batch, records)

    def _all(self, batch: RecordBatch, records: list[Record]) -> bytes | None:
        is_changed = False
        for record in records:
            if record.value is not None:
                changed = self._function(record.value)
                is_changed = is_changed or changed != record.value
                record.value = changed
        return rewritten(batch, records) if is_changed else None

    def _masked(self, value: bytes) -> bytes:
        try:
            content = json.loads(value, object_pairs_hook=_unique)
            found = [self._replace(content, path) for path in self._paths]
            return json.dumps(content, ensure_ascii=False).encode() if any(found) else value
        except (ValueError, RecursionError):
            return self._whole

    def _replace(self, content: Any, path: list[str]) -> bool:
        """Replace a field in JSON, and return whether it was there."""
        if isinstance(content, list):
            return True in [self._replace(each, path) for each in content]
        if not isinstance(content, dict) or path[0] not in content:
            return False
        if len(path) > 1:
            return self._replace(content[path[0]], path[1:])
        content[path[0]] = self._mask
        return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse objects with a name twice, of which consumers could read the one that was not replaced."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


__all__ = ["Mask"]
