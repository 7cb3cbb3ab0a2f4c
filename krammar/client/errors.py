"""The errors of the client.

``ClientError``
    ``SettingsError``         a setting is unknown, malformed or contradicts another one
    ``TransportError``        a connection cannot be established or is broken
        ``UnreachableError``  none of the servers can be reached; names each with its reason
            ``AdvertisedAddressError``  a bootstrap server answers, but no address that the brokers advertise
    ``DeadlineError``         the time for an operation is over; also a TimeoutError
    ``AuthenticationError``   the broker refuses the login, or the server cannot prove its identity
    ``UnsupportedError``      the broker does not have a request in a version that is needed
    ``ProtocolError``         a response does not follow the protocol
    ``StateError``            the object's state does not allow the call, such as commit without begin
    ``TruncatedError``        records that were read do not exist in the log any more
    ``CorruptBatchError``     the checksum or header of a batch is wrong
    ``KafkaError``            a broker returned an error code; each code has a class of its own

Classes of error codes are attributes of this module: ``errors.NotCoordinator`` is
``errors.class_of(ErrorCode.NOT_COORDINATOR)``. ``retriable`` says whether a repeated call may succeed.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Final

from kafka_wire import ErrorCode

from krammar.util.settings import SettingError


class ClientError(Exception):
    """Base of all errors of the client. ``retriable`` says whether the same call may succeed if repeated."""

    retriable: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles errors, and the constructors' arguments differ from ``args``.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(
    cls: type[ClientError], args: tuple[object, ...], state: dict[str, object]
) -> ClientError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class SettingsError(SettingError, ClientError):
    """A setting is unknown, malformed, not supported, or contradicts another one.

    ``name`` is the setting's name.
    """

    between = ": "


class TransportError(ClientError):
    """A connection cannot be established or is broken; ``address`` is ``host:port``.

    It is unknown whether the broker has processed requests in flight.
    """

    retriable = True

    def __init__(self, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}")
        self.address = address


class UnreachableError(TransportError):
    """No server can be reached. ``tried`` has the reasons by ``host:port``.

    It is not retriable if every server refuses the first connection or has an unknown host name.
    """

    def __init__(self, tried: Mapping[str, str], *, retriable: bool = True) -> None:
        reasons = "; ".join(f"{address} ({why})" for address, why in tried.items())
        hint = (
            ""
            if retriable
            else " (check bootstrap.servers, and whether a broker is running there; "
            "set krammar.retry.bootstrap=true to wait for one)"
        )
        ClientError.__init__(self, f"no server can be reached: {reasons}{hint}")
        self.address = ",".join(tried)
        self.tried = dict(tried)
        self.retriable = retriable


class AdvertisedAddressError(UnreachableError):
    """A bootstrap server answers, but no address that the brokers advertise can be reached from this machine."""

    def __init__(self, bootstrap: str, tried: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{address} ({why})" for address, why in tried.items())
        ClientError.__init__(
            self,
            f"{bootstrap} answers, but this machine ({socket.gethostname()}) reaches no address that the brokers "
            f"advertise: {reasons} (connect to a listener with advertised.listeners for this network, or make "
            "these addresses reachable)",
        )
        self.address = ",".join(tried)
        self.tried = dict(tried)
        self.retriable = False


class DeadlineError(ClientError, TimeoutError):
    """The time for an operation is over. ``last`` is the error of the last attempt, if any."""

    retriable = True

    def __init__(self, doing: str, timeout_ms: float, last: BaseException | None = None) -> None:
        why = "" if last is None else f"; the last attempt: {last}"
        super().__init__(f"{doing}: not done within {timeout_ms:.0f} ms{why}")
        self.last = last


class AuthenticationError(ClientError):
    """The login has failed, and fails again if repeated.

    The broker refuses the password or the mechanism, the server cannot prove that it knows the password (SCRAM), or
    a certificate is refused (TLS).
    """

    def __init__(self, address: str, message: str) -> None:
        super().__init__(f"{address}: {message}")
        self.address = address


class UnsupportedError(ClientError):
    """The broker lacks a request, or the version of it that is needed."""


class ProtocolError(ClientError):
    """A response does not follow the protocol; its connection was closed."""


class StateError(ClientError):
    """The state of the client or producer does not allow the call."""


class TruncatedError(ClientError):
    """The log was truncated after records were read, and may have other records there now (KIP-320).

    Attributes:
        position: the offset at which reading would continue
        diverges_at: before this offset, the log has the records that were read
    """

    def __init__(self, topic: str, partition: int, position: int, diverges_at: int) -> None:
        super().__init__(
            f"{topic}-{partition}: the log was truncated at offset {diverges_at}, but was read up to"
            f" {position}"
        )
        self.topic = topic
        self.partition = partition
        self.position = position
        self.diverges_at = diverges_at


class CorruptBatchError(ClientError):
    """A batch is corrupt: its checksum is wrong, or its header is invalid.

    Attributes:
        offset: the batch's first offset, or the offset at which reading would continue
        next_offset: the first offset after the batch; None if it is unknown
    """

    def __init__(
        self, topic: str, partition: int, offset: int, next_offset: int | None, why: str
    ) -> None:
        super().__init__(f"{topic}-{partition}: corrupt batch at offset {offset}: {why}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class KafkaError(ClientError):
    """A broker has returned an error code.

    Attributes:
        code: an ErrorCode, or the bare number if this version of krammar does not know it
        name: the code's name, such as ``NOT_LEADER_OR_FOLLOWER``
        detail: what failed, such as ``orders-3``, with the broker's message if it sent one

    The message ends with the meaning of the code, ``ErrorCode.meaning``.
    """

    code: int = ErrorCode.UNKNOWN_SERVER_ERROR
    name: str = "UNKNOWN_SERVER_ERROR"

    def __init__(self, detail: str = "") -> None:
        super().__init__(self._describe(detail))
        self.detail = detail

    def _describe(self, detail: str) -> str:
        text = f"{self.name} ({int(self.code)})"
        if detail:
            text = f"{detail}: {text}"
        if isinstance(self.code, ErrorCode):
            text += f": {self.code.meaning.removesuffix('.')}"
        return text


class OffsetOutOfRange(KafkaError):
    """The log does not have an offset any more, or not yet.

    The log begins at ``log_start_offset`` and ends at ``end_offset``; -1 means unknown.
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
            or f"{topic}-{partition}: offset {offset}, but the log has {log_start_offset} to {end_offset}"
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
            "__doc__": code.meaning,
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
    """Return the class of an error code; KafkaError itself for an unknown code."""
    return _CLASSES.get(code, KafkaError)  # type: ignore[call-overload,no-any-return]


def kafka_error(code: int, detail: str = "") -> KafkaError:
    """Return the error for a code other than 0. Its ``code`` is a bare number if the code is unknown."""
    cls = class_of(code)
    if cls is not KafkaError:
        return cls(detail)
    error = KafkaError.__new__(KafkaError)
    error.code = code
    error.name = f"UNKNOWN_CODE_{code}"
    KafkaError.__init__(error, detail)
    return error


def describe(detail: str, message: str | None) -> str:
    """Return what failed, with the broker's message if it sent one."""
    if not message:
        return detail
    return f"{detail} ({message})" if detail else message


def raise_code(code: int, detail: str, message: str | None = None) -> None:
    """Raise the error for a code, unless it is 0; arguments as in ``describe``."""
    if code != ErrorCode.NONE:
        raise kafka_error(code, describe(detail, message))


def is_retriable(error: BaseException) -> bool:
    """Return whether the same call may succeed if repeated."""
    return isinstance(error, ClientError) and error.retriable
