"""Measure what the proxy costs beside the tap and Kroxylicious: per frame, in latency, per MB, and in memory.

    python -m tests.bench.proxy            three rounds; writes medians into docs/benchmarks.md
    python -m tests.bench.proxy --quick    one short round; prints them

For the time per frame, the broker is a process that answers every request of an API with the same bytes, so that the
proxy is what is measured. A frame is a request or a response. The other rows have krammar's broker. The processor
time is that of the process in between, system calls included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from uuid import UUID

from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    RequestHeader,
    ResponseHeader,
)

from krammar.wire.batches import Record, encode_batch
from tests.bench.page import aims, machine, markdown_table, put_file, section, subsection
from tests.bench.proxy_aims import PerFrame, targets
from tests.bench.proxy_clients import clients, clients_table, used
from tests.bench.proxy_code import Frames, own_code
from tests.bench.proxy_systems import available, bytes_only, enter_namespace
from tests.bench.tap import started
from tests.interop.apache import CACHE

_WINDOWS = (16, 1)
# Latencies of one round differ by a tenth from those of the next.
_CLIENT_ROUNDS = 7
_FRAMES = """\
A frame is a request or a response. The column "bytes only" is a relay in Python that passes bytes without looking at them: with
one request in flight, it is what the event loop and the system calls of each frame cost."""
_OWN = """\
The same bytes, passed to the code of the proxy without sockets. The rest of a frame's time is that of the event loop, of system
calls, and of what they remove from the processor's caches. Tenants copies each frame of Produce and Fetch, walks over its
fields, changes the names, and remembers the request for its response."""
_CLIENTS = """\
Client, broker and what is between them share the processors, so a process in between also lowers the throughput of the
others. "direct" has two processes, the other columns have three. "bytes only" shows what remains for a proxy: with three processes
on two processors, copying each byte from the system and to it once more costs more than a third of the throughput of consuming."""
_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def _produce(size: int) -> ProduceRequest:
    part = ProduceRequest.PartitionProduceData(
        index=0, records=encode_batch([Record(value=bytes(size))])
    )
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[part])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def _produced() -> ProduceResponse:
    part = ProduceResponse.PartitionProduceResponse(index=0, base_offset=7)
    topic = ProduceResponse.TopicProduceResponse(name="blue.orders", partition_responses=[part])
    return ProduceResponse(responses=[topic])


def _metadata(port: int) -> MetadataResponse:
    part = MetadataResponse.Partition
    return MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host="127.0.0.1", port=port)],
        topics=[
            MetadataResponse.Topic(
                name="blue.orders",
                topic_id=_ID,
                partitions=[part(partition_index=n, leader_id=1) for n in range(3)],
            )
        ],
    )


def _offered() -> ApiVersionsResponse:
    entry = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(
        api_keys=[entry(api_key=key, min_version=0, max_version=4) for key in range(60)]
    )


def _fetch(version: int) -> FetchRequest:
    part = FetchRequest.FetchPartition(partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(partitions=[part])
    if version < _BY_ID:
        topic.topic = "orders"
    else:
        topic.topic_id = _ID
    return FetchRequest(max_bytes=1 << 20, topics=[topic])


def _fetched(version: int, size: int) -> FetchResponse:
    part = FetchResponse.PartitionData(records=encode_batch([Record(value=bytes(size))]))
    topic = FetchResponse.FetchableTopicResponse(partitions=[part])
    if version < _BY_ID:
        topic.topic = "blue.orders"
    else:
        topic.topic_id = _ID
    return FetchResponse(responses=[topic])


# The first version of Fetch with topic ids, and an id.
_BY_ID = 13
_ID = UUID(int=1)

# Name, api key, version, the header versions of request and response, and the bytes of a record.
_APIS = (
    ("Produce 1 kB v9", 0, 9, 2, 1, 1_000),
    ("Produce 1 kB v12", 0, 12, 2, 1, 1_000),
    ("Produce 100 kB v11", 0, 11, 2, 1, 100_000),
    ("Fetch 1 kB v12", 1, 12, 2, 1, 1_000),
    ("Fetch 100 kB v11", 1, 11, 1, 0, 100_000),
    ("Fetch 100 kB v17", 1, 17, 2, 1, 100_000),
    ("Heartbeat", 12, 4, 2, 1, 0),
    ("Metadata", 3, 12, 2, 1, 0),
    ("ApiVersions", 18, 3, 2, 0, 0),
)


def request(key: int, version: int, header_version: int, size: int = 1_000) -> bytes:
    """A request with its length prefix. ``size`` is that of a record in bytes."""
    body = {
        0: _produce(size),
        1: _fetch(version),
        3: MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]),
        12: HeartbeatRequest(group_id="g", member_id="m"),
        18: ApiVersionsRequest(client_software_name="bench", client_software_version="1"),
    }[key]
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=7, client_id="bench"
    )
    data = header.encode(header_version) + body.encode(version)
    return len(data).to_bytes(4, "big") + data


class Broker(asyncio.Protocol):
    """Answers every request of an API with the same response."""

    def __init__(self, port: int) -> None:
        self.data = b""
        self.responses = {}
        for _, key, version, _, header_version, size in _APIS:
            bodies = {0: _produced(), 3: _metadata(port), 12: HeartbeatResponse(), 18: _offered()}
            body = bodies[key] if key in bodies else _fetched(version, size)
            data = ResponseHeader(correlation_id=7).encode(header_version)
            data += body.encode(version)
            prefix = len(data).to_bytes(4, "big")
            self.responses[key, version] = (prefix, data[4:])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        out: list[bytes] = []
        position = 0
        while len(self.data) - position >= 8:
            end = position + 4 + int.from_bytes(self.data[position : position + 4], "big")
            if end > len(self.data):
                break
            key = int.from_bytes(self.data[position + 4 : position + 6], "big")
            prefix, rest = self.responses[key, self.data[position + 7]]
            out += (prefix, self.data[position + 8 : position + 12], rest)
            position = end
        self.data = self.data[position:]
        self.transport.write(b"".join(out))


async def serve() -> None:
    """The broker's process."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = await asyncio.get_running_loop().create_server(lambda: Broker(port), sock=listening)
    print(port, flush=True)
    await server.serve_forever()


def per_frame(port: int, pid: int, data: bytes, window: int, count: int) -> float:
    """Return the processor time per frame in microseconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client.makefile("rb") as reader:

            def rounds(number: int) -> None:
                for _ in range(number):
                    client.sendall(data * window)
                    for _ in range(window):
                        if not (prefix := reader.read(4)):
                            raise ConnectionError("the connection was closed")
                        reader.read(int.from_bytes(prefix, "big"))

            rounds(max(50, count // window))  # Java's compiler needs a while
            before = used(pid)
            rounds(count // window)
            return (used(pid) - before) / (count // window * window * 2) / 1000


def own(count: int) -> list[str]:
    """Return a table of the processor time of the proxy's own code."""
    responses = Broker(1).responses
    pairs = []
    for name, key, version, header_version, _, size in _APIS:
        if key in (0, 1):
            prefix, rest = responses[key, version]
            data = request(key, version, header_version, size)
            pairs.append(Frames(name, data, prefix + data[8:12] + rest))
    return own_code(pairs, _WINDOWS, {_ID: "blue.orders"}, count)


def frames(folder: Path, rounds: int, count: int) -> PerFrame:
    """Return the processor time per frame of everything that can be between clients and broker."""
    command = (sys.executable, "-m", "tests.bench.proxy", "--serve")
    with started(*command, stdout=subprocess.PIPE) as process, ExitStack() as stack:
        assert process.stdout is not None
        broker = f"127.0.0.1:{int(process.stdout.readline())}"
        systems = [bytes_only(), *available(folder)]
        places = [stack.enter_context(each.start(broker, folder)) for each in systems]
        found: PerFrame = {}
        for name, key, version, header_version, _, size in _APIS:
            data = request(key, version, header_version, size)
            for window in _WINDOWS:
                taken: dict[str, list[float]] = {place.name: [] for place in places}
                for place in places * rounds:  # in turns: the machine is not always as fast
                    with suppress(OSError):  # Kroxylicious does not pass all of them
                        taken[place.name].append(
                            per_frame(place.port, place.pid, data, window, count)
                        )
                times = found[name, window] = {
                    system: median(each) if len(each) == rounds else None
                    for system, each in taken.items()
                }
                print(name, window, *times.values(), sep=" | ", flush=True)
        return found


def frames_table(found: PerFrame) -> list[str]:
    """Return a table of the processor time per frame."""
    rows = [
        (
            name,
            str(window),
            *("fails" if each is None else f"{each:.1f}" for each in times.values()),
        )
        for (name, window), times in found.items()
    ]
    systems = next(iter(found.values()))
    return markdown_table(("Frames", "In flight", *systems), rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.proxy", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    # All have compiled bytecode, as installed packages have.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(CACHE / "bytecode")
    enter_namespace()
    rounds, count = (1, 1_000) if options.quick else (3, 4_000)
    with tempfile.TemporaryDirectory() as folder:
        times = frames(Path(folder), rounds, count)
        code = own(count // 4)
        traffic = clients(Path(folder), 1 if options.quick else _CLIENT_ROUNDS, options.quick)
    written = ["## Proxy", "", *machine()]
    written += subsection("Processor time per frame, in µs", _FRAMES, frames_table(times))
    written += subsection("The proxy's own code, in µs", _OWN, code)
    written += subsection("Clients", _CLIENTS, clients_table(traffic))
    written += aims([*targets(times, traffic)])
    print("\n".join(written))
    if not options.quick:
        put_file(_PAGE, section("proxy", "python -m tests.bench.proxy", written))


if __name__ == "__main__":
    main()
