"""The responses that filters read, or that have addresses or versions."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from krammar.proxy.ends import LONG, ONE_TURN, copy_of
from krammar.proxy.frames import Read
from krammar.proxy.heads import HEAD, Data, Pieces, has_no_endpoints
from krammar.proxy.in_flight import PendingRequest
from krammar.proxy.interface import Exchange
from krammar.proxy.ordered import Ordered
from krammar.proxy.running import patch_error, run_response, steps_for
from krammar.proxy.work import Work
from krammar.wire.errors import EncodeError, WireError
from krammar.wire.framing import PREFIX
from krammar.wire.kafka import API_VERSIONS, has_api_versions
from krammar.wire.negotiation import offered_versions


class ReadResponses(Ordered):
    """The part of the end at the broker that runs the filters over responses, and replaces addresses and versions.

    ``new_exchange``  returns an exchange for a response whose request was changed as bytes
    """

    new_exchange: Callable[[Work, int, str | None], Exchange]

    def _without_decoding(
        self, pending: PendingRequest, data: Data, begin: int, end: int
    ) -> Pieces | None:
        """Return the bytes for the client instead of a response; none of them if it does not change.

        Returns:
            None if the response must be decoded.
        """
        work = pending.work
        if work.patch_response is not None and self._task is None:
            patched = self._patched(work, data, begin, end)
            if patched is not None:
                return patched
        if work.responses:
            return None
        known = self.shared.rewritten.known.get((work, copy_of(data, begin + HEAD, end)))
        if known is None:
            return None
        if known.offered is not None:
            self.shared.offered = known.offered
        if known.rest is None:
            return []
        if self.shared.watches:
            self.shared.note(False, pending.correlation_id, list(known.notes))
        return [known.prefix, data[begin + PREFIX : begin + HEAD], known.rest]

    def _patched(self, work: Work, data: Data, begin: int, end: int) -> Pieces | None:
        """Return a response that a filter has changed as bytes; None if it must be decoded. Raises Close."""
        assert work.patch_response is not None
        if work.rewrite and not (work.ends_with_nodes and has_no_endpoints(data, begin, end)):
            return None
        try:
            return work.patch_response(data, begin, end, self.shared.connection)
        except BaseException as error:
            raise patch_error(work.responses, error) from error

    def _process(self, pending: PendingRequest, frame: bytes) -> None:
        """Run the chain over a response, and write it; if something is awaited, in a task."""
        work = pending.work
        if not work.responses and work.ends_with_nodes and has_no_endpoints(frame, 0, len(frame)):
            self.peer.write(frame)
            return
        if len(frame) > ONE_TURN:
            self._undecided = pending.correlation_id
            self.begin(self._process_in_turns(pending, frame))
            return
        began = time.monotonic()
        try:
            patched = self._patched(work, frame, 0, len(frame)) if work.patch_response else None
            if patched is not None:
                self.peer.write_pieces(patched)
                return
            read = self._read_response(work, frame)
            if read is None:
                return
            if time.monotonic() - began > LONG:
                self._undecided = pending.correlation_id
                self.begin(self._run_in_turns(pending, frame, read))
                return
            message = self._run(pending, read)
            if not inspect.isawaitable(message):
                changed = self.shared.rewrite(work.api_key, message) if work.rewrite else []
                if not inspect.isawaitable(changed):
                    sent, notes = self._encode(work, frame, read, message, changed)
                    steps = self._send(pending, frame, sent, notes)
                    if steps is not None:
                        self.begin(self._deliver(steps))
                    return
        except Exception as error:
            self.shared.fail(error)
            return
        self._undecided = pending.correlation_id
        self.begin(
            self._process_later(
                pending,
                frame,
                read,
                message,
                None if inspect.isawaitable(message) else changed,
            )
        )

    def _read_response(self, work: Work, frame: bytes) -> Read | None:
        """Decode a response; None if it cannot be read, and is passed on. Raises DecodeError."""
        try:
            return self.shared.chain.frames.read_response(work, frame)
        except WireError as error:
            self._pass_unread(frame, error)
            return None

    def _pass_unread(self, frame: bytes, error: WireError) -> None:
        if not self.shared.chain.pass_unreadable:
            raise error
        self.peer.write(frame)

    def _run(self, pending: PendingRequest, read: Read) -> Any:
        """Run the chain over a response. Returns the response, or an awaitable of it."""
        work = pending.work
        if work.api_key == API_VERSIONS and has_api_versions(self.shared.chain.package):
            self.shared.offered = offered_versions(read.message)
        if not work.responses:
            return read.message
        if pending.exchange is None:  # the request was changed as bytes
            pending.exchange = self.new_exchange(work, pending.correlation_id, None)
        return run_response(work.responses, read.message, pending.exchange)

    async def _process_in_turns(self, pending: PendingRequest, frame: bytes) -> None:
        work, read = pending.work, None
        try:
            await asyncio.sleep(0)
            patched = self._patched(work, frame, 0, len(frame)) if work.patch_response else None
            if patched is not None:
                self.peer.write_pieces(patched)
            else:
                decode = partial(self.shared.chain.frames.read_response, work, frame)
                try:
                    read = await self.shared.worker.run(decode)
                except WireError as error:
                    self._pass_unread(frame, error)
        except Exception as error:
            self.shared.fail(error)
            return
        if read is None:
            await self._deliver([])
        else:
            await self._run_in_turns(pending, frame, read)

    async def _run_in_turns(self, pending: PendingRequest, frame: bytes, read: Read) -> None:
        """Run the chain over a response that takes long, and write it."""
        work = pending.work
        try:
            await asyncio.sleep(0)
            message = self._run(pending, read)
            if inspect.isawaitable(message):
                message = await message
            changed = self.shared.rewrite(work.api_key, message) if work.rewrite else []
            if inspect.isawaitable(changed):
                changed = await changed
            encode = partial(self._encode, work, frame, read, message, changed)
            sent, notes = await self.shared.worker.run(encode)
            del encode, message, read
            steps = self._send(pending, frame, sent, notes)
        except Exception as error:
            self.shared.fail(error)
            return
        await self._deliver(steps or [])

    async def _process_later(
        self, pending: PendingRequest, frame: bytes, read: Read, message: Any, changed: Any
    ) -> None:
        try:
            if changed is None:
                message = await message
                work = pending.work
                changed = self.shared.rewrite(work.api_key, message) if work.rewrite else []
            if inspect.isawaitable(changed):
                changed = await changed
            sent, notes = self._encode(pending.work, frame, read, message, changed)
            steps = self._send(pending, frame, sent, notes)
        except Exception as error:
            self.shared.fail(error)
            return
        await self._deliver(steps or [])

    def _encode(
        self, work: Work, frame: bytes, read: Read, message: Any, changed: list[str]
    ) -> tuple[bytes, list[str]]:
        """Encode a response, in any thread.

        Args:
            changed: what the proxy has changed, in words.

        Returns:
            The frame, and what is changed in it.
        """
        frames = self.shared.chain.frames
        try:
            if changed:
                return frames.changed(frame, read, message), changed
            if work.responses:
                return frames.settled(work, frame, read, message), changed
        except EncodeError:
            if not self.shared.chain.pass_unreadable:
                raise
        return frame, []

    def _send(
        self, pending: PendingRequest, frame: bytes, sent: bytes, changed: list[str]
    ) -> list[Any] | None:
        """Write a response, or return the steps in which it has to be delivered.

        Args:
            frame: the response of the broker.
            changed: what the proxy has changed, in words.
        """
        shared, work, exchange = self.shared, pending.work, pending.exchange
        if not work.responses:
            offered = shared.offered if work.api_key == API_VERSIONS else None
            shared.rewritten.add(work, frame, sent, offered, tuple(changed))
        notes = changed if exchange is None else [*changed, *exchange.notes]
        shared.note(False, pending.correlation_id, notes)
        if exchange is not None and exchange.delivery is not None:
            return steps_for(exchange.delivery, sent)
        self.peer.write(sent)
        return None
