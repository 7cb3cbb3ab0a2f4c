"""What the client raises, and whether trying again can help.

``ClientError``
    ``SettingsError``         a setting that is unknown, malformed or contradicts another one
    ``TransportError``        a connection that cannot be made or has broken
        ``UnreachableError``  none of the servers could be reached; names each with its reason
    ``DeadlineError``         the time for an operation is over; a TimeoutError too
    ``AuthenticationError``   the broker refuses the login, or the server could not prove itself
    ``UnsupportedError``      the broker does not have a request in a version that is needed
    ``ProtocolError``         an answer that does not follow the protocol
    ``StateError``            a call that the object's state does not allow, such as commit without begin
    ``TruncatedError``        records that were read have vanished from the log since
    ``CorruptBatchError``     a batch whose checksum or header is wrong
    ``KafkaError``            an error code of Kafka's; a class of its own for each code

``errors.class_of(ErrorCode.NOT_COORDINATOR)`` is the class to catch, which is also called
``errors.NotCoordinator``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kafka_wire import ErrorCode

from krammar.client.error_meanings import MEANINGS


class ClientError(Exception):
    """Base of all that the client raises on purpose. ``retriable`` says whether the same call may
    succeed when it is made again."""

    retriable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors have arguments of their own, and errors cross processes in Spark.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(
    cls: type[ClientError], args: tuple[object, ...], state: dict[str, object]
) -> ClientError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class SettingsError(ClientError, ValueError):
    """A setting that is unknown, malformed, not supported, or contradicts another one.

    ``name`` is the setting's.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class TransportError(ClientError):
    """A connection that cannot be made or has broken; ``address`` is ``host:port``.

    Whether a request that was under way has been carried out is not known.
    """

    retriable = True

    def __init__(self, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}")
        self.address = address


class UnreachableError(TransportError):
    """No server could be reached in the time that was given. ``tried`` has why, by ``host:port``."""

    def __init__(self, tried: Mapping[str, str]) -> None:
        ClientError.__init__(
            self,
            "no server can be reached: "
            + "; ".join(f"{address} ({why})" for address, why in tried.items()),
        )
        self.address = ",".join(tried)
        self.tried = dict(tried)


class DeadlineError(ClientError, TimeoutError):
    """The time for an operation is over. ``last`` is the error that the last attempt ended with, None
    where there was none."""

    retriable = True

    def __init__(self, doing: str, timeout_ms: float, last: BaseException | None = None) -> None:
        why = "" if last is None else f"; the last attempt: {last}"
        super().__init__(f"{doing}: not done within {timeout_ms:.0f} ms{why}")
        self.last = last


class AuthenticationError(ClientError):
    """The broker refuses the login or the mechanism, the server could not prove that it knows the
    password (SCRAM), or the certificates do not fit (TLS). Another attempt ends alike."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}")
        self.address = address


class UnsupportedError(ClientError):
    """The broker does not have a request, or not in a version that does what was asked for."""


class ProtocolError(ClientError):
    """An answer that does not follow the protocol; its connection has been closed."""


class StateError(ClientError):
    """A call that the state of the client or producer does not allow."""


class TruncatedError(ClientError):
    """Records that were read have vanished since: the log was cut and written anew (KIP-320).

    ``topic``, ``partition``  where
    ``position``              the offset that was to be read next
    ``diverges_at``           up to this offset the log is the one that was read
    """

    def __init__(self, topic: str, partition: int, position: int, diverges_at: int) -> None:
        super().__init__(
            f"{topic}-{partition}: the log was cut at offset {diverges_at}, but had been read up to"
            f" {position}"
        )
        self.topic = topic
        self.partition = partition
        self.position = position
        self.diverges_at = diverges_at


class CorruptBatchError(ClientError):
    """A batch whose bytes are damaged: a wrong checksum, or a header that makes no sense.

    ``offset``       where it begins, or what was to be read next
    ``next_offset``  the offset behind it, to go on from; None where that cannot be told
    """

    def __init__(
        self, topic: str, partition: int, offset: int, next_offset: int | None, why: str
    ) -> None:
        super().__init__(f"{topic}-{partition}: damaged batch at offset {offset}: {why}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class KafkaError(ClientError):
    """An error code that a broker has answered with.

    ``code``    an ErrorCode, or the bare number where this version does not know it
    ``name``    such as ``NOT_LEADER_OR_FOLLOWER``
    ``detail``  what it concerns, such as ``orders-3``, and what the broker said about it
    """

    code: int = ErrorCode.UNKNOWN_SERVER_ERROR
    name: str = "UNKNOWN_SERVER_ERROR"

    def __init__(self, detail: str = "") -> None:
        super().__init__(self._describe(detail))
        self.detail = detail

    def _describe(self, detail: str) -> str:
        meaning = MEANINGS.get(self.code, "")  # type: ignore[call-overload]
        text = f"{self.name} ({int(self.code)})"
        if detail:
            text = f"{detail}: {text}"
        return f"{text}: {meaning}" if meaning else text


class OffsetOutOfRange(KafkaError):
    """An offset that the log does not have (any more, or yet).

    ``log_start_offset`` and ``end_offset`` are where the log begins and ends, -1 where that is not
    known.
    """

    code = ErrorCode.OFFSET_OUT_OF_RANGE
    name = "OFFSET_OUT_OF_RANGE"

    def __init__(
        self,
        detail: str = "",
        *,
        topic: str = "",
        partition: int = -1,
        offset: int = -1,
        log_start_offset: int = -1,
        end_offset: int = -1,
    ) -> None:
        super().__init__(
            detail
            or f"{topic}-{partition}: offset {offset}, the log has {log_start_offset} to {end_offset}"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


def _class_name(code: ErrorCode) -> str:
    return "".join(part.capitalize() for part in code.name.split("_"))


def _make(code: ErrorCode) -> type[KafkaError]:
    return type(
        _class_name(code),
        (KafkaError,),
        {
            "__module__": __name__,
            "__doc__": MEANINGS.get(code, "") + ".",
            "code": code,
            "name": code.name,
            "retriable": code.retriable,
        },
    )


_CLASSES: Final = {code: _make(code) for code in ErrorCode if code}
_CLASSES[ErrorCode.OFFSET_OUT_OF_RANGE] = OffsetOutOfRange
globals().update({cls.__name__: cls for cls in _CLASSES.values()})


def __getattr__(name: str) -> type[KafkaError]:  # for type checkers: the classes above
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def class_of(code: int) -> type[KafkaError]:
    """The class of an error code; KafkaError itself for a code that is not known."""
    return _CLASSES.get(code, KafkaError)  # type: ignore[call-overload,no-any-return]


def kafka_error(code: int, detail: str = "") -> KafkaError:
    """The error of a code, which is not to be 0; a code that is not known is kept as a number."""
    cls = class_of(code)
    if cls is not KafkaError:
        return cls(detail)
    error = KafkaError.__new__(KafkaError)
    error.code = code
    error.name = f"UNKNOWN_CODE_{code}"
    KafkaError.__init__(error, detail)
    return error


def describe(detail: str, message: str | None) -> str:
    """What an error concerns, with the broker's own words where it sent some."""
    if not message:
        return detail
    return f"{detail} ({message})" if detail else message


def is_retriable(error: BaseException) -> bool:
    """Whether the same call may succeed when it is made again."""
    return isinstance(error, ClientError) and error.retriable
