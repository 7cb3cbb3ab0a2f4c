"""The scanners: what happens to one frame. ``RequestScanner`` handles those of the client, ``ResponseScanner`` the broker's.

``scan`` finds the frames in the bytes that have arrived, and decides what happens to each one by its route:

- pass: it is not looked at beyond its head. All such frames of one read are one write.
- rewrite: a filter, or the proxy itself, changes its bytes without decoding it.
- read: it is collected and decoded, passes the filters, and is encoded again if it has changed. That is one coroutine
  (``_request``, ``_response``), which runs at once, or in a task if something is awaited.
- refuse: the connection is closed.

A request is noted in ``InFlight`` before its bytes are written, and brokers answer in the order of requests. So the oldest
entry says what happens to a response: a number is the correlation id of one that passes.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from krammar.proxy.chain import RouteTable
from krammar.proxy.delivery import steps_for, take
from krammar.proxy.errors import FilterError, Refused, cancelled, patch_error
from krammar.proxy.exchange import Settled, run_at_once, run_request, run_response
from krammar.proxy.frames import Read
from krammar.proxy.heads import (
    HEAD,
    LARGEST_HEAD,
    REQUEST,
    RESPONSE,
    Data,
    Incomplete,
    Pieces,
    acks,
    client_id,
    correlation_id_of,
    has_no_endpoints,
)
from krammar.proxy.in_flight import (
    TOKEN,
    Entry,
    FilterAnswer,
    InFlight,
    OwnRequest,
    PendingRequest,
)
from krammar.proxy.interface import Close, Exchange, Silence
from krammar.proxy.partial_frames import SMALL_FRAME, PartialFrame
from krammar.proxy.passing import PassingResponse, check_tags, hide_endpoints
from krammar.proxy.relay import LinkState, Resources, Side, copy_of
from krammar.proxy.rewriter import Rewriter
from krammar.proxy.route import Route
from krammar.util.clock import monotonic, perf_counter
from krammar.util.turns import in_thread
from krammar.wire.errors import EncodeError, WireError
from krammar.wire.framing import PREFIX
from krammar.wire.kafka import API_VERSIONS, has_api_versions
from krammar.wire.negotiation import offered_versions

if TYPE_CHECKING:
    from krammar.proxy.metrics import ProxyMetrics

# Bytes of a request at least: api key, version, correlation id.
_SHORTEST = 8
# After SaslHandshake v0, frames whose version would be at least this are tokens. No API has so many versions, and the
# tokens of SASL mechanisms have a greater number at this place. Others are requests that the proxy does not know.
_TOKEN = 32
# Answers that wait for responses of the broker, before the client is no longer read.
_ANSWERS = 1_000
# Bytes of responses that wait for an async method of a filter, before the broker is no longer read.
_WAITING = 1 << 20
# The route of requests that the table does not have.
_MISSING = Route(-1, -1, refusal="unknown")

# Returns an exchange for a route, a correlation id and a client id.
NewExchange = Callable[[Route, int, str | None], Exchange]


class _Scanner(ABC):
    """What both directions do: cut frames out of the bytes of one side, and write to the other one."""

    def __init__(
        self, side: Side, state: LinkState, table: RouteTable, resources: Resources
    ) -> None:
        self._side = side
        self._state = state
        self._table = table
        self._resources = resources
        self._memory = resources.memory
        self._view = resources.view
        self._partial = PartialFrame(resources.large, state.fail)
        self._parts: Pieces = []  # what the next write joins
        self._task: asyncio.Task[None] | None = None
        self._in_task = False  # whether it runs the coroutine of a frame
        self._undecided: int | None = None  # the id of a frame that waits for filters or ports

    @abstractmethod
    def scan(self, start: int, size: int) -> None:
        """Handle the bytes of the memory from ``start`` to ``size``, which end before the next call."""

    @abstractmethod
    def _take(self, frame: bytes) -> None:
        """Handle the frame that was collected."""

    @abstractmethod
    def _give_up(self) -> None:
        """Pass on what was collected of a frame, and the rest of it unread."""

    @abstractmethod
    def _pass(self, start: int, position: int) -> None:
        """Pass on the bytes of the memory from ``start`` to ``position``, after the parts before them."""

    def _finish_scan(self, start: int, position: int, size: int) -> None:
        """Pass on all bytes before ``position``, and remember the rest.

        Args:
            position: where the next frame begins, which can be after ``size``.
        """
        if position > size:
            self._partial.left = position - size
            position = size
        elif position < size:
            self._side.rest = self._memory[position:size]
        self._pass(start, position)

    def _collect(self, position: int, size: int, end: int) -> bytes | None:
        """Return the frame from ``position`` to ``end``, or None if it begins to be collected.

        Args:
            size: the end of the bytes that have arrived.
        """
        if size >= end:
            return copy_of(self._memory, position, end)
        self._partial.begin(self._view[position:size], end - size)
        return None

    def _collect_more(self, size: int) -> int:
        """Add bytes to the frame that is collected. Returns the offset after it; 0 if it is not complete."""
        current = self._partial
        taken = current.add(self._view[:size])
        if not current.need:
            self._take(current.take())
            return taken
        if current.is_one_too_many:
            if self._table.chain.pass_unreadable:
                self._give_up()
            else:
                current.refuse_largest()
        return 0

    def take_rest(self) -> Data:
        """Return the beginning of a frame that ends with the connection, if it is passed on."""
        rest = self._side.take_rest()
        if self._partial.need and self._table.chain.pass_unreadable:
            rest = self._partial.take()
        return rest

    def is_undecided(self, correlation_id: int) -> bool:
        """Whether a frame that was shown waits for filters or ports."""
        return self._undecided == correlation_id

    @property
    def is_between_frames(self) -> bool:
        """Whether no frame is incomplete."""
        return not self._partial.left and not self._partial.need

    @property
    def is_busy(self) -> bool:
        """Whether a frame is incomplete, or in an async method of a filter."""
        return self._task is not None or self._side.waits or not self.is_between_frames

    # -- what is awaited

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Await something in the task of this direction."""
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Close the connection if its task has not finished its work, so that the client does not wait for ever."""
        if task.cancelled():
            self._state.fail(cancelled())
        elif isinstance(error := task.exception(), Exception):  # others end the process
            self._state.fail(error)

    def client_lost(self) -> None:
        """Handle the end of the client's connection, which ends the link."""
        self._partial.forget()
        self._resources.budget.forget(self._side)
        if self._task is not None:
            # After it has begun: coroutines that are never awaited cause warnings.
            asyncio.get_running_loop().call_soon(self._task.cancel)

    async def _to_task(self) -> None:
        """Continue the coroutine of a frame in a task."""
        if not self._in_task:
            self._in_task = True
            await asyncio.sleep(0)


class RequestScanner(_Scanner):
    """Handles the bytes of the client, and writes to the broker.

    Args:
        responses: sends the answers of filters when their turn comes.
        log_in: logs in at the broker, while no requests of the client are passed on.
        check_drained: closes a draining connection if nothing is under way.
    """

    def __init__(
        self,
        side: Side,
        state: LinkState,
        table: RouteTable,
        resources: Resources,
        in_flight: InFlight,
        metrics: ProxyMetrics | None,
        *,
        responses: ResponseScanner,
        new_exchange: NewExchange,
        log_in: Callable[[], Awaitable[None]],
        check_drained: Callable[[], None],
    ) -> None:
        super().__init__(side, state, table, resources)
        self._broker = side.peer
        self._in_flight = in_flight
        self._metrics = metrics
        self._responses = responses
        self._new_exchange = new_exchange
        self._log_in = log_in
        self._check_drained = check_drained
        self._route = _MISSING  # of the frame that is collected, or in a filter
        self._started = 0.0  # when it arrived
        self._unnoted: Exchange | None = None  # whose notes have not been reported
        self._tokens = False
        # Whether frames need more than a look at the table: tokens, the outbox, a task, or draining.
        self._attention = False
        self._renew = self._renewing = False  # whether a login at the broker is due, or under way

    def scan(self, start: int, size: int) -> None:
        if self._partial.need:
            start = self._collect_more(size)
            if not start:
                return
        state, table, data, current = self._state, self._table, self._memory, self._partial
        if state.silent:
            return
        if self._task is not None:
            self._side.rest = data[start:size]
            self._side.pause_reading()
            return
        routes, expect = table.routes, self._in_flight.entries.append
        position, current.left = start + current.left, 0
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
            route = routes.get(api, _MISSING)
            if route is None and length >= _SHORTEST:
                self._tokens = False
                expect(correlation_id)
                position += length + PREFIX
                continue
            if self._tokens and route is _MISSING and api & 0xFFFF >= _TOKEN and length >= 0:
                expect(TOKEN)
                position += length + PREFIX
                continue
            if route is not None and route.is_plain and length >= _SHORTEST:
                end = position + length + PREFIX
                try:
                    if not is_silent(route, data, position, min(size, end)):
                        self._expect(route, correlation_id)
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
            if route is _MISSING:
                route = table.unknown(api)
                if route is None:
                    expect(correlation_id)
                    position += length + PREFIX
                    continue
            assert route is not None
            end = position + length + PREFIX
            try:
                if route.patch_request is not None and end <= size and length <= table.max_frame:
                    self._tokens = False
                    patched = self._patched(route, data, position, end, correlation_id)
                    if patched is not None:
                        if position > start:
                            self._parts.append(data[start:position])
                        self._parts += patched
                        position = start = end
                        continue
                if self._passes(route, data, position, size, end, correlation_id):
                    position = end
                    continue
            except Incomplete:
                break
            except Exception as error:
                self._pass(start, position)
                self._fail(route, error)
                return
            self._pass(start, position)
            frame = self._collect(position, size, end)
            if frame is None:
                self._route = route
                return
            position = start = end
            self._read(route, frame)
            if state.closed or state.silent:
                return
            routes = table.routes  # a login may have ended
            if self._task is None and position < size and not self._resources.budget.has_time():
                self._side.wait_for_turn()
                break
        if position == size > start and self._task is None and not self._parts:
            self._broker.write_from(self._view[start:size])  # as almost always
        else:
            self._finish_scan(start, position, size)

    def _pass(self, start: int, position: int) -> None:
        if self._parts:  # one write costs less than several
            self._parts.append(self._view[start:position])
            self._broker.write(b"".join(self._parts))
            self._parts.clear()
        elif position > start:
            self._broker.write_from(self._view[start:position])

    # -- what is decided by the head

    def _short(self, data: Data, position: int, size: int) -> int:
        """Return the bytes of a token that is shorter than a head; 0: more are needed."""
        if size - position < PREFIX:
            return 0
        length = int.from_bytes(data[position : position + PREFIX], "big", signed=True)
        if length >= _SHORTEST:
            return 0
        if self._tokens and length >= 0:
            self._in_flight.entries.append(TOKEN)
        return self._odd(length, 0 if self._tokens else _SHORTEST)

    def _odd(self, length: int, least: int) -> int:
        """Return the bytes to pass of a frame that can be too short; 0 if the connection is closed."""
        if length < least and not self._table.chain.pass_unreadable:
            self._state.fail(Refused(f"the client sent a frame with the length {length}"))
            return 0
        return length + PREFIX if length >= 0 else sys.maxsize  # no frame can follow

    def _passes(
        self, route: Route, data: Data, position: int, size: int, end: int, correlation_id: int
    ) -> bool:
        """Return whether a request passes unread; its response is expected then.

        Raises:
            Incomplete: more bytes are needed to decide.
            Refused: the request must not be passed on.
        """
        if route.refusal:
            raise Refused(route.refusal)
        self._tokens = route.tokens
        if route.tokens:
            self._attention = True
        length = end - position - PREFIX
        pass_unreadable = self._table.chain.pass_unreadable
        if route.requests:
            max_frame = self._table.max_frame
            if length <= max_frame:
                return False
            if not pass_unreadable:
                advice = "" if self._state.locked else "; max_frame raises the limit"
                raise Refused(
                    f"a request of {length} bytes is too large for filters "
                    f"({max_frame} bytes at most{advice})"
                )
        silent = route.silent
        name = None
        try:
            silent = is_silent(route, data, position, min(size, end))
            if route.responses and not silent:
                name = client_id(data, position, min(size, end))[0]
        except Incomplete:
            if end > size and size - position <= LARGEST_HEAD:
                raise
            if route.has_acks and not pass_unreadable:
                # Otherwise the response to a later request could be matched with this one, and would not be read.
                raise Refused(
                    f"a Produce request has no acks within its first {LARGEST_HEAD} bytes"
                ) from None
            # The broker refuses the request; its response, if there is one, is matched by its id.
        started = self._count(route, length + PREFIX) if route.counts else 0.0
        if not silent:
            exchange = self._new_exchange(route, correlation_id, name) if route.responses else None
            self._expect(route, correlation_id, exchange, started)
        return True

    def _patched(
        self, route: Route, data: Data, begin: int, end: int, correlation_id: int
    ) -> Pieces | None:
        """Return a request that a filter has changed as bytes; None if it must be decoded. Raises Close."""
        assert route.patch_request is not None
        try:
            changed = route.patch_request(data, begin, end, self._state.connection)
        except BaseException as error:
            raise patch_error(route.requests, error) from error
        if changed is None:
            return None
        started = self._count(route, end - begin) if route.counts else 0.0
        if not is_silent(route, data, begin, end):
            self._expect(route, correlation_id, None, started)
        return changed

    def _expect(
        self,
        route: Route,
        correlation_id: int,
        exchange: Exchange | None = None,
        started: float = 0.0,
    ) -> None:
        """Note a request in flight, so that its response is expected.

        Note the request and write it without awaiting in between: another one could be sent before it.
        """
        self._in_flight.entries.append(
            PendingRequest(correlation_id, route, exchange, started)
            if route.follows
            else correlation_id
        )

    def _count(self, route: Route, size: int) -> float:
        """Return the time of a request, and count it; 0 if requests are not counted."""
        if not route.counts:
            return 0.0
        assert self._metrics is not None
        self._metrics.request(route.api_key, size)
        return perf_counter()

    def _fail(self, route: Route, error: Exception) -> None:
        """Close the connection because of a request."""
        if route.counts and self._metrics is not None:
            reason = "filter" if isinstance(error, (Close, FilterError)) else "refused"
            self._metrics.error(route.api_key, reason)
        self._state.fail(error)

    # -- requests that are read

    def _take(self, frame: bytes) -> None:
        self._read(self._route, frame)

    def _give_up(self) -> None:
        collected = self._partial.take()
        if not self._route.silent:
            self._expect(self._route, correlation_id_of(collected))
        self._broker.write(collected)

    def _read(self, route: Route, frame: bytes) -> None:
        """Read a request; if something is awaited, in a task."""
        self._route = route
        self._in_task = False
        try:
            rest, _ = run_at_once(self._request(route, frame))
        except Exception as error:
            self._fail(route, error)
            return
        if rest is not None:
            self.wait_for(rest)

    async def _request(self, route: Route, frame: bytes) -> None:
        """Run the chain over a request, and pass it on or answer it."""
        frames, worker = self._table.chain.frames, self._resources.worker
        long, began = len(frame) > self._resources.loop_bytes, monotonic()
        try:
            if long:
                # From now on: whoever watches sees the frame before the task begins.
                self._undecided = correlation_id_of(frame)
                await self._to_task()
            if route.patch_request is not None and self._patch(route, frame):
                return
            self._started = self._count(route, len(frame)) if route.counts else 0.0
            try:
                read = (
                    await in_thread(frames.read_request, route, frame, worker=worker)
                    if long
                    else frames.read_request(route, frame)
                )
            except WireError as error:
                self._pass_unread(route, frame, error)
                return
            if not long and monotonic() - began > self._resources.loop_seconds:
                long, self._undecided = True, correlation_id_of(frame)
                await self._to_task()
            header = read.header
            exchange = self._new_exchange(route, header.correlation_id, header.client_id)
            exchange.received = frame, PREFIX
            self._unnoted = exchange
            settled = await run_request(route, read.message, exchange, self._wait_for_filter)
        finally:
            self._decide()
        if isinstance(settled.answer, Silence):
            self._state.silent = True
            return
        if settled.answer is not None:
            # The client waits for a response if its own bytes say so, whatever a filter has changed.
            if not is_silent(route, frame, 0, len(frame)):
                await self._answer(route, exchange, settled, long)
            return
        request = settled.request
        silent = route.silent or (route.has_acks and request.acks == 0)
        if long:
            encode = partial(frames.settled, route, frame, read, request)
            del frame, read, settled, request  # a large frame is not needed after it was encoded
            encoded = await in_thread(encode, worker=worker)
            del encode
        else:
            encoded = frames.settled(route, frame, read, request)
        if not silent:
            self._expect(route, exchange.correlation_id, exchange, self._started)
        self._broker.write(encoded)

    async def _wait_for_filter(self) -> None:
        """Go on in a task, because a method of a filter is awaited. What filters have noted is reported first."""
        self._decide()
        await self._to_task()

    def _decide(self) -> None:
        """Report what filters have noted for the request, and that no more notes follow."""
        exchange, self._unnoted = self._unnoted, None
        if exchange is not None and exchange.notes:
            self._state.note(True, exchange.correlation_id, exchange.notes)
        if self._undecided is not None:
            self._undecided = None
            self._state.decided()

    def _patch(self, route: Route, frame: bytes) -> bool:
        """Pass on a request if a filter changes it as bytes; return whether one does. Raises Close."""
        patched = self._patched(route, frame, 0, len(frame), correlation_id_of(frame))
        if patched is None:
            return False
        self._broker.write_pieces(patched)
        return True

    def _pass_unread(self, route: Route, frame: bytes, error: WireError) -> None:
        """Pass on a request that cannot be decoded, or raise the error."""
        if not self._table.chain.pass_unreadable:
            raise error
        if not route.silent:
            self._expect(route, correlation_id_of(frame), None, self._started)
        self._broker.write(frame)

    async def _answer(self, route: Route, exchange: Exchange, settled: Settled, long: bool) -> None:
        """Let the filters before the one that has answered read the answer, and send it when its turn comes."""
        chain, in_flight = self._table.chain, self._in_flight
        methods = chain.before(route, settled.answered_by)
        message = await run_response(methods, settled.answer, exchange, self._to_task)
        encode = partial(chain.frames.answer, route, exchange.correlation_id, message)
        frame = await in_thread(encode, worker=self._resources.worker) if long else encode()
        if route.counts and self._metrics is not None:
            self._metrics.response(route.api_key, len(frame), self._started)
        in_flight.entries.append(FilterAnswer(frame, exchange.delivery))
        in_flight.answers += 1
        self._responses.send_answers()
        if in_flight.answers > _ANSWERS:
            self._side.hold("answers")

    def wait_for(self, work: Awaitable[None]) -> None:
        """Read no more from the client until a request, or the connection to the broker, is finished."""
        self._side.hold("filter")
        self._start(self._finish(work))
        self._attention = True

    async def _finish(self, work: Awaitable[None]) -> None:
        """Wait for something that delays the client's requests, then continue with them."""
        try:
            await work
        except Exception as error:
            self._fail(self._route, error)
            return
        self._task = None
        if self._renew:
            self._log_in_again()
            return
        self._side.release("filter")
        if self._in_flight.outbox:
            self._stops()
        if self._side.rest and not self._resources.budget.has_time():
            self._side.wait_for_turn()  # many filters may have finished in this turn
        elif not self._side.waits:
            self._side.handle_rest()
        self.check_eof()
        if self._state.draining:
            self._check_drained()

    # -- between frames

    def _stops(self) -> bool:
        """Do what has waited for the end of a frame; return whether no other frame may begin."""
        state, in_flight = self._state, self._in_flight
        outbox, in_flight.outbox = in_flight.outbox, []
        for own, frame in outbox:
            in_flight.entries.append(own)
            self._broker.write(frame)
        if state.draining:
            self._side.hold("draining")
            self._check_drained()
        elif self._renew and self._task is None:
            self._log_in_again()
        busy = self._task is not None
        self._attention = self._tokens or state.draining or busy or self._renew
        return state.draining or busy

    def send_own(self, own: OwnRequest, frame: bytes, is_login: bool) -> None:
        """Send an own request of the proxy as soon as no frame of the client is incomplete.

        Args:
            is_login: whether it is of a login, for whose end others wait.

        Raises:
            ConnectionError: the broker has closed the connection.
        """
        if self._state.closed or self._broker.ended:
            raise ConnectionError("the broker has closed the connection")
        if self.is_between_frames and (is_login or not self._renewing):
            self._in_flight.entries.append(own)
            self._broker.write(frame)
        else:
            self._in_flight.outbox.append((own, frame))
            self._attention = True
        self._broker.release("filter")

    def renew_login(self) -> None:
        """Log in at the broker again (KIP-368) as soon as no frame is incomplete and no filter runs."""
        self._renew = self._attention = True
        if self._task is None and self.is_between_frames:
            self._log_in_again()

    def _log_in_again(self) -> None:
        async def renew() -> None:
            try:
                await self._log_in()
            finally:
                self._renewing = False

        self._renew = False
        self._renewing = True
        self.wait_for(renew())

    # -- the end

    def drain(self) -> None:
        """Begin no other request, and close the connection after the responses."""
        self._state.draining = self._attention = True
        if self.is_between_frames:
            self._side.hold("draining")
        if self._task is None and self.is_between_frames:
            self._check_drained()

    def check_eof(self) -> None:
        """Tell the broker that no more requests come, once filters have sent theirs."""
        transport = self._broker.transport
        if not self._side.ended or self._task is not None or self._side.waits or transport is None:
            return
        self._broker.write(self.take_rest())
        if transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        else:
            self._state.draining = self._attention = True
            self._check_drained()


def is_silent(route: Route, data: Data, begin: int, end: int) -> bool:
    """Return whether the client expects no response to a request. Raises Incomplete."""
    return not acks(data, begin, end, route.version) if route.has_acks else route.silent


class ResponseScanner(_Scanner):
    """Handles the bytes of the broker, and writes to the client, in the order of the requests.

    While a response is in an async method of a filter, those after it wait.

    Args:
        new_exchange: returns an exchange for a response whose request was changed as bytes.
        check_drained: closes a draining connection if nothing is under way.
    """

    def __init__(
        self,
        side: Side,
        state: LinkState,
        table: RouteTable,
        resources: Resources,
        in_flight: InFlight,
        metrics: ProxyMetrics | None,
        *,
        rewriter: Rewriter,
        new_exchange: NewExchange,
        check_drained: Callable[[], None],
    ) -> None:
        super().__init__(side, state, table, resources)
        self._client = side.peer
        self._in_flight = in_flight
        self._metrics = metrics
        self._rewriter = rewriter
        self._new_exchange = new_exchange
        self._check_drained = check_drained
        self._entry: Entry | None = None  # the request of the frame that is collected or followed
        self._passing: PassingResponse | None = None
        self._reading = 0  # the correlation id of the response that is read
        # What waits while a response is in an async method: bytes, and responses that are read.
        self._waiting: deque[Data | FilterAnswer | tuple[PendingRequest, bytes]] = deque()
        self._waiting_bytes = 0

    def scan(self, start: int, size: int) -> None:
        if self._partial.need:
            start = self._collect_more(size)
            if not start:
                return
        state, table, data, current = self._state, self._table, self._memory, self._partial
        in_flight, entries = self._in_flight, self._in_flight.entries
        position, current.left = start + current.left, 0
        while True:
            if self._passing is not None:
                followed = self._follow(self._passing, data, start, position, size)
                if followed is None:
                    return
                start, position = followed
                if self._passing is not None:
                    break
            if in_flight.answers and position <= size:
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
            if length < 0 and table.chain.pass_unreadable:
                position = sys.maxsize  # no frame can follow
                continue
            entry = entries.popleft() if entries else None
            if entry == correlation_id and length >= PREFIX:
                position += length + PREFIX
                continue
            if (
                type(entry) is not PendingRequest
                or entry.correlation_id != correlation_id
                or length < 0
            ):
                entry = self._match(entry, correlation_id, length)
                if state.closed:
                    break
            end = position + length + PREFIX
            if type(entry) is PendingRequest:
                route = entry.route
                if entry.started and self._metrics is not None:
                    self._metrics.response(route.api_key, length + PREFIX, entry.started)
                if not route.reads_response:
                    position = end
                    continue
                if route.ends_with_nodes and not route.responses:
                    if end > size and length > SMALL_FRAME:
                        self._entry = entry
                        self._passing = self._new_passing(route, end - position)
                        continue
                    if end <= size and has_no_endpoints(data, position, end):
                        position = end
                        continue
            elif type(entry) is not OwnRequest:
                position = end
                continue
            if not PREFIX <= length <= table.max_frame:
                if table.chain.pass_unreadable and type(entry) is PendingRequest:
                    position = end
                    continue
                state.fail(
                    Refused(
                        f"a response of {length} bytes cannot be read ({table.max_frame} bytes at most;"
                        " max_frame raises the limit)"
                    )
                )
                return
            if end <= size and type(entry) is PendingRequest:
                try:
                    known = self._without_decoding(entry, data, position, end)
                except Exception as error:
                    self._pass(start, position)
                    state.fail(error)
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
            if state.closed:
                return
            if self._task is None and position < size and not self._resources.budget.has_time():
                self._side.wait_for_turn()
                break
        if position == size > start and self._task is None and not self._parts:
            self._client.write_from(self._view[start:size])  # as almost always
        else:
            self._finish_scan(start, position, size)
        if state.draining:
            self._check_drained()

    def _pass(self, start: int, position: int) -> None:
        if self._parts:  # one write costs less than several
            self._parts.append(self._view[start:position])
            self._write(b"".join(self._parts))
            self._parts.clear()
        elif position > start:
            if self._task is None:
                self._client.write_from(self._view[start:position])
            else:
                self._write(bytes(self._view[start:position]))

    # -- whose response it is

    def _short(self, data: Data, position: int, size: int) -> int:
        """Return the bytes of a frame without a correlation id, which answers a token; 0: more are needed."""
        if size - position < PREFIX:
            return 0
        length = int.from_bytes(data[position : position + PREFIX], "big", signed=True)
        if length >= PREFIX:
            return 0
        if length < 0:
            if self._table.chain.pass_unreadable:
                return sys.maxsize
            self._state.fail(Refused(f"the broker sent a frame with the length {length}"))
            return 0
        if self._in_flight.entries:
            self._in_flight.entries.popleft()
        return length + PREFIX

    def _match(self, entry: Entry | None, correlation_id: int, length: int) -> Entry | None:
        """Return the request of a response that the oldest one does not match at first sight.

        Requests before it got no response: the broker did not know them, or they asked for none.
        """
        entries = self._in_flight.entries
        if length < 0:
            self._state.fail(Refused(f"the broker sent a frame with the length {length}"))
            return None
        if isinstance(entry, (PendingRequest, OwnRequest)) and (
            entry.correlation_id == correlation_id
        ):
            return entry
        for index, other in enumerate(entries):
            if other == correlation_id or getattr(other, "correlation_id", None) == correlation_id:
                for _ in range(index):
                    skipped = entries.popleft()
                    if type(skipped) is FilterAnswer:
                        self._in_flight.answers -= 1
                        self._answer(skipped)
                    elif isinstance(skipped, OwnRequest):
                        skipped.fail("the broker has not answered the filter's request")
                return entries.popleft()
        if entry is TOKEN:
            return entry
        if entry is not None:
            entries.appendleft(entry)
        # An unexpected response passes unchanged, unless a response is expected that must be read.
        if not self._table.chain.pass_unreadable and any(
            type(each) is PendingRequest and each.route.reads_response for each in entries
        ):
            self._state.fail(
                Refused(
                    f"the broker sent a response to the unknown correlation id {correlation_id}"
                )
            )
        return None

    # -- large responses that pass as they arrive

    @property
    def is_between_frames(self) -> bool:
        return super().is_between_frames and self._passing is None

    def _new_passing(self, route: Route, size: int) -> PassingResponse:
        package = self._table.chain.package
        version = package.header_versions(route.api_key, route.version).response
        return PassingResponse(
            (package.get("ResponseHeader"), version),
            (package.response_class(route.api_key), route.version),
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
            if self._table.chain.pass_unreadable:
                self._passing = None
                return start, end
            self._pass(start, min(position, size))
            self._state.fail(error)
            return None
        self._passing = None
        if hidden == tags:
            return start, end
        if position > start:
            self._parts.append(data[start:position])
        self._parts.append(hidden)
        assert isinstance(self._entry, PendingRequest)
        self._state.note(False, self._entry.correlation_id, ["node endpoints hidden"])
        return end, end

    # -- responses that are changed as bytes

    def _without_decoding(
        self, pending: PendingRequest, data: Data, begin: int, end: int
    ) -> Pieces | None:
        """Return the bytes for the client instead of a response; none of them if it does not change.

        Returns:
            None if the response must be decoded.
        """
        route = pending.route
        if route.patch_response is not None and self._task is None:
            patched = self._patched(route, data, begin, end)
            if patched is not None:
                return patched
        if route.responses:
            return None
        known = self._rewriter.rewritten.known.get((route, copy_of(data, begin + HEAD, end)))
        if known is None:
            return None
        if known.offered is not None:
            self._state.offered = known.offered
        if known.rest is None:
            return []
        if self._state.watches:
            self._state.note(False, pending.correlation_id, list(known.notes))
        return [known.prefix, data[begin + PREFIX : begin + HEAD], known.rest]

    def _patched(self, route: Route, data: Data, begin: int, end: int) -> Pieces | None:
        """Return a response that a filter has changed as bytes; None if it must be decoded. Raises Close."""
        assert route.patch_response is not None
        if route.rewrite and not (route.ends_with_nodes and has_no_endpoints(data, begin, end)):
            return None
        try:
            return route.patch_response(data, begin, end, self._state.connection)
        except BaseException as error:
            raise patch_error(route.responses, error) from error

    # -- responses that are read

    def _take(self, frame: bytes) -> None:
        self._read(self._entry, frame)

    def _give_up(self) -> None:
        if not isinstance(self._entry, OwnRequest):
            self._write(self._partial.take())

    def _read(self, entry: Entry | None, frame: bytes) -> None:
        """Read a response; if something is awaited, in a task."""
        if isinstance(entry, OwnRequest):
            if not entry.future.done():
                entry.future.set_result(frame)
            return
        assert isinstance(entry, PendingRequest)
        if self._task is not None:
            self._waiting.append((entry, frame))
            self._count_waiting(len(frame))
            return
        self._in_task, self._reading = False, entry.correlation_id
        try:
            rest, _ = run_at_once(self._response(entry, frame))
        except Exception as error:
            self._state.fail(error)
            return
        if rest is not None:
            self._start(self._finish(rest))

    async def _response(self, pending: PendingRequest, frame: bytes) -> None:
        """Run the chain over a response, replace addresses and versions, and write it."""
        route, state = pending.route, self._state
        if not route.responses and route.ends_with_nodes and has_no_endpoints(frame, 0, len(frame)):
            self._client.write(frame)
            return
        frames, worker = self._table.chain.frames, self._resources.worker
        long, began = len(frame) > self._resources.loop_bytes, monotonic()
        if long:
            await self._wait_for_filter()
        patched = self._patched(route, frame, 0, len(frame)) if route.patch_response else None
        if patched is not None:
            self._client.write_pieces(patched)
            return
        try:
            read = (
                await in_thread(frames.read_response, route, frame, worker=worker)
                if long
                else frames.read_response(route, frame)
            )
        except WireError:
            if not self._table.chain.pass_unreadable:
                raise
            self._client.write(frame)
            return
        if not long and monotonic() - began > self._resources.loop_seconds:
            long = True
            await self._wait_for_filter()
        message = read.message
        if route.api_key == API_VERSIONS and has_api_versions(self._table.chain.package):
            state.offered = offered_versions(message)
        if route.responses:
            exchange = pending.exchange
            if exchange is None:  # the request was changed as bytes
                exchange = self._new_exchange(route, pending.correlation_id, None)
                pending.exchange = exchange
            message = await run_response(route.responses, message, exchange, self._wait_for_filter)
        changed: Any = self._rewriter.rewrite(route.api_key, message) if route.rewrite else []
        if inspect.isawaitable(changed):
            await self._wait_for_filter()
            changed = await changed
        if long:
            encode = partial(self._encode, route, frame, read, message, changed)
            del read, message
            sent, notes = await in_thread(encode, worker=worker)
            del encode
        else:
            sent, notes = self._encode(route, frame, read, message, changed)
        steps = self._send(pending, frame, sent, notes)
        if steps is not None:
            await self._to_task()
            await self._deliver(steps)

    async def _wait_for_filter(self) -> None:
        """Go on in a task. Whoever watches has seen the frame before, and waits for notes."""
        self._undecided = self._reading
        await self._to_task()

    def _encode(
        self, route: Route, frame: bytes, read: Read, message: Any, changed: list[str]
    ) -> tuple[bytes, list[str]]:
        """Encode a response, in any thread.

        Args:
            changed: what the proxy has changed, in words.

        Returns:
            The frame, and what is changed in it.
        """
        chain = self._table.chain
        try:
            if changed:
                return chain.frames.changed(frame, read, message), changed
            if route.responses:
                return chain.frames.settled(route, frame, read, message), changed
        except EncodeError:
            if not chain.pass_unreadable:
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
        state, route, exchange = self._state, pending.route, pending.exchange
        if not route.responses:
            offered = state.offered if route.api_key == API_VERSIONS else None
            self._rewriter.rewritten.add(route, frame, sent, offered, tuple(changed))
        notes = changed if exchange is None else [*changed, *exchange.notes]
        state.note(False, pending.correlation_id, notes)
        if exchange is not None and exchange.delivery is not None:
            return steps_for(exchange.delivery, sent)
        self._client.write(sent)
        return None

    # -- in the order of the requests

    def send_answers(self) -> None:
        """Send the answers of filters whose turn it is."""
        in_flight = self._in_flight
        if not self.is_between_frames:
            return
        entries = in_flight.entries
        while entries and type(answer := entries[0]) is FilterAnswer:
            entries.popleft()
            in_flight.answers -= 1
            self._answer(answer)
        if not in_flight.answers:
            self._client.release("answers")

    def _answer(self, answer: FilterAnswer) -> None:
        """Deliver the answer of a filter, after everything that waits."""
        if self._task is not None:
            self._waiting.append(answer)
            self._count_waiting(len(answer.frame))
        elif answer.delivery is None:
            self._client.write(answer.frame)
        else:
            try:
                steps = steps_for(answer.delivery, answer.frame)
            except Exception as error:
                self._state.fail(error)
                return
            self._start(self._finish(self._deliver(steps)))

    def _write(self, data: Data) -> None:
        """Write to the client, after everything that waits."""
        if self._task is None:
            self._client.write(data)
        else:
            self._waiting.append(data)
            self._count_waiting(len(data))

    def _count_waiting(self, size: int) -> None:
        self._waiting_bytes += size
        # A filter that waits for a response of its own needs the responses before it.
        if self._waiting_bytes > _WAITING and not any(
            type(each) is OwnRequest for each in self._in_flight.entries
        ):
            self._side.hold("filter")

    async def _deliver(self, steps: list[Any]) -> None:
        """Deliver a frame in the steps of a filter."""
        self._decide()
        client = self._client.transport
        if steps and client is not None:
            await take(steps, client)
            if client.is_closing():
                self._state.note_end("by the proxy: closed by a filter")

    def _decide(self) -> None:
        self._undecided = None
        self._state.decided()

    async def _finish(self, work: Awaitable[None]) -> None:
        """Wait for something that delays the responses after it, then continue with them."""
        try:
            await work
        except Exception as error:
            self._state.fail(error)
            return
        self._decide()
        self._task = None
        self._go_on()

    def _go_on(self) -> None:
        """Deliver what has waited, until a response has to wait again."""
        while self._waiting and self._task is None and not self._state.closed:
            if not self._resources.budget.has_time():
                turn = self._resources.budget.turn(known=not self._state.locked)
                self._start(self._finish(turn))
                break
            item = self._waiting.popleft()
            if isinstance(item, tuple):
                self._waiting_bytes -= len(item[1])
                self._read(*item)
            elif isinstance(item, FilterAnswer):
                self._waiting_bytes -= len(item.frame)
                self._answer(item)
            else:
                self._waiting_bytes -= len(item)
                self._client.write(item)
        self._state.decided()
        if self._task is None:
            self._side.release("filter")
            self.check_end()
            if self._state.draining:
                self._check_drained()

    def is_undecided(self, correlation_id: int) -> bool:
        return super().is_undecided(correlation_id) or any(
            isinstance(each, tuple) and each[0].correlation_id == correlation_id
            for each in self._waiting
        )

    # -- the end

    def broker_lost(self) -> None:
        """Handle the end of the connection to the broker."""
        self._partial.forget()
        self.broker_ended()

    def broker_ended(self) -> None:
        """Handle that no more responses arrive."""
        if self._partial.need and isinstance(self._entry, OwnRequest):
            self._in_flight.entries.append(self._entry)  # cut off in its response
        self._in_flight.fail_own()
        self.check_end()

    def check_end(self) -> None:
        """Close the client's connection if the broker has closed its own, and everything was delivered."""
        if self._side.ended and self._task is None and not self._waiting and not self._side.waits:
            self._client.write(self.take_rest())
            self._client.close()
