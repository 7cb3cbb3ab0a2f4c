"""Pairs requests with their responses, and selects pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from krammar.tap.describe import Describer, Description
from krammar.tap.frame import Frame, Observer
from krammar.tap.inspector import Inspector
from krammar.util.printable import escape

# Error codes that are a normal step of the protocol: a new member of a group gets its id with this one (KIP-394).
_EXPECTED = {"MEMBER_ID_REQUIRED"}


class State(StrEnum):
    """What became of a request."""

    WAITING = "waiting"  # the response has not arrived
    OK = "ok"
    ERROR = "error"  # the response contains an error code
    BAD = "bad"  # a frame did not round-trip
    SILENT = "no response"  # none was expected, as after Produce with acks 0
    PUSH = "push"  # a message that the server sent by itself
    UNANSWERED = "unanswered"  # the connection ended before the response


@dataclass(slots=True, eq=False)
class TappedExchange:
    """A request and its response. One of them is absent if it was not seen, or does not exist.

    ``asked`` and ``told`` describe request and response.
    """

    number: int
    request: Frame | None
    response: Frame | None = None
    client_id: str = ""
    state: State = State.WAITING
    asked: Description = field(default_factory=Description)
    told: Description = field(default_factory=Description)

    @property
    def first(self) -> Frame:
        """The request, or the response if there is no request."""
        frame = self.request or self.response
        assert frame is not None
        return frame

    @property
    def frames(self) -> list[Frame]:
        return [frame for frame in (self.request, self.response) if frame is not None]

    @property
    def topics(self) -> list[str]:
        """The topics of both messages, without duplicates."""
        return list(dict.fromkeys([*self.asked.topics, *self.told.topics]))

    @property
    def text(self) -> str:
        """Both descriptions, with error codes, what was wrong, and what the tap changed."""
        return self._joined(self.asked.text, self.told.text)

    @property
    def about(self) -> str:
        """``text`` without error codes."""
        return self._joined(self.asked.about, self.told.about)

    def _joined(self, asked: str, told: str) -> str:
        parts = [" → ".join(part for part in (asked, "" if told == asked else told) if part)]
        for frame in self.frames:
            parts += (frame.error, frame.note)
        if self.state is State.UNANSWERED:
            parts.append("no response before the connection ended")
        return "; ".join(part for part in parts if part)

    @property
    def is_error(self) -> bool:
        """Whether something went wrong: an error code, a bad frame, or no response."""
        return self.state in (State.ERROR, State.BAD, State.UNANSWERED)


Handle = Callable[[TappedExchange], None]


def _ignore(_: TappedExchange) -> None:
    pass


class Exchanges(Observer):
    """Pairs the frames of all connections.

    Args:
        ended: called when an exchange is complete, in the order in which exchanges end.
        begun: called with a request whose response is awaited.
    """

    def __init__(self, describe: Describer, ended: Handle, begun: Handle = _ignore) -> None:
        self._describe = describe
        self._ended = ended
        self._begun = begun
        self._number = 0
        # By connection and correlation id. The inspector, which matches responses first, does not
        # hold the frames of requests: they would fill the memory of a tap that only lists them.
        self._waiting: dict[int, dict[int, TappedExchange]] = {}
        self._clients: dict[int, str] = {}

    def frame(self, frame: Frame) -> None:
        description = self._describe(frame)
        if frame.is_request:
            self._request(frame, description)
        else:
            self._response(frame, description)

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        for exchange in self._waiting.pop(connection, {}).values():
            exchange.state = State.UNANSWERED
            self._ended(exchange)
        self._clients.pop(connection, None)

    def close(self) -> None:
        """End the exchanges whose responses have not arrived, as at the end of a capture."""
        for waiting in self._waiting.values():
            for exchange in waiting.values():
                self._ended(exchange)
        self._waiting.clear()

    def _request(self, frame: Frame, description: Description) -> None:
        client_id = getattr(frame.header, "client_id", None)
        if client_id:
            self._clients[frame.connection] = escape(client_id)
        exchange = self._exchange(frame, None)
        exchange.asked = description
        number = frame.correlation_id
        if number is None or not frame.is_answered:
            exchange.state = State.SILENT if frame.is_good else State.BAD
            self._ended(exchange)
            return
        waiting = self._waiting.setdefault(frame.connection, {})
        # The inspector forgets the oldest requests too; two with the same correlation id are a client's error.
        forgotten = [number] if number in waiting else []
        if len(waiting) >= Inspector.max_waiting:
            forgotten.append(next(iter(waiting)))
        for each in forgotten:
            if (lost := waiting.pop(each, None)) is not None:
                lost.state = State.UNANSWERED
                self._ended(lost)
        waiting[number] = exchange
        self._begun(exchange)

    def _response(self, frame: Frame, description: Description) -> None:
        exchange = None
        if frame.latency_ns is not None and frame.correlation_id is not None:
            exchange = self._waiting.get(frame.connection, {}).pop(frame.correlation_id, None)
        if exchange is None:
            exchange = self._exchange(None, frame)
        exchange.response, exchange.told = frame, description
        if frame.is_push and frame.is_good:
            exchange.state = State.PUSH
        elif not all(each.is_good for each in exchange.frames):
            exchange.state = State.BAD
        else:
            exchange.state = State.ERROR if description.errors.keys() - _EXPECTED else State.OK
        self._ended(exchange)

    def _exchange(self, request: Frame | None, response: Frame | None) -> TappedExchange:
        frame = request or response
        assert frame is not None
        self._number += 1
        client_id = self._clients.get(frame.connection, "")
        return TappedExchange(self._number, request, response, client_id)


@dataclass(frozen=True, slots=True)
class ExchangeSelection:
    """Selects exchanges. An empty tuple selects all; several values of one kind select either.

    Attributes:
        apis: names of apis, such as ``Produce``, in any case
        clients: client ids
        topics: names of topics
        errors: only error codes, frames that do not round-trip, and missing responses
    """

    apis: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    errors: bool = False

    def __bool__(self) -> bool:
        return bool(self.apis or self.clients or self.topics or self.errors)

    def matches(self, exchange: TappedExchange) -> bool:
        """Return whether an exchange is selected."""
        if self.errors and not exchange.is_error:
            return False
        if self.clients and exchange.client_id not in self.clients:
            return False
        if self.apis and exchange.first.api.lower() not in [api.lower() for api in self.apis]:
            return False
        return not self.topics or not set(self.topics).isdisjoint(exchange.topics)


EVERYTHING = ExchangeSelection()


class Selected(Observer):
    """Passes on the frames of selected exchanges, when each exchange is complete; other events at once."""

    def __init__(self, describe: Describer, select: ExchangeSelection, observer: Observer) -> None:
        self._exchanges = Exchanges(describe, self._pass)
        self._select = select
        self._observer = observer

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        self._observer.opened(time_ns, connection, client, upstream)

    def frame(self, frame: Frame) -> None:
        self._exchanges.frame(frame)

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        self._exchanges.closed(time_ns, connection, reason)
        self._observer.closed(time_ns, connection, reason)

    def close(self) -> None:
        self._exchanges.close()
        self._observer.close()

    def _pass(self, exchange: TappedExchange) -> None:
        if self._select.matches(exchange):
            for frame in exchange.frames:
                self._observer.frame(frame)
