"""Runs tshark with a generated dissector, and compares its output with krammar's own reading."""

from __future__ import annotations

import math
import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from krammar.wire.layout import Array, Layout, Nested, Type, Versioned

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")

CLIENT, SERVER = 50000, 9092
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_PCAP = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 0x40000, 1)


class Conversation:
    """A capture file of one TCP connection, with a packet for each piece that is sent."""

    def __init__(self, server: int = SERVER, client: int = CLIENT) -> None:
        self.packets: list[bytes] = []
        self._ports = {True: (client, server), False: (server, client)}
        self._sequence = {True: 1, False: 1}

    def send(self, data: bytes, *, by_client: bool) -> None:
        """Add a packet with ``data``, at most 60,000 bytes."""
        source, target = self._ports[by_client]
        tcp = struct.pack(
            ">HHIIBBHHH",
            source,
            target,
            self._sequence[by_client],
            self._sequence[not by_client],
            5 << 4,
            0x18,
            0xFFFF,
            0,
            0,
        )
        self._sequence[by_client] += len(data)
        self._packet(6, tcp + data)

    def datagram(self, data: bytes, port: int) -> None:
        """Add a UDP packet."""
        self._packet(17, struct.pack(">HHHH", CLIENT, port, 8 + len(data), 0) + data)

    def _packet(self, protocol: int, data: bytes) -> None:
        ip = struct.pack(">BBHHHBB10x", 0x45, 0, 20 + len(data), 0, 0, 64, protocol)
        self.packets.append(bytes(12) + b"\x08\x00" + ip + data)

    def frame(self, body: bytes, *, by_client: bool, piece: int = 50_000) -> None:
        """Add a frame with its length prefix, in packets of at most ``piece`` bytes."""
        data = len(body).to_bytes(4, "big") + body
        for at in range(0, len(data), piece):
            self.send(data[at : at + piece], by_client=by_client)


def write_pcap(path: Path, conversations: Iterable[Conversation]) -> Path:
    """Write the packets of several conversations, a millisecond apart."""
    packets = [packet for each in conversations for packet in each.packets]
    with path.open("wb") as file:
        file.write(_PCAP)
        for number, packet in enumerate(packets):
            time = divmod(number * 1000, 1_000_000)
            file.write(struct.pack("<IIII", *time, len(packet), len(packet)) + packet)
    return path


def tshark(script: Path, capture: Path, *more: str) -> str:
    """Run tshark with a dissector. Everything that it prints is the dissector's."""
    done = subprocess.run(
        ["tshark", "-r", capture, "-X", f"lua_script:{script}", *more],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


@dataclass
class Shown:
    """An item of Wireshark's tree."""

    name: str
    show: str
    label: str
    raw: bytes
    children: list[Shown]

    def walk(self) -> Iterator[Shown]:
        yield self
        for child in self.children:
            yield from child.walk()

    def named(self, name: str) -> list[Shown]:
        return [each for each in self.walk() if each.name == name]


def _shown(element: ElementTree.Element, protocol: str) -> Shown:
    name = element.get("name", "")
    return Shown(
        name.removeprefix(f"{protocol}."),
        element.get("show", ""),
        element.get("showname", element.get("show", "")),
        bytes.fromhex(element.get("value", "")),
        [_shown(child, protocol) for child in element],
    )


def frames(script: Path, capture: Path, protocol: str, *more: str) -> list[Shown]:
    """Return the frames of ``protocol`` in the order of the capture."""
    text = tshark(script, capture, "-T", "pdml", *more)
    found = []
    # tshark writes control characters as they are, which XML does not allow.
    text = _CONTROL.sub("?", text)
    for packet in ElementTree.fromstring(text).iter("packet"):
        found += [_shown(each, protocol) for each in packet if each.get("name") == protocol]
    return found


class Different(Exception):
    """Wireshark shows other values than krammar reads."""


def compare(layout: Layout, expected: Mapping[str, Any], items: list[Shown], path: str) -> None:
    """Compare the fields of a struct, in order, with what ``Layout.read`` returned.

    Raises:
        Different: a field is missing, is not in its place, or has another value.
    """
    rest = list(items)
    for item in layout.fields:
        if not rest:
            raise Different(f"{path}.{item.name} is missing")
        _compare(item.type, expected[item.name], rest.pop(0), f"{path}.{item.name}", item.name)
    if layout.flexible:
        tags = rest.pop(0)
        if tags.name != "tagged_fields":
            raise Different(f"{path}: {tags.name} instead of tagged fields")
        shown = {tag.show: tag for tag in tags.children if tag.name == "unknown_tag"}
        unknown = expected.get("unknown_tags", {})
        if {str(tag) for tag in unknown} != set(shown):
            raise Different(f"{path}: tags {sorted(shown)} instead of {sorted(unknown)}")
        for tag, data in unknown.items():
            if shown[str(tag)].children[0].raw != data:
                raise Different(f"{path}: tag {tag}")
        known = {
            tag.name.split(".")[-2 if _is_part(tag) else -1]: tag
            for tag in tags.children
            if tag.name != "unknown_tag"
        }
        for item in layout.tags:
            where = f"{path}.{item.name}"
            if item.name in known:
                _compare(item.type, expected[item.name], known[item.name], where, item.name)
            elif layout.write(expected | {item.name: expected[item.name]}) != layout.write(
                {name: value for name, value in expected.items() if name != item.name}
            ):
                raise Different(f"{where} is missing")
    if rest:
        raise Different(f"{path}: {rest[0].name} is too much")


def _is_part(item: Shown) -> bool:
    return item.name.endswith((".elements", ".is_null"))


def _compare(type_: Type, expected: Any, item: Shown, path: str, name: str) -> None:
    def check(is_good: bool) -> None:
        if not is_good:
            raise Different(f"{path}: {item.name} = {item.label!r} instead of {expected!r}")

    if expected is None:
        check(item.name.endswith(f".{name}.is_null"))
        return
    if isinstance(type_, Array):
        check(f".{name}.elements" in item.name and int(item.show) == len(expected))
        check(len(item.children) == len(expected))
        for index, (value, child) in enumerate(zip(expected, item.children, strict=True)):
            _compare(type_.element, value, child, f"{path}[{index}]", name)
        return
    check(item.name.endswith(f".{name}"))
    if isinstance(type_, Nested):
        compare(type_.layout, expected, item.children, path)
    elif isinstance(type_, Versioned):
        version = next(iter(expected.values()))
        compare(type_.cls._layout(version), expected, item.children, path)
    elif isinstance(expected, bool):
        check(item.show == str(int(expected)))
    elif isinstance(expected, int):
        check(int(item.show) == expected)
    elif isinstance(expected, float):
        (found,) = struct.unpack(">d" if len(item.raw) == 8 else ">f", item.raw)
        check(found == expected or (math.isnan(found) and math.isnan(expected)))
    elif isinstance(expected, UUID):
        check(UUID(item.show) == expected)
    elif isinstance(expected, str):
        check(item.raw.decode() == expected)
        check(not expected.isprintable() or item.show == expected)
    else:
        check(item.raw == bytes(expected))
