"""The end at the broker: passes on responses, in the order of their requests."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from krammar.proxy.chain import Read, Refused, Work
from krammar.proxy.delivery import take
from krammar.proxy.ends import (
    ONE_TURN,
    TOKEN,
    End,
    Entry,
    FilterAnswer,
    Own,
    PendingRequest,
    Shared,
)
from krammar.proxy.heads import HEAD, RESPONSE, Data, has_no_endpoints
from krammar.proxy.interface import Exchange
from krammar.wire.framing import PREFIX
from krammar.wire.negotiation import API_VERSIONS, offered_versions

# Bytes of responses that wait for an async method of a filter, before the broker is no longer read.
_WAITING = 1 << 20


class Responses(End):
    """Reads from the broker, and writes to the client (its peer).

    ``new_exchange``  returns an exchange for a response whose request was changed as bytes
    """

    new_exchange: Callable[[Work, int, str | None], Exchange]

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._entry: Entry | None = None  # the request of the frame that is collected
        # What waits while a response is in an async method: bytes, and responses that are read.
        self._waiting: deque[Data | FilterAnswer | tuple[PendingRequest, bytes]] = deque()
        self._waiting_bytes = 0
        self._parts: list[Data] = []  # frames that are written together

    def feed(self, data: Data, size: int) -> None:
        shared = self.shared
        in_flight = shared.in_flight
        rewritten, parts = shared.rewritten.known, self._parts
        position = start = 0
        if self._collected is not None:
            frame, position = self.collect_more(data, size)
            if frame is None:
                return
            start = position
            self._read(self._entry, frame)
        left = self._left
        while not shared.closed:
            if left:
                if left > size - position:
                    left -= size - position
                    position = size
                    break
                position += left
                left = 0
            if shared.answers and type(in_flight[0]) is FilterAnswer:
                self._pass(data, start, position)
                start = position
                self._left = 0
                self.send_answers()
            if size - position < 8:
                left = self._short(data, position, size)
                if left:
                    continue
                break
            length, correlation_id = RESPONSE.unpack_from(data, position)
            entry = in_flight.popleft() if in_flight else None
            if entry == correlation_id and length >= PREFIX:
                left = length + PREFIX
                continue
            if shared.answers:  # some may have to follow what has arrived before this frame
                self._pass(data, start, position)
                start = position
            entry = self._match(entry, correlation_id, length)
            if type(entry) is not PendingRequest and type(entry) is not Own:
                left = length + PREFIX
                continue
            if type(entry) is PendingRequest:
                if entry.started and shared.metrics is not None:
                    shared.metrics.response(entry.work.api_key, length + PREFIX, entry.started)
                if not entry.work.reads_response:
                    left = length + PREFIX
                    continue
            if not PREFIX <= length <= shared.max_frame:
                shared.fail(Refused(f"a response of {length} bytes cannot be read"))
                return
            if type(entry) is PendingRequest and entry.work.patch_response and self._task is None:
                end = position + length + PREFIX
                if end <= size:
                    try:
                        patched = self._patched(entry.work, bytes(data[position:end]))
                    except Exception as error:
                        self._pass(data, start, position)
                        shared.fail(error)
                        return
                    if patched is not None:
                        parts.append(data[start:position])
                        parts.append(patched)
                        position = start = end
                        continue
            if type(entry) is PendingRequest and not entry.work.responses:
                end = position + length + PREFIX
                if end <= size:
                    work = entry.work
                    if has_no_endpoints(work.api_key, data, position, end):
                        left = length + PREFIX
                        continue
                    known = rewritten.get((work, bytes(data[position + HEAD : end])))
                    if known is not None:
                        if known.offered is not None:
                            shared.offered = known.offered
                        if known.rest is None:
                            left = length + PREFIX
                            continue
                        parts.append(data[start:position])
                        parts.append(known.prefix)
                        parts.append(data[position + PREFIX : position + HEAD])
                        parts.append(known.rest)
                        position = start = end
                        continue
            self._pass(data, start, position)
            frame = self.collect(data, position, size, length + PREFIX)
            if frame is None:
                self._entry = entry
                self._left = 0
                return
            position = start = position + length + PREFIX
            self._read(entry, frame)
        self._left = left
        self._pass(data, start, position)
        self._rest = data[position:size]
        if shared.draining:
            self.check_drained()

    def _pass(self, data: Data, start: int, position: int) -> None:
        if self._parts:  # one write costs less than several
            self._parts.append(data[start:position])
            joined = b"".join(self._parts)
            self._parts.clear()
            self._deliver(joined)
        elif position > start:
            self._deliver(data[start:position])

    def _deliver(self, data: Data) -> None:
        """Write to the client, after everything that waits."""
        if self._task is None:
            self.peer.write(data)
        else:
            self._waiting.append(data)
            self._wait_for(len(data))

    def _answer(self, answer: FilterAnswer) -> None:
        """Deliver the answer of a filter, after everything that waits."""
        if answer.delivery is None:
            self._deliver(answer.frame)
        elif self._task is None:
            self._task = asyncio.ensure_future(self._take(answer.delivery(answer.frame)))
        else:
            self._waiting.append(answer)
            self._wait_for(len(answer.frame))

    async def _take(self, steps: list[Any]) -> None:
        """Deliver a frame in the steps of a filter."""
        if self.peer.transport is not None:
            await take(steps, self.peer.transport)
        self._task = None
        self._go_on()

    def _wait_for(self, size: int) -> None:
        self._waiting_bytes += size
        # A filter that waits for a response of its own needs the responses before it.
        if self._waiting_bytes > _WAITING and not any(
            type(each) is Own for each in self.shared.in_flight
        ):
            self.hold("filter")

    def _short(self, data: Data, position: int, size: int) -> int:
        """Return the bytes of a frame without a correlation id, which answers a token; 0: more are needed."""
        if size - position < PREFIX:
            return 0
        length = int.from_bytes(data[position : position + PREFIX], "big", signed=True)
        if length >= PREFIX:
            return 0
        if length < 0:
            self.shared.fail(Refused(f"the broker sent a frame with the length {length}"))
            return 0
        if self.shared.in_flight:
            self.shared.in_flight.popleft()
        return length + PREFIX

    def _match(self, entry: Entry | None, correlation_id: int, length: int) -> Entry | None:
        """Return the request of a response that the oldest one does not match at first sight.

        Requests before it got no response: the broker did not know them, or they asked for none.
        """
        in_flight = self.shared.in_flight
        if length < 0:
            self.shared.fail(Refused(f"the broker sent a frame with the length {length}"))
            return None
        if isinstance(entry, (PendingRequest, Own)) and entry.correlation_id == correlation_id:
            return entry
        for index, other in enumerate(in_flight):
            if other == correlation_id or getattr(other, "correlation_id", None) == correlation_id:
                for _ in range(index):
                    skipped = in_flight.popleft()
                    if type(skipped) is FilterAnswer:
                        self.shared.answers -= 1
                        self._answer(skipped)
                    elif isinstance(skipped, Own) and not skipped.future.done():
                        skipped.future.set_exception(
                            ConnectionError("the broker has not answered the filter's request")
                        )
                return in_flight.popleft()
        if entry is TOKEN:
            return entry
        if entry is not None:
            in_flight.appendleft(entry)
        # An unexpected response passes unchanged, unless a response is expected that must be read.
        if any(type(each) is PendingRequest and each.work.reads_response for each in in_flight):
            self.shared.fail(
                Refused(
                    f"the broker sent a response to the unknown correlation id {correlation_id}"
                )
            )
        return None

    def send_answers(self) -> None:
        """Send the answers of filters whose turn it is."""
        in_flight = self.shared.in_flight
        if not self.is_between_frames:
            return
        while in_flight and type(answer := in_flight[0]) is FilterAnswer:
            in_flight.popleft()
            self.shared.answers -= 1
            self._answer(answer)
        if not self.shared.answers:
            self.peer.release("answers")

    # -- responses that are read

    def _read(self, entry: Entry | None, frame: bytes) -> None:
        if isinstance(entry, Own):
            if not entry.future.done():
                entry.future.set_result(frame)
        elif self._task is not None:
            assert isinstance(entry, PendingRequest)
            self._waiting.append((entry, frame))
            self._wait_for(len(frame))
        else:
            assert isinstance(entry, PendingRequest)
            self._process(entry, frame)

    def _patched(self, work: Work, frame: bytes) -> bytes | None:
        """Return a response that a filter has changed as bytes; None if it must be decoded. Raises Close."""
        assert work.patch_response is not None
        patched = work.patch_response(frame, self.shared.connection)
        if patched is None or not work.rewrite:
            return patched
        return patched if has_no_endpoints(work.api_key, patched, 0, len(patched)) else None

    def _process(self, pending: PendingRequest, frame: bytes) -> None:
        """Run the chain over a response, and write it; if something is awaited, in a task."""
        chain, work = self.shared.chain, pending.work
        if not work.responses and has_no_endpoints(work.api_key, frame, 0, len(frame)):
            self.peer.write(frame)
            return
        if len(frame) > ONE_TURN:
            self._task = asyncio.ensure_future(self._process_in_turns(pending, frame))
            return
        try:
            patched = self._patched(work, frame) if work.patch_response else None
            if patched is not None:
                self.peer.write(patched)
                return
            read = chain.read_response(work, frame)
            message = self._run(pending, read)
            if not inspect.isawaitable(message):
                changed = self.shared.rewrite(work.api_key, message) if work.rewrite else False
                if not inspect.isawaitable(changed):
                    steps = self._send(pending, frame, read, message, changed)
                    if steps is not None:
                        self._task = asyncio.ensure_future(self._take(steps))
                    return
        except Exception as error:
            self.shared.fail(error)
            return
        self._task = asyncio.ensure_future(
            self._process_later(
                pending,
                frame,
                read,
                message,
                None if inspect.isawaitable(message) else changed,
            )
        )

    def _run(self, pending: PendingRequest, read: Read) -> Any:
        """Run the chain over a response. Returns the response, or an awaitable of it."""
        work = pending.work
        if work.api_key == API_VERSIONS and work.rewrite:
            self.shared.offered = offered_versions(read.message)
        if not work.responses:
            return read.message
        if pending.exchange is None:  # the request was changed as bytes
            pending.exchange = self.new_exchange(work, pending.correlation_id, None)
        return self.shared.chain.run_response(work.responses, read.message, pending.exchange)

    async def _process_in_turns(self, pending: PendingRequest, frame: bytes) -> None:
        work, chain = pending.work, self.shared.chain
        steps = None
        try:
            await asyncio.sleep(0)
            patched = self._patched(work, frame) if work.patch_response else None
            if patched is not None:
                self.peer.write(patched)
            else:
                read = chain.read_response(work, frame)
                await asyncio.sleep(0)
                message = self._run(pending, read)
                if inspect.isawaitable(message):
                    message = await message
                changed = self.shared.rewrite(work.api_key, message) if work.rewrite else False
                if inspect.isawaitable(changed):
                    changed = await changed
                await asyncio.sleep(0)
                steps = self._send(pending, frame, read, message, changed)
        except Exception as error:
            self.shared.fail(error)
            return
        await self._take(steps or [])

    async def _process_later(
        self, pending: PendingRequest, frame: bytes, read: Read, message: Any, changed: Any
    ) -> None:
        try:
            if changed is None:
                message = await message
                if pending.work.rewrite:
                    changed = self.shared.rewrite(pending.work.api_key, message)
            if inspect.isawaitable(changed):
                changed = await changed
            steps = self._send(pending, frame, read, message, bool(changed))
        except Exception as error:
            self.shared.fail(error)
            return
        await self._take(steps or [])

    def _send(
        self, pending: PendingRequest, frame: bytes, read: Read, message: Any, changed: bool
    ) -> list[Any] | None:
        """Write a response, or return the steps in which it has to be delivered."""
        work, sent = pending.work, frame
        if changed or work.responses:
            sent = self.shared.chain.changed(frame, read, message)
        if not work.responses:
            offered = self.shared.offered if work.api_key == API_VERSIONS else None
            self.shared.rewritten.add(work, frame, sent, offered)
        if pending.exchange is not None and pending.exchange.delivery is not None:
            return pending.exchange.delivery(sent)
        self.peer.write(sent)
        return None

    def _go_on(self) -> None:
        """Deliver what has waited, until a response has to wait again."""
        while self._waiting and self._task is None and not self.shared.closed:
            item = self._waiting.popleft()
            if isinstance(item, tuple):
                self._waiting_bytes -= len(item[1])
                self._process(*item)
            elif isinstance(item, FilterAnswer):
                self._waiting_bytes -= len(item.frame)
                self._answer(item)
            else:
                self._waiting_bytes -= len(item)
                self.peer.write(item)
        if self._task is None:
            self.release("filter")
            self.check_end()
            if self.shared.draining:
                self.check_drained()

    # -- the end

    def eof_received(self) -> bool:
        self._end()
        return self.transport is None or self.transport.can_write_eof()

    def check_end(self) -> None:
        """Close the client's connection if the broker has closed its own, and everything was delivered."""
        if self.ended and self._task is None and not self._waiting:
            rest, self._rest = self._rest, b""
            self.peer.write(rest)
            self.finish()

    def check_drained(self) -> None:
        """Close the connection if the proxy ends, and nothing is under way."""
        if self.shared.in_flight or self.is_busy or self.peer.is_busy:
            return
        self.finish()

    def finish(self) -> None:
        if self.peer.transport is not None:
            self.peer.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.shared.broker_lost(exc)
        self._end()

    def _end(self) -> None:
        self.ended = True
        if self._collected is not None and isinstance(self._entry, Own):
            self.shared.in_flight.append(self._entry)  # cut off in its response
        self.shared.fail_own()
        self.check_end()
