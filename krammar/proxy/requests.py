"""The end at the client: passes on requests, or answers them."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable
from typing import Any

from krammar.proxy.asking import Asking
from krammar.proxy.chain import FilterError, Read, Refused, Settled, Work
from krammar.proxy.ends import ONE_TURN, TOKEN, FilterAnswer, PendingRequest, Shared
from krammar.proxy.heads import LARGEST_HEAD, REQUEST, Data, Incomplete, acks, client_id
from krammar.proxy.interface import Close, Exchange, Silence
from krammar.proxy.responses import Responses
from krammar.wire.framing import PREFIX

# Answers that wait for responses of the broker, before the client is no longer read.
_ANSWERS = 1_000
_MISSING = Work(-1, -1)
# Bytes of a request at least: api key, version, correlation id.
_SHORTEST = 8
# After SaslHandshake v0, frames whose version would be at least this are tokens. No API has so many versions, and the
# tokens of SASL mechanisms have a greater number at this place. Others are requests that the proxy does not know.
_TOKEN = 32


class Requests(Asking):
    """Reads from the client, and writes to the broker (its peer)."""

    def __init__(self, shared: Shared, responses: Responses) -> None:
        super().__init__(shared, responses)
        responses.new_exchange = self._exchange
        self._parts: list[Data] = []  # what the next write joins
        self._tokens = False
        self._work = _MISSING  # of the frame that is collected, or in a filter
        self._started = 0.0  # when it arrived

    def feed(self, data: Data, size: int) -> None:
        shared, works = self.shared, self.shared.works
        expect = shared.in_flight.append
        position = start = 0
        if shared.silent:
            return
        if self._task is not None:
            self._rest = bytes(self._rest) + data[:size]
            return
        if self._collected is not None:
            frame, position = self.collect_more(data, size)
            if frame is None:
                return
            start = position
            self._left = 0
            self._process(self._work, frame)
            works = shared.works  # a login may have ended
        left = self._left
        while not shared.closed and not shared.silent:
            if left:
                if left > size - position:
                    left -= size - position
                    position = size
                    break
                position += left
                left = 0
            if self._attention:
                self._pass(data, start, position)
                start = position
                self._left = 0
                if self._stops():
                    break
            if size - position < 12:
                left = self._short(data, position, size)
                if left:
                    continue
                break
            length, api, correlation_id = REQUEST.unpack_from(data, position)
            work = works.get(api, _MISSING)
            if work is None and length >= _SHORTEST:
                self._tokens = False
                expect(correlation_id)
                left = length + PREFIX
                continue
            if self._tokens and work is _MISSING and api & 0xFFFF >= _TOKEN:
                if length < 0:
                    shared.fail(Refused(f"the client sent a frame with the length {length}"))
                    return
                expect(TOKEN)
                left = length + PREFIX
                continue
            if length < _SHORTEST:
                shared.fail(Refused(f"the client sent a frame with the length {length}"))
                return
            if work is _MISSING:
                work = shared.unknown(api)
                if work is None:
                    expect(correlation_id)
                    left = length + PREFIX
                    continue
            assert work is not None
            try:
                left = self._begin(work, data, position, size, length, correlation_id)
            except Incomplete:
                break
            except Refused as error:
                self._pass(data, start, position)
                self._fail(work, error)
                return
            if left:
                continue
            end = position + length + PREFIX
            if work.patch_request is not None and end <= size:
                try:
                    patched = self._patched(work, bytes(data[position:end]))
                except Exception as error:
                    self._pass(data, start, position)
                    self._fail(work, error)
                    return
                if patched is not None:
                    self._parts.append(data[start:position])
                    self._parts.append(patched)
                    position = start = end
                    continue
            self._pass(data, start, position)
            frame = self.collect(data, position, size, length + PREFIX)
            if frame is None:
                self._work = work
                self._left = 0
                return
            position = start = position + length + PREFIX
            self._left = 0
            self._process(work, frame)
            works = shared.works
        self._left = left
        self._pass(data, start, position)
        self._rest = data[position:size]

    def _pass(self, data: Data, start: int, position: int) -> None:
        if self._parts:  # one write costs less than several
            self._parts.append(data[start:position])
            joined = b"".join(self._parts)
            self._parts.clear()
            self.peer.write(joined)
        elif position > start:
            self.peer.write(data[start:position])

    # -- heads

    def _stops(self) -> bool:
        """Do what has waited for the end of a frame; return whether no other frame may begin."""
        outbox, self.shared.outbox = self.shared.outbox, []
        for own, frame in outbox:
            self._send_own(own, frame)
        if self.shared.draining:
            self.hold("draining")
            self._responses.check_drained()
        elif self._renew and self._task is None:
            self._log_in_again()
        busy = self._task is not None
        self._attention = self._tokens or self.shared.draining or busy or self._renew
        return self.shared.draining or busy

    def _short(self, data: Data, position: int, size: int) -> int:
        """Return the bytes of a token that is shorter than a head; 0: more are needed."""
        if size - position < PREFIX:
            return 0
        length = int.from_bytes(data[position : position + PREFIX], "big", signed=True)
        if length >= _SHORTEST:
            return 0
        if length < 0 or not self._tokens:
            self.shared.fail(Refused(f"the client sent a frame with the length {length}"))
            return 0
        self.shared.in_flight.append(TOKEN)
        return length + PREFIX

    def _begin(
        self, work: Work, data: Data, position: int, size: int, length: int, correlation_id: int
    ) -> int:
        """Decide about a request that needs more than passing.

        Returns:
            The bytes to pass unread; 0 if the request has to be collected.

        Raises:
            Incomplete: more bytes are needed to decide.
            Refused: the request must not be passed on.
        """
        if work.refusal:
            raise Refused(work.refusal)
        self._tokens = work.tokens
        self._attention = self._attention or self._tokens
        if work.requests:
            if length > self.shared.max_frame:
                raise Refused(
                    f"a request of {length} bytes is too large for filters "
                    f"({self.shared.max_frame} bytes at most)"
                )
            return 0
        end = min(size, position + length + PREFIX)
        whole = end == position + length + PREFIX or end - position > LARGEST_HEAD
        silent = work.silent
        name = None
        try:
            if work.has_acks:
                silent = acks(data, position, end, work.version) == 0
            if work.responses and not silent:
                name = client_id(data, position, end)[0]
        except Incomplete:
            if not whole:
                raise
            if work.has_acks:
                # Otherwise the response to a later request could be matched with this one, and would not be read.
                raise Refused(
                    f"a Produce request has no acks within its first {LARGEST_HEAD} bytes"
                ) from None
            # The broker refuses the request; its response, if there is one, is matched by its id.
        started = self._count(work, length + PREFIX) if work.counts else 0.0
        if silent:
            pass
        elif work.reads_response or work.counts:
            exchange = self._exchange(work, correlation_id, name) if work.responses else None
            self.shared.in_flight.append(PendingRequest(correlation_id, work, exchange, started))
        else:
            self.shared.in_flight.append(correlation_id)
        return length + PREFIX

    def _count(self, work: Work, size: int) -> float:
        """Count a request; return its time."""
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

    # -- requests that are read

    def _process(self, work: Work, frame: bytes) -> None:
        """Run the chain over a request, and pass it on or answer it; if something is awaited, in a task."""
        self._work = work
        if len(frame) > ONE_TURN:
            self._await(self._process_in_turns(work, frame))
            return
        try:
            read = self._read(work, frame)
            finished = None if read is None else self._run(work, frame, read)
        except Exception as error:
            self._fail(work, error)
            return
        if finished is not None:
            self._await(finished)

    async def _process_in_turns(self, work: Work, frame: bytes) -> None:
        await asyncio.sleep(0)
        read = self._read(work, frame)
        if read is None:
            return
        await asyncio.sleep(0)
        finished = self._run(work, frame, read)
        if finished is not None:
            await finished

    def _await(self, finished: Awaitable[None]) -> None:
        """Read no more from the client until a request is finished."""
        self.hold("filter")
        self._task = asyncio.ensure_future(self._finish(finished))
        self._attention = True

    def _read(self, work: Work, frame: bytes) -> Read | None:
        """Decode a request; None if a filter has changed its bytes, and it is passed on. Raises DecodeError and Close."""
        patched = self._patched(work, frame) if work.patch_request else None
        if patched is not None:
            self.peer.write(patched)
            return None
        self._started = self._count(work, len(frame)) if work.counts else 0.0
        return self.shared.chain.read_request(work, frame)

    def _run(self, work: Work, frame: bytes, read: Read) -> Awaitable[None] | None:
        """Run the chain over a request, and pass it on or answer it. Returns what to await before that is done."""
        header = read.header
        exchange = self._exchange(work, header.correlation_id, header.client_id)
        exchange.received = frame, PREFIX
        settled = self.shared.chain.run_request(work, read.message, exchange)
        if isinstance(settled, Settled):
            return self._settle(work, frame, read, exchange, settled)
        return self._settle_later(work, frame, read, exchange, settled)

    def _patched(self, work: Work, frame: bytes) -> bytes | None:
        """Return a request that a filter has changed as bytes; None if it must be decoded. Raises Close."""
        assert work.patch_request is not None
        changed = work.patch_request(frame, self.shared.connection)
        if changed is None:
            return None
        started = self._count(work, len(frame)) if work.counts else 0.0
        correlation_id = int.from_bytes(frame[8:12], "big", signed=True)
        if work.silent or (work.has_acks and acks(frame, 0, len(frame), work.version) == 0):
            pass
        elif work.reads_response or work.counts:
            self.shared.in_flight.append(PendingRequest(correlation_id, work, None, started))
        else:
            self.shared.in_flight.append(correlation_id)
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
            if work.silent or (work.has_acks and acks(frame, 0, len(frame), work.version) == 0):
                return None
            answer = chain.run_response(
                chain.before(work, settled.answered_by), settled.answer, exchange
            )
            if inspect.isawaitable(answer):
                return self._answer_later(work, exchange, answer)
            self._answer(work, exchange, answer)
            return None
        changed = chain.changed(frame, read, request)
        entry: PendingRequest | int | None = exchange.correlation_id
        if silent:
            entry = None
        elif work.reads_response or work.counts:
            entry = PendingRequest(exchange.correlation_id, work, exchange, self._started)
        if len(changed) > ONE_TURN:
            return self._write_later(changed, entry)
        self._write(changed, entry)
        return None

    def _write(self, frame: bytes, entry: PendingRequest | int | None) -> None:
        if entry is not None:
            self.shared.in_flight.append(entry)
        self.peer.write(frame)

    async def _write_later(self, frame: bytes, entry: PendingRequest | int | None) -> None:
        await asyncio.sleep(0)  # a filter may send a request of its own meanwhile
        self._write(frame, entry)

    async def _answer_later(self, work: Work, exchange: Exchange, answer: Awaitable[Any]) -> None:
        self._answer(work, exchange, await answer)

    def _answer(self, work: Work, exchange: Exchange, answer: Any) -> None:
        shared = self.shared
        frame = shared.chain.answer(work, exchange.correlation_id, answer)
        if work.counts and shared.metrics is not None:
            shared.metrics.response(work.api_key, len(frame), self._started)
        shared.in_flight.append(FilterAnswer(frame, exchange.delivery))
        shared.answers += 1
        self._responses.send_answers()
        if shared.answers > _ANSWERS:
            self.hold("answers")

    async def _finish(self, finished: Awaitable[None]) -> None:
        try:
            await finished
        except Exception as error:
            self._fail(self._work, error)
            return
        self._task = None
        if self._renew:
            self._log_in_again()
            return
        self.release("filter")
        if self.shared.outbox:
            self._stops()
        self.feed_rest()
        self._check_eof()
        if self.shared.draining:
            self._responses.check_drained()

    # -- the end

    def pause_writing(self) -> None:
        super().pause_writing()
        self.hold("responses")  # a client that does not read responses is not served further

    def resume_writing(self) -> None:
        super().resume_writing()
        self.release("responses")

    def drain(self) -> None:
        """Begin no other request, and close the connection after the responses."""
        self.shared.draining = self._attention = True
        if self.is_between_frames:
            self.hold("draining")
        if self._task is None and self.is_between_frames:
            self._responses.check_drained()

    def eof_received(self) -> bool:
        self.ended = True
        self._check_eof()
        return (
            self.transport is None or self.transport.can_write_eof()
        )  # TLS has no half-closed connections

    def _check_eof(self) -> None:
        """Tell the broker that no more requests come, once filters have sent theirs."""
        transport = self.peer.transport
        if not self.ended or self._task is not None or transport is None:
            return
        if self._rest:
            self.peer.write(self._rest)
            self._rest = b""
        if transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        else:
            self.shared.draining = self._attention = True
            self._responses.check_drained()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.shared.made()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self.shared.lost()
        self.cancel()
        self._responses.cancel()
        self.shared.fail_own()
        if self.peer.transport is not None:
            self.peer.transport.abort()
