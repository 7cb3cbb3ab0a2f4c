"""Apache Kafka itself, from the jars it publishes: a broker in KRaft mode on loopback, and its tools.

Maven resolves the jars that ``apache_kafka/broker.xml`` and ``tools.xml`` name; the class paths are kept
in ``build/interop`` until those files change.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.interop.processes import Server, Unavailable
from tests.ports import free_port
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "interop"
VERSION = "4.4.0"
OLDEST_JAVA = 17

# A tool runs for a second or two, so optimisations for long runs are switched off.
_TOOL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

# What Kafka's own start script gives a broker.
START_SCRIPT_JVM = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


@cache
def _java_version() -> int:
    """Return the first number of Java's version; 1 for old versions such as 1.8."""
    said = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, timeout=PATIENCE
    ).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0


def class_path(name: str, release: str = VERSION) -> str:
    """The jars of ``broker`` or ``tools``, resolved by Maven once. Only ``broker`` has other releases.

    Raises ``Unavailable`` without Java 17, Maven, or the jars.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Unavailable(f"needs {program}")
    if (found := _java_version()) < OLDEST_JAVA:
        raise Unavailable(f"needs Java {OLDEST_JAVA}, this is Java {found}")
    pom = Path(__file__).parent / "apache_kafka" / f"{name}.xml"
    stamp = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    cached = CACHE / f"{name}-{release}-{stamp}.classpath"
    if cached.exists():
        path = cached.read_text()
        if all(map(os.path.exists, path.split(":"))):
            return path
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = CACHE / f"{name}-{os.getpid()}.new"
    goal = ("dependency:build-classpath", "-DincludeScope=runtime", f"-Dmdep.outputFile={fresh}")
    goal = (*goal, f"-Dkafka={release}")
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), *goal], capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise Unavailable(f"Maven has no jars of Apache Kafka: {done.stdout.strip()[:300]}")
    fresh.replace(cached)
    return cached.read_text()


def java(
    jars: str,
    main: str,
    *arguments: str,
    jvm: Sequence[str] = _TOOL_JVM,
    level: str = "warn",
    classes: Path | None = None,
    release: str = VERSION,
) -> list[str]:
    """The command for a main class of the jars or of ``classes``; its log goes to standard error."""
    log = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}"
    path = class_path(jars, release)
    if classes is not None:
        path = f"{classes}:{path}"
    return ["java", *jvm, log, "-cp", path, main, *arguments]


def compiled(jars: str, *sources: Path) -> Path:
    """Return the folder with the classes of programs in Java, which are compiled once.

    Raises ``Unavailable`` without javac, Maven, or the jars, and AssertionError if they cannot be compiled.
    """
    path = class_path(jars)
    if shutil.which("javac") is None:
        raise Unavailable("needs javac")
    text = b"".join(source.read_bytes() for source in sources)
    stamp = hashlib.sha256(text + path.encode()).hexdigest()[:16]
    folder = CACHE / f"{sources[0].stem.lower()}-{stamp}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
            classes = Path(fresh) / "classes"
            command = ["javac", "-proc:none", "-d", str(classes), "-cp", path, *map(str, sources)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            classes.rename(folder)
    return folder


def tool(
    main: str,
    *arguments: str,
    text: str | None = None,
    timeout: float = PATIENCE,
    check: bool = True,
    jars: str = "tools",
    jvm: Sequence[str] = (),
    release: str = VERSION,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools by its main class, ``text`` on its standard input.

    Raises AssertionError with all that it printed if it fails and ``check`` is set.
    """
    done = subprocess.run(
        java(jars, main, *arguments, jvm=(*_TOOL_JVM, *jvm), release=release),
        input=text or "",
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check and done.returncode:
        said = f"{main} {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        raise AssertionError(said)
    return done


class ApacheKafka(Server):
    """A broker and controller in one process, on a folder of its own.

    ``standalone`` formats as a quorum of one that knows its voters by records (Kafka's default since
    4.0); without it the voters are in server.properties, and metadata starts from a bootstrap file.
    """

    name = "Apache Kafka"
    cluster_id = "a3JhbW1hci1pbnRlcm9wMQ"

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        standalone: bool = True,
        scram: Sequence[str] = (),
        jvm: Sequence[str] = SMALL_JVM,
        classes: Path | None = None,
        release: str = VERSION,
    ) -> None:
        """``classes`` is a folder with further classes of the broker."""
        super().__init__(folder)
        self.jvm = jvm
        self.classes = classes
        self.release = release
        self.standalone = standalone
        self.scram = scram
        self.controller_port = free_port()
        self.properties = dict(properties or {})

    def command(self) -> list[str]:
        config = self.folder.with_name(f"{self.folder.name}.properties")
        quorum = (
            {"controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}"}
            if self.standalone
            else {"controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}"}
        )
        listeners = (
            f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
        )
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder),
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **quorum,
            **self.properties,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        if not (self.folder / "meta.properties").exists():
            arguments = ["format", "--config", str(config), "--cluster-id", self.cluster_id]
            arguments += ["--standalone"] if self.standalone else []
            arguments += [part for user in self.scram for part in ("--add-scram", user)]
            tool("kafka.tools.StorageTool", *arguments, jars="broker", release=self.release)
        return java(
            "broker",
            "kafka.Kafka",
            str(config),
            jvm=self.jvm,
            classes=self.classes,
            release=self.release,
        )


@contextmanager
def apache_kafka(folder: Path, **options: object) -> Iterator[ApacheKafka]:
    """Apache Kafka for the length of a ``with``."""
    broker = ApacheKafka(folder, **options)  # type: ignore[arg-type]
    with broker:
        yield broker
