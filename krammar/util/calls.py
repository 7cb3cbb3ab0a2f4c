"""Calls between a process and its subprocess, over a socket that only these two have.

A message is the length of its value, in 4 bytes, and the value in the format of Python's ``marshal``: numbers, text,
bytes and containers. Both processes run the same interpreter, so they have the same format. Objects of krammar's classes
travel as the name of their class and their attributes; no code travels.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
import threading
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from importlib import import_module
from typing import Any
from uuid import UUID

_LENGTH = struct.Struct(">I")
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


class CallsEnded(ConnectionError):
    """The other process has ended, or has closed the socket."""


class Channel:
    """One side of the socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def send(self, value: Any) -> None:
        """Send a value. Raises CallsEnded, and TypeError if it cannot be sent."""
        self.send_data(marshal.dumps(packed(value)))

    def send_data(self, data: bytes) -> None:
        """Send a value that is in marshal's format. Raises CallsEnded."""
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise CallsEnded(str(error)) from None

    def receive(self) -> Any:
        """Wait for a value. Raises CallsEnded."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return unpacked(marshal.loads(self._exactly(length)))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                some = self._socket.recv(min(size - len(data), 1 << 20))
            except OSError as error:
                raise CallsEnded(str(error)) from None
            if not some:
                raise CallsEnded("the other process has ended")
            data += some
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


class Caller:
    """Calls functions in the other process, from any thread: one call after the other."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()

    def call(self, target: str, method: str, /, *args: Any, **named: Any) -> Any:
        """Call a method of one of the objects that the other process serves, or read an attribute.

        Raises:
            CallsEnded: the other process has ended.
            TypeError: an argument cannot be sent, such as a function.
            Exception: what the method raises.
        """
        with self._lock:
            self._channel.send((target, method, args, named))
            ok, result = self._channel.receive()
        if not ok:
            raise result
        return result


def serve(channel: Channel, targets: Mapping[str, Any]) -> None:
    """Run the calls of the other process on objects, until it ends."""
    while True:
        try:
            target, method, args, named = channel.receive()
        except CallsEnded:
            return
        try:
            found = getattr(targets[target], method)
            result = found(*args, **named) if callable(found) else found
            data = marshal.dumps(packed((True, result)))
        except Exception as error:
            data = marshal.dumps(packed((False, error)))
        try:
            channel.send_data(data)
        except CallsEnded:
            return


# Values.


def packed(value: Any) -> Any:
    """Return a value that ``marshal`` can write. Raises TypeError for others, such as functions."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in (list, tuple, set):
        return kind(map(packed, value))
    if isinstance(value, Mapping):
        return {packed(key): packed(each) for key, each in value.items()}
    if isinstance(value, Enum):
        return packed(value.value)
    if isinstance(value, BaseException):
        return _packed_error(value)
    if isinstance(value, type) and hasattr(value, "api_key"):
        return int(value.api_key)  # a request class, in a rule
    if isinstance(value, UUID):
        return (..., "uuid", "UUID", (str(value),), None)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, range):
        return (..., "builtins", "range", (value.start, value.stop, value.step), None)
    if isinstance(value, datetime):
        return (..., "datetime", "datetime.fromisoformat", (value.isoformat(),), None)
    if not isinstance(value, type) and kind.__module__ != "builtins" and _is_known(kind.__module__):
        names = [name for each in kind.__mro__ for name in vars(each).get("__slots__", ())] or vars(
            value
        )
        state = {name: packed(getattr(value, name)) for name in names if hasattr(value, name)}
        return (..., kind.__module__, kind.__qualname__, (), state)
    raise TypeError(
        f"{value!r} cannot be sent to the process of the broker: values are numbers, text, bytes and containers of them"
    )


def _packed_error(error: BaseException) -> Any:
    kind = type(error)
    try:
        if _is_known(kind.__module__):
            return (
                ...,
                kind.__module__,
                kind.__qualname__,
                packed(error.args),
                packed(vars(error)),
            )
    except TypeError:
        pass
    return (..., "builtins", "RuntimeError", (f"{kind.__name__}: {error}",), None)


def _is_known(module: str) -> bool:
    package = module.partition(".")[0]
    return package in ("builtins", "uuid", "datetime", "krammar", "kafka_wire")


def unpacked(value: Any) -> Any:
    """Return what ``packed`` has packed."""
    kind = type(value)
    if kind in (list, set):
        return kind(map(unpacked, value))
    if kind is dict:
        return {unpacked(key): unpacked(each) for key, each in value.items()}
    if kind is not tuple:
        return value
    if not value or value[0] is not ...:
        return tuple(map(unpacked, value))
    _, module, name, args, state = value
    if not _is_known(module):
        raise TypeError(f"a value of {module} was sent, which is not one of krammar's modules")
    made: Any = import_module(module)
    for part in name.split("."):
        made = getattr(made, part)
    if state is None:
        return made(*unpacked(args))
    # Constructors have other arguments than attributes.
    made = made.__new__(made, *unpacked(args))
    for name, each in unpacked(state).items():
        object.__setattr__(made, name, each)
    return made
