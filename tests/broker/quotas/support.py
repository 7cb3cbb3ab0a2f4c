"""Requests about quotas."""

from __future__ import annotations

from typing import Any

import kafka_wire as kw

from tests.broker.support import RawClient


def alter(
    client: RawClient,
    entity: dict[str, str | None],
    values: dict[str, float | None],
    *,
    version: int = 1,
    validate_only: bool = False,
) -> kw.AlterClientQuotasResponse.EntryData:
    """Set quotas of an entity, and remove those that are None. Return the result."""
    kind = kw.AlterClientQuotasRequest
    entry = kind.EntryData(
        entity=[kind.EntityData(entity_type=k, entity_name=name) for k, name in entity.items()],
        ops=[
            kind.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )
    request = kind(entries=[entry], validate_only=validate_only)
    (found,) = client.call(request, version).entries
    return found


def set_quotas(client: RawClient, entity: dict[str, str | None], **values: float | None) -> None:
    """Set quotas of an entity, and remove those that are None."""
    assert alter(client, entity, values).error_code == kw.ErrorCode.NONE


def describe(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """The quotas that a filter selects, by entity. A component is a type, a match type, and a name."""
    response = answer(client, *components, strict=strict)
    assert response.error_code == kw.ErrorCode.NONE
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in response.entries
    }


def answer(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False
) -> Any:
    """The response of DescribeClientQuotas."""
    kind = kw.DescribeClientQuotasRequest
    parts = [
        kind.ComponentData(entity_type=t, match_type=m, match=name) for t, m, name in components
    ]
    return client.call(kind(components=parts, strict=strict))
