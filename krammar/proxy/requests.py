"""The end at the client: passes on requests, or answers them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable

from krammar.proxy.heads import LARGEST_HEAD, REQUEST, Data, Incomplete, client_id
from krammar.proxy.in_flight import TOKEN
from krammar.proxy.read_requests import MISSING, ReadRequests, is_silent
from krammar.proxy.responses import Responses
from krammar.proxy.shared import Shared
from krammar.proxy.work import Refused, Work
from krammar.wire.framing import PREFIX

# Bytes of a request at least: api key, version, correlation id.
_SHORTEST = 8
# After SaslHandshake v0, frames whose version would be at least this are tokens. No API has so many versions, and the
# tokens of SASL mechanisms have a greater number at this place. Others are requests that the proxy does not know.
_TOKEN = 32


class Requests(ReadRequests):
    """Reads from the client, and writes to the broker (its peer)."""

    is_request = True

    def __init__(self, shared: Shared, responses: Responses) -> None:
        super().__init__(shared, responses)
        self._tokens = False

    def _scan(self, start: int, size: int) -> None:
        shared, data = self.shared, self._memory
        if shared.silent:
            return
        if self._task is not None:
            self._wait_for_task(start, size)
            return
        works, expect = shared.works, shared.in_flight.append
        position, self._left = start + self._left, 0
        while True:
            if self._attention and position <= size:
                self._pass(start, position)
                start = position
                if self._stops():
                    break
            if size - position < 12:
                if position >= size:
                    break
                passed = self._short(data, position, size)
                if not passed:
                    break
                position += passed
                continue
            length, api, correlation_id = REQUEST.unpack_from(data, position)
            work = works.get(api, MISSING)
            if work is None and length >= _SHORTEST:
                self._tokens = False
                expect(correlation_id)
                position += length + PREFIX
                continue
            if self._tokens and work is MISSING and api & 0xFFFF >= _TOKEN and length >= 0:
                expect(TOKEN)
                position += length + PREFIX
                continue
            if work is not None and work.is_plain and length >= _SHORTEST:
                end = position + length + PREFIX
                try:
                    if not is_silent(work, data, position, min(size, end)):
                        self._expect(work, correlation_id)
                except Incomplete:
                    pass
                else:
                    self._tokens = False
                    position = end
                    continue
            if length < _SHORTEST:
                passed = self._odd(length, _SHORTEST)
                if not passed:
                    return
                position += passed
                continue
            if work is MISSING:
                work = shared.unknown(api)
                if work is None:
                    expect(correlation_id)
                    position += length + PREFIX
                    continue
            assert work is not None
            end = position + length + PREFIX
            try:
                if work.patch_request is not None and end <= size and length <= shared.max_frame:
                    self._tokens = False
                    patched = self._patched(work, data, position, end, correlation_id)
                    if patched is not None:
                        if position > start:
                            self._parts.append(data[start:position])
                        self._parts += patched
                        position = start = end
                        continue
                if self._passes(work, data, position, size, end, correlation_id):
                    position = end
                    continue
            except Incomplete:
                break
            except Exception as error:
                self._pass(start, position)
                self._fail(work, error)
                return
            self._pass(start, position)
            frame = self._collect(position, size, end)
            if frame is None:
                self._work = work
                return
            position = start = end
            self._process(work, frame)
            if shared.closed or shared.silent:
                return
            works = shared.works  # a login may have ended
            if self._task is None and position < size and not shared.has_time():
                self._wait_for_turn()
                break
        if position == size > start and self._task is None and not self._parts:
            self.peer.write_from(self._view[start:size])  # as almost always
        else:
            self._finish_scan(start, position, size)

    def _wait_for_task(self, start: int, size: int) -> None:
        self._rest = self._memory[start:size]
        if self._is_open:  # uvloop reads after connection_made, although it was paused there
            self.transport.pause_reading()  # type: ignore[union-attr]

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
        if self._tokens and length >= 0:
            self.shared.in_flight.append(TOKEN)
        return self._odd(length, 0 if self._tokens else _SHORTEST)

    def _odd(self, length: int, least: int) -> int:
        """Return the bytes to pass of a frame that can be too short; 0 if the connection is closed."""
        if length < least and not self.shared.chain.pass_unreadable:
            self.shared.fail(Refused(f"the client sent a frame with the length {length}"))
            return 0
        return length + PREFIX if length >= 0 else sys.maxsize  # no frame can follow

    def _passes(
        self, work: Work, data: Data, position: int, size: int, end: int, correlation_id: int
    ) -> bool:
        """Return whether a request passes unread; its response is expected then.

        Raises:
            Incomplete: more bytes are needed to decide.
            Refused: the request must not be passed on.
        """
        if work.refusal:
            raise Refused(work.refusal)
        self._tokens = work.tokens
        if work.tokens:
            self._attention = True
        length = end - position - PREFIX
        pass_unreadable = self.shared.chain.pass_unreadable
        if work.requests:
            if length <= self.shared.max_frame:
                return False
            if not pass_unreadable:
                advice = "" if self.shared.locked else "; max_frame raises the limit"
                raise Refused(
                    f"a request of {length} bytes is too large for filters "
                    f"({self.shared.max_frame} bytes at most{advice})"
                )
        silent = work.silent
        name = None
        try:
            silent = is_silent(work, data, position, min(size, end))
            if work.responses and not silent:
                name = client_id(data, position, min(size, end))[0]
        except Incomplete:
            if end > size and size - position <= LARGEST_HEAD:
                raise
            if work.has_acks and not pass_unreadable:
                # Otherwise the response to a later request could be matched with this one, and would not be read.
                raise Refused(
                    f"a Produce request has no acks within its first {LARGEST_HEAD} bytes"
                ) from None
            # The broker refuses the request; its response, if there is one, is matched by its id.
        started = self._count(work, length + PREFIX) if work.counts else 0.0
        if not silent:
            exchange = self._exchange(work, correlation_id, name) if work.responses else None
            self._expect(work, correlation_id, exchange, started)
        return True

    # -- the end

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
        if self._rest and not self.shared.has_time():
            self._wait_for_turn()  # many filters may have finished in this turn
        elif not self._waits:
            self._process_rest()
        self._check_eof()
        if self.shared.draining:
            self._responses.check_drained()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.hold("responses")  # a client that does not read responses is not served further

    def resume_writing(self) -> None:
        super().resume_writing()
        self.release("responses")

    def go_on(self) -> None:
        super().go_on()
        self._check_eof()

    def drain(self) -> None:
        """Begin no other request, and close the connection after the responses."""
        self.shared.draining = self._attention = True
        if self.is_between_frames:
            self.hold("draining")
        if self._task is None and self.is_between_frames:
            self._responses.check_drained()

    def eof_received(self) -> bool:
        self.ended = True
        self.shared.end("by the client")
        self._check_eof()
        return (
            self.transport is None or self.transport.can_write_eof()
        )  # TLS has no half-closed connections

    def _check_eof(self) -> None:
        """Tell the broker that no more requests come, once filters have sent theirs."""
        transport = self.peer.transport
        if not self.ended or self._task is not None or self._waits or transport is None:
            return
        self.peer.write(self._take_rest())
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
        self._count_large(0)
        for end in (self, self._responses):
            self.shared.turns.forget(end)
        self.shared.lost(exc)
        self.cancel()
        self._responses.cancel()
        self.shared.fail_own()
        if self.peer.transport is not None:
            self.peer.transport.abort()
