"""What a filter can do: change, answer, refuse, close, wait, and ask the broker in between."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import pytest
import wafka_wire
from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    RequestHeader,
)

from krammar.proxy import Close, Connection, Exchange, Filter, Proxy, on
from krammar.wire.connection import ResponseReceived
from krammar.wire.skip import MAX_ELEMENTS
from tests.proxy.support import Client, Nothing, address, answering, asking, names, refusing, run
from tests.support.frames import framed, read_frame
from tests.support.waiting import PATIENCE
from tests.tap.support import upstream


def creating(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name=name)])


class Prefix(Filter):
    """Adds a prefix to requests, and removes it from responses."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @on(MetadataRequest)
    def add(self, request: MetadataRequest, exchange: Exchange) -> None:
        for topic in request.topics or ():
            topic.name = self.prefix + (topic.name or "")

    @on(MetadataResponse)
    def remove(self, response: MetadataResponse, exchange: Exchange) -> None:
        for topic in response.topics:
            assert topic.name is not None
            assert topic.name.startswith(self.prefix)
            topic.name = topic.name.removeprefix(self.prefix)


class AsyncPrefix(Prefix):
    """The same, in async methods."""

    @on(MetadataRequest)
    async def add(self, request: MetadataRequest, exchange: Exchange) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().add(request, exchange)

    @on(MetadataResponse)
    async def remove(self, response: MetadataResponse, exchange: Exchange) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().remove(response, exchange)


@pytest.mark.parametrize("kinds", [(Prefix, Prefix), (AsyncPrefix, Prefix), (Prefix, AsyncPrefix)])
def test_filters_change_requests_in_order_and_responses_in_reverse_order(
    where: str, kinds: Any
) -> None:
    asked: list[Any] = []
    chain = [kinds[0]("a-"), kinds[1]("b-")]
    with (
        run(where, chain, asked) as place,
        Client(place) as client,
    ):
        assert names(client.ask(asking("one", "two"), 12)) == ["one", "two"]
        assert asked == [asking("b-a-one", "b-a-two")]


def test_many_requests_in_flight_keep_their_order(where: str) -> None:
    class Slow(AsyncPrefix):
        @on(HeartbeatRequest)
        def answer(self, request: HeartbeatRequest, exchange: Exchange) -> HeartbeatResponse:
            return HeartbeatResponse(error_code=27)

    with (
        run(where, [Slow("a-")]) as place,
        Client(place) as client,
    ):
        sent = []
        for number in range(200):
            if number % 3 == 1:
                request: Any = HeartbeatRequest(group_id="g", member_id="m")
            else:
                request = asking(str(number)) if number % 3 else FindCoordinatorRequest(key="g")
            sent.append((request, 4 if number % 3 == 1 else 12 if number % 3 else 3))
        client.socket.sendall(
            b"".join(client.connection.send_request(request, version) for request, version in sent)
        )
        for request, _ in sent:
            event = client.next()
            assert isinstance(event, ResponseReceived), event
            assert event.sent.request == request
            if isinstance(request, MetadataRequest):
                assert names(event) == [topic.name for topic in request.topics or ()]
            elif isinstance(request, HeartbeatRequest):
                assert event.response.error_code == 27


def test_an_answer_passes_only_the_filters_before(where: str) -> None:
    class Refuse(Filter):
        @on(CreateTopicsRequest)
        def refuse(
            self, request: CreateTopicsRequest, exchange: Exchange
        ) -> CreateTopicsResponse | None:
            if request.topics[0].name == "secret":
                return refusing(request, 44)
            return None

    class Note(Filter):
        def __init__(self) -> None:
            self.seen: list[int] = []

        @on(CreateTopicsResponse)
        def note(self, response: CreateTopicsResponse, exchange: Exchange) -> None:
            self.seen.append(response.topics[0].error_code if response.topics else -1)

    before, after, asked = Note(), Note(), []  # type: ignore[var-annotated]
    with (
        run(where, [before, Refuse(), after], asked) as place,
        Client(place) as client,
    ):
        assert client.ask(creating("secret"), 7).response == refusing(creating("secret"), 44)
        assert asked == []
        client.ask(creating("orders"), 7)
        assert asked == [creating("orders")]
        assert before.seen == [44, *after.seen]
        assert len(after.seen) == 1


def test_a_filter_replaces_messages(where: str) -> None:
    class Replace(Filter):
        @on(MetadataRequest)
        def other(self, request: MetadataRequest, exchange: Exchange) -> MetadataRequest:
            exchange.state["asked"] = request
            return asking("other")

        @on(MetadataResponse)
        def more(self, response: MetadataResponse, exchange: Exchange) -> MetadataResponse:
            assert exchange.request == asking("other")
            asked = exchange.state["asked"].topics[0].name
            return MetadataResponse(
                topics=[*response.topics, MetadataResponse.Topic(name=f"asked for {asked}")]
            )

    with (
        run(where, [Replace()]) as place,
        Client(place) as client,
    ):
        assert names(client.ask(asking("one"), 9)) == ["other", "asked for one"]


def test_a_filter_asks_the_broker_in_between(where: str) -> None:
    class Ask(Filter):
        @on(MetadataRequest)
        async def before(self, request: MetadataRequest, exchange: Exchange) -> None:
            found = await exchange.send(asking("early"), 5)
            request.topics.append(MetadataRequest.Topic(name=found.topics[0].name))  # type: ignore[union-attr]

        @on(MetadataResponse)
        async def after(self, response: MetadataResponse, exchange: Exchange) -> None:
            found = await exchange.send(asking("late"))
            response.topics += found.topics

    asked: list[Any] = []
    with (
        run(where, [Ask()], asked) as place,
        Client(place) as client,
    ):
        client.socket.sendall(
            b"".join(client.connection.send_request(asking(str(n)), 12) for n in range(50))
        )
        for number in range(50):
            assert names(client.next()) == [str(number), "early", "late"]
        assert len(asked) == 150


def test_the_version_of_a_request_of_a_filter_is_one_that_the_broker_has(where: str) -> None:
    class Ask(Filter):
        found: Any = None

        @on(MetadataRequest)
        async def ask(self, request: MetadataRequest, exchange: Exchange) -> None:
            self.found = await exchange.send(
                ApiVersionsRequest(client_software_name="test", client_software_version="1")
            )

    ask = Ask()
    with (
        run(where, [ask]) as place,
        Client(place) as client,
    ):
        client.ask(ApiVersionsRequest(), 3)
        client.ask(asking("one"), 12)
        assert isinstance(ask.found, ApiVersionsResponse)
        assert ask.found.api_keys


def test_a_request_without_a_response_cannot_be_sent_by_a_filter(
    where: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Ask(Filter):
        @on(MetadataRequest)
        async def ask(self, request: MetadataRequest, exchange: Exchange) -> None:
            await exchange.send(ProduceRequest(acks=0))

    assert one_line(where, Ask(), caplog) == (
        "closed: test_a_request_without_a_response_cannot_be_sent_by_a_filter.<locals>.Ask.ask raised "
        "ValueError: ProduceRequest gets no response (send a request that gets one)"
    )


@pytest.mark.parametrize("message", [MetadataRequest, MetadataResponse])
def test_a_broker_that_closes_instead_of_answering_a_filter(
    caplog: pytest.LogCaptureFixture, message: Any
) -> None:
    class Ask(Filter):
        @on(message)
        async def ask(self, message: Any, exchange: Exchange) -> None:
            await exchange.send(HeartbeatRequest(group_id="g", member_id="m"))

    def close(request: Any) -> None:
        if isinstance(request, HeartbeatRequest):
            raise OSError("the broker closes")

    with (
        upstream(answering(before=close)) as server,
        Proxy.start(str(server.address), [Ask()]) as proxy,
        Client(address(proxy)) as client,
    ):
        client.socket.sendall(client.connection.send_request(asking("one"), 12))
        assert client.read_to_end() == b""
    (record,) = caplog.records
    expected = "Ask.ask raised ConnectionError: the broker has closed the connection"
    assert record.getMessage().endswith(expected)


def test_a_broker_that_closes_while_a_request_of_a_filter_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = threading.Event()

    class Ask(Filter):
        @on(MetadataResponse)
        async def ask(self, message: Any, exchange: Exchange) -> None:
            asked.set()
            await exchange.send(HeartbeatRequest(group_id="g", member_id="m"))

    def serve(connection: socket.socket) -> None:
        frame = read_frame(connection)
        assert connection.recv(65536)  # the half of a frame, whose end the request has to wait for
        connection.sendall(framed(frame[8:12] + b"\0" + MetadataResponse().encode(12)))
        assert asked.wait(PATIENCE)

    with (
        upstream(serve) as server,
        Proxy.start(str(server.address), [Ask()]) as proxy,
        Client(address(proxy)) as client,
    ):
        heartbeat = HeartbeatRequest(group_id="g", member_id="m")
        frame = client.connection.send_request(asking("one"), 12)
        client.socket.sendall(frame + client.connection.send_request(heartbeat, 4)[:-4])
        assert client.read_to_end() == b""
    (record,) = caplog.records
    expected = "Ask.ask raised ConnectionError: the broker has closed the connection"
    assert record.getMessage().endswith(expected)


def one_line(
    where: str, each: Filter, caplog: pytest.LogCaptureFixture, level: int = logging.WARNING
) -> str:
    """Return the only line of the log after a Metadata request, which must close its connection only."""
    caplog.set_level(logging.INFO, f"krammar.{where}")
    with (
        run(where, [each]) as place,
        Client(place) as other,
        Client(place) as client,
    ):
        client.socket.sendall(client.connection.send_request(asking("one"), 12))
        assert client.read_to_end() == b""
        other.ask(FindCoordinatorRequest(key="g"), 3)
    (record,) = caplog.records
    assert record.levelno == level
    begin, _, text = record.getMessage().partition(": ")
    assert begin.startswith("connection 2 of 127.0.0.1:" if where == "proxy" else "127.0.0.1:")
    return text


def test_a_filter_closes_a_connection(where: str, caplog: pytest.LogCaptureFixture) -> None:
    class Forbid(Filter):
        @on(MetadataRequest)
        def forbid(self, request: MetadataRequest, exchange: Exchange) -> None:
            raise Close("no \x1b[31mmetadata")

    assert (
        one_line(where, Forbid(), caplog, logging.INFO)
        == "closed by a filter: no \\x1b[31mmetadata"
    )


@pytest.mark.parametrize("method", ["plain", "async", "response", "async response"])
def test_an_error_of_a_filter_closes_the_connection(
    where: str, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    class Plain(Filter):
        @on(MetadataRequest)
        def fail(self, request: MetadataRequest, exchange: Exchange) -> None:
            raise ZeroDivisionError("oh")

    class Async(Filter):
        @on(MetadataRequest)
        async def fail(self, request: MetadataRequest, exchange: Exchange) -> None:
            raise ZeroDivisionError("oh")

    class Response(Filter):
        @on(MetadataResponse)
        def fail(self, response: MetadataResponse, exchange: Exchange) -> None:
            raise ZeroDivisionError("oh")

    class AsyncResponse(Filter):
        @on(MetadataResponse)
        async def fail(self, response: MetadataResponse, exchange: Exchange) -> None:
            raise ZeroDivisionError("oh")

    kinds = {"plain": Plain, "async": Async, "response": Response, "async response": AsyncResponse}
    text = one_line(where, kinds[method](), caplog)
    assert text.endswith(f"{kinds[method].__name__}.fail raised ZeroDivisionError: oh")


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (MetadataRequest, "(return None, a request or a response of this API)"),
        (MetadataResponse, "(return None or a response of this class)"),
    ],
)
def test_a_wrong_result(
    where: str, caplog: pytest.LogCaptureFixture, message: Any, hint: str
) -> None:
    class Wrong(Filter):
        @on(message)
        def wrong(self, message: Any, exchange: Exchange) -> int:
            return 1

    assert one_line(where, Wrong(), caplog).endswith(
        f"Wrong.wrong returned int for {message.__name__} {hint}"
    )


def test_a_message_that_cannot_be_encoded_closes_the_connection(
    where: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Wrong(Filter):
        @on(MetadataRequest)
        def wrong(self, request: MetadataRequest, exchange: Exchange) -> None:
            request.topics[0].name = 5  # type: ignore[index]

    assert one_line(where, Wrong(), caplog).startswith("closed: MetadataRequest v12: ")


def test_only_the_versions_that_a_filter_names(where: str) -> None:
    class New(Prefix):
        @on(MetadataRequest, versions="9-")
        def add(self, request: MetadataRequest, exchange: Exchange) -> None:
            super().add(request, exchange)

        @on(MetadataResponse, versions="9-12")
        def remove(self, response: MetadataResponse, exchange: Exchange) -> None:
            pass

    with (
        run(where, [New("a-")]) as place,
        Client(place) as client,
    ):
        assert names(client.ask(asking("one"), 8)) == ["one"]
        assert names(client.ask(asking("one"), 9)) == ["a-one"]


def test_state_and_the_life_of_a_connection(where: str) -> None:
    class Count(Filter):
        def __init__(self) -> None:
            self.life: list[str] = []
            self.total = 0
            self.ended = threading.Event()

        def opened(self, connection: Connection) -> None:
            self.life.append(f"opened {connection.number}")
            connection.state[self] = 0

        def closed(self, connection: Connection) -> None:
            self.life.append(f"closed {connection.number} after {connection.state[self]}")
            self.ended.set()

        @on(MetadataRequest)
        def count(self, request: MetadataRequest, exchange: Exchange) -> None:
            self.total += 1
            exchange.connection.state[self] += 1
            assert (exchange.api_key, exchange.version, exchange.client_id) == (3, 12, "test")

    count = Count()
    with run(where, [count]) as place:
        for number in (1, 2):
            count.ended.clear()
            with Client(place) as client:
                for _ in range(number):
                    client.ask(asking("one"), 12)
            assert count.ended.wait(PATIENCE)
    assert count.total == 3
    assert count.life == ["opened 1", "closed 1 after 1", "opened 2", "closed 2 after 2"]


def test_the_client_id_of_a_request_that_no_filter_reads(where: str) -> None:
    class Note(Filter):
        seen: Any = None

        @on(MetadataResponse)
        def note(self, response: MetadataResponse, exchange: Exchange) -> None:
            self.seen = (exchange.client_id, exchange.request)

    note = Note()
    with (
        run(where, [note]) as place,
        Client(place) as client,
    ):
        client.ask(asking("one"), 12)
        assert note.seen == ("test", None)


def test_a_message_that_cannot_be_decoded_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with (
        upstream(answering()) as server,
        Proxy.start(str(server.address), [Prefix("a-")]) as proxy,
        Client(address(proxy)) as client,
    ):
        header = RequestHeader(
            request_api_key=3, request_api_version=12, correlation_id=1, client_id="x"
        )
        body = header.encode(2) + b"\xff\xff\xff\xff\x0f"
        client.socket.sendall(len(body).to_bytes(4, "big") + body)
        assert client.read_to_end() == b""
    (record,) = caplog.records
    assert ": closed: MetadataRequest v12: topics" in record.getMessage()


def test_a_request_with_too_many_elements_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A filter's messages are not decoded before that."""
    topics = [MetadataRequest.Topic(name="a")] * (MAX_ELEMENTS + 1)
    with (
        upstream(answering()) as server,
        Proxy.start(str(server.address), [Prefix("a-")]) as proxy,
        Client(address(proxy)) as client,
    ):
        header = RequestHeader(
            request_api_key=3, request_api_version=12, correlation_id=1, client_id="x"
        )
        body = header.encode(2) + MetadataRequest(topics=topics).encode(12)
        client.socket.sendall(len(body).to_bytes(4, "big") + body)
        assert client.read_to_end() == b""
    (record,) = caplog.records
    assert record.getMessage().endswith(
        f"closed: MetadataRequest v12: more than {MAX_ELEMENTS} array elements"
    )


def test_what_on_refuses() -> None:
    with pytest.raises(ValueError, match=r'versions=\'3\+\': write "3", "3-" or "3-5"'):
        on(MetadataRequest, versions="3+")
    with pytest.raises(ValueError, match="the first version is greater than the last"):
        on(MetadataRequest, versions="5-3")
    with pytest.raises(
        ValueError, match=r"on\(MetadataRequest, versions='99-'\): it has versions 0"
    ):
        on(MetadataRequest, versions="99-")
    with pytest.raises(TypeError, match="is no request and no response of a protocol"):
        on(RequestHeader)
    with pytest.raises(TypeError, match="needs at least one class"):
        on()


def test_what_a_chain_refuses() -> None:
    with pytest.raises(TypeError, match=r"is not a Filter \(pass an instance, such as OnlySmall"):
        Proxy("localhost:1", [Nothing])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="names MetadataRequest of another protocol than wafka"):
        Proxy("localhost:1", [Prefix("a-")], protocol=wafka_wire)


def test_versions_are_limited_to_what_is_read() -> None:
    class Beats(Filter):
        @on(HeartbeatRequest)
        def note(self, request: HeartbeatRequest, exchange: Exchange) -> None: ...

    def offered(proxy: Proxy) -> dict[int, int]:
        with Client(address(proxy)) as client:
            response: ApiVersionsResponse = client.ask(ApiVersionsRequest(), 3).response
            return {each.api_key: each.max_version for each in response.api_keys}

    metadata, beat, create = MetadataRequest, HeartbeatRequest, CreateTopicsRequest
    with upstream(answering()) as server:
        place = str(server.address)
        with Proxy.start(place) as proxy:
            assert offered(proxy) == {3: metadata.max_version, 12: 99, 18: 4, 19: 99, 4000: 1}
        with Proxy.start(place, [Beats()]) as proxy:
            assert offered(proxy)[12] == beat.max_version
        with Proxy.start(place, refuse_unknown=True) as proxy:
            assert offered(proxy) == {
                3: metadata.max_version,
                12: beat.max_version,
                18: 4,
                19: create.max_version,
            }
