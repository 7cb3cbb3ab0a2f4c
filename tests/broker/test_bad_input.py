"""Invalid frames and connections: the broker keeps serving other clients, and its memory stays bounded."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import UUID

import confluent_kafka
import kafka_wire
import pytest
from kafka_wire import (
    ApiVersionsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.wire.connection import ClientConnection
from tests.broker.bad_frames import TOPIC, bad_frames, sensible_frames
from tests.broker.requests import create_topic
from tests.broker.support import BrokerProcess, RawClient
from tests.generated.mutations import mutations
from tests.support.waiting import PATIENCE

FRAMES = 50_000
WARM_UP = 10_000
HONEST = "honest"
INTERNAL = ("__consumer_offsets", "__transaction_state")
MEGABYTE = 1 << 20

PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="secret";',
    "connection.failed.authentication.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # The state of a client disappears soon after it.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "10",
    "group.max.session.timeout.ms": "500",
    "transaction.max.timeout.ms": "1000",
}


class Target(BrokerProcess):
    """A broker in a process. All its output is read, so that it never blocks."""

    def __init__(self, folder: Path) -> None:
        overrides = [f"--override={key}={value}" for key, value in PROPERTIES.items()]
        super().__init__(["--data-dir", folder, *overrides])
        ports = [int(found[1]) for line in self.lines if (found := re.search(r":(\d+)$", line))]
        self.port, self.sasl_port = ports
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.log.extend(self.process.stdout)

    def end(self) -> None:
        """Stop it in order."""
        self.process.terminate()
        self._reader.join(PATIENCE)
        assert self.process.wait(PATIENCE) == 0

    def tracebacks(self) -> list[str]:
        """Return the errors in its log with their tracebacks, and all other lines that are not warnings."""
        entries: list[str] = []
        for line in list(self.log):
            if line.strip() in ("stopping", "stopped: logs are closed"):
                continue
            if entries and not re.match(r"\d{4}-\d\d-\d\d ", line):
                entries[-1] += line
            else:
                entries.append(line)
        return [entry for entry in entries if " WARNING " not in entry.split("\n")[0]]

    @property
    def resident(self) -> int:
        """Its resident memory in bytes."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def files(self) -> int:
        """The number of its open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def answers(self) -> None:
        with RawClient(self.port) as client:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0

    def settled_files(self) -> int:
        """The number of its open files without connections whose clients have just gone: the broker
        sees that they are closed before the last of these calls."""
        with RawClient(self.port) as client:
            for _ in range(20):
                client.call(ApiVersionsRequest(), 0)
            return self.files - 1  # this connection

    def files_come_down_to(self, number: int) -> bool:
        """Return whether the number of connections falls to ``number`` when the broker notices that clients are gone."""
        with RawClient(self.port) as client:
            for _ in range(20_000):
                if self.files <= number + 1:  # this connection
                    return True
                client.call(ApiVersionsRequest(), 0)
        return False


@pytest.fixture(scope="module")
def many_files() -> Iterator[None]:
    """Room for a thousand connections, here and in the broker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass(frozen=True)
class Scene:
    target: Target
    topic_id: UUID


def write_everywhere(port: int) -> None:
    """Write to both topics, and to the internal ones, so that their files are open."""
    settings = {"bootstrap.servers": f"127.0.0.1:{port}"}
    producer = confluent_kafka.Producer(
        settings | {"transactional.id": "first", "transaction.timeout.ms": 1000}
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    for topic in (HONEST, TOPIC):
        producer.produce(topic, b"first")
    consumer = confluent_kafka.Consumer(settings | {"group.id": "first"})
    producer.send_offsets_to_transaction(
        [confluent_kafka.TopicPartition(HONEST, 0, 1)], consumer.consumer_group_metadata(), PATIENCE
    )
    producer.commit_transaction(PATIENCE)
    consumer.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, many_files: None) -> Iterator[Scene]:
    if not Path("/proc/self/status").exists():
        pytest.skip("memory and open files are read from /proc, which is not there")
    with Target(tmp_path_factory.mktemp("data")) as target:
        with RawClient(target.port) as client:
            create_topic(client, HONEST)
            topic_id = create_topic(client, TOPIC)
        write_everywhere(target.port)
        yield Scene(target, topic_id)
        target.end()
    assert target.tracebacks() == []


@pytest.fixture
def target(scene: Scene) -> Target:
    return scene.target


@dataclass
class Service:
    """The results of a real client."""

    rounds: int = 0
    errors: list[str] = field(default_factory=list)


@contextmanager
def honest_client(target: Target) -> Iterator[Service]:
    """A producer and a consumer at work meanwhile: each record that is written is read again."""
    service = Service()
    stop = threading.Event()

    def work() -> None:
        settings = {"bootstrap.servers": f"127.0.0.1:{target.port}", "log_level": 0}
        producer = confluent_kafka.Producer(settings | {"linger.ms": 0})
        consumer = confluent_kafka.Consumer(settings | {"group.id": "unused"})
        offset = -1
        while not stop.is_set():
            written: list[tuple[object, confluent_kafka.Message]] = []
            value = b"%d" % service.rounds
            producer.produce(HONEST, value, on_delivery=lambda *said, to=written: to.append(said))
            producer.flush(PATIENCE)
            error, message = written[0]
            if error is not None:
                service.errors.append(str(error))
                break
            if offset < 0:
                offset = message.offset()
                consumer.assign([confluent_kafka.TopicPartition(HONEST, 0, offset)])
            read = consumer.poll(PATIENCE)
            if read is None or read.error() is not None or read.value() != value:
                service.errors.append(f"{value!r}: read {read and (read.error() or read.value())}")
                break
            service.rounds += 1
            stop.wait(0.01)  # leaves the broker to the others
        consumer.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield service
    finally:
        stop.set()
        thread.join()
    assert service.errors == []
    assert service.rounds > 0


def prefixed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class Hammer:
    """Sends frames, a few on each connection, over many connections at once.

    ``handled`` counts the frames that the broker has certainly read: it answered them, or closed the
    connection because of them. ``sent`` has the frames by the client's port.
    """

    CONNECTIONS = 24
    AT_ONCE = 4

    def __init__(self, port: int) -> None:
        self.port = port
        self.handled = 0
        self.sent: dict[int, list[bytes]] = {}

    def run(self, frames: Iterable[bytes], enough: int) -> None:
        """Send until ``enough`` frames were handled."""
        asyncio.run(self._run(iter(frames), enough))

    async def _run(self, frames: Iterator[bytes], enough: int) -> None:
        async def work() -> None:
            while self.handled < enough:
                some = [frame for frame, _ in zip(frames, range(self.AT_ONCE), strict=False)]
                await self._connection(some)

        await asyncio.gather(*(work() for _ in range(self.CONNECTIONS)))

    async def _connection(self, frames: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.sent[writer.get_extra_info("sockname")[1]] = frames
        answers = 0
        try:
            writer.write(b"".join(map(prefixed, frames)))
            writer.write_eof()
            # Requests that wait for other group members are not awaited.
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    while True:
                        (size,) = struct.unpack(">i", await reader.readexactly(4))
                        await reader.readexactly(size)
                        answers += 1
        except (asyncio.IncompleteReadError, OSError):  # ENOTCONN is not a ConnectionError
            # Closed by the frame after the last response, unless that was the last frame.
            self.handled += answers < len(frames)
        finally:
            writer.transport.abort()
        self.handled += answers

    def report(self, tracebacks: list[str]) -> None:
        """Fail if the log has a traceback; show the first ones with the frames of their connections."""
        lines = []
        for traceback in tracebacks[:5]:
            found = re.search(r"-127\.0\.0\.1:(\d+)-", traceback)
            frames = self.sent.get(int(found[1]), []) if found else []
            lines += [traceback, *(f"sent: {frame.hex()}" for frame in frames)]
        if lines:
            pytest.fail(f"{len(tracebacks)} errors of the broker:\n" + "\n".join(lines))


def topic_names(client: RawClient) -> set[str]:
    return {topic.name for topic in client.call(MetadataRequest(topics=None)).topics}


def delete_made_topics(target: Target) -> None:
    with RawClient(target.port) as client:
        made = topic_names(client) - {HONEST, TOPIC, *INTERNAL}
        topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in made]
        client.call(DeleteTopicsRequest(topics=topics, timeout_ms=10_000))
        assert topic_names(client) <= {HONEST, TOPIC, *INTERNAL}


def test_frames_that_bad_ones_are_made_of(scene: Scene) -> None:
    """Every API answers them in every version, so that mutations reach its handler."""
    for frame in sensible_frames(scene.topic_id):
        _, request = kafka_wire.parse_request(frame)
        if getattr(request, "acks", 1) == 0:
            continue
        with connect(scene.target.port) as plain:
            plain.sendall(prefixed(frame))
            (size,) = struct.unpack(">i", _exactly(plain, 4))
            assert _exactly(plain, size)[:4] == bytes(4), request
    assert scene.target.tracebacks() == []


@pytest.mark.parametrize("count", [FRAMES // 20, pytest.param(FRAMES, marks=pytest.mark.sweep)])
def test_bad_frames(scene: Scene, count: int) -> None:
    target = scene.target
    before = len(target.tracebacks())
    files = target.settled_files()
    hammer = Hammer(target.port)
    frames = bad_frames(10 * FRAMES, scene.topic_id)
    with honest_client(target) as service:
        hammer.run(frames, WARM_UP)
        resident = target.resident
        rounds = service.rounds
        hammer.run(frames, WARM_UP + count)
        grown = target.resident - resident
    hammer.report(target.tracebacks()[before:])
    assert service.rounds > rounds
    target.answers()
    delete_made_topics(target)
    assert target.files_come_down_to(files), (files, target.files)
    assert grown < 32 * MEGABYTE, f"{grown / MEGABYTE:.0f} MB more"


def closed(plain: socket.socket) -> bool:
    """Return whether the broker closes the connection without a response."""
    try:
        return plain.recv(1) == b""
    except ConnectionResetError:
        return True


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104857601])
def test_impossible_lengths(target: Target, size: int) -> None:
    with honest_client(target):
        for port in (target.port, target.sasl_port):
            with connect(port) as plain:
                plain.sendall(struct.pack(">i", size))
                assert closed(plain)
    target.answers()


def test_long_frames_that_never_come(target: Target) -> None:
    target.answers()
    before, files = target.resident, target.settled_files()
    opened = [connect(target.port) for _ in range(100)]
    for plain in opened:
        plain.sendall(struct.pack(">i", 100 * MEGABYTE) + bytes(1000))
    with honest_client(target):
        target.answers()
    # A hundred times a hundred megabytes were announced.
    assert target.resident - before < 16 * MEGABYTE
    for plain in opened:
        plain.close()
    assert target.files_come_down_to(files)


API_VERSIONS = ClientConnection(kafka_wire).send_request(ApiVersionsRequest(), 0)


def test_half_frames(target: Target) -> None:
    files = target.settled_files()
    frame = API_VERSIONS
    with honest_client(target):
        for size in range(len(frame)):
            for finish in (socket.SHUT_WR, socket.SHUT_RDWR):
                with connect(target.port) as plain:
                    plain.sendall(frame[:size])
                    plain.shutdown(finish)
                    if finish == socket.SHUT_WR:
                        assert closed(plain)
    assert target.files_come_down_to(files)


def test_slow_writers(target: Target) -> None:
    frame = API_VERSIONS
    opened = [connect(target.port) for _ in range(50)]
    with honest_client(target):
        for at in range(len(frame)):
            for plain in opened:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.sendall(frame[at : at + 1])
            target.answers()
    for plain in opened:
        (size,) = struct.unpack(">i", _exactly(plain, 4))
        assert _exactly(plain, size)[:4] == bytes(4)
        plain.close()


def _exactly(plain: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = plain.recv(size - len(data))
        assert piece, "closed"
        data += piece
    return data


def test_idle_connections(target: Target) -> None:
    target.answers()
    before, files = target.resident, target.settled_files()
    opened = [connect(target.port) for _ in range(1000)]
    with honest_client(target):
        target.answers()
        assert target.files >= files + 1000
        assert target.resident - before < 32 * MEGABYTE
        # Each of them can be used.
        for plain in opened[::100]:
            plain.sendall(API_VERSIONS)
            _exactly(plain, 8)
    for plain in opened:
        plain.close()
    assert target.files_come_down_to(files)


def test_readers_that_do_not_read(target: Target) -> None:
    """Unread responses do not pile up: further requests are not read."""
    target.answers()
    before, files = target.resident, target.settled_files()
    frames = API_VERSIONS * 2000
    opened = [connect(target.port) for _ in range(5)]
    for plain in opened:
        plain.setblocking(False)
        with suppress(BlockingIOError):
            for _ in range(500):
                plain.send(frames)
    with honest_client(target):
        target.answers()
    assert target.resident - before < 32 * MEGABYTE
    for plain in opened:
        plain.close()
    assert target.files_come_down_to(files)


def test_bad_tokens(target: Target) -> None:
    """Logins with messages that are none, in SaslAuthenticate and as bare tokens."""
    rng = Random(0)
    before, files = len(target.tracebacks()), target.settled_files()
    tokens = [b"\0alice\0wrong", b"n,,n=alice,r=nonce", b"n,a=alice,n=alice,r=nonce,x=y", b""]
    logins = 0
    with honest_client(target):
        for token in mutations(tokens, rng, 600):
            mechanism = rng.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))
            with RawClient(target.sasl_port) as client:
                version = rng.randrange(2)
                handshake = client.call(SaslHandshakeRequest(mechanism=mechanism), version)
                assert handshake.error_code == 0
                for said in (token, rng.randbytes(rng.randrange(40))):
                    if version == 0:
                        client.socket.sendall(prefixed(said))
                    else:
                        client.send(SaslAuthenticateRequest(auth_bytes=said))
                # An answer or none, but in the end the connection is closed.
                with suppress(ConnectionError):
                    while client.socket.recv(4096):
                        pass
                logins += 1
        with RawClient(target.sasl_port) as client:
            client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            right = SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
            assert client.call(right).error_code == 0
    assert logins == 600
    assert "\n".join(target.tracebacks()[before:]) == ""
    assert target.files_come_down_to(files)


def test_bad_frames_before_the_login(scene: Scene) -> None:
    target = scene.target
    before, files = len(target.tracebacks()), target.settled_files()
    hammer = Hammer(target.sasl_port)
    with honest_client(target):
        hammer.run(bad_frames(20_000, scene.topic_id, seed=1), 1000)
    hammer.report(target.tracebacks()[before:])
    assert target.files_come_down_to(files)
