"""A tap in a thread, brokers for it, and the frames that it has passed on."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

import kafka_wire
from click.testing import CliRunner
from kafka_wire import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from krammar.cli import main
from krammar.proxy.addresses import Address
from krammar.tap.frame import Frame, Observer
from krammar.tap.inspector import Inspector
from krammar.tap.proxy import Forward, Tap
from krammar.wire.connection import ClientConnection, RequestReceived, ServerConnection
from krammar.wire.package import package_of
from tests.support.waiting import PATIENCE


def inspector() -> Inspector:
    """Return an inspector of a Kafka conversation."""
    return Inspector(package_of(kafka_wire), 1)


class Recorder(Observer):
    """Keeps everything, and lets other threads wait for it."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.connections: dict[int, tuple[str, str]] = {}
        self.ended: dict[int, str] = {}
        self.notices: list[str] = []
        self._changed = threading.Condition()

    def frame(self, frame: Frame) -> None:
        with self._changed:
            self.frames.append(frame)
            self._changed.notify_all()

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        with self._changed:
            self.connections[connection] = (client, upstream)
            self._changed.notify_all()

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        with self._changed:
            self.ended[connection] = reason
            self._changed.notify_all()

    def notice(self, text: str) -> None:
        with self._changed:
            self.notices.append(text)
            self._changed.notify_all()

    def wait(self, until: Callable[[Recorder], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: until(self), PATIENCE), (
                [(f.api, f.status, f.error) for f in self.frames],
                self.notices,
                self.ended,
            )


class TapThread:
    """A tap that runs until the end of its ``with``; ``outcome`` is why it ended, or its exception."""

    def __init__(self, *upstreams: Address, **options: Any) -> None:
        self.recorder = Recorder()
        # The recorder is the last one: what it has seen, all have seen.
        self.observers: list[Observer] = [*options.pop("observers", ()), self.recorder]
        self.forwards = [Forward(Address("127.0.0.1", 0), upstream) for upstream in upstreams]
        self.protocol = options.pop("protocol", kafka_wire)
        self.options = options
        self.listening: list[Forward] = []
        self.outcome: str | BaseException = ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main)

    def _main(self) -> None:
        async def run() -> str:
            self._loop = asyncio.get_running_loop()
            self._tap = Tap(self.protocol, self.forwards, self.observers, **self.options)
            return await self._tap.run(self._started)

        try:
            self.outcome = asyncio.run(run())
        except BaseException as error:
            self.outcome = error
        finally:
            self._ready.set()

    def _started(self, listening: list[Forward]) -> None:
        self.listening = listening
        self._ready.set()

    def __enter__(self) -> TapThread:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        if isinstance(self.outcome, BaseException):
            self._thread.join()
            raise self.outcome
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread.is_alive():
            with suppress(RuntimeError):  # it may have ended by itself in this very moment
                self._loop.call_soon_threadsafe(self._tap.stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if kind is None and isinstance(self.outcome, BaseException) and not self._expected:
            raise self.outcome

    _expected = False

    def expect_failure(self) -> BaseException:
        """Wait for its end, which must be an exception."""
        self._expected = True
        self._thread.join(PATIENCE)
        assert isinstance(self.outcome, BaseException)
        return self.outcome

    def join(self) -> str:
        """Wait until it ends."""
        self._thread.join(PATIENCE)
        assert isinstance(self.outcome, str)
        return self.outcome

    @property
    def address(self) -> Address:
        return self.listening[0].listen

    @property
    def ports(self) -> set[str]:
        """All addresses that it listens on."""
        opened = [n.split()[2] for n in self.recorder.notices if n.startswith("listening on")]
        return {str(forward.listen) for forward in self.listening} | set(opened)


class Upstream:
    """A server whose connections a function handles, each in its own thread."""

    def __init__(self, handle: Callable[[socket.socket], None]) -> None:
        self._handle = handle
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._socket.getsockname()[:2])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._handle(connection)
        except OSError:
            pass  # the other side has gone, which is for the test to judge
        finally:
            connection.close()

    def close(self) -> None:
        """Listen no more and cut all connections."""
        for end in (self._socket, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(PATIENCE)


@contextmanager
def upstream(handle: Callable[[socket.socket], None]) -> Iterator[Upstream]:
    """Run a server whose connections a function handles."""
    server = Upstream(handle)
    try:
        yield server
    finally:
        server.close()


def broker(connection: socket.socket) -> None:
    """Answers ApiVersions and Metadata; it names three brokers, itself the first."""
    host, port = connection.getsockname()[:2]
    server = ServerConnection(kafka_wire)
    while data := connection.recv(65536):
        server.receive_data(data)
        for event in server.events():
            assert isinstance(event, RequestReceived)
            if isinstance(event.request, MetadataRequest):
                response: Any = MetadataResponse(
                    brokers=[
                        MetadataResponse.Broker(node_id=1, host=host, port=port),
                        MetadataResponse.Broker(node_id=2, host="localhost", port=port, rack="r"),
                        MetadataResponse.Broker(node_id=3, host="", port=-1),
                    ],
                    cluster_id="test",
                )
            else:
                assert isinstance(event.request, ApiVersionsRequest)
                response = ApiVersionsResponse(
                    api_keys=[
                        ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=99),
                        ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4),
                        ApiVersionsResponse.ApiVersion(api_key=1, min_version=90, max_version=99),
                        ApiVersionsResponse.ApiVersion(api_key=4000, min_version=0, max_version=1),
                    ],
                    finalized_features_epoch=5,
                )
            connection.sendall(server.send_response(event, response))


class Client:
    """A blocking client."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.connection = ClientConnection(kafka_wire, client_id="test")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Any, version: int) -> Any:
        self.socket.sendall(self.connection.send_request(request, version))
        return self.next()

    def next(self) -> Any:
        while (event := self.connection.next_event()) is None:
            self.connection.receive_data(self.socket.recv(65536))
        return event

    def read_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, f"{len(data)} of {size} bytes came"
            data += piece
        return data

    def read_to_end(self) -> bytes:
        """All that comes; an end by a reset, as when what we sent was never read, is an end too."""
        data = b""
        with suppress(ConnectionResetError):
            while piece := self.socket.recv(65536):
                data += piece
        return data


def invoke(*arguments: object) -> tuple[int, str]:
    """Run ``krammar tap`` in this process; return its exit code and its output."""
    result = CliRunner().invoke(main, ["tap", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output
