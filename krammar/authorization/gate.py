"""Takes from a request what its client may not do, and puts the refusals into the response.

``table`` says what each API asks for. What is left of a request is handled as if the rest had not been asked, so
whoever handles it needs no checks. A few APIs need more than the table says; their functions are in ``_MORE`` and ``_CHECKS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from uuid import UUID

import kafka_wire
from kafka_wire import AclResourceType, ConfigResourceType, ErrorCode

from krammar.authorization import operations
from krammar.authorization.acls import CLUSTER_NAME, Authorizer, Requester
from krammar.authorization.table import (
    CLUSTER,
    CLUSTER_ACTION,
    CONFIGS,
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    EACH,
    ERRORS,
    GROUP,
    HIDDEN,
    IDEMPOTENT_WRITE,
    OPEN,
    READ,
    TABLE,
    TOPIC,
    TRANSACTIONAL_ID,
    WHOLE,
    WRITE,
    Ask,
)
from krammar.faults.answers import Selection, Subject, build, elements_at, merge, subjects, without
from krammar.faults.shape import Place, Schema, Shape, error_places
from krammar.wire.representation import kinds_of, named

# The role of a resource's name in requests and responses, as ``faults.shape`` calls it.
_ROLES: dict[int, str] = {
    GROUP: "group",
    TOPIC: "topic",
    TRANSACTIONAL_ID: "transactional_id",
}
# The roles that name the same thing in a response.
_SAME = {"topic": {"topic", "topic_id"}, "group": {"group", "key"}}
_SAME["transactional_id"] = {"transactional_id", "key"}
# The APIs with bit fields of authorized operations.
_WITH_OPERATIONS = frozenset(
    {
        "ConsumerGroupDescribe",
        "DescribeCluster",
        "DescribeGroups",
        "DescribeTopicPartitions",
        "Metadata",
        "ShareGroupDescribe",
    }
)
# Responses that a whole refusal fills with one result for each entry of the request.
_RESULTS = {
    "AlterClientQuotas": ("entries", "entries"),
    "CreateAcls": ("creations", "results"),
    "DeleteAcls": ("filters", "filter_results"),
}
# What an API needs that the table does not have.
_UNKNOWN = (Ask(CLUSTER_ACTION, CLUSTER, WHOLE),)
# A whole refusal has the error beside the response's own also in each element.
_EVERYWHERE = frozenset({"AlterPartitionReassignments", "ElectLeaders"})
# They are handled even if no topic remains: by the coordinator of the group, or because a share session counts requests.
_ABOUT_A_GROUP = frozenset(
    {
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
        "OffsetDelete",
        "OffsetFetch",
        "ShareAcknowledge",
        "ShareFetch",
    }
)
_WITH_CONFIGS = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}
# Where a batch has the lower byte of its attributes.
_ATTRIBUTES = 22
# The first version of AddPartitionsToTxn that only brokers send (KIP-890).
_FROM_BROKERS = 4


class KnownTopics(Protocol):
    """What the gate asks about topics."""

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic; None if it is unknown."""

    def names(self) -> Iterable[str] | None:
        """Return the names of all topics; None if they are unknown here."""

    def would_create(self, request: Any, version: int, name: str) -> bool:
        """Return whether a Metadata request creates a topic because it does not exist."""


@dataclass(slots=True)
class Decision:
    """What remains of a request.

    Attributes:
        request: the part that may be handled
        response: the answer, if nothing may be handled; ``finish`` makes it complete
        later: changes of the response
        refused: the names of the resources that were refused, by type
    """

    request: Any
    response: Any = None
    later: list[Callable[[Any], Any]] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)

    def finish(self, response: Any) -> Any:
        """Return the response with the refusals in it."""
        for change in self.later:
            response = change(response)
        return response


class Gate:
    """Decides requests by the ACLs of an ``Authorizer``.

    Args:
        schema: the shapes of Kafka's messages
        topics: what is known about topics
    """

    def __init__(self, authorizer: Authorizer, schema: Schema, topics: KnownTopics) -> None:
        self.authorizer = authorizer
        self.schema = schema
        self.topics = topics

    def decide(self, client: Requester, request: Any, version: int) -> Decision | None:
        """Decide a request. Returns None if all of it is allowed, and so is everything in the response."""
        if client.principal in self.authorizer.super_users:
            return None
        return _Case(self, client, request, version).decide()


class _Case:
    """One request of one client."""

    def __init__(self, gate: Gate, client: Requester, request: Any, version: int) -> None:
        self.gate, self.client, self.version = gate, client, version
        self.decision = Decision(request)
        self.api = gate.schema.name(request.api_key)
        self.shape = gate.schema.request(request.api_key, version)

    def decide(self) -> Decision | None:
        for ask in self._asks():
            self._ask(ask)
            if self.decision.response is not None:
                break
        else:
            if self.api in CONFIGS:
                _configs(self, CONFIGS[self.api])
            elif self.api in _MORE:
                _MORE[self.api](self)
            if self.api in _WITH_OPERATIONS:
                self.decision.later.append(self._restrict)
        if self.api in _CHECKS:
            self.decision.later.append(partial(_CHECKS[self.api], self))
        changed = self.decision.response is not None or self.decision.later
        return self.decision if changed else None

    def _asks(self) -> tuple[Ask, ...]:
        if self.api == "AddPartitionsToTxn" and self.version >= _FROM_BROKERS:
            return _UNKNOWN
        return TABLE.get(self.api, () if self.api in OPEN or self.api in CONFIGS else _UNKNOWN)

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        return self.gate.authorizer.allows(self.client, operation, resource_type, name)

    def _ask(self, ask: Ask) -> None:
        if ask.unless is not None and self.may(ask.unless, CLUSTER, CLUSTER_NAME):
            return
        if ask.resource == CLUSTER:
            if not self.may(ask.operation, CLUSTER, CLUSTER_NAME):
                self.refuse_all(CLUSTER)
            return
        if ask.refusal is HIDDEN:
            self.hide(ask)
            return
        asked = list(self._names(ask.resource))
        refused = [name for name in asked if not self.may(ask.operation, ask.resource, name)]
        if ask.refusal is EACH and ask.resource == TOPIC and not asked:
            self._all_topics(ask)
        elif refused and ask.refusal is WHOLE:
            self.refuse_all(ask.resource)
        elif refused:
            self.refuse_each(ask.resource, refused)

    def _names(self, resource_type: int) -> Iterator[str]:
        """Yield the names of resources of a type in the request, each once."""
        if self.api == "ConsumerGroupHeartbeat" and resource_type == TOPIC:
            # The topics of partitions that the member has already are not asked for.
            yield from dict.fromkeys(self.decision.request.subscribed_topic_names or ())
            return
        if self.api == "Produce" and resource_type == TRANSACTIONAL_ID:
            # It matters for transactional batches only, which must not come without it.
            if _is_transactional(self.decision.request):
                yield self.decision.request.transactional_id or ""
            return
        role = _ROLES[resource_type]
        names = (self._name(role, subject) for subject in self._subjects())
        yield from dict.fromkeys(name for name in names if name is not None)

    def _subjects(self) -> list[Subject]:
        """Return what the request is about. The cursor of a page is no request for its topic."""
        request = self.decision.request
        if self.api == "DescribeTopicPartitions" and request.cursor is not None:
            request = copy(request)
            request.cursor = None
        return list(subjects(request, self.shape))

    def _name(self, role: str, subject: Subject) -> str | None:
        name: str | None = subject.get(role)
        if role == "topic" and not name and (topic_id := subject.get("topic_id")):
            return self.gate.topics.name_of(topic_id)
        return name

    def note(self, resource_type: AclResourceType, names: Iterable[str]) -> None:
        """Remember what was refused; no names mean the whole request."""
        self.decision.refused.setdefault(resource_type.name.lower(), []).extend(names)

    # Refusals.

    def refuse_all(self, resource_type: AclResourceType, code: ErrorCode | None = None) -> None:
        """Answer the whole request with the error of a type of resource."""
        self.note(resource_type, ())
        request, cls, shape = self.decision.request, *self._response()
        if self.api in _RESULTS:
            entries, results = _RESULTS[self.api]
            response = cls()
            inner = next(each.shape for each in shape.branches if each.name == results)
            kind = named(cls, kinds_of(cls)[results])
            refused = [kind() for _ in getattr(request, entries)]
            for struct in refused:
                _put(struct, inner, resource_type)
            setattr(response, results, refused)
        elif self.api in _OF_USERS:
            response = _OF_USERS[self.api](request)
        else:
            places = error_places(shape)
            about = self._subjects()
            response = self._built(about, places[0], resource_type, code) if places else cls()
            if self.api in _EVERYWHERE:
                for place in places[1:]:
                    inner = self._built(about, place, resource_type)
                    for branch in shape.branches:
                        setattr(response, branch.name, getattr(inner, branch.name))
        self.decision.response = response

    def refuse_each(self, resource_type: AclResourceType, names: Iterable[str]) -> None:
        """Take resources out of the request, and put their errors into the response."""
        self.note(resource_type, names)
        role = _ROLES[resource_type]
        selection = Selection({role: tuple(names)})
        request, name_of = self.decision.request, self.gate.topics.name_of
        about = [
            subject
            for subject in self._subjects()
            if selection.bound(subject) and selection.matches(subject, name_of)
        ]
        _, shape = self._response()
        place = next(
            (each for each in error_places(shape) if each.branches and each.roles & _SAME[role]),
            None,
        )
        own = {each for _, each in self.shape.plain}
        if place is None or own & _SAME[role]:
            self.refuse_all(resource_type)
            return
        refused = self._built(about, place, resource_type)
        rest = without(request, self.shape, selection, name_of)
        if rest is None and self.api == "Metadata":
            # The nodes are open to everyone. In v0, an empty list asks for all topics.
            rest = copy(request)
            rest.topics = []
            self.decision.later.insert(0, _no_topics)
        elif rest is None and self.api in _ABOUT_A_GROUP and resource_type == TOPIC:
            rest = _without_topics(request)
        if rest is None:
            self.decision.response = refused
            return
        self.decision.request = rest
        self.decision.later.append(lambda response: _merged(response, refused, shape))

    def _built(
        self,
        about: list[Subject],
        place: Place,
        resource_type: AclResourceType,
        code: ErrorCode | None = None,
    ) -> Any:
        """Build the response that refuses subjects at a place, and says nothing about their parts."""
        cls, shape = self._response()
        response = build(cls, shape, about, place, ERRORS[resource_type][0])
        for struct, inner in elements_at(response, shape, place, lambda subject: True):
            if code is None:
                _put(struct, inner, resource_type, place.attribute)
            else:
                setattr(struct, place.attribute, code)
            for branch in inner.branches:
                if branch.is_array and branch.shape is not None and getattr(struct, branch.name):
                    setattr(struct, branch.name, [])
        return response

    def _response(self) -> tuple[Any, Shape]:
        schema, api_key = self.gate.schema, self.decision.request.api_key
        shape = schema.response(api_key, self.version)
        assert shape is not None
        return schema.class_of("response", api_key), shape

    # What a response must not show.

    def hide(self, ask: Ask) -> None:
        """Leave resources out of the response that the client may not know."""
        role = _ROLES[ask.resource]

        def allowed(subject: Subject) -> bool:
            name = self._name(role, subject)
            return name is not None and self.may(ask.operation, ask.resource, name)

        _, shape = self._response()
        self.decision.later.append(lambda response: _hidden(response, shape, role, allowed))

    def _all_topics(self, ask: Ask) -> None:
        """A request for all topics is answered with those that the client may know."""
        if self.api == "ShareFetch":  # for those of its session, which `_share_fetched` checks
            return
        request, names = self.decision.request, self.gate.topics.names()
        if self.api != "DescribeTopicPartitions" or names is None:
            self.hide(ask)
            return
        # Pages of a given number of partitions: the topics are chosen before they are counted.
        self.decision.request = rest = copy(request)
        kind = kafka_wire.DescribeTopicPartitionsRequest.TopicRequest
        cursor = request.cursor.topic_name if request.cursor is not None else ""
        rest.topics = [
            kind(name=name)
            for name in names
            if name >= cursor and self.may(ask.operation, TOPIC, name)
        ]
        if not rest.topics:
            self.decision.response = kafka_wire.DescribeTopicPartitionsResponse()

    def _restrict(self, response: Any) -> Any:
        operations.restrict(response, self.may)
        return response


def _put(
    struct: Any,
    shape: Shape | None,
    resource_type: AclResourceType,
    attribute: str = "error_code",
) -> None:
    """Set the error code of a type of resource, and the text beside it, if the version has one."""
    code, text = ERRORS[resource_type]
    setattr(struct, attribute, code)
    if shape is not None and any(name == "error_message" for name, _ in shape.plain):
        struct.error_message = text


def _is_transactional(request: Any) -> bool:
    """Whether a Produce request has transactional batches. The first one of a partition decides, as in Kafka."""
    return any(
        len(partition.records or b"") > _ATTRIBUTES and partition.records[_ATTRIBUTES] & 0x10
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _without_topics(request: Any) -> Any:
    """Return a request about a group that names no topic any more."""
    rest = copy(request)
    rest.topics = []
    if getattr(rest, "groups", None):
        rest.groups = [copy(group) for group in rest.groups]
        for group in rest.groups:
            group.topics = []
    return rest


def _merged(response: Any, refused: Any, shape: Shape) -> Any:
    if not getattr(response, "error_code", 0):
        merge(response, refused, shape)
    return response


def _no_topics(response: Any) -> Any:
    response.topics = []
    return response


def _hidden(
    struct: Any,
    shape: Shape,
    role: str,
    allowed: Callable[[Subject], bool],
) -> Any:
    """Remove the elements with a role that are not allowed, at every depth."""
    for branch in shape.branches:
        elements = branch.elements(struct)
        inner = branch.shape
        if inner is None:
            if branch.role == role:
                kept = [each for each in elements if allowed({role: each})]
                setattr(struct, branch.name, kept)
            continue
        own = [(name, each) for name, each in inner.plain if each in _SAME[role] - {"key"}]
        if own and branch.is_array and elements:
            elements = [
                element
                for element in elements
                if allowed({each: getattr(element, name) for name, each in own})
            ]
            setattr(struct, branch.name, elements)
        for element in elements:
            _hidden(element, inner, role, allowed)
    return struct


def _users_not_altered(request: Any) -> Any:
    code, text = ERRORS[CLUSTER]
    kind = kafka_wire.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return kafka_wire.AlterUserScramCredentialsResponse(
        results=[kind(user=user, error_code=code, error_message=text) for user in users]
    )


def _users_not_described(request: Any) -> Any:
    code, text = ERRORS[CLUSTER]
    kind = kafka_wire.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    users = dict.fromkeys(each.name for each in request.users or ())
    return kafka_wire.DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=text,
        results=[kind(user=user, error_code=code, error_message=text) for user in users],
    )


_OF_USERS = {
    "AlterUserScramCredentials": _users_not_altered,
    "DescribeUserScramCredentials": _users_not_described,
}


# What single APIs need beside the table.


def _add_partitions(case: _Case) -> None:
    """A transaction gets all partitions or none."""
    if not case.decision.later:
        return
    rest = _Case(case.gate, case.client, case.decision.request, case.version)
    rest.refuse_all(TOPIC, ErrorCode.OPERATION_NOT_ATTEMPTED)
    case.decision.response = rest.decision.response


def _configs(case: _Case, operation: int) -> None:
    """Take resources with configs out of the request that the client may not read or change."""
    request = case.decision.request
    refused: list[tuple[Any, AclResourceType]] = []
    left: list[tuple[Any, AclResourceType]] = []
    for each in request.resources:
        resource, name = _config_resource(each)
        # The handler refuses types that do not exist.
        known = each.resource_type in _WITH_CONFIGS
        allowed = not known or case.may(operation, resource, name)
        (left if allowed else refused).append((each, resource))
        if not allowed:
            case.note(resource, [name])
    if not refused:
        return
    cls, shape = case._response()
    (results,) = (each for each in shape.branches if each.shape and each.shape.has_errors)
    kind = named(cls, kinds_of(cls)[results.name])
    elements = []
    for each, resource in refused:
        element = kind(resource_type=each.resource_type, resource_name=each.resource_name)
        _put(element, results.shape, resource)
        elements.append(element)

    def add(response: Any) -> Any:
        setattr(response, results.name, [*getattr(response, results.name), *elements])
        return response

    case.decision.later.append(add)
    if left:
        case.decision.request = copy(request)
        case.decision.request.resources = [each for each, _ in left]
    else:
        case.decision.response = cls()


def _config_resource(entry: Any) -> tuple[AclResourceType, str]:
    if entry.resource_type == ConfigResourceType.TOPIC:
        return TOPIC, entry.resource_name
    if entry.resource_type == ConfigResourceType.GROUP:
        return GROUP, entry.resource_name
    return CLUSTER, CLUSTER_NAME


def _described_groups(case: _Case, response: Any) -> Any:
    """A group whose members have topics that the client may not describe is not described."""
    for group in response.groups:
        names = {
            part.topic_name
            for member in group.members
            for assignment in (member.assignment, getattr(member, "target_assignment", None))
            for part in (() if assignment is None else assignment.topic_partitions)
        }
        if not all(case.may(DESCRIBE, TOPIC, name) for name in names):
            group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group.error_message = (
                "The group has described topic(s) that the client is not authorized to describe."
            )
            group.members = []
    return response


def _created_topics(case: _Case, response: Any) -> Any:
    """The response shows configs of new topics only to those who may describe them (KIP-525)."""
    for topic in response.topics:
        if not topic.error_code and not case.may(DESCRIBE_CONFIGS, TOPIC, topic.name):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
    return response


def _deleted_topics(case: _Case, response: Any) -> Any:
    """Who names a topic by its id, and may not describe it, does not learn its name."""
    for result in response.responses:
        refused = result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        by_id = refused and result.topic_id.int
        if by_id and (name := case.gate.topics.name_of(result.topic_id)):
            result.name = name if case.may(DESCRIBE, TOPIC, name) else None
    return response


def _fetched(case: _Case) -> None:
    """A fetch session has topics that a request does not name (KIP-227), and rights can end.

    So a request with refused topics opens no session, and ends the one it has; and a session with a topic that
    the client may no longer read has ended, so that the next request names all topics again.
    """
    request = case.decision.request
    ended = kafka_wire.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if case.decision.later:
        if request.session_id:
            case.decision.later.clear()
            case.decision.response = ended
            return
        case.decision.request = rest = copy(request)
        rest.session_epoch = -1
        rest.max_wait_ms = 0  # as in Kafka, an error is an answer
        return
    if not request.session_id:
        return

    def check(response: Any) -> Any:
        for topic in response.responses:
            name = topic.topic or case.gate.topics.name_of(topic.topic_id)
            if name is not None and not case.may(kafka_wire.AclOperation.READ, TOPIC, name):
                return ended
        return response

    case.decision.later.append(check)


def _share_fetched(case: _Case) -> None:
    """A share session has topics that a request does not name, and rights can end."""

    def check(response: Any) -> Any:
        for topic in response.responses:
            name = case.gate.topics.name_of(topic.topic_id)
            if name is not None and not case.may(READ, TOPIC, name):
                topic.partitions = [
                    kafka_wire.ShareFetchResponse.PartitionData(
                        partition_index=part.partition_index,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                        error_message=ERRORS[TOPIC][1],
                        records=b"",
                    )
                    for part in topic.partitions
                ]
        return response

    case.decision.later.append(check)


def _idempotent(case: _Case) -> None:
    """A producer without transactions needs the right to write to any topic, or IdempotentWrite (KIP-679)."""
    if (
        case.decision.request.transactional_id is None
        and not case.may(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)
        and not case.gate.authorizer.allows_any(case.client, WRITE, TOPIC)
    ):
        case.refuse_all(CLUSTER)


def _metadata(case: _Case) -> None:
    """A topic that the request would create needs the right to do so."""
    request = case.decision.request
    new = [
        topic.name
        for topic in request.topics or ()
        if topic.name and case.gate.topics.would_create(request, case.version, topic.name)
    ]
    if new and not case.may(CREATE, CLUSTER, CLUSTER_NAME):
        refused = [name for name in new if not case.may(CREATE, TOPIC, name)]
        if refused:
            case.refuse_each(TOPIC, refused)


_MORE: dict[str, Callable[[_Case], None]] = {
    "AddPartitionsToTxn": _add_partitions,
    "Fetch": _fetched,
    "InitProducerId": _idempotent,
    "Metadata": _metadata,
    "ShareFetch": _share_fetched,
}
# What the response still must not show, also if nothing of the request is handled.
_CHECKS: dict[str, Callable[[_Case, Any], Any]] = {
    "ConsumerGroupDescribe": _described_groups,
    "CreateTopics": _created_topics,
    "DeleteTopics": _deleted_topics,
    "ShareGroupDescribe": _described_groups,
}
