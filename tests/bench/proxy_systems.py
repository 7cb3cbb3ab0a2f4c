"""What can be between clients and broker: a relay of bytes, the proxy, the tap, and Kroxylicious 0.12.0."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.tap import started
from tests.interop.apache import Unavailable, class_path

BYTES_ONLY = "bytes only"
_FILTER = """\
from kafka_wire import ProduceRequest
from krammar.proxy import Exchange, Filter, on
from krammar.proxy.filters.tenants import Tenants

class Read(Filter):
    @on(ProduceRequest)
    def read(self, request: ProduceRequest, exchange: Exchange) -> None:
        pass

class Blue(Tenants):
    def __init__(self) -> None:
        super().__init__("blue")
"""
_LAUNCHER = """\
import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.*;
import io.kroxylicious.proxy.internal.config.Features;

public class Launcher {
    public static void main(String[] args) throws Exception {
        var file = java.nio.file.Files.newInputStream(java.nio.file.Path.of(args[0]));
        var settings = new ConfigParser().parseConfiguration(file);
        new KafkaProxy(new ServiceBasedPluginFactoryRegistry(), settings, Features.defaultFeatures()).startup().block();
    }
}
"""
_SETTINGS = """\
virtualClusters:
  - name: blue
    targetCluster:
      bootstrapServers: {upstream}
    gateways:
      - name: default
        portIdentifiesNode:
          bootstrapAddress: 127.0.0.1:{port}
          nodeIdRanges:
            - {{name: all, start: 0, end: 4}}
{filters}"""
_TENANT = """\
filterDefinitions:
  - name: tenant
    type: MultiTenantTransformationFilterFactory
    config: {prefixResourceNameSeparator: "."}
defaultFilters: [tenant]
"""
_PATIENCE = 60.0
# Kroxylicious has no bind address, so it gets a network namespace with ports of its own.
_PORTS = iter(range(19_000, 30_000, 100))


@dataclass(frozen=True, slots=True)
class Place:
    """Something that runs: its name, port and process, and the seconds until it was ready."""

    name: str
    port: int
    pid: int
    ready: float

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class System:
    """Something that can run. ``start`` needs the broker's address and a folder."""

    name: str
    start: Callable[[str, Path], AbstractContextManager[Place]]


def enter_namespace() -> None:
    """Go on in a network namespace of its own, if the system has them. Downloads Kroxylicious before."""
    if os.environ.get("KRAMMAR_BENCH_NAMESPACE") or not shutil.which("unshare"):
        return
    with suppress(Unavailable):
        class_path("kroxylicious")
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode:
        print("no network namespace: Kroxylicious listens on all addresses of this machine")
        return
    os.environ["KRAMMAR_BENCH_NAMESPACE"] = "1"
    command = [sys.executable, "-m", "tests.bench.proxy", *sys.argv[1:]]
    loopback = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 1))"
    script = f'"{sys.executable}" -c "{loopback}" && exec "$@"'
    os.execvp("unshare", ["unshare", "-rn", "sh", "-c", script, "sh", *command])


def available(folder: Path) -> list[System]:
    """What can run here, with a line about what cannot."""
    (folder / "bench_filters.py").write_text(_FILTER)
    found = [
        _in_python("tap", "krammar.cli", "tap"),
        _in_python("proxy", "krammar.cli", "proxy"),
        _in_python("reads Produce", "krammar.cli", "proxy", "--filter", "bench_filters:Read"),
        _in_python("Tenants", "krammar.cli", "proxy", "--filter", "bench_filters:Blue"),
    ]
    try:
        launcher = _launcher(folder)
    except Unavailable as error:
        print(f"without Kroxylicious: {error}")
        return found
    return [
        *found,
        System("Kroxylicious", partial(_kroxylicious, "Kroxylicious", launcher, "")),
        System("with MultiTenant", partial(_kroxylicious, "with MultiTenant", launcher, _TENANT)),
    ]


def bytes_only(port: int = 0) -> System:
    """A relay of bytes that listens on a port. It replaces no addresses, so the broker must name the relay's."""
    return _in_python(BYTES_ONLY, "tests.bench.relay", port=port)


def _in_python(name: str, module: str, *arguments: str, port: int = 0) -> System:
    return System(name, partial(_module, name, [module, *arguments], port))


@contextmanager
def _module(
    name: str, arguments: Sequence[str], port: int, upstream: str, folder: Path
) -> Iterator[Place]:
    command = [sys.executable, "-m", *arguments]
    began = time.perf_counter()
    with (
        tempfile.TemporaryFile() as out,
        started(
            *command, "--listen", f"127.0.0.1:{port}", "--upstream", upstream,
            stdout=out, stderr=subprocess.PIPE, cwd=folder,
        ) as process,
    ):  # fmt: skip
        assert process.stderr is not None
        line = process.stderr.readline()
        while line and not line.startswith("listening on "):
            line = process.stderr.readline()
        ready = time.perf_counter() - began
        yield Place(name, int(line.split()[2].rpartition(":")[2]), process.pid, ready)


def _launcher(folder: Path) -> str:
    """The class path of Kroxylicious and its launcher. Raises Unavailable."""
    if not shutil.which("javac"):
        raise Unavailable("needs javac")
    jars = class_path("kroxylicious")
    source = folder / "Launcher.java"
    source.write_text(_LAUNCHER)
    done = subprocess.run(
        ["javac", "-cp", jars, "-d", str(folder), str(source)], capture_output=True, text=True
    )
    if done.returncode:
        raise Unavailable(f"the launcher does not compile: {done.stderr[:300]}")
    return f"{folder}:{jars}"


@contextmanager
def _kroxylicious(
    name: str, path: str, filters: str, upstream: str, folder: Path
) -> Iterator[Place]:
    port = next(_PORTS)
    settings = folder / f"kroxylicious-{port}.yaml"
    settings.write_text(_SETTINGS.format(upstream=upstream, port=port, filters=filters))
    began = time.perf_counter()
    with (
        (folder / f"kroxylicious-{port}.log").open("w") as log,
        started("java", "-cp", path, "Launcher", str(settings), stdout=log, stderr=log) as process,
    ):
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE).close()
                break
            except ConnectionRefusedError:
                if process.poll() is not None or time.perf_counter() - began > _PATIENCE:
                    raise RuntimeError(Path(log.name).read_text()[-2_000:]) from None
                time.sleep(0.01)
        yield Place(name, port, process.pid, time.perf_counter() - began)
