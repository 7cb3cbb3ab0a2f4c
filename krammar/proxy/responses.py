"""The end at the broker: passes on responses, in the order of their requests."""

from __future__ import annotations

import sys

from krammar.proxy.ends import SMALL_FRAME
from krammar.proxy.heads import HEAD, RESPONSE, Data, has_no_endpoints
from krammar.proxy.in_flight import TOKEN, Entry, FilterAnswer, Own, PendingRequest
from krammar.proxy.passing import PassingResponse, check_tags, hide_endpoints
from krammar.proxy.read_responses import ReadResponses
from krammar.proxy.shared import Shared
from krammar.proxy.work import Refused, Work
from krammar.wire.framing import PREFIX


class Responses(ReadResponses):
    """Reads from the broker, and writes to the client (its peer)."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._entry: Entry | None = None  # the request of the frame that is collected or followed
        self._passing: PassingResponse | None = None

    def _scan(self, start: int, size: int) -> None:
        shared, data = self.shared, self._memory
        in_flight = shared.in_flight
        position, self._left = start + self._left, 0
        while True:
            if self._passing is not None:
                followed = self._follow(self._passing, data, start, position, size)
                if followed is None:
                    return
                start, position = followed
                if self._passing is not None:
                    break
            if shared.answers and position <= size:
                # Some may have to follow what has arrived before this frame.
                self._pass(start, position)
                start = position
                self.send_answers()
            if size - position < HEAD:
                if position >= size:
                    break
                passed = self._short(data, position, size)
                if not passed:
                    break
                position += passed
                continue
            length, correlation_id = RESPONSE.unpack_from(data, position)
            if length < 0 and shared.chain.pass_unreadable:
                position = sys.maxsize  # no frame can follow
                continue
            entry = in_flight.popleft() if in_flight else None
            if entry == correlation_id and length >= PREFIX:
                position += length + PREFIX
                continue
            if (
                type(entry) is not PendingRequest
                or entry.correlation_id != correlation_id
                or length < 0
            ):
                entry = self._match(entry, correlation_id, length)
                if shared.closed:
                    break
            end = position + length + PREFIX
            if type(entry) is PendingRequest:
                work = entry.work
                if entry.started and shared.metrics is not None:
                    shared.metrics.response(work.api_key, length + PREFIX, entry.started)
                if not work.reads_response:
                    position = end
                    continue
                if work.ends_with_nodes and not work.responses:
                    if end > size and length > SMALL_FRAME:
                        self._entry = entry
                        self._passing = self._new_passing(work, end - position)
                        continue
                    if end <= size and has_no_endpoints(data, position, end):
                        position = end
                        continue
            elif type(entry) is not Own:
                position = end
                continue
            if not PREFIX <= length <= shared.max_frame:
                if shared.chain.pass_unreadable and type(entry) is PendingRequest:
                    position = end
                    continue
                shared.fail(
                    Refused(
                        f"a response of {length} bytes cannot be read ({shared.max_frame} bytes at most;"
                        " max_frame raises the limit)"
                    )
                )
                return
            if end <= size and type(entry) is PendingRequest:
                try:
                    known = self._without_decoding(entry, data, position, end)
                except Exception as error:
                    self._pass(start, position)
                    shared.fail(error)
                    return
                if known is not None:
                    if known:
                        if position > start:
                            self._parts.append(data[start:position])
                        self._parts += known
                        start = end
                    position = end
                    continue
            self._pass(start, position)
            frame = self._collect(position, size, end)
            if frame is None:
                self._entry = entry
                return
            position = start = end
            self._read(entry, frame)
            if shared.closed:
                return
            if self._task is None and position < size and not shared.has_time():
                self._wait_for_turn()
                break
        if position == size > start and self._task is None and not self._parts:
            self.peer.write_from(self._view[start:size])  # as almost always
        else:
            self._finish_scan(start, position, size)
        if shared.draining:
            self.check_drained()

    def _new_passing(self, work: Work, size: int) -> PassingResponse:
        package = self.shared.chain.package
        version = package.header_versions(work.api_key, work.version).response
        return PassingResponse(
            (package.get("ResponseHeader"), version),
            (package.response_class(work.api_key), work.version),
            size,
        )

    def _follow(
        self, passing: PassingResponse, data: Data, start: int, position: int, size: int
    ) -> tuple[int, int] | None:
        """Follow a response that passes as it arrives, and hide node endpoints at its end.

        Returns:
            The offset of the bytes to pass, and of those to follow next; None if the connection was closed.
        """
        end = position + passing.left
        try:
            position = passing.follow(data, position, size)
            if not passing.is_last or position > size:
                return start, position
            check_tags(passing.left)
            if end > size:
                return start, position
            tags = bytes(data[position:end])
            hidden = hide_endpoints(tags)
        except Refused as error:
            if self.shared.chain.pass_unreadable:
                self._passing = None
                return start, end
            self._pass(start, min(position, size))
            self.shared.fail(error)
            return None
        self._passing = None
        if hidden == tags:
            return start, end
        if position > start:
            self._parts.append(data[start:position])
        self._parts.append(hidden)
        assert isinstance(self._entry, PendingRequest)
        self.shared.note(False, self._entry.correlation_id, ["node endpoints hidden"])
        return end, end

    @property
    def is_between_frames(self) -> bool:
        return super().is_between_frames and self._passing is None

    def _take(self, frame: bytes) -> None:
        self._read(self._entry, frame)

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

    def _short(self, data: Data, position: int, size: int) -> int:
        """Return the bytes of a frame without a correlation id, which answers a token; 0: more are needed."""
        if size - position < PREFIX:
            return 0
        length = int.from_bytes(data[position : position + PREFIX], "big", signed=True)
        if length >= PREFIX:
            return 0
        if length < 0:
            if self.shared.chain.pass_unreadable:
                return sys.maxsize
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
        if not self.shared.chain.pass_unreadable and any(
            type(each) is PendingRequest and each.work.reads_response for each in in_flight
        ):
            self.shared.fail(
                Refused(
                    f"the broker sent a response to the unknown correlation id {correlation_id}"
                )
            )
        return None

    def _give_up(self) -> None:
        if isinstance(self._entry, Own):
            return
        collected = self._take_collected()
        if self._task is None:
            self.peer.write(collected)
        else:
            self._wait_with(collected)

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

    # -- the end

    def eof_received(self) -> bool:
        self.shared.end("by the broker")
        self._end()
        return self.transport is None or self.transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._count_large(0)
        self.shared.broker_lost(exc)
        self._end()

    def _end(self) -> None:
        self.ended = True
        if self._need and isinstance(self._entry, Own):
            self.shared.in_flight.append(self._entry)  # cut off in its response
        self.shared.fail_own()
        self.check_end()
