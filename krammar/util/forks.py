"""What a forked process does with the servers of its parent: it closes their sockets, and refuses to use them.

A process that is forked while a server runs (multiprocessing on Linux, servers that fork workers) has all sockets of the
server, but none of its threads. As long as it has them, the ports stay in use and the connections open, whatever the
server closes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

# What has descriptors that children close, and the function that returns them.
_OWNERS: WeakKeyDictionary[Any, Callable[[Any], Iterable[int]]] = WeakKeyDictionary()


class ForkedError(RuntimeError):
    """A server was used in a process that was forked from the server's process."""


def close_in_children(owner: Any, descriptors: Callable[[Any], Iterable[int]]) -> None:
    """Close file descriptors in all processes that are forked from this one while ``owner`` exists.

    Args:
        owner: has the descriptors
        descriptors: returns the descriptors of ``owner`` that are open; negative ones are ignored
    """
    _OWNERS[owner] = descriptors


def close_sockets_in_children(owner: Any) -> None:
    """Do so with the sockets of a socket, of an ``asyncio.Server`` or of a protocol that has a ``transport``."""
    close_in_children(owner, _sockets)


def _sockets(owner: Any) -> list[int]:
    # The owner is not the transport: uvloop's transports of TLS accept no weak references.
    if hasattr(owner, "transport"):
        one = owner.transport.get_extra_info("socket")
        return [] if one is None else [one.fileno()]
    return [each.fileno() for each in (owner.sockets if hasattr(owner, "sockets") else [owner])]


def _close_all() -> None:
    if not _OWNERS:
        return
    nothing = os.open(os.devnull, os.O_RDWR)
    for owner, descriptors in list(_OWNERS.items()):
        for number in descriptors(owner):
            if number >= 0:
                # Not os.close: the objects of the parent exist here too, and may close their numbers later, which
                # must not be those of other files.
                with suppress(OSError):
                    os.dup2(nothing, number, inheritable=False)
    os.close(nothing)
    _OWNERS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)


class OwnProcess:
    """The process in which a server was started.

    Args:
        what: the server, for errors
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """Whether this is the process, and not one that was forked from it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise ForkedError in a process that was forked from it."""
        if not self.is_this:
            raise ForkedError(
                f"{self._what} runs in process {self._pid}, from which this process ({os.getpid()}) was forked: use "
                "the object there; clients can connect from here"
            )
