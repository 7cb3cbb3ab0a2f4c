"""The engine gives the same values, bytes and errors as pure Python, whatever it is given."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import ModuleType
from typing import Any

import kafka_wire
import pytest

from krammar.wire import message as message_module
from krammar.wire.engine_loading import FORMAT, checked
from krammar.wire.errors import DecodeError
from krammar.wire.message import Codec, Request, Response, Struct
from krammar.wire.package import _NoFrames
from tests.generated.catalogue import Message, messages
from tests.generated.mutations import mutations
from tests.generated.parameters import every_codec
from tests.generated.strategies import samples
from tests.generated.values import build
from tests.odd_values import odd_values
from tests.support.groups import in_groups
from tests.wire import every_form
from tests.wire.both import compare, is_error, needs_engine, outcome, pure_python

pytestmark = needs_engine

# Mutations of each message and version, and values that are damaged; the sweeps have more.
FEW, MANY = 10, 200
some = pytest.mark.parametrize("number", [FEW, pytest.param(MANY, marks=pytest.mark.sweep)])
# Longer seeds than this make slow mutations that find no more.
SEED_LIMIT = 300

of_every_form = pytest.mark.parametrize("name", every_form.NAMES)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return every_form.load(tmp_path_factory.mktemp("every_form"))


def values(message: Message, version: int) -> list[Any]:
    """Values in all styles; the same in every run."""
    layout = message.layout(version)
    if message.package.__name__ == every_form.PACKAGE:
        plains = every_form.plains(message, version)
        return [every_form.build(message.package, layout, plain) for plain in plains]
    return [build(message, layout, plain) for plain in samples(message, version, seed=9)]


def encoded(message: Message, version: int) -> list[bytes]:
    """The bytes of ``values``, by pure Python."""
    with pure_python():
        return [message.encode(value, version) for value in values(message, version)]


def arguments(message: Message, version: int) -> tuple[int, ...]:
    return () if message.version_field else (version,)


# ---- usual values ----------------------------------------------------------------------------------


@contextmanager
def no_codecs() -> Iterator[None]:
    """Everything that the engine declines fails."""

    def refuse(cls: type[Codec], version: int) -> Any:
        raise AssertionError(f"the engine declined {cls.__name__} at version {version}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Codec, "_decoder", classmethod(refuse))
        patch.setattr(Codec, "_encoder", classmethod(refuse))
        yield


def check_usual(message: Message) -> None:
    data = {version: encoded(message, version) for version in message.versions}
    assert data
    with no_codecs():
        check_not_declined(message, data)


def check_not_declined(message: Message, data: dict[int, list[bytes]]) -> None:
    for version, expected in data.items():
        given = arguments(message, version)
        for value, octets in zip(values(message, version), expected, strict=True):
            assert message.encode(value, version) == octets
            out = bytearray(b"before")
            value.encode_into(out, *given)
            assert out == b"before" + octets
            again = message.decode(octets, version)
            assert message.encode(again, version) == octets
            assert message.encode(message.decode(octets, version, copy=False), version) == octets
            around, end = b"xy" + octets + b"z", len(octets) + 2
            assert message.cls.decode_from(around, 2, *given)[1] == end
            assert message.cls._decode_quietly(around, 2, version)[1] == end


@every_codec
def test_usual_values_are_not_declined(message: Message) -> None:
    check_usual(message)


@of_every_form
def test_usual_values_of_every_form(package: Any, name: str) -> None:
    message = every_form.message(package, name)
    if name == "Open":  # the version field can have any value
        message = Message(package, package.Open, (0,))
    check_usual(message)


# ---- bytes -----------------------------------------------------------------------------------------


def check_bytes(message: Message, number: int) -> None:
    """Valid and mutated bytes, copied and as views, and the encoding of what they contain at every version."""
    assert message.versions
    for version in message.versions:
        valid = encoded(message, version)
        data = [octets for octets in valid if len(octets) < SEED_LIMIT]
        data = [*valid, *mutations(data, Random(f"{message} {version}"), number)]
        found = compare(
            [
                partial(message.decode, octets, version, copy)
                for octets in data
                for copy in (True, False)
            ]
        )
        assert not any(map(is_error, found[: 2 * len(valid)]))
        given = arguments(message, version)
        compare(
            [partial(message.cls.decode_from, octets, len(octets) // 3, *given) for octets in data]
        )
        compare([partial(message.cls._decode_quietly, octets, 0, version) for octets in data])
        decoded = [value for value in map(_quietly(message, version), data) if value is not None]
        assert decoded
        compare([partial(value.encode, at) for value in decoded for at in message.versions])


def _quietly(message: Message, version: int) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> Any:
        found = message.cls._decode_quietly(data, 0, version)
        return None if found is None else found[0]

    return decode


@some
@every_codec
def test_bytes(message: Message, number: int) -> None:
    check_bytes(message, number)


@pytest.mark.parametrize("number", [200, pytest.param(2000, marks=pytest.mark.sweep)])
@of_every_form
def test_bytes_of_every_form(package: Any, name: str, number: int) -> None:
    check_bytes(every_form.message(package, name), number)


def test_a_view_is_a_slice_of_the_data(package: Any) -> None:
    data = package.FormsRequest(bytes16=b"abc", others=[b"def"]).encode(1)
    again = package.FormsRequest.decode(data, 1, copy=False)
    for view, expected in ((again.bytes16, b"abc"), (again.others[0], b"def")):
        assert type(view) is memoryview and view.obj is data and view == expected


# ---- values ----------------------------------------------------------------------------------------


def structs(value: Any) -> Iterator[Any]:
    """A struct and those in it."""
    if isinstance(value, list):
        for element in value:
            yield from structs(element)
    elif isinstance(value, Struct):
        yield value
        for name in value._fields:
            yield from structs(getattr(value, name, None))


def check_odd_values(message: Message, number: int) -> None:
    """Fields with values that they do not usually have, at any depth: each once, or ``number`` of them."""
    rng = Random(f"odd values of {message}")
    seen = set()
    for version in message.versions:
        usual = values(message, version)
        calls, names = [], []
        for _ in range(number):
            value = pickle.loads(pickle.dumps(rng.choice(usual)))
            inside = rng.choice(list(structs(value)))
            name = rng.choice((*inside._fields, "_unknown_tags"))
            _spoil(inside, name, rng)
            names.append((version, type(inside).__name__, name, getattr(inside, name, ...)))
            calls.append(partial(value.encode, *arguments(message, version)))
        seen |= {is_error(found) for found in compare(calls, names)}
    assert True in seen


def _spoil(struct: Any, name: str, rng: Random) -> None:
    kind, odd = rng.choice(odd_values(getattr(struct, name)))
    if kind == "missing":
        delattr(struct, name)
    else:
        setattr(struct, name, odd)


@some
@every_codec
def test_odd_values(message: Message, number: int) -> None:
    message = Message(message.package, message.cls, message.versions[-3:])
    check_odd_values(message, 3 * number)


@pytest.mark.parametrize("number", [300, pytest.param(3000, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("name", [name for name in every_form.NAMES if name != "FormsResponse"])
def test_odd_values_of_every_form(package: Any, name: str, number: int) -> None:
    check_odd_values(every_form.message(package, name), number)


def test_an_error_leaves_the_buffer_unchanged(package: Any) -> None:
    value = package.Pair(left=1, right=object())
    out = bytearray(b"before")
    compare([partial(value.encode_into, out, 0)])
    assert out == b"before"
    with memoryview(out):  # a bytearray with a view cannot grow
        compare([partial(package.Pair().encode_into, out, 0)])
    assert out == b"before"


def test_other_buffers(package: Any) -> None:
    data = package.Pair(right="text").encode(0)

    class Buffer(bytes):
        pass

    buffers = (Buffer(data), bytearray(data), memoryview(data), memoryview(data * 2)[: len(data)])
    for buffer in buffers:
        (found,) = compare([partial(package.Pair.decode, buffer, 0)])
        assert not is_error(found)
    for wrong in ("text", None, 3, [1]):
        (found,) = compare([partial(package.Pair.decode, wrong, 0)])
        assert found[0] == "TypeError"


# ---- classes of the user ---------------------------------------------------------------------------


def subclasses(base: Any) -> dict[str, Any]:
    """Classes that inherit from a generated one, and change how its objects are made, read and written."""

    class Plainly(base):
        def shout(self) -> str:
            return "!"

    class Slots(base):
        __slots__ = ("more",)

    class Property(base):
        @property
        def left(self) -> int:
            return 7

        @left.setter
        def left(self, value: int) -> None:
            pass

    class New(base):
        def __new__(cls, *arguments: Any, **named: Any) -> Any:
            made = super().__new__(cls)
            made.made = True
            return made

    class Init(base):
        def __init__(self, number: int) -> None:
            super().__init__(left=number)

    class Set(base):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, 9 if name == "left" else value)

    class Get(base):
        def __getattribute__(self, name: str) -> Any:
            return 9 if name == "left" else super().__getattribute__(name)

    class Missing(base):
        def __getattr__(self, name: str) -> Any:
            return 9

    class Constant(base):
        left = 5

    class Encoding(base):
        def encode(self, version: int) -> bytes:
            return b"\0" + super().encode(version)

        @classmethod
        def decode(cls, data: Any, version: int, copy: bool = True) -> Any:
            return super().decode(data[1:], version, copy)

    local = locals()
    return {name: found for name, found in local.items() if name != "base"}


@pytest.mark.parametrize("name", list(subclasses(Codec)))
def test_subclasses(package: Any, name: str) -> None:
    cls = subclasses(package.Pair)[name]
    data = package.Pair(left=3, right="text").encode(0)

    def made() -> Any:
        value = cls(3) if name == "Init" else cls()
        value.right = "text"
        return value

    def deleted() -> Any:
        value = made()
        del value.left
        return value

    def attributes() -> Any:
        value = cls.decode(data if name != "Encoding" else b"\0" + data, 0)
        return type(value) is cls, getattr(value, "made", None), value.left, value.right

    found = compare(
        [
            attributes,
            lambda: made().encode(0),
            lambda: deleted().encode(0),
            lambda: cls.decode(data, 0),
            lambda: cls.decode(data[:1], 0),
            lambda: cls.decode(data, 1),
        ]
    )
    assert not is_error(found[0]) and found[0][1][0] == (bool, "True")


def test_subclasses_inside_of_structs(package: Any) -> None:
    """Objects of other classes are encoded if they have the fields."""
    calls = []
    for cls in (*subclasses(package.Pair).values(), package.Framed, package.Open, int):
        request = package.FormsRequest(
            some=[package.Pair(), cls(1) if cls.__name__ == "Init" else cls()]
        )
        calls += [partial(request.encode, 0), partial(request.encode, 1)]
    found = compare(calls)
    assert {is_error(each) for each in found} == {True, False}


# ---- calls -----------------------------------------------------------------------------------------


def _calls(cls: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls with wrong, missing and surplus arguments."""
    value, data = cls(), bytes(100)
    odd = (None, "1", 1.5, True, -1, 99, 1 << 80, b"", object)
    for name in ("decode", "decode_from", "_decode_quietly", "encode", "encode_into"):
        method = getattr(cls if "decode" in name else value, name)
        first = {"encode": (), "encode_into": (bytearray(),)}.get(name, (data,))
        if "_" in name.strip("_") and name != "encode_into":
            first += (0,)
        most = (*first, 1, True)
        names = {"data": data, "offset": 0, "version": 1, "copy": True, "out": bytearray()}
        for count in range(6):
            positional = (*most, 1, 2)[:count]
            yield f"{name} with {count}", partial(method, *positional)
            for keyword, given in (*names.items(), ("other", 1)):
                yield f"{name} with {count} and {keyword}", partial(
                    method, *positional, **{keyword: given}
                )
        for wrong in odd:
            for at in range(len(most)):
                replaced = (*most[:at], wrong, *most[at + 1 :])
                yield f"{name} with {wrong} at {at}", partial(method, *replaced)
                yield f"{name} with {wrong} as last", partial(method, *replaced[: at + 1])


@pytest.mark.parametrize("name", ["EverythingRequest", "FormsRequest", "Stamped", "Open", "Framed"])
def test_bad_calls(package: Any, name: str) -> None:
    names, calls = zip(*_calls(getattr(package, name)), strict=True)
    found = compare(calls, names)
    assert {each[0] for each in found} >= {"TypeError", "UnsupportedVersionError"}


def test_calls_of_other_objects(package: Any) -> None:
    """Methods of the class with other objects."""
    compare(
        [
            lambda: package.Pair.encode(package.Framed(), 0),
            lambda: Codec.encode(package.Pair(), 0),
            lambda: kafka_wire.RequestHeader.encode(package.Pair(), 0),
            lambda: package.Pair().decode(b"\0\0\0", 0),
        ]
    )


@pytest.mark.parametrize("name", list(message_module.REPLACED))
def test_signatures_and_documentation(name: str) -> None:
    function = message_module.REPLACED[name]
    method = getattr(kafka_wire.MetadataRequest, name)
    expected = [
        p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()
    ]
    if "decode" not in name:
        method = getattr(Codec, name)
    else:
        expected = expected[1:]
    found = [p.replace(annotation=p.empty) for p in inspect.signature(method).parameters.values()]
    # The first one can only be passed by position.
    assert [(p.name, p.default) for p in found] == [(p.name, p.default) for p in expected]
    assert method.__doc__ == function.__doc__ and method.__name__ == name


def test_every_class_has_programs() -> None:
    """The engine has a program for every generated class at every version."""
    seen = 0
    for message in messages():
        for version in message.versions:
            assert message.cls._load_program(version) is not None, (message, version)
            seen += 1
    assert seen > 800


def test_hostile_lengths_take_no_memory(package: Any) -> None:
    for data in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", bytes(40) + b"\x7f\xff\xff\xff"):
        for version in (0, 1):
            with pytest.raises(DecodeError):
                package.FormsRequest.decode(data, version)


# ---- frames ----------------------------------------------------------------------------------------


@in_groups("message", [m for m in messages() if issubclass(m.cls, (Request, Response))])
def test_frames(message: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole frames, valid ones first, from which the engine learns the programs."""
    package: Any = message.package
    key, of_requests = message.cls.api_key, issubclass(message.cls, Request)
    calls = []
    for version in message.versions:
        head = package.header_versions(key, version)
        if of_requests:
            header = package.RequestHeader(
                request_api_key=key, request_api_version=version, correlation_id=7
            ).encode(head.request)
        else:
            header = package.ResponseHeader(correlation_id=7).encode(head.response)
        valid = [header + data for data in encoded(message, version)]
        short = [frame for frame in valid if len(frame) < SEED_LIMIT]
        rng = Random(f"frames of {message} {version}")
        for frame in (*valid, *valid, *mutations(short, rng, FEW)):
            if of_requests:
                calls.append(partial(_request, package, frame, key, rng.random()))
            else:
                parse = partial(package.parse_response, frame, key, version)
                calls.append(partial(parse, copy=rng.random() < 0.5))
    ours = [outcome(call) for call in calls]
    with monkeypatch.context() as patch, pure_python():
        patch.setitem(vars(package.parse_request.__self__), "_frames", _NoFrames())
        theirs = [outcome(call) for call in calls]
    assert ours == theirs
    assert not is_error(ours[0])


def _request(package: Any, frame: bytes, key: int, chance: float) -> Any:
    views = {key} if chance < 0.5 else ()
    return package.parse_request(frame, allow_trailing=chance < 0.25, views=views)


def test_an_engine_of_another_version_is_refused() -> None:
    other = ModuleType("other")
    other.FORMAT = FORMAT + 1  # type: ignore[attr-defined]
    with pytest.raises(
        ImportError, match="compiled for another version of krammar: install krammar again"
    ):
        checked(other)
