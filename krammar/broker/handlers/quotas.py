"""DescribeClientQuotas and AlterClientQuotas: the quotas in the metadata log.

DescribeClientQuotas, v0 to v1 (KIP-546): v1 is flexible.

AlterClientQuotas, v0 to v1 (KIP-546): the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import kafka_wire as kw
from kafka_wire import ClientQuotaRecord, ErrorCode, QuotaMatchType

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.errors import ApiError, errors_in, invalid_request
from krammar.broker.quotas.entities import (
    CLIENT_ID,
    IP,
    TYPES,
    USER,
    Entity,
    check_quota_entity,
    check_quota_value,
    quota_record,
)
from krammar.broker.session import Session
from krammar.util.turns import Steps

# Writing so many takes a few milliseconds.
_AT_ONCE = 100
# Of a request, as in Kafka.
MOST_RECORDS = 10_000


@dataclass(eq=False)
class QuotaHandlers:
    cluster: ClusterMetadata

    def describe_client_quotas(
        self, session: Session, request: kw.DescribeClientQuotasRequest, version: int
    ) -> Steps[kw.DescribeClientQuotasResponse]:
        """Describe the quotas of the entities that a filter selects."""
        response = kw.DescribeClientQuotasResponse()
        with errors_in(response):
            wanted = _Filter(request)
            kind = kw.DescribeClientQuotasResponse
            found: dict[Entity, kw.DescribeClientQuotasResponse.EntryData] = {}
            for (entity, key), record in list(self.cluster.quotas.items()):
                yield None
                if not wanted.selects(entity):
                    continue
                if entity not in found:
                    parts = [
                        kind.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                        for each in record.entity
                    ]
                    found[entity] = kind.EntryData(entity=parts)
                found[entity].values.append(kind.ValueData(key=key, value=record.value))
            response.entries = list(found.values())
        if response.error_code:
            response.entries = None
        return response

    def alter_client_quotas(
        self, session: Session, request: kw.AlterClientQuotasRequest, version: int
    ) -> Steps[kw.AlterClientQuotasResponse]:
        """Set and remove quotas. Each entity has its own result; an invalid one is not changed at all."""
        response = kw.AlterClientQuotasResponse()
        results: dict[Entity, kw.AlterClientQuotasResponse.EntryData] = {}
        records: list[ClientQuotaRecord] = []
        for entry in request.entries:
            parts = {each.entity_type: each.entity_name for each in entry.entity}
            entity = frozenset(parts.items())
            is_new = entity not in results
            if is_new:
                kind = kw.AlterClientQuotasResponse
                results[entity] = kind.EntryData(
                    error_message=None,
                    entity=[
                        kind.EntityData(entity_type=e, entity_name=n) for e, n in parts.items()
                    ],
                )
                response.entries.append(results[entity])
            with errors_in(results[entity]):
                if not is_new or len({op.key for op in entry.ops}) < len(entry.ops):
                    named = ", ".join(f"{kind}={name}" for kind, name in parts.items())
                    raise invalid_request(f"Ignoring duplicate entity {{{named}}}")
                check_quota_entity(parts)
                records += yield from self._changes(parts, entity, entry.ops)
            if len(records) > MOST_RECORDS:
                return (yield from _refused(request))
            yield None
        if not request.validate_only:
            yield from self._append(records)
        return response

    def _changes(
        self,
        parts: dict[str, str | None],
        entity: Entity,
        ops: Iterable[kw.AlterClientQuotasRequest.OpData],
    ) -> Steps[list[ClientQuotaRecord]]:
        """Return the records of what changes, in steps. Raises ApiError."""
        changes = []
        for op in ops:
            yield None
            known = self.cluster.quotas.get((entity, op.key))
            if not op.remove:
                check_quota_value(parts, op.key, op.value)
            if known is None if op.remove else known is not None and known.value == op.value:
                continue
            changes.append(quota_record(parts, op.key, None if op.remove else op.value))
        return changes

    def _append(self, records: Iterable[ClientQuotaRecord]) -> Steps[None]:
        """Write records, a part of them in each step."""
        left = iter(records)
        while part := list(islice(left, _AT_ONCE)):
            self.cluster.append(part)
            yield True


class _Filter:
    """The filter of DescribeClientQuotas. Raises ApiError, in Kafka's words."""

    def __init__(self, request: kw.DescribeClientQuotasRequest) -> None:
        self._named: dict[str, str | None] = {}
        self._types: set[str] = set()
        self._strict = request.strict
        for component in request.components:
            kind, match, name = component.entity_type, component.match_type, component.match
            if not kind:
                raise invalid_request("Invalid empty entity type.")
            if kind in self._named or kind in self._types:
                raise invalid_request(
                    f"Entity type {kind} cannot appear more than once in the filter."
                )
            if kind not in TYPES:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
            if match not in set(QuotaMatchType):
                raise invalid_request(f"Unknown match type {match}")
            match = QuotaMatchType(match)
            if (name is None) is (match is QuotaMatchType.EXACT):
                problem = "also specified a match string"
                if name is None:
                    problem = "set match string to null"
                raise invalid_request(f"Request specified MATCH_TYPE_{match.name}, but {problem}.")
            if match is QuotaMatchType.SPECIFIED:
                self._types.add(kind)
            else:
                self._named[kind] = name
        asked = self._named.keys() | self._types
        if IP in asked and not asked.isdisjoint((USER, CLIENT_ID)):
            raise invalid_request(
                "Invalid entity filter component combination. IP filter component should not be used"
                " with user or clientId filter component."
            )

    def selects(self, entity: Entity) -> bool:
        if self._strict and len(entity) != len(self._named) + len(self._types):
            return False
        return self._named.items() <= entity and self._types <= {kind for kind, _ in entity}


def _refused(request: kw.AlterClientQuotasRequest) -> Steps[kw.AlterClientQuotasResponse]:
    """Refuse a whole request that is too large, in steps."""
    error = ApiError(
        ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
    )
    kind = kw.AlterClientQuotasResponse
    response = kind()
    for entry in request.entries:
        parts = [
            kind.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in entry.entity
        ]
        refused = kind.EntryData(entity=parts)
        error.put_into(refused)
        response.entries.append(refused)
        yield None
    return response
