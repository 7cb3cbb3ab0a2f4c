"""Strategies of packages and whole protocols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.random_definitions import names
from tests.random_definitions.class_names import with_unique_classes
from tests.random_definitions.header_strategies import Numbering, make_headers
from tests.random_definitions.headers import KAFKAS
from tests.random_definitions.model import (
    ALL,
    Counted,
    Enum,
    Field,
    File,
    Named,
    Number,
    Package,
    Protocol,
    Struct,
    Use,
    Versions,
    defaults,
    struct_in,
)
from tests.random_definitions.strategies import FORMS, TOP, Context, Maker


class _PackageMaker:
    """Draws a package."""

    def __init__(self, maker: Maker, earlier: Sequence[Package]) -> None:
        self.maker = maker
        self.earlier = earlier
        self.enums: list[Enum] = []
        self.parts: list[Struct] = []
        # Parts with tags, until a flexible message has one.
        self.waiting: list[Struct] = []
        # Definitions that stay together in one file.
        self.units: list[list[Struct | Enum]] = []

    def package(self, name: str) -> Package:
        maker = self.maker
        for _ in range(maker.number(0, 2) if "enums" in maker.forms else 0):
            self.enums.append(maker.enum())
            self.units.append([self.enums[-1]])
        headers = None
        used = self.used_headers()
        if used is not None:
            headers = used.headers
        elif maker.chance("headers", 40):
            headers = make_headers(maker, self.enums)
            self.units += [[headers.request], [headers.response]]
        self.numbering = Numbering(maker, headers or KAFKAS)
        uses = tuple(self.uses(used))
        for _ in range(maker.number(0, 3)):
            self.named()
        for _ in range(maker.number(1, 3)):
            if self.numbering.can_push and maker.chance("pushes", 40):
                self.push()
            else:
                self.message()
        rest = {id(struct) for struct in self.waiting}
        units = [
            [
                (
                    replace(each, flexible_from=0)
                    if id(each) in rest and isinstance(each, Struct)
                    else each
                )
                for each in unit
            ]
            for unit in self.units
        ]
        return Package(name, tuple(self.spread(units)), uses, headers)

    def used_headers(self) -> Package | None:
        """An earlier package whose headers precede the messages of this one, too."""
        known = [
            each for each in self.earlier if any(struct.role == "header" for struct in each.structs)
        ]
        return self.maker.pick(known) if known and self.maker.chance("headers", 50) else None

    def uses(self, used: Package | None) -> Iterator[Use]:
        """Definitions of earlier packages, which later fields can use. Headers are those of ``used``."""
        maker = self.maker
        for package in self.earlier:
            both = ("RequestHeader", "ResponseHeader") if package is used else ()
            if not maker.chance("packages", 70):
                if both:
                    yield Use(package, both)
                continue
            known = {
                each.name: each
                for file in package.contents
                for each in file.definitions
                if isinstance(each, Enum)
                or each.role in ("plain", "versioned")
                or (each.role == "part" and "." not in each.name)
                or (each.role == "request" and self.numbering.fits(each))
            }
            chosen = [name for name in known if maker.chance("", 60)]
            for name in chosen:
                each = known[name]
                if isinstance(each, Enum):
                    self.enums.append(each)
                elif each.role == "request":
                    self.numbering.sent.add(each.key)
                elif not each.reads_newer:
                    self.parts.append(each)
            if chosen or both:
                yield Use(package, (*both, *chosen))

    def spread(self, units: list[list[Struct | Enum]]) -> Iterator[File]:
        """Put the definitions into files."""
        maker = self.maker
        count = 1 + maker.chance("files", 40) + maker.chance("files", 20)
        units = maker.order(units) if len(units) > 1 else units
        files: list[list[Struct | Enum]] = [[] for _ in range(count)]
        for unit in units:
            files[maker.number(0, count - 1)] += unit
        taken = {"headers", *(names.normal(package.name) for package in self.earlier)}
        for definitions in files:
            if definitions:
                name = maker.name(taken, names.FILES, names.HOSTILE_FILES, key=_module_key)
                yield File(f"{name}.krm", tuple(definitions))

    def named(self) -> None:
        """A struct with a name."""
        maker = self.maker
        roles = [
            role
            for role, form in (("part", "parts"), ("plain", "plain"), ("versioned", "versioned"))
            if form in maker.forms
        ]
        if not roles:
            return
        role = maker.pick(roles)
        name = maker.definition_name()
        lowest = highest = flexible = None
        borrowed = False
        if role != "part":
            if maker.chance("", 50):
                highest = maker.number(0, 4)
                lowest = maker.number(0, highest) if maker.chance("min version", 20) else 0
            if maker.chance("flexible", 40):
                flexible = maker.number(0, 4 if highest is None else highest)
        elif maker.chance("flexible", 40):
            borrowed = True
        context = Context(
            name,
            lowest or 0,
            highest,
            flexible,
            tags=borrowed or flexible is not None,
            shared=role == "part",
        )
        fields = maker.fields(
            context, self.parts, self.enums, 0 if "empty structs" in maker.forms else 1
        )
        if role == "versioned":
            context.shared = False
            usual, written = self.version(lowest or 0, highest)
            first = Field("Version", Number("int16"), usual, written)
            fields = [
                first,
                *(
                    item
                    for item in fields
                    if names.normal(item.name) != "version" and not _counts(item, "Version")
                ),
            ]
        struct = maker.finished(
            Struct(role, tuple(fields), name, lowest or 0, highest, flexible, doc=maker.doc()),
            context,
        )
        struct, _ = with_unique_classes(struct, ())
        if role == "versioned" and highest is None:
            struct = replace(struct, highest=highest_named(struct), implied=True)
        elif role == "versioned" and maker.chance("newer versions", 40):
            # Such a struct cannot be a field.
            self.units.append([replace(struct, reads_newer=True)])
            return
        self.parts.append(struct)
        if borrowed and has_tags(struct):
            self.waiting.append(struct)
        self.units.append([struct])

    def version(self, lowest: int, highest: int | None) -> tuple[int, str]:
        """The default of a version field. It need not be a version of the struct."""
        if not self.maker.chance("defaults", 40):
            return 0, ""
        version = self.maker.number(lowest, TOP if highest is None else highest)
        return version, f"({version})"

    def message(self) -> None:
        """A request and its response, with their own structs."""
        maker = self.maker
        name = maker.name(
            maker.taken,
            names.MESSAGES,
            names.HOSTILE_MESSAGES,
            lambda name: _free(name, maker.taken),
        )
        maker.taken |= {names.normal(f"{name}Request"), names.normal(f"{name}Response")}
        base = self.versions()
        words: tuple[str, ...] = ()
        if maker.chance("words", 20):
            words = (
                maker.pick(("admin", "group coordinator", "txn coordinator", "share coordinator")),
            )
        one_way = maker.chance("one way", 15)
        request, parts = self.body(
            replace(base, role="request", name=f"{name}Request", one_way=one_way)
        )
        request = self.numbering.request(replace(request, words=words))
        unit: list[Struct | Enum] = [request]
        if not one_way:
            response, others = self.body(replace(base, role="response", name=f"{name}Response"))
            unit += [replace(response, key=request.key), *others]
        self.units.append([*unit, *parts])

    def push(self) -> None:
        """A message that the server sends by itself."""
        maker = self.maker
        name = maker.definition_name()
        while name.endswith(("Request", "Response")):
            name = maker.definition_name()
        push, parts = self.body(replace(self.versions(), role="push", name=name))
        self.units.append([self.numbering.push(push), *parts])

    def versions(self) -> Struct:
        """A message without a name and without fields."""
        maker = self.maker
        highest = maker.number(0, 4)
        lowest = maker.number(0, highest) if maker.chance("min version", 25) else 0
        flexible = maker.number(0, highest) if maker.chance("flexible", 60) else None
        return Struct("", (), "", lowest, highest, flexible)

    def body(self, struct: Struct) -> tuple[Struct, list[Struct]]:
        """The message with its fields, and its own structs."""
        maker = self.maker
        flexible = struct.flexible_from is not None
        context = Context(
            struct.name, struct.lowest, struct.highest, struct.flexible_from, tags=flexible
        )
        if maker.chance("own parts", 15):
            short = (
                names.DEFINITIONS[0]
                if maker.chance("collisions", 50)
                else maker.name(
                    set(),
                    names.DEFINITIONS,
                    names.HOSTILE_DEFINITIONS,
                    names.is_class_name,
                    names.stem,
                )
            )
            context.classes.add(names.stem(short))
            context.known.append(short)
            inner = Context(f"{struct.name}.{short}", 0, None, None, tags=False, shared=True)
            inner.classes, inner.known = context.classes, context.known
            own = Struct("part", tuple(maker.fields(inner, (), self.enums, 1)), inner.owner)
            context.own.append(maker.finished(own, inner))
        fields = maker.fields(
            context, self.parts, self.enums, 0 if "empty structs" in maker.forms else 1
        )
        if flexible and self.waiting and struct.role == "request":
            taken = {names.normal(item.name) for item in fields}
            for each in self.waiting:
                fields.append(
                    Field(maker.name(taken, names.FIELDS, ()), Named(each), defaults(each))
                )
            self.waiting.clear()
        found = replace(struct, fields=tuple(fields), doc=maker.doc())
        return with_unique_classes(maker.finished(found, context), context.own)


def highest_named(struct: Struct) -> int | None:
    """The highest version that a struct with a version field names, or None."""
    found: list[int] = [] if struct.flexible_from is None else [struct.flexible_from]

    def visit(inside: Struct) -> None:
        for item in inside.fields:
            if item.versions != ALL:
                found.append(
                    item.versions.first if item.versions.last is None else item.versions.last
                )
            type_: Any = item.type
            while type_ is not None:
                nulls = getattr(type_, "nullable", None)
                if isinstance(nulls, Versions) and nulls != ALL:
                    found.append(nulls.first if nulls.last is None else nulls.last)
                type_ = getattr(type_, "element", None)
            inner = struct_in(item.type)
            if inner is not None and inner.role != "versioned":
                visit(inner)

    visit(struct)
    return max(found, default=None)


def has_tags(struct: Struct) -> bool:
    """Whether a struct, or one inside, has tagged fields or reserves tags."""
    if struct.reserved or any(item.tag is not None for item in struct.fields):
        return True
    return any(
        inner is not None and inner.role == "anonymous" and has_tags(inner)
        for inner in (struct_in(item.type) for item in struct.fields)
    )


def _counts(item: Field, name: str) -> bool:
    return isinstance(item.type, Counted) and item.type.length == name


def _free(name: str, taken: set[str]) -> bool:
    """Whether a message can have the name: its request's and response's names must be free, too."""
    ends = (names.normal(f"{name}Request"), names.normal(f"{name}Response"))
    return name.isidentifier() and not any(end in taken for end in ends)


def _module_key(name: str) -> str:
    return names.normal(name).lstrip("0123456789")


def draw_protocol(maker: Maker) -> Protocol:
    """Draw packages of which later ones can use earlier ones."""
    count = 1 + maker.chance("packages", 35) + maker.chance("packages", 15)
    packages: list[Package] = []
    taken: set[str] = set()
    for _ in range(count):
        name = maker.name(taken, names.PACKAGES, names.HOSTILE_PACKAGES)
        packages.append(_PackageMaker(maker, packages).package(name))
    return Protocol(tuple(packages), maker.forms)


@st.composite
def protocols(draw: Any, forms: frozenset[str] = frozenset(FORMS)) -> Protocol:
    """Valid protocols that use some of ``forms``."""
    return draw_protocol(Maker(draw, forms))
