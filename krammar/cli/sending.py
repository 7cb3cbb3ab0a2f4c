"""Sends the records of ``krammar produce``, and reports what was sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from krammar.cli.interrupts import Interrupts
from krammar.cli.output import echo, one_line, quantity

if TYPE_CHECKING:
    from krammar.client import Delivery, Producer


_FAILURES_SHOWN = 10


class Sending:
    """Sends records, and counts those that were sent and those that failed.

    ``stopped`` is True after an error that is not specific to one record.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partition: int | None,
        headers: Sequence[tuple[str, bytes | None]],
        interrupts: Interrupts,
    ) -> None:
        from krammar.client import errors

        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._client_error = errors.ClientError
        # Errors of a single record; other records can still be sent.
        self._record_errors = (
            errors.MessageTooLarge,
            errors.InvalidRecord,
            errors.RecordListTooLarge,
        )
        self._failures: list[str] = []
        self._given = 0
        self._sent = 0
        self._failed = 0
        self._interrupts = interrupts
        self._transactional = producer.settings.transactional_id is not None
        self._aborted = False
        self.stopped = False

    def send(self, name: str, key: bytes | None, value: bytes | None) -> None:
        self._given += 1
        try:
            if self._given == 1 and not self._transactional:
                # Nothing has been sent yet, so Ctrl-C does not wait for the brokers.
                with self._interrupts.breakable():
                    self._producer.partition_count(self._topic)
            self._producer.send(
                self._topic,
                value,
                key,
                partition=self._partition,
                headers=self._headers,
                on_delivery=partial(self._done, name),
            )
        except self._client_error as error:
            self._fail(name, error)

    def _done(self, name: str, delivery: Delivery) -> None:
        if delivery.error is None:
            self._sent += 1
        else:
            self._fail(name, delivery.error)

    def _fail(self, name: str, error: BaseException) -> None:
        self._failed += 1
        self.stopped = self.stopped or not isinstance(error, self._record_errors)
        if self._failed <= _FAILURES_SHOWN:
            self._failures.append(f"{name}: {one_line(error)}")

    def flush(self) -> None:
        """Wait until all records are sent or have failed. Errors are stored for the report."""
        try:
            self._producer.flush()
        except self._client_error as error:
            self.stopped = True
            self._failures.append(one_line(error))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Send the records of the ``with`` block, in a transaction if a transactional.id is set.

        After the first Ctrl-C, records that were read are sent, and the transaction is aborted. It is
        committed only if all records were sent. A second Ctrl-C reports what is known and raises
        KeyboardInterrupt.
        """
        if self._transactional:
            with self._interrupts.breakable():
                self._producer.init_transactions()
                self._producer.begin()
        try:
            try:
                yield
            except KeyboardInterrupt:
                if self._interrupts.count > 1:
                    raise
            except OSError as error:  # reading the input failed
                self.stopped = True
                self._failures.append(f"the rest of the input, which cannot be read: {error}")
            self.flush()
            if self._transactional:
                self._end_transaction()
        except KeyboardInterrupt:
            self._report_unknown()
            raise

    def _end_transaction(self) -> None:
        self._aborted = self._interrupts.count > 0 or self._failed > 0 or self.stopped
        try:
            if self._aborted:
                self._producer.abort()
            else:
                self._producer.commit()
        except self._client_error as error:
            self._failures.append(one_line(error))

    def report(self) -> None:
        """Print what was sent and what was not. Exits with 1 if records are missing, except after Ctrl-C."""
        self._report_failures()
        missing = self._given - self._sent
        sent = f"{quantity(self._sent, 'record')} sent to {self._topic}"
        if missing:
            sent += f", {missing} not sent"
        if self.stopped:
            sent += "; the rest of the input was not read"
        if self._aborted:
            sent += "; the transaction was aborted: consumers with isolation.level=read_committed will not see them"
        echo(sent, err=True)
        if (self._failures or missing) and not self._interrupts.count:
            sys.exit(1)

    def _report_unknown(self) -> None:
        """Print what is known after a second Ctrl-C."""
        self._report_failures()
        sent = f"{quantity(self._sent, 'record')} sent to {self._topic}"
        if self._failed:
            sent += f", {self._failed} not sent"
        if unknown := self._given - self._sent - self._failed:
            sent += f"; {unknown} may or may not have been sent"
        if self._transactional:
            sent += "; the state of the transaction is unknown"
        echo(sent, err=True)

    def _report_failures(self) -> None:
        for failure in self._failures:
            echo(f"not sent: {failure}", err=True)
        if self._failed > _FAILURES_SHOWN:
            echo(f"not sent: {self._failed - _FAILURES_SHOWN} more", err=True)
