"""Enforces the quotas of a cluster: measures what clients use, and throttles those above a limit (KIP-219)."""

from __future__ import annotations

import inspect
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from kafka_wire import ClientQuotaRecord, ErrorCode, FetchRequest, ProduceRequest

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.connections import Admission
from krammar.broker.dispatch import Handlers
from krammar.broker.errors import ApiError
from krammar.broker.handlers.fetch import FetchHandlers
from krammar.broker.handlers.topics import TopicHandlers
from krammar.broker.quotas.entities import (
    CONNECTION,
    FETCH,
    IP,
    MUTATION,
    PRODUCE,
    REQUEST,
    canonical,
    check_quota_value,
    client_entities,
)
from krammar.broker.quotas.meters import Rate, TokenBucket
from krammar.broker.session import Session
from krammar.broker.timers import Timers
from krammar.util.clock import perf_counter
from krammar.util.logs import FewWarnings

log = logging.getLogger("krammar.broker")

Handler = Callable[[Session, Any, int], Any]
M = TypeVar("M", Rate, TokenBucket)

_LONGEST_MS = (1 << 31) - 1  # of a response
# The keys of quotas that need every request of an API to be measured.
_OF_REQUESTS = frozenset({PRODUCE, FETCH, REQUEST, MUTATION})


class _Meter(NamedTuple):
    """Whose use a meter counts: an address, or a user, a client id or both. None stands for any."""

    key: str
    user: str | None = None
    client_id: str | None = None
    address: str | None = None


class Enforcement:
    """Enforces the quotas of a cluster on its nodes. Kafka's brokers, too, measure each for itself."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._nodes: list[NodeQuotas] = []
        self._counts: Counter[str] = Counter()  # of quotas by key
        warn = FewWarnings(log.warning)
        for record in cluster.quotas.values():
            problem = _problem(record)
            if problem:
                warn(f"the quota {record} has no effect: {problem}")
            self._counts[record.key] += 1
        warn.end("quotas")
        cluster.watchers[ClientQuotaRecord.__name__] = self._changed

    def add(self, node: NodeQuotas) -> None:
        """Enforce the quotas on another node."""
        self._nodes.append(node)
        node.measure((+self._counts).keys())

    def _changed(self, record: ClientQuotaRecord, added: bool) -> None:
        before = +self._counts
        self._counts[record.key] += 1 if added else -1
        if before.keys() != (+self._counts).keys():
            for node in self._nodes:
                node.measure((+self._counts).keys())


@dataclass(eq=False)
class NodeQuotas:
    """The meters of a node's clients, and what it does with those above their limits.

    Attributes:
        most_meters: for clients that change their ids; the meters that were used last remain
    """

    most_meters: ClassVar[int] = 10_000

    config: BrokerConfig
    timers: Timers
    cluster: ClusterMetadata
    handlers: Handlers
    admission: Admission
    _meters: OrderedDict[_Meter, Any] = field(init=False, default_factory=OrderedDict)
    _guards: bool = field(init=False, default=False)

    def measure(self, keys: Collection[str]) -> None:
        """Measure what these keys of quotas limit, and nothing else."""
        self.handlers.of(FetchHandlers).throttle = self.fetched if FETCH in keys else None
        self.handlers.of(TopicHandlers).throttle = self.mutated if MUTATION in keys else None
        self.admission.throttle = self.connected if CONNECTION in keys else None
        guards = not _OF_REQUESTS.isdisjoint(keys)
        if guards and not self._guards:
            self.handlers.guard_by(self.guard)
        elif self._guards and not guards:
            self.handlers.unguard(self.guard)
        self._guards = guards

    # What other rooms call.

    def guard(self, handler: Handler) -> Handler:
        """Return a handler that measures its requests, and throttles their clients."""

        def guarded(session: Session, request: Any, version: int) -> Any:
            if isinstance(request, FetchRequest):
                self._limit_fetch(session, request)
            begin = perf_counter()
            response = handler(session, request, version)
            return self._measured(session, request, response, perf_counter() - begin)

        return guarded

    def fetched(self, session: Session, size: int) -> int:
        """Count the bytes of a response's records. Returns for how many milliseconds the client gets none.

        In this case they do not count.
        """
        found = self._limit(FETCH, session)
        if found is None:
            return 0
        limit, meter = found
        rate = self._meter(meter, self._rate)
        wait = self._add(rate, size, limit)
        if wait:
            rate.add(-size, self.timers.now_ms())
        session.throttle_ms = wait
        return wait

    def mutated(self, session: Session, partitions: int, strict: bool) -> None:
        """Count partitions that are created or deleted.

        Args:
            strict: refuse them if the client is above its limit (KIP-599), for versions of requests
                whose clients know the error; others are throttled

        Raises:
            ApiError(THROTTLING_QUOTA_EXCEEDED): with ``strict``
        """
        found = self._limit(MUTATION, session)
        if found is None:
            return
        (limit, meter), now = found, self.timers.now_ms()
        bucket = self._meter(meter, self._bucket)
        if strict and (wait := bucket.wait_ms(limit, now)):
            session.throttle_ms = _whole(wait)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.take(partitions, limit, now)
        if not strict:
            session.throttle_ms = _whole(bucket.wait_ms(limit, now))

    def connected(self, host: str) -> float:
        """Count a connection. Returns the seconds after which it is closed without service; 0 to serve it."""
        address = canonical(host)
        quotas = self.cluster.quotas
        for name in (address, host, None):
            record = quotas.get((frozenset(((IP, name),)), CONNECTION))
            if record is not None and not _problem(record):
                break
        else:
            return 0.0
        now, window_ms = self.timers.now_ms(), self.config.quota_window_size_seconds * 1000
        rate = self._meter(_Meter(CONNECTION, address=address or host), self._rate)
        rate.add(1, now)
        wait = min(rate.wait_ms(record.value, now), window_ms)
        if wait:
            rate.add(-1, now)
        return wait / 1000

    # Limits and meters.

    def _limit(self, key: str, session: Session) -> tuple[float, _Meter] | None:
        """Return the limit of a client and its meter; None without a quota."""
        quotas = self.cluster.quotas
        user = session.principal.partition(":")[2]
        for entity, owner in client_entities(user, session.client_id or ""):
            record = quotas.get((entity, key))
            if record is not None and not _problem(record):
                return record.value, _Meter(key, *owner)
        return None

    def _meter(self, which: _Meter, new: Callable[[], M]) -> M:
        meters = self._meters
        found: M | None = meters.get(which)
        if found is None:
            found = meters[which] = new()
            if len(meters) > self.most_meters:
                meters.popitem(last=False)
        else:
            meters.move_to_end(which)
        return found

    def _rate(self) -> Rate:
        config = self.config
        return Rate(config.quota_window_num, config.quota_window_size_seconds * 1000)

    def _bucket(self) -> TokenBucket:
        config = self.config
        return TokenBucket(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )

    def _add(self, rate: Rate, amount: float, limit: float) -> int:
        """Count an amount. Returns the milliseconds for which the client is above its limit."""
        now = self.timers.now_ms()
        rate.add(amount, now)
        return _whole(rate.wait_ms(limit, now))

    def _limit_fetch(self, session: Session, request: FetchRequest) -> None:
        """Fetch at most what a client may get in all full windows, so that it gets something."""
        found = self._limit(FETCH, session)
        if found is not None:
            windows = max(1, self.config.quota_window_num - 1)
            most = found[0] * windows * self.config.quota_window_size_seconds
            request.max_bytes = int(min(request.max_bytes, most))
            request.min_bytes = min(request.min_bytes, request.max_bytes)

    # Requests.

    def _measured(self, session: Session, request: Any, response: Any, seconds: float) -> Any:
        """Throttle a client after the response, which can be steps or an awaitable. ``seconds`` were used."""
        if inspect.isgenerator(response):
            return self._run(session, request, response, seconds)
        if inspect.isawaitable(response):
            return _Awaitable(self._run(session, request, response.__await__(), seconds))
        return self._finish(session, request, response, seconds)

    def _run(
        self,
        session: Session,
        request: Any,
        steps: Generator[Any, Any, Any],
        seconds: float,
    ) -> Generator[Any, Any, Any]:
        """Run steps, or what an awaitable awaits, and measure the time without the pauses between."""
        given: Any = None
        error: BaseException | None = None
        try:
            while True:
                begin = perf_counter()
                try:
                    step = steps.send(given) if error is None else steps.throw(error)
                except StopIteration as end:
                    response = end.value
                    break
                finally:
                    seconds += perf_counter() - begin
                    # The frames of an error's traceback refer to this one: no circle may remain.
                    given = error = None
                try:
                    given = yield step
                except GeneratorExit:
                    raise
                except BaseException as raised:
                    error = raised
        finally:
            steps.close()
        return self._measured(session, request, response, seconds)

    def _finish(self, session: Session, request: Any, response: Any, seconds: float) -> Any:
        """Throttle a client, and tell it in the response."""
        if not session.authenticated or (
            response is not None and not hasattr(response, "throttle_time_ms")
        ):
            return response
        wait = session.throttle_ms  # as the functions above have noted
        if isinstance(request, ProduceRequest) and (found := self._limit(PRODUCE, session)):
            limit, meter = found
            size = session.request_size
            wait = max(wait, self._add(self._meter(meter, self._rate), size, limit))
        # As in Kafka, the time of a request without a response does not count.
        if response is not None and (found := self._limit(REQUEST, session)):
            limit, meter = found
            used = self._add(self._meter(meter, self._rate), seconds * 100, limit)
            wait = max(wait, min(used, self.config.quota_window_size_seconds * 1000))
        session.throttle_ms = wait
        if wait and response is not None:
            response.throttle_time_ms = wait
        return response


@dataclass(eq=False)
class _Awaitable(Awaitable[Any]):
    """Awaits what a generator yields."""

    _steps: Generator[Any, Any, Any]

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._steps


def _whole(milliseconds: float) -> int:
    return round(min(milliseconds, _LONGEST_MS))


def _problem(record: ClientQuotaRecord) -> str:
    """Return why a quota has no effect; empty if it has. Older versions of Kafka allow more."""
    try:
        check_quota_value(
            {part.entity_type: part.entity_name for part in record.entity}, record.key, record.value
        )
    except ApiError as error:
        return error.message or ""
    return ""
