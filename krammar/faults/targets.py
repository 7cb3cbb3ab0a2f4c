"""The message-versions that a rule applies to, with their paths, conditions and error codes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from krammar.faults.action import Target
from krammar.faults.answers import Selection
from krammar.faults.errors import FaultError, blaming, unknown
from krammar.faults.paths import Condition, Path, value_of
from krammar.faults.shape import Schema, Shape
from krammar.faults.versions import in_words, range_of, spell

# The codes of errors that another message-version may not have.
_NOT_HERE = ("F401", "F501")


class Targets:
    """The message-versions of a rule. It finds what actions name in them.

    Raises:
        FaultError: a name does not exist, or a version of a named API does not fit.
    """

    def __init__(
        self, schema: Schema, apis: tuple[Any, ...], versions: Any, selection: Selection
    ) -> None:
        self.schema = schema
        self._selection = selection
        self._named = bool(apis)
        with blaming("api"):
            keys = self._keys(apis)
        with blaming("versions"):
            self._targets = self._targets_of(keys, versions)
        for role in selection.values:
            with blaming(role):
                self.keep(partial(_about, role))

    @property
    def places(self) -> Collection[tuple[int, int]]:
        """The api keys and versions."""
        return self._targets.keys()

    def get(self, api_key: int, version: int) -> Target | None:
        """Return one; None if the rule does not apply to it."""
        return self._targets.get((api_key, version))

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
                targets[key, version] = Target(self.schema, key, version, self._selection)
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
        sides = [path.side] if path.side else ["request", "response"]
        error: FaultError | None = None
        for side in sides:
            found = Path(path.text, side, path.steps)
            for target in self._targets.values():
                shape = target.request if side == "request" else None
                if side == "response":
                    shape = self.schema.response(target.api_key, target.version)
                if shape is not None and found.type_in(shape.layout) is not None:
                    return found
        for side in sides:
            for key in {key for key, _ in self._targets}:
                package = self.schema.package
                cls = (
                    package.request_class(key) if side == "request" else package.response_class(key)
                )
                missing = None if cls is None else path.missing(cls)
                # If only one side has the first field, the path belongs to that side.
                if missing and (error is None or path.steps[0].name in cls._fields):
                    error = missing
        raise error or FaultError(
            f"no message-version of the rule has {text}", code="F401", word=text
        )

    def condition(self, text: str) -> Condition:
        condition = Condition.parse(text)
        path = self.find_path(condition.path.text)
        values: list[Any] = []

        def check(target: Target) -> None:
            shape = target.request if path.side == "request" else target.response
            kind = path.type_in(shape.layout)
            if kind is None:
                # A topic that the version names by its id has a name nevertheless.
                if path.steps[-1].name in ("name", "topic"):
                    steps = (*path.steps[:-1], type(path.steps[-1])("topic_id", None))
                    if Path(path.text, path.side, steps).type_in(shape.layout) is not None:
                        return
                raise FaultError(
                    f"{target.title(path.side)} has no {path.text}", code="F401", word=path.text
                )
            package = self.schema.package
            value = condition.value
            if condition.operator == "in":
                values.append([value_of(v, kind, package, what=path.text) for v in value])
            elif value is not None or condition.operator not in ("==", "!="):
                values.append(value_of(value, kind, package, what=path.text))

        self.keep(check)
        value = values[0] if values else condition.value
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
    if shape is None:
        return False
    return role in shape.roles or (role == "topic" and "topic_id" in shape.roles)


def _about(role: str, target: Target) -> None:
    response = target.schema.response(target.api_key, target.version)
    if not names_role(target.request, role) and not names_role(response, role):
        raise FaultError(
            f"{target.title('request')} names no {role.replace('_', ' ')}", code="F401"
        )
