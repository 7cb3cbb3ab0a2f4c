"""The steps of a connection for a fault. The engine returns them; the tap and the broker carry them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class Fate(Enum):
    """What happens to a request."""

    PASS = auto()  # it is handled, changed or not
    ANSWER = auto()  # the client gets ``Verdict.answer``, and the request is not handled
    DROP = auto()  # the connection is closed
    SWALLOW = auto()  # it is neither handled nor answered


@dataclass(slots=True, eq=False)
class Exchange:
    """A request, with the engine's knowledge of it and of its response.

    ``frame`` has the request's bytes without the length prefix, ``version`` is that of the response's
    body too, unless ``body_version`` differs. The last six are the engine's: rules that have fired,
    what they did, their events, the error codes that actions have chosen, the parts of the response that actions have built (None: all of it), and whether the
    response offers no fetch session.
    """

    connection: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: Any
    frame: bytes
    principal: str | None = None
    node: int | None = None
    fired: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    chosen: dict[Any, Any] = field(default_factory=dict)
    refused: list[tuple[object, Any]] = field(default_factory=list)
    sessionless: bool = False


@dataclass(slots=True)
class Verdict:
    """What to do with a request: first wait, then set clocks ahead, then ``fate``.

    ``advance`` has milliseconds, whether this includes members of groups, and the node, or None for all nodes.
    ``request`` is the one to handle; ``changed`` says whether it differs from the one that came.
    """

    request: Any
    fate: Fate = Fate.PASS
    delay_ms: float = 0
    advance: list[tuple[int, bool, int | None]] = field(default_factory=list)
    reset: bool = False
    changed: bool = False
    answer: Any = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Send:
    """Send bytes to the client."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Hold:
    """Send nothing now: the next response of the connection goes first. After ``seconds`` without one,
    send what ``release`` returns."""

    seconds: float
    release: Callable[[], list[bytes]] = field(default=list, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection, after what was sent before, or with a reset."""

    reset: bool = False


StepTo = Wait | Send | Hold | Close


@dataclass(slots=True)
class Delivery:
    """How a response reaches the client. The adapter encodes ``message`` and calls ``Talk.steps``."""

    message: Any
    changed: bool = False
    delay_ms: float = 0
    transforms: list[Callable[[bytes], bytes]] = field(default_factory=list)
    trickle: tuple[int, float] | None = None  # bytes of a piece, milliseconds between pieces
    cut_at: float | None = None  # bytes to send before the connection is closed; below 1: a share
    drop: bool = False
    reset: bool = False
    swallow: bool = False
    hold_ms: float | None = None
