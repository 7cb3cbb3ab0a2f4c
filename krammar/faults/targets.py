"""The message-versions that a rule applies to, with their paths, conditions and error codes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from krammar.faults.answers import Selection
from krammar.faults.errors import FaultError, blaming, unknown
from krammar.faults.paths import Condition, Path, PathStep, value_of
from krammar.faults.shape import Schema, Shape
from krammar.wire.layout import Type

# Ranges of versions, as rules write them.


def range_of(versions: Any) -> tuple[int, int]:
    """Return the range of ``None`` (all), ``7``, ``"7"``, ``"3-7"``, ``"3-"`` or ``(3, 7)``."""
    if versions is None:
        return 0, 0x7FFF
    if isinstance(versions, int) and not isinstance(versions, bool):
        return versions, versions
    if isinstance(versions, (tuple, range)) and len(versions) >= 2:
        return versions[0], versions[-1]
    low, dash, high = str(versions).replace(" ", "").partition("-")
    if low.isdecimal() and (not high or high.isdecimal()):
        found = int(low), int(high) if high else 0x7FFF if dash else int(low)
        if found[0] <= found[1] <= 0x7FFF:
            return found
    raise FaultError(
        f'"{versions}" is not a range of versions',
        hint='write 7, "3-7" or "3-"',
        word=str(versions),
    )


def in_words(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} or newer" if high == 0x7FFF else f"{low} to {high}"


def spell(versions: Iterable[int]) -> str:
    """Return the longest run of versions, as a rule spells it."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and runs[-1][-1] == version - 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    run = max(runs, key=len)
    return f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])


# The codes of errors that another message-version may not have.
_NOT_HERE = ("F401", "F501")
SIDES = ("request", "response")


# Message-versions.


@dataclass(frozen=True, slots=True)
class Target:
    """A message-version that a rule applies to."""

    schema: Schema
    api_key: int
    version: int
    selection: Selection

    @property
    def api(self) -> str:
        return self.schema.name(self.api_key)

    @property
    def request(self) -> Shape:
        return self.shape("request")

    @property
    def response(self) -> Shape:
        """Raises FaultError for a request without a response."""
        return self.shape("response")

    def shape(self, side: str) -> Shape:
        """Return the request's or the response's shape. Raises FaultError for a request without a response."""
        shape = self.schema.side(side, self.api_key, self.version)
        if shape is None:
            raise FaultError(f"{self.api} has no response", code="F401")
        return shape

    def title(self, side: str) -> str:
        return f"{self.api}{side.capitalize()} v{self.version}"

    def type_at(self, path: Path) -> Type:
        """Return the type of a field. Raises FaultError if the message-version does not have it."""
        kind = path.type_in(self.shape(path.side).layout)
        if kind is None:
            raise FaultError(
                f"{self.title(path.side)} has no {path.text}", code="F401", word=path.text
            )
        return kind

    def value_at(self, path: Path, value: Any) -> Any:
        """Return a value as a field holds it. Raises FaultError if it does not fit."""
        return value_of(value, self.type_at(path), self.schema.package, what=path.text)


class Targets:
    """The message-versions of a rule. It finds what actions name in them.

    Raises:
        FaultError: a name does not exist, or a version of a named API does not fit.
    """

    def __init__(
        self,
        schema: Schema,
        apis: tuple[Any, ...],
        versions: Any,
        selection: Selection,
        where: Iterable[str],
    ) -> None:
        self.schema = schema
        self.selection = selection
        self._named = bool(apis)
        with blaming("api"):
            keys = self._keys(apis)
        with blaming("versions"):
            self._targets = self._targets_of(keys, versions)
        for role in selection.values:
            with blaming(role):
                self.keep(partial(_about, role))
        with blaming("where"):
            self.conditions = [self._condition(text) for text in where]

    @property
    def places(self) -> Collection[tuple[int, int]]:
        """The api keys and versions."""
        return self._targets.keys()

    def get(self, api_key: int, version: int) -> Target | None:
        """Return one; None if the rule does not apply to it."""
        return self._targets.get((api_key, version))

    def are_known_from_request(self, target: Target) -> bool:
        """Whether the request alone shows what selection and conditions are about."""
        return not any(each.path.side == "response" for each in self.conditions) and all(
            names_role(target.request, role) for role in self.selection.values
        )

    def _keys(self, apis: tuple[Any, ...]) -> list[int]:
        known = self.schema.names()
        if not apis:
            return list(known.values())
        keys = []
        for api in apis:
            name = api if isinstance(api, str) else getattr(api, "__name__", "")
            name = name.removesuffix("Request").removesuffix("Response")
            if isinstance(api, int) and api in known.values():
                keys.append(int(api))
            elif name in known:
                keys.append(known[name])
            else:
                raise unknown("the API", name or str(api), known)
        return keys

    def _targets_of(self, keys: list[int], versions: Any) -> dict[tuple[int, int], Target]:
        low, high = range_of(versions)
        targets = {}
        for key in keys:
            first, last = self.schema.package.versions()[key]
            if self._named and (low > last or high < first):
                raise FaultError(
                    f"{self.schema.name(key)} has no version {in_words(low, high)}",
                    hint=f"it has the versions {first} to {last}",
                    code="F401",
                    word=str(versions),
                )
            for version in range(max(low, first), min(high, last) + 1):
                targets[key, version] = Target(self.schema, key, version, self.selection)
        return targets

    def keep(self, check: Callable[[Target], None]) -> None:
        """Check each target. If the rule names APIs, each has to pass; else those that fail are left out."""
        errors: dict[tuple[int, int], FaultError] = {}
        for key, target in self._targets.items():
            try:
                check(target)
            except FaultError as error:
                errors[key] = error
        if not errors:
            return
        # The error of a wrong value is more useful than that of a version without the field.
        (api, _), first = min(errors.items(), key=lambda error: error[1].code in _NOT_HERE)
        left = {key: target for key, target in self._targets.items() if key not in errors}
        if first.code in _NOT_HERE and left and not self._named:
            self._targets = left
            return
        versions = [version for key, version in left if key == api]
        hint = first.hint
        if first.code == "F401" and versions:
            hint = f'write versions = "{spell(versions)}"'
        raise FaultError(first.message, hint=hint, code=first.code, word=first.word)

    def find_path(self, text: str) -> Path:
        """Read a path, and decide whether it begins in the request or the response."""
        path = Path.parse(text)
        sides = [path.side] if path.side else SIDES
        for side in sides:
            found = Path(path.text, side, path.steps)
            for target in self._targets.values():
                shape = self.schema.side(side, target.api_key, target.version)
                if shape is not None and found.type_in(shape.layout) is not None:
                    return found
        # If only one side has the first field, the path belongs to that side.
        missing = [
            (path.steps[0].name in cls._fields, error)
            for side in sides
            for key in dict.fromkeys(key for key, _ in self._targets)
            if (cls := self.schema.class_of(side, key)) is not None
            and (error := path.missing(cls)) is not None
        ]
        if missing:
            raise max(missing, key=lambda each: each[0])[1]
        raise FaultError(f"no message-version of the rule has {text}", code="F401", word=text)

    def _condition(self, text: str) -> Condition:
        condition = Condition.parse(text)
        path, value = self.find_path(condition.path.text), condition.value
        values: list[Any] = []

        def check(target: Target) -> None:
            try:
                target.type_at(path)
            except FaultError:
                # A topic that the version names by its id has a name nevertheless.
                by_id = Path(path.text, path.side, (*path.steps[:-1], PathStep("topic_id", None)))
                if path.steps[-1].name in ("name", "topic"):
                    target.type_at(by_id)
                    return
                raise
            if condition.operator == "in":
                values.append([target.value_at(path, each) for each in value])
            elif value is not None or condition.operator not in ("==", "!="):
                values.append(target.value_at(path, value))

        self.keep(check)
        value = values[0] if values else value
        if not isinstance(value, (list, int, float, str, type(None))):
            value = str(value)  # a uuid, which ``holds`` compares as text
        return Condition(text, path, condition.operator, value)

    def error_code(self, code: int | str) -> tuple[int, str]:
        package = self.schema.package
        try:
            members = package.get("ErrorCode").__members__
        except AttributeError:
            raise FaultError(
                f"{package.name} has no enum ErrorCode",
                hint="answer by change, with the path of a field",
                code="F401",
            ) from None
        if isinstance(code, str):
            if code not in members:
                raise unknown("ErrorCode:", code, members)
            return int(members[code]), code
        if not -0x8000 <= code <= 0x7FFF:
            raise FaultError(f"{code} is not an error code: it needs 16 bits", word=str(code))
        name = next((name for name, member in members.items() if member == code), str(int(code)))
        return int(code), name


def names_role(shape: Shape | None, role: str) -> bool:
    """Whether a message has fields for what a rule selects by."""
    roles = frozenset() if shape is None else shape.roles
    return role in roles or (role == "topic" and "topic_id" in roles)


def _about(role: str, target: Target) -> None:
    sides = [target.schema.side(side, target.api_key, target.version) for side in SIDES]
    if not any(names_role(shape, role) for shape in sides):
        raise FaultError(
            f"{target.title('request')} names no {role.replace('_', ' ')}", code="F401"
        )
