"""The requests that filters read."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from krammar.proxy.asking import Asking
from krammar.proxy.ends import LONG, ONE_TURN
from krammar.proxy.frames import Read
from krammar.proxy.heads import Data, Pieces, acks, correlation_id_of
from krammar.proxy.in_flight import FilterAnswer, PendingRequest
from krammar.proxy.interface import Close, Exchange, Silence
from krammar.proxy.responses import Responses
from krammar.proxy.running import FilterError, Settled, patch_error, run_request, run_response
from krammar.proxy.shared import Shared
from krammar.proxy.work import Work
from krammar.wire.errors import WireError
from krammar.wire.framing import PREFIX

# Answers that wait for responses of the broker, before the client is no longer read.
_ANSWERS = 1_000
MISSING = Work(-1, -1, refusal="unknown")


class ReadRequests(Asking):
    """The part of the end at the client that runs the filters over requests, and passes them on or answers them."""

    def __init__(self, shared: Shared, responses: Responses) -> None:
        super().__init__(shared, responses)
        responses.new_exchange = self._exchange
        self._work = MISSING  # of the frame that is collected, or in a filter
        self._started = 0.0  # when it arrived
        self._long = False  # whether it is encoded in a thread

    def _expect(
        self,
        work: Work,
        correlation_id: int,
        exchange: Exchange | None = None,
        started: float = 0.0,
    ) -> None:
        """Expect the response to a request that is passed on."""
        self.shared.in_flight.append(
            PendingRequest(correlation_id, work, exchange, started)
            if work.follows
            else correlation_id
        )

    def _count(self, work: Work, size: int) -> float:
        """Return the time of a request, and count it; 0 if requests are not counted."""
        if not work.counts:
            return 0.0
        assert self.shared.metrics is not None
        self.shared.metrics.request(work.api_key, size)
        return time.perf_counter()

    def _fail(self, work: Work, error: Exception) -> None:
        """Close the connection because of a request."""
        if work.counts and self.shared.metrics is not None:
            reason = "filter" if isinstance(error, (Close, FilterError)) else "refused"
            self.shared.metrics.error(work.api_key, reason)
        self.shared.fail(error)

    def _exchange(self, work: Work, correlation_id: int, name: str | None) -> Exchange:
        self.shared.name_node()
        return Exchange(
            self.shared.connection, work.api_key, work.version, correlation_id, name, self.send
        )

    def _take(self, frame: bytes) -> None:
        self._process(self._work, frame)

    def _process(self, work: Work, frame: bytes) -> None:
        """Run the chain over a request, and pass it on or answer it; if something is awaited, in a task."""
        self._work = work
        self._long = len(frame) > ONE_TURN
        if self._long:
            self._undecided = correlation_id_of(frame)
            self.wait_for(self._process_in_turns(work, frame, None))
            return
        began = time.monotonic()
        try:
            read = None if self._patch(work, frame) else self._read(work, frame)
            if read is None:
                return
            self._long = time.monotonic() - began > LONG
            if self._long:
                # From now on: whoever watches sees the frame before the task begins.
                self._undecided = correlation_id_of(frame)
            finished = (
                self._process_in_turns(work, frame, read)
                if self._long
                else self._run(work, frame, read)
            )
        except Exception as error:
            self._fail(work, error)
            return
        if finished is not None:
            self.wait_for(finished)

    async def _process_in_turns(self, work: Work, frame: bytes, read: Read | None) -> None:
        """Process a request that takes long. ``read`` is None if it is not decoded yet."""
        finished = None
        try:
            await asyncio.sleep(0)
            if read is None and not self._patch(work, frame):
                read = await self._read_in_thread(work, frame)
            if read is not None:
                finished = self._run(work, frame, read)
        finally:
            self._undecided = None
            self.shared.decided()
        del frame, read  # a large frame is not needed any more after it was encoded
        if finished is not None:
            await finished

    def wait_for(self, finished: Awaitable[None]) -> None:
        """Read no more from the client until a request, or the connection to the broker, is finished."""
        self.hold("filter")
        self.begin(self._finish(finished))
        self._attention = True

    def _patch(self, work: Work, frame: bytes) -> bool:
        """Pass on a request if a filter has changed it as bytes; return whether one has. Raises Close."""
        patched = None
        if work.patch_request is not None:
            patched = self._patched(work, frame, 0, len(frame), correlation_id_of(frame))
        if patched is None:
            self._started = self._count(work, len(frame))
            return False
        self.peer.write_pieces(patched)
        return True

    def _read(self, work: Work, frame: bytes) -> Read | None:
        """Decode a request; None if it cannot be read, and is passed on. Raises DecodeError."""
        try:
            return self.shared.chain.frames.read_request(work, frame)
        except WireError as error:
            self._pass_unread(work, frame, error)
            return None

    async def _read_in_thread(self, work: Work, frame: bytes) -> Read | None:
        read = partial(self.shared.chain.frames.read_request, work, frame)
        try:
            return await self.shared.worker.run(read)
        except WireError as error:
            self._pass_unread(work, frame, error)
            return None

    def _pass_unread(self, work: Work, frame: bytes, error: WireError) -> None:
        if not self.shared.chain.pass_unreadable:
            raise error
        if not work.silent:
            self._expect(work, correlation_id_of(frame), None, self._started)
        self.peer.write(frame)

    def _give_up(self) -> None:
        collected = self._take_collected()
        if not self._work.silent:
            self._expect(self._work, correlation_id_of(collected))
        self.peer.write(collected)

    def _run(self, work: Work, frame: bytes, read: Read) -> Awaitable[None] | None:
        """Run the chain over a request, and pass it on or answer it. Returns what to await before that is done."""
        header = read.header
        exchange = self._exchange(work, header.correlation_id, header.client_id)
        exchange.received = frame, PREFIX
        try:
            settled = run_request(work, read.message, exchange)
        finally:
            self.shared.note(True, exchange.correlation_id, exchange.notes)
        if isinstance(settled, Settled):
            return self._settle(work, frame, read, exchange, settled)
        return self._settle_later(work, frame, read, exchange, settled)

    def _patched(
        self, work: Work, data: Data, begin: int, end: int, correlation_id: int
    ) -> Pieces | None:
        """Return a request that a filter has changed as bytes; None if it must be decoded. Raises Close."""
        assert work.patch_request is not None
        try:
            changed = work.patch_request(data, begin, end, self.shared.connection)
        except BaseException as error:
            raise patch_error(work.requests, error) from error
        if changed is None:
            return None
        started = self._count(work, end - begin) if work.counts else 0.0
        if not is_silent(work, data, begin, end):
            self._expect(work, correlation_id, None, started)
        return changed

    async def _settle_later(
        self, work: Work, frame: bytes, read: Read, exchange: Exchange, settled: Awaitable[Settled]
    ) -> None:
        rest = self._settle(work, frame, read, exchange, await settled)
        if rest is not None:
            await rest

    def _settle(
        self, work: Work, frame: bytes, read: Read, exchange: Exchange, settled: Settled
    ) -> Awaitable[None] | None:
        """Send a request on, or its answer to the client. Returns what to await before that is done."""
        chain, shared = self.shared.chain, self.shared
        request = settled.request
        silent = work.silent or (work.has_acks and request.acks == 0)
        if isinstance(settled.answer, Silence):
            shared.silent = True
            return None
        if settled.answer is not None:
            # The client waits for a response if its own bytes say so, whatever a filter has changed.
            if is_silent(work, frame, 0, len(frame)):
                return None
            methods = chain.before(work, settled.answered_by)
            answer = run_response(methods, settled.answer, exchange)
            if self._long or inspect.isawaitable(answer):
                return self._answer_later(work, exchange, answer)
            frame = chain.frames.answer(work, exchange.correlation_id, answer)
            self._answer(work, exchange, frame)
            return None
        encode = partial(chain.frames.settled, work, frame, read, request)
        if self._long:
            return self._send_later(encode, work, silent, exchange)
        self._send_on(encode(), work, silent, exchange)
        return None

    async def _send_later(
        self, encode: Callable[[], bytes], work: Work, silent: bool, exchange: Exchange
    ) -> None:
        frame = await self.shared.worker.run(encode)
        del encode  # with the frame as it came
        self._send_on(frame, work, silent, exchange)

    def _send_on(self, frame: bytes, work: Work, silent: bool, exchange: Exchange) -> None:
        """Pass on a request. A filter must not send one between the expectation of the response and the bytes."""
        if not silent:
            self._expect(work, exchange.correlation_id, exchange, self._started)
        self.peer.write(frame)

    async def _answer_later(self, work: Work, exchange: Exchange, answer: Any) -> None:
        message = await answer if inspect.isawaitable(answer) else answer
        frames = self.shared.chain.frames
        encode = partial(frames.answer, work, exchange.correlation_id, message)
        frame = await self.shared.worker.run(encode) if self._long else encode()
        self._answer(work, exchange, frame)

    def _answer(self, work: Work, exchange: Exchange, frame: bytes) -> None:
        shared = self.shared
        if work.counts and shared.metrics is not None:
            shared.metrics.response(work.api_key, len(frame), self._started)
        shared.in_flight.append(FilterAnswer(frame, exchange.delivery))
        shared.answers += 1
        self._responses.send_answers()
        if shared.answers > _ANSWERS:
            self.hold("answers")


def is_silent(work: Work, data: Data, begin: int, end: int) -> bool:
    """Return whether the client expects no response to a request. Raises Incomplete."""
    return not acks(data, begin, end, work.version) if work.has_acks else work.silent
