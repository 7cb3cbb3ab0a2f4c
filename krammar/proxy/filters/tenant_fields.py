"""Where messages have names, topic ids and texts, and how a tenant sees them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, NamedTuple
from uuid import UUID

from krammar.proxy.filters.tenant_names import Tenant
from krammar.util.remembered import Remembered
from krammar.wire.reflection import fields

# What a prefix is added to.
ENTITIES = ("topicName", "groupId", "transactionalId")
TOPIC_ID = "topicId"
# Texts in which brokers name topics, groups or transactional ids.
ERROR_MESSAGE = "errorMessage"
# RE2 expressions that the broker matches with whole names.
PATTERN = "namePattern"
_NO_ID = UUID(int=0)
# Ids of topics that a tenant must not use, which are remembered.
STAND_INS = 10_000
# Names of topics that are remembered. A topic id never gets another name.
_NAMES = 100_000


class NamePlan(NamedTuple):
    """What a struct of a version has.

    Attributes:
        names, lists: attributes with a name, and with an array of names
        named: the attribute with the topic's name beside a topic id, or empty
        has_id, ids: whether it has a topic id, and whether it or a struct inside has one
        texts, patterns, pattern_lists: attributes
        structs, arrays: attributes with structs that have any of these, their plans, and whether a struct can be null
    """

    names: tuple[str, ...]
    lists: tuple[str, ...]
    named: str
    has_id: bool
    ids: bool
    texts: tuple[str, ...]
    patterns: tuple[str, ...]
    pattern_lists: tuple[str, ...]
    structs: tuple[tuple[str, NamePlan, bool], ...]
    arrays: tuple[tuple[str, NamePlan], ...]


_NOTHING = NamePlan((), (), "", False, False, (), (), (), (), ())


@cache
def plan_of(cls: Any, version: int) -> NamePlan:
    """Return the plan of a message."""
    found: dict[str, list[Any]] = {name: [] for name in NamePlan._fields}
    for item in fields(cls):
        if version not in item.versions:
            continue
        is_array = item.type.startswith("[")
        if item.struct is not None:
            key: Any = item.struct  # mypy takes instances, which have no hash, for their class
            inner = plan_of(key, version)
            if inner != _NOTHING:
                if is_array:
                    found["arrays"].append((item.name, inner))
                else:
                    found["structs"].append((item.name, inner, version in item.nullable_versions))
        elif item.entity in ENTITIES:
            found["lists" if is_array else "names"].append(item.name)
        elif item.entity == PATTERN:
            found["pattern_lists" if is_array else "patterns"].append(item.name)
        elif item.entity == ERROR_MESSAGE:
            found["texts"].append(item.name)
    infos = {item.name: item for item in fields(cls) if version in item.versions}
    has_id = any(item.entity == TOPIC_ID for item in infos.values())
    named = next((name for name in found["names"] if infos[name].entity == "topicName"), "")
    inner_plans = [inner for _, inner, *_ in (*found["structs"], *found["arrays"])]
    lists: dict[str, Any] = {name: tuple(value) for name, value in found.items()}
    lists["ids"] = has_id or any(inner.ids for inner in inner_plans)
    return NamePlan(**lists | {"has_id": has_id, "named": named})


class TenantTopicIds:
    """The names of topics by id, at the broker; and stand-ins for ids that a tenant must not use.

    The names are those of all tenants, and each use of an id is compared with the prefix of its tenant. Those that were
    not used for the longest time are forgotten first. The broker answers a stand-in like any id that does not exist, in
    the form and the place of the API.
    """

    def __init__(self) -> None:
        self._names: Remembered[bytes, str] = Remembered(_NAMES)
        self._originals: Remembered[UUID, UUID] = Remembered(STAND_INS)
        self._secret = token_bytes(32)

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, or None if it is not known."""
        return self.name_of_bytes(topic_id.bytes)

    def name_of_bytes(self, topic_id: bytes) -> str | None:
        """Return the name of a topic for the 16 bytes of its id, or None if it is not known."""
        found = self._names.get(topic_id)
        if found is not None:
            self._names.move_to_end(topic_id)
        return found

    def learn(self, topic_id: UUID, name: str) -> None:
        """Remember the name of a topic. Stand-ins, which brokers can repeat beside a name, never get one."""
        if topic_id not in self._originals:
            self._names[topic_id.bytes] = name

    def stand_in(self, topic_id: UUID) -> UUID:
        """Return an id that no topic has; always the same one, because of fetch sessions.

        It is a keyed hash: a tenant that learns a stand-in cannot find an id whose stand-in is the id of a topic.
        """
        digest = blake2b(topic_id.bytes, digest_size=16, key=self._secret).digest()
        found = UUID(bytes=digest)
        self._originals[found] = topic_id
        return found

    def original(self, topic_id: UUID) -> UUID | None:
        """Return the id that a stand-in has replaced; None for other ids."""
        return self._originals.get(topic_id)


def with_ids(plan: NamePlan, struct: Any) -> Iterator[tuple[Any, str]]:
    """Yield the structs with a topic id, and the topic's name beside it; empty if there is none."""
    if plan.has_id and struct.topic_id != _NO_ID:
        yield struct, (getattr(struct, plan.named) or "") if plan.named else ""
    for name, inner, _ in plan.structs:
        value = getattr(struct, name)
        if value is not None:
            yield from with_ids(inner, value)
    for name, inner in plan.arrays:
        for element in getattr(struct, name) or ():
            yield from with_ids(inner, element)


def restore(plan: NamePlan, struct: Any, tenant: Tenant, ids: TenantTopicIds) -> bool:
    """Show a tenant a struct of a response: its own names, in place, and nothing of others.

    Returns:
        Whether the struct belongs to the tenant; otherwise it must be removed.
    """
    for name in plan.names:
        value = getattr(struct, name)
        if value:
            if not tenant.owns(value):
                return False
            setattr(struct, name, tenant.strip(value))
    if plan.has_id and not _restore_id(struct, tenant, ids):
        return False
    for name in plan.lists:
        value = getattr(struct, name)
        if value:
            setattr(struct, name, [tenant.strip(each) for each in value if tenant.owns(each)])
    for name in plan.texts:
        value = getattr(struct, name)
        if value:
            setattr(struct, name, tenant.clean(value))
    for name in plan.patterns:
        value = getattr(struct, name)
        if value:
            setattr(struct, name, tenant.strip_pattern(value))
    for name in plan.pattern_lists:
        setattr(struct, name, _own_patterns(getattr(struct, name), tenant))
    for name, inner, nullable in plan.structs:
        value = getattr(struct, name)
        if value is not None and not restore(inner, value, tenant, ids):
            if not nullable:
                return False
            setattr(struct, name, None)
    for name, inner in plan.arrays:
        value = getattr(struct, name)
        if value:
            own = [element for element in value if restore(inner, element, tenant, ids)]
            if len(own) != len(value):
                setattr(struct, name, own)
    return True


def _restore_id(struct: Any, tenant: Tenant, ids: TenantTopicIds) -> bool:
    topic_id = struct.topic_id
    if topic_id == _NO_ID:
        return True
    name = ids.name(topic_id)
    if name is not None:
        return tenant.owns(name)
    original = ids.original(topic_id)
    if original is None:
        return False
    struct.topic_id = original
    return True


def _own_patterns(patterns: list[str] | None, tenant: Tenant) -> list[str] | None:
    if patterns is None:
        return None
    return [own for each in patterns if (own := tenant.strip_pattern(each)) is not None]
