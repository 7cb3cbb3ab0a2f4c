"""Responses reach the client in the order of their requests, also if filters wait."""

from __future__ import annotations

from collections import deque
from typing import Any

from krammar.proxy.delivery import take
from krammar.proxy.ends import End
from krammar.proxy.heads import Data
from krammar.proxy.in_flight import FilterAnswer, Own, PendingRequest
from krammar.proxy.running import steps_for
from krammar.proxy.shared import Shared

# Bytes of responses that wait for an async method of a filter, before the broker is no longer read.
_WAITING = 1 << 20


class Ordered(End):
    """The part of the end at the broker that delivers what waits for a filter, and closes the connection after it."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        # What waits while a response is in an async method: bytes, and responses that are read.
        self._waiting: deque[Data | FilterAnswer | tuple[PendingRequest, bytes]] = deque()
        self._waiting_bytes = 0

    def _process(self, pending: PendingRequest, frame: bytes) -> None:
        """Run the chain over a response, and write it; if something is awaited, in a task."""
        raise NotImplementedError

    def _answer(self, answer: FilterAnswer) -> None:
        """Deliver the answer of a filter, after everything that waits."""
        if self._task is not None:
            self._waiting.append(answer)
            self._wait_for(len(answer.frame))
        elif answer.delivery is None:
            self.peer.write(answer.frame)
        else:
            try:
                steps = steps_for(answer.delivery, answer.frame)
            except Exception as error:
                self.shared.fail(error)
                return
            self.begin(self._deliver(steps))

    def _wait_with(self, passed: Data) -> None:
        self._waiting.append(passed)
        self._wait_for(len(passed))

    async def _deliver(self, steps: list[Any]) -> None:
        """Deliver a frame in the steps of a filter."""
        self._undecided = None
        self.shared.decided()
        client = self.peer.transport
        if steps and client is not None:
            await take(steps, client)
            if client.is_closing():
                self.shared.end("by the proxy: closed by a filter")
        self._task = None
        self._go_on()

    def _wait_for(self, size: int) -> None:
        self._waiting_bytes += size
        # A filter that waits for a response of its own needs the responses before it.
        if self._waiting_bytes > _WAITING and not any(
            type(each) is Own for each in self.shared.in_flight
        ):
            self.hold("filter")

    def _go_on(self) -> None:
        """Deliver what has waited, until a response has to wait again."""
        while self._waiting and self._task is None and not self.shared.closed:
            if not self.shared.has_time():
                self.begin(self._go_on_later())
                break
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
        self.shared.decided()
        if self._task is None:
            self.release("filter")
            self.check_end()
            if self.shared.draining:
                self.check_drained()

    async def _go_on_later(self) -> None:
        await self.shared.next_turn()
        self._task = None
        self._go_on()

    def go_on(self) -> None:
        super().go_on()
        self.check_end()

    def is_undecided(self, correlation_id: int) -> bool:
        return super().is_undecided(correlation_id) or any(
            isinstance(each, tuple) and each[0].correlation_id == correlation_id
            for each in self._waiting
        )

    def check_end(self) -> None:
        """Close the client's connection if the broker has closed its own, and everything was delivered."""
        if self.ended and self._task is None and not self._waiting and not self._waits:
            self.peer.write(self._take_rest())
            self.finish()

    def check_drained(self) -> None:
        """Close the connection if the proxy ends, and nothing is under way."""
        if self.shared.in_flight or self.is_busy or self.peer.is_busy:
            return
        self.finish()

    def finish(self) -> None:
        if self.peer.transport is not None:
            self.peer.transport.close()
