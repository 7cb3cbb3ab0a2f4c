"""The options of one read or write.

```python
options = Options({"subscribe": "orders", "startingOffsets": "earliest"})
options.check_use(Use.READ)
options["startingOffsets"]      # Earliest()
options.given("endingOffsets")  # False
```
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from krammar.spark.errors import OptionError
from krammar.spark.offsets import Earliest, Latest, OfGroup
from krammar.spark.option_table import CLIENT_PREFIX, FRAMED, TABLE, Use

_log = logging.getLogger(__name__)


class Options:
    """The options of one read or write, by the names in ``TABLE``; case is ignored.

    ``client`` has the settings of the Kafka client, without their prefix ``kafka.``.

    Raises:
        OptionError: an option is unknown, malformed, not supported, or does not fit the source.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values: dict[str, Any] = {}
        self._texts: dict[str, str] = {}
        self.client: dict[str, str] = {}
        for name, value in given.items():
            key = name.lower()
            is_client = key.startswith(CLIENT_PREFIX)
            if is_client and key not in TABLE:
                self.client[key.removeprefix(CLIENT_PREFIX)] = value
                continue
            option = TABLE.find(name)
            if option.ignored:
                _log.warning("option %r has no effect: %s", option.name, option.ignored)
                continue
            if is_client:
                self.client[key.removeprefix(CLIENT_PREFIX)] = value
            self._texts[option.name] = value
            self._values[option.name] = TABLE.read(option, value)
        self._check_source()

    @property
    def source(self) -> str:
        """``kafka``, ``logs``, ``frames`` or ``journal``."""
        return str(self["source"])

    def __getitem__(self, name: str) -> Any:
        """Return the value or the default; ``name`` is spelled as in ``TABLE``."""
        if name in self._values:
            return self._values[name]
        return TABLE[name.lower()].default

    def given(self, name: str) -> bool:
        """Return whether the user has given the option; ``name`` is spelled as in ``TABLE``."""
        return name in self._values

    def text(self, name: str) -> str:
        """Return the text that the user has given."""
        return self._texts[name]

    def check_use(self, use: Use) -> None:
        """Raise OptionError if an option does not fit the operation."""
        for name in self._values:
            if use not in TABLE[name.lower()].applies_to:
                raise OptionError(name, f"has no meaning in {use.value}")

    def check_selection(self) -> str | None:
        """Return which of assign, subscribe and subscribePattern is given, if any.

        Raises:
            OptionError: several are given.
        """
        given = [name for name in ("assign", "subscribe", "subscribePattern") if self.given(name)]
        if len(given) > 1:
            raise OptionError(given[0], f"cannot be combined with {' or '.join(given[1:])}")
        return given[0] if given else None

    def starting(self, use: Use) -> Any:
        """Return where reading begins. As in Spark's Kafka connector, timestamps take precedence.

        Raises:
            OptionError: a batch would begin at the latest offset, or options contradict each other.
        """
        names = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
        if self.given("startingGroup"):
            for name in names:
                if self.given(name):
                    raise OptionError("startingGroup", f"cannot be combined with {name}")
            return OfGroup(self["startingGroup"])
        bound = self._bound(*names) or (Earliest() if use is Use.READ else Latest())
        if use is Use.READ and isinstance(bound, Latest):
            raise OptionError("startingOffsets", "a batch cannot begin at the latest offsets")
        if use is Use.READ and -1 in getattr(bound, "offsets", {}).values():
            raise OptionError("startingOffsets", "a batch cannot begin at -1, the latest offset")
        return bound

    def ending(self) -> Any:
        """Return where a batch ends.

        Raises:
            OptionError: the batch would end at the earliest offset.
        """
        bound = self._bound("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
        if isinstance(bound, Earliest):
            raise OptionError("endingOffsets", "a batch cannot end at the earliest offsets")
        if -2 in getattr(bound, "offsets", {}).values():
            raise OptionError("endingOffsets", "a batch cannot end at -2, the earliest offset")
        return bound or Latest()

    def _bound(self, *names: str) -> Any:
        for name in names:
            if self.given(name):
                return self[name]
        return None

    def _check_source(self) -> None:
        source = self.source
        if self.given("minRecordsPerPartition"):
            for name in ("minPartitions", "maxRecordsPerPartition"):
                if self.given(name):
                    raise OptionError("minRecordsPerPartition", f"has no meaning with {name}")
        for name in self._values:
            if source not in TABLE[name.lower()].applies_to:
                raise OptionError(name, f"has no meaning with source={source}")
        if source == "kafka":
            self._check_delivery()
        if source not in FRAMED:
            for name in self.client:
                if f"{CLIENT_PREFIX}{name}" not in TABLE:
                    raise OptionError(
                        CLIENT_PREFIX + name,
                        f"has no meaning with source={source}, which uses no client",
                    )

    def _check_delivery(self) -> None:
        if self["delivery"] == "journal":
            return
        if self.given("path"):
            raise OptionError(
                "path", "has no meaning with source=kafka, except with delivery=journal"
            )
        for name in (
            "intents",
            "writeId",
            "repeatedBatch",
            "message",
            "journalsPerTopic",
            "contentType",
        ):
            if self.given(name):
                raise OptionError(name, "has no meaning without delivery=journal or source=journal")
