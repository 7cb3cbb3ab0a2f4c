"""A compiled package and the same one in pure Python: only their speed differs.

The definitions in ``protocol.krm`` have every form of the language. All that a test asks of one build it
asks of the other, and compares.
"""

from __future__ import annotations

import copy
import gc
import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import pytest

from krammar.wire.errors import EncodeError, WireError
from krammar.wire.message import Codec, Request, Response, Struct
from krammar.wire.versioned import VersionedCodec
from tests.generated.catalogue import Message
from tests.generated.mutations import mutations
from tests.generated.strategies import STYLES
from tests.native.support import COMPILED, PURE, Builds, Values, build
from tests.odd_values import FORGED, Odd, Plain, forged

pytestmark = pytest.mark.xdist_group("native")

NAMES = ("EverythingRequest", "EverythingResponse", "Stamped", "Open", "Framed")
VERSIONS = {"Open": (0,), "Framed": (0,), "Stamped": (0, 1, 2)}
ALL = [(name, version) for name in NAMES for version in VERSIONS.get(name, (0, 1, 2, 3))]
each = pytest.mark.parametrize(("name", "version"), ALL)


def messages(builds: Builds, name: str) -> tuple[Message, Message]:
    return (
        Message(builds.compiled, getattr(builds.compiled, name), ()),
        Message(builds.pure, getattr(builds.pure, name), ()),
    )


def pairs(builds: Builds, name: str, version: int) -> Iterator[tuple[Any, Any]]:
    """The same values in both builds."""
    compiled, pure = messages(builds, name)
    layout = pure.layout(version)
    rng = Random(f"{name} {version}")
    # A struct with defaults has version field 0, even if this one's version differs.
    for style in (*STYLES[name == "Stamped" :], *["random"] * 30):
        plain = Values(rng, style).message(pure, version)
        yield build(compiled.package, layout, plain), build(pure.package, layout, plain)


@pytest.fixture
def only_fast(builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled methods that would hand over to pure Python fail."""

    def refuse(*arguments: Any) -> Any:
        raise AssertionError(f"went round by pure Python: {arguments}")

    for name in ("_decode_slowly", "_decode_from_slowly", "_encode_slowly"):
        assert hasattr(builds.extension, name)
        monkeypatch.setattr(builds.extension, name, refuse)


def outcome(run: Callable[[], Any]) -> Any:
    """Return the result: a value's content, or an error with all its attributes."""
    try:
        found = run()
    except (WireError, TypeError) as error:
        text = str(error).replace(PURE, COMPILED)
        return (
            type(error).__name__,
            text,
            getattr(error, "path", None),
            getattr(error, "offset", None),
        )
    # As text, since no NaN is equal to another.
    return repr(found.to_dict()) if isinstance(found, Struct) else found


@each
@pytest.mark.usefixtures("only_fast")
def test_same_bytes_and_values(builds: Builds, name: str, version: int) -> None:
    """A compiled codec falls back to the pure one only for values with unknown tagged fields."""
    compiled, pure = messages(builds, name)
    seen = 0
    for ours, theirs in pairs(builds, name, version):
        data = pure.encode(theirs, version)
        again = compiled.decode(data, version)
        assert again == compiled.decode(data, version)
        assert again.to_dict() == pure.decode(data, version).to_dict()
        assert repr(again) == repr(pure.decode(data, version))
        views = compiled.decode(data, version, copy=False)
        assert views == again and repr(views) == repr(again)
        if "unknown_tags" not in str(theirs.to_dict()):
            seen += 1
            assert compiled.encode(ours, version) == data
            assert compiled.encode(again, version) == data
        value, end = compiled.cls.decode_from(
            b"xy" + data + b"z", 2, None if compiled.version_field else version
        )
        assert value == again and end == len(data) + 2
    assert seen >= 6


@each
def test_same_bytes_by_any_way(builds: Builds, name: str, version: int) -> None:
    """Unknown tags, tuples for lists, other buffers, and encoding after existing bytes."""
    compiled, pure = messages(builds, name)
    for ours, theirs in pairs(builds, name, version):
        data = pure.encode(theirs, version)
        assert compiled.encode(ours, version) == data
        assert compiled.layout(version).write(ours) == data
        assert compiled.layout(version).size_of(ours) == len(data)
        for buffer in (bytearray(data), memoryview(data)):
            assert (
                compiled.decode(buffer, version).to_dict() == pure.decode(data, version).to_dict()
            )
        out = bytearray(b"before")
        ours.encode_into(out, None if compiled.version_field else version)
        assert out == b"before" + data
        for field in ours._fields:
            value = getattr(ours, field)
            if isinstance(value, list):
                setattr(ours, field, tuple(value))
            elif isinstance(value, bytes):
                setattr(ours, field, bytearray(value))
        assert compiled.encode(ours, version) == data


@each
def test_hostile_bytes(builds: Builds, name: str, version: int) -> None:
    """Invalid bytes give the same value, or the same error with path and offset."""
    compiled, pure = messages(builds, name)
    seeds = [pure.encode(theirs, version) for _, theirs in pairs(builds, name, version)]
    seeds = sorted({data for data in seeds if len(data) < 500})
    kinds = set()
    for number, data in enumerate(mutations(seeds, Random(f"{name} {version}"), 1500)):
        copy = number % 2 == 0
        ours = outcome(partial(compiled.decode, data, version, copy))
        theirs = outcome(partial(pure.decode, data, version, copy))
        assert ours == theirs, data
        kinds.add(type(ours))
    assert kinds == {str, tuple}


BAD = [
    None,
    "x",
    3,
    -1,
    1 << 40,
    1 << 70,
    1.5,
    True,
    b"x",
    [],
    [None],
    ["x"],
    [3],
    {},
    object,
    "\ud800",
]


@each
def test_bad_values(builds: Builds, name: str, version: int) -> None:
    """Both builds accept and refuse the same values of a field."""
    compiled, pure = messages(builds, name)
    assert compiled.cls._fields
    for field in compiled.cls._fields:
        for bad in BAD:
            ours, theirs = compiled.cls(), pure.cls()
            for value in (ours, theirs):
                if compiled.version_field:
                    setattr(value, compiled.version_field, version)
                setattr(value, field, bad)
            left = outcome(partial(compiled.encode, ours, version))
            right = outcome(partial(pure.encode, theirs, version))
            assert left == right, (field, bad)


@pytest.mark.parametrize("number", FORGED, ids=repr)
def test_a_forged_uuid_is_refused(builds: Builds, number: Any) -> None:
    errors = []
    for message in messages(builds, "EverythingRequest"):
        with pytest.raises(EncodeError) as caught:
            message.cls(ident=forged(number)).encode(3)
        errors.append(str(caught.value))
        assert caught.value.path == "ident"
    assert errors[0] == errors[1] and "needs a uuid.UUID" in errors[0]


def test_lists_that_iterate_in_their_own_way(builds: Builds) -> None:
    both = messages(builds, "EverythingRequest")
    assert len(both) == 2
    for message in both:
        item = message.package.EverythingRequest.Item
        for field, elements in (("ints", [1, 2]), ("items", [item(id=1), item(id=2)])):
            value = message.cls(**{field: elements})
            data = value.encode(3)
            setattr(value, field, Plain(elements))
            assert value.encode(3) == data
            setattr(value, field, Odd(elements))
            with pytest.raises(EncodeError, match="Odd has an __iter__") as caught:
                value.encode(3)
            assert caught.value.path == field


def test_bad_calls(builds: Builds) -> None:
    for run in (
        lambda m: m.cls.decode(b"\0\0", 99),
        lambda m: m.cls.decode(b"\0\0", "x"),
        lambda m: m.cls.decode(b"", -1),
        lambda m: m.cls.decode(None, 2),
        lambda m: m.cls.decode_from(b"", 5, 2),
        lambda m: m.cls.decode_from(b"", -1, 2),
        lambda m: m.cls().encode(1 << 80),
        lambda m: m.cls().encode(None),
    ):
        ours, theirs = (outcome(partial(run, m)) for m in messages(builds, "EverythingRequest"))
        assert ours == theirs and isinstance(ours, tuple)
    for run in (
        lambda m: m.cls.decode(b"\0"),
        lambda m: m.cls.decode(b"\0\1\0\0", 2),
        lambda m: m.cls.decode(b"\0\7\0\0"),
        lambda m: m.cls.decode_from(b"\0\0", 1),
        lambda m: m.cls(version=1).encode(2),
        lambda m: m.cls(version="1").encode(),
    ):
        ours, theirs = (outcome(partial(run, m)) for m in messages(builds, "Stamped"))
        assert ours == theirs and isinstance(ours, tuple)
    for cls in (builds.compiled.EverythingRequest, builds.pure.EverythingRequest):
        with pytest.raises(TypeError):
            cls(no_such_field=1)
        with pytest.raises(TypeError):
            cls(True)
        with pytest.raises(AttributeError):
            cls().no_such_field = 1
        with pytest.raises(TypeError):
            hash(cls())


def test_facts_of_classes(builds: Builds) -> None:
    """All other attributes come from the pure class, and isinstance works."""
    for name in NAMES:
        ours, theirs = (message.cls for message in messages(builds, name))
        assert type(ours.encode) is not type(theirs.encode)
        for fact in ("__name__", "__qualname__", "__doc__", "_fields", "min_version"):
            assert getattr(ours, fact, None) == getattr(theirs, fact, None), fact
        assert ours.__module__ == f"{COMPILED}.protocol"
        assert ours._decoders.keys() == theirs._decoders.keys()
        for base in (Struct, Codec, Request, Response, VersionedCodec):
            assert issubclass(ours, base) == issubclass(theirs, base)
            assert isinstance(ours(), base) == isinstance(theirs(), base)
    for name in ("Item", "Point"):
        ours, theirs = (
            getattr(build_.EverythingRequest, name) for build_ in (builds.compiled, builds.pure)
        )
        assert (ours.__name__, ours.__qualname__) == (name, f"EverythingRequest.{name}")
        assert ours is not theirs and type(ours()) is ours
    assert (
        type(builds.compiled.EverythingRequest().point) is builds.compiled.EverythingRequest.Point
    )
    assert not isinstance(3, Struct)
    request, response = builds.compiled.EverythingRequest, builds.compiled.EverythingResponse
    assert (request.response_class, response.request_class) == (response, request)
    assert request() == request() != request(tiny=1)
    assert (request() == builds.pure.EverythingRequest()) is False
    assert request().to_dict() == builds.pure.EverythingRequest().to_dict()
    assert request.from_dict(request(tiny=3).to_dict()).tiny == 3


def test_defaults_are_not_shared(builds: Builds) -> None:
    for build_ in (builds.compiled, builds.pure):
        first, second = (
            build_.EverythingRequest.decode(build_.EverythingRequest().encode(3), 3) for _ in "ab"
        )
        first.rest.append(1)
        first.ends.from_ = 9
        first.unknown_tags[77] = b"x"
        assert second == build_.EverythingRequest() and second.unknown_tags == {}
        given = [1]
        made = build_.EverythingRequest(ints=given)
        given.append(2)
        assert made.ints == [1]


def test_with_lengths(builds: Builds) -> None:
    for message in messages(builds, "Framed"):
        value = message.cls(length=99, kind=5, content=b"abc")
        copied = value.with_lengths()
        assert type(copied) is message.cls and message.cls.decode(value.encode(0), 0) == copied
        assert (value.length, copied.length) == (99, 4)
    for ours, theirs in pairs(builds, "EverythingRequest", 3):
        assert ours.with_lengths() == ours
        assert ours.with_lengths().to_dict() == theirs.with_lengths().to_dict()


def test_copies_and_pickles(builds: Builds) -> None:
    """Each build reads the other's pickles: Spark's driver may run one and its workers the other."""
    point = {"x": 1, "y": 2}
    assert pickle.HIGHEST_PROTOCOL >= 5
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        ours, theirs = (
            m.cls(name="n", ident=UUID(int=7), point=type(m.cls().point)(**point), ints=[1, 2])
            for m in messages(builds, "EverythingRequest")
        )
        ours.unknown_tags = {99: b"x"}
        theirs.unknown_tags = {99: b"x"}
        for value in (ours, theirs):
            assert pickle.loads(pickle.dumps(value, protocol)) == value
            assert copy.copy(value) == value and copy.copy(value).ints is value.ints
            assert copy.deepcopy(value) == value and copy.deepcopy(value).ints is not value.ints
        if protocol >= 4:
            assert pickle.loads(_renamed(pickle.dumps(theirs, protocol))) == ours


def _renamed(pickled: bytes) -> bytes:
    """A pickle of the pure class, as of the compiled one: names lie in it behind a byte of length."""
    before, after = (f"{name}.protocol".encode() for name in (PURE, COMPILED))
    renamed = pickled.replace(bytes([len(before)]) + before, bytes([len(after)]) + after)
    # Of the same length: a frame of a pickle says its own.
    assert len(before) == len(after) and renamed != pickled
    return renamed


def test_subclasses(builds: Builds) -> None:
    for build_ in (builds.compiled, builds.pure):

        class Own(build_.Framed):  # type: ignore[name-defined,misc]
            def shout(self) -> str:
                return str(self.kind) + "!"

        value = Own(kind=5, content=b"abc")
        assert value.shout() == "5!"
        assert value.encode(0) == b"\0\0\0\4\5abc"
        # The function of a compiled class does not know through which class it is called.
        is_compiled = build_ is builds.compiled
        assert type(Own.decode(value.encode(0), 0)) is (build_.Framed if is_compiled else Own)


def test_memory(builds: Builds) -> None:
    """A decoded message takes less than in pure Python."""
    sizes = []
    for message in messages(builds, "EverythingRequest"):
        item = message.package.EverythingRequest.Item
        value = message.cls(items=[item(id=n % 100, label="x") for n in range(2000)], ints=range(9))
        data = value.encode(3)
        message.cls.decode(data, 3)
        gc.collect()
        tracemalloc.start()
        kept = message.cls.decode(data, 3)
        sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        del kept
    assert sizes[0] < sizes[1]


def test_no_leaks(builds: Builds) -> None:
    """Reading and writing again and again, right and wrong, leaves nothing behind."""
    message = messages(builds, "EverythingRequest")[0]
    values = [ours for ours, _ in pairs(builds, "EverythingRequest", 3)]
    data = [message.encode(value, 3) for value in values]

    def rounds(number: int) -> int:
        for _ in range(number):
            for value, octets in zip(values, data, strict=True):
                message.encode(value, 3)
                message.decode(octets, 3)
                outcome(partial(message.decode, octets[:-1], 3))
                outcome(partial(message.decode, octets, 0))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        rounds(1)
        before = rounds(1)
        assert rounds(3) - before < 4096
    finally:
        tracemalloc.stop()
