"""Requests that filters send pass the filters after them, and so do their responses."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from kafka_wire import HeartbeatRequest, MetadataRequest, MetadataResponse, ProduceRequest

from krammar.proxy import SILENCE, Close, Exchange, Filter, on
from tests.proxy.support import Client, asking, names, run
from tests.support.waiting import PATIENCE


class Trace(Filter):
    """Adds its letter to the names in requests and responses of Metadata, and sends a request of its own if asked to."""

    def __init__(self, letter: str, sends: str = "", waits: bool = False) -> None:
        self.letter = letter
        self.sends = sends
        self.waits = waits
        self.request = asking("own")

    @on(MetadataRequest)
    async def ask(self, request: MetadataRequest, exchange: Exchange) -> None:
        if self.waits:
            await asyncio.sleep(0)
        if self.sends == "request":
            await self._send(request.topics, exchange)
        for topic in request.topics or ():
            topic.name = f"{topic.name}{self.letter}"

    @on(MetadataResponse)
    async def answer(self, response: MetadataResponse, exchange: Exchange) -> None:
        if self.waits:
            await asyncio.sleep(0)
        if self.sends == "response":
            await self._send(response.topics, exchange)
        for topic in response.topics:
            topic.name = f"{topic.name}{self.letter.upper()}"

    async def _send(self, topics: Any, exchange: Exchange) -> None:
        """Add the names in the response to its own request, which must not have changed."""
        found = await exchange.send(self.request, 9)
        assert self.request == asking("own")
        topics += [type(topics[0])(name=each.name) for each in found.topics]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("sends", ["request", "response"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_the_filters_after_the_sender_see_its_requests_and_responses(
    where: str, sends: str, position: int, waits: bool
) -> None:
    filters: list[Filter] = [
        Trace(letter, sends if number == position else "", waits)
        for number, letter in enumerate("abc")
    ]
    after = "abc"[position + 1 :]
    own = f"own{after}{after[::-1].upper()}"
    before = "abc"[: position + 1]
    if sends == "request":  # the names that the sender adds pass the rest of the chain
        own += "abc"[position:] + "CBA"
    else:
        own += before[::-1].upper()
    with run(where, filters, []) as place, Client(place) as client:
        for _ in range(2):
            assert names(client.ask(asking("x"), 12)) == ["xabcCBA", own]


def test_filters_that_all_send_to_each_other_end(where: str) -> None:
    filters: list[Filter] = [Trace(letter, "request") for letter in "abcd"]
    asked: list[Any] = []
    with run(where, filters, asked) as place, Client(place) as client:
        assert names(client.ask(asking("x"), 12))[0] == "xabcdDCBA"
    assert len(asked) == 2**4


def test_a_filter_answers_the_request_of_another(where: str) -> None:
    class Answers(Filter):
        @on(MetadataRequest)
        def answer(self, request: MetadataRequest, exchange: Exchange) -> MetadataResponse | None:
            sent = asking("own" if exchange.version == 9 else "x")  # the bytes as they were sent
            assert exchange.frame.endswith(sent.encode(exchange.version))
            if request.topics and request.topics[0].name == "ownb":
                return MetadataResponse(topics=[MetadataResponse.Topic(name="answer")])
            return None

    asked: list[Any] = []
    filters: list[Filter] = [Trace("a", "response"), Trace("b"), Answers(), Trace("c")]
    with run(where, filters, asked) as place, Client(place) as client:
        assert names(client.ask(asking("x"), 12)) == ["xabcCBA", "answerBA"]
    assert [each.topics[0].name for each in asked] == ["xabc"]


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("how", ["close", "error"])
def test_a_filter_that_closes_for_the_request_of_another_closes_the_connection(
    where: str, how: str, caught: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Sends(Filter):
        @on(MetadataRequest)
        async def send(self, request: MetadataRequest, exchange: Exchange) -> None:
            try:
                await exchange.send(HeartbeatRequest(group_id="g", member_id="m"))
            except Exception:
                if not caught:
                    raise

    class Ends(Filter):
        @on(HeartbeatRequest)
        def end(self, request: HeartbeatRequest, exchange: Exchange) -> None:
            raise Close("no") if how == "close" else ZeroDivisionError("oh")

    caplog.set_level(logging.INFO, f"krammar.{where}")
    asked: list[Any] = []
    with run(where, [Sends(), Ends()], asked) as place, Client(place) as client:
        client.socket.sendall(client.connection.send_request(asking("one"), 12))
        assert client.read_to_end() == b""
    (record,) = caplog.records
    text = "closed by a filter: no" if how == "close" else "Ends.end raised ZeroDivisionError: oh"
    assert record.getMessage().endswith(text)
    assert record.getMessage().count("raised") == (how == "error")
    assert asked == []


def test_silence_for_the_request_of_another(where: str) -> None:
    sent = threading.Event()

    class Silent(Filter):
        @on(HeartbeatRequest)
        def answer(self, request: HeartbeatRequest, exchange: Exchange) -> Any:
            sent.set()
            return SILENCE

    class Sends(Filter):
        @on(MetadataResponse)
        async def send(self, response: MetadataResponse, exchange: Exchange) -> None:
            await exchange.send(HeartbeatRequest(group_id="g", member_id="m"))

    with run(where, [Sends(), Silent()], []) as place, Client(place) as client:
        client.socket.sendall(client.connection.send_request(asking("one"), 12))
        assert sent.wait(PATIENCE)
        client.socket.sendall(client.connection.send_request(asking("two"), 12))
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)


def test_a_filter_that_takes_away_the_response_of_another(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Sends(Filter):
        @on(MetadataRequest)
        async def send(self, request: MetadataRequest, exchange: Exchange) -> None:
            await exchange.send(ProduceRequest(acks=1), 9)

    class WithoutAcks(Filter):
        @on(ProduceRequest)
        def change(self, request: ProduceRequest, exchange: Exchange) -> None:
            request.acks = 0

    with run(where, [Sends(), WithoutAcks()], []) as place, Client(place) as client:
        client.socket.sendall(client.connection.send_request(asking("one"), 12))
        assert client.read_to_end() == b""
    (record,) = caplog.records
    assert "ValueError: ProduceRequest gets no response" in record.getMessage()


def test_many_requests_in_flight_while_filters_send(where: str) -> None:
    filters: list[Filter] = [Trace("a", "response", True), Trace("b", "request", True)]
    with run(where, filters, []) as place, Client(place) as client:
        requests = [client.connection.send_request(asking(str(n)), 12) for n in range(50)]
        client.socket.sendall(b"".join(requests))
        for number in range(50):
            assert names(client.next())[0] == f"{number}abBA"
