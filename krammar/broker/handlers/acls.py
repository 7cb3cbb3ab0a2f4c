"""CreateAcls, DescribeAcls and DeleteAcls: the ACLs in the metadata log (KIP-140).

CreateAcls, v1 to v3:

- v1 has prefixed patterns (KIP-290).
- v2 is flexible.
- v3 has ACLs on users (KIP-373).

DescribeAcls, v1 to v3: the same.

DeleteAcls, v1 to v3: the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import kafka_wire as kw
from kafka_wire import AclOperation, AclPatternType, AclPermissionType, AclResourceType, ErrorCode

from krammar.authorization.acls import CLUSTER_NAME, Acl, AclFilter
from krammar.broker.authorization import BrokerAuthorizer
from krammar.broker.cluster import ClusterMetadata
from krammar.broker.errors import ApiError, errors_in, invalid_request
from krammar.broker.meta_properties import random_uuid
from krammar.broker.session import Session
from krammar.util.turns import Steps
from krammar.wire.message import Codec

# Writing so many takes a few milliseconds.
_AT_ONCE = 100
# For filters only.
_OF_FILTERS = (0, 1)


@dataclass(eq=False)
class AclHandlers:
    cluster: ClusterMetadata
    authorizer: BrokerAuthorizer | None

    def create_acls(
        self, session: Session, request: kw.CreateAclsRequest, version: int
    ) -> Steps[kw.CreateAclsResponse]:
        """Create the ACLs that are valid. One that exists counts as created."""
        new: dict[Acl, kw.AccessControlEntryRecord] = {}
        response = kw.CreateAclsResponse()
        for creation in request.creations:
            result = kw.CreateAclsResponse.AclCreationResult(error_message=None)
            response.results.append(result)
            with errors_in(result):
                authorizer = self._enabled(".")
                acl = _new(creation)
                if acl not in authorizer:
                    new[acl] = kw.AccessControlEntryRecord(id=random_uuid(), **acl._asdict())
            yield None
        yield from self._append(new.values())
        return response

    def describe_acls(
        self, session: Session, request: kw.DescribeAclsRequest, version: int
    ) -> Steps[kw.DescribeAclsResponse]:
        response = kw.DescribeAclsResponse(error_message=None)
        with errors_in(response):
            self._enabled(" on the broker")
            wanted = _filter(request)
            kind = kw.DescribeAclsResponse.DescribeAclsResource
            found: dict[tuple[Any, ...], kw.DescribeAclsResponse.DescribeAclsResource] = {}
            for record in list(self.cluster.acls.values()):
                yield None
                acl = Acl.of(record)
                if not wanted.selects(acl):
                    continue
                pattern = acl.resource_type, acl.resource_name, acl.pattern_type
                resource = found.get(pattern)
                if resource is None:
                    resource = found[pattern] = kind(
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        pattern_type=acl.pattern_type,
                    )
                resource.acls.append(
                    kw.DescribeAclsResponse.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                )
            response.resources = list(found.values())
        return response

    def delete_acls(
        self, session: Session, request: kw.DeleteAclsRequest, version: int
    ) -> Steps[kw.DeleteAclsResponse]:
        """Delete the ACLs that filters select."""
        response = kw.DeleteAclsResponse()
        deleted: dict[Any, kw.AccessControlEntryRecord] = {}
        kind = kw.DeleteAclsResponse.DeleteAclsMatchingAcl
        for each in request.filters:
            result = kw.DeleteAclsResponse.DeleteAclsFilterResult(error_message=None)
            response.filter_results.append(result)
            with errors_in(result):
                self._enabled(".")
                wanted = _filter(each)
                for record in list(self.cluster.acls.values()):
                    yield None
                    acl = Acl.of(record)
                    if record.id not in deleted and wanted.selects(acl):
                        deleted[record.id] = record
                        result.matching_acls.append(kind(error_message=None, **acl._asdict()))
            yield None
        yield from self._append(kw.RemoveAccessControlEntryRecord(id=each) for each in deleted)
        return response

    def _append(self, records: Iterable[Codec]) -> Steps[None]:
        """Write records, a part of them in each step."""
        left = iter(records)
        while part := list(islice(left, _AT_ONCE)):
            self.cluster.append(part)
            yield True

    def _enabled(self, where: str) -> BrokerAuthorizer:
        if self.authorizer is None:
            raise ApiError(ErrorCode.SECURITY_DISABLED, f"No Authorizer is configured{where}")
        return self.authorizer


def _new(creation: kw.CreateAclsRequest.AclCreation) -> Acl:
    """Return a new ACL. Raises ApiError(INVALID_REQUEST) in Kafka's words."""
    acl = Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
    if acl.resource_type == AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise invalid_request(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise invalid_request("Invalid empty resource name")
    for what, value, kind, refused in (
        ("patternType", acl.pattern_type, AclPatternType, (*_OF_FILTERS, AclPatternType.MATCH)),
        ("resourceType", acl.resource_type, AclResourceType, _OF_FILTERS),
        ("operation", acl.operation, AclOperation, _OF_FILTERS),
        ("permissionType", acl.permission_type, AclPermissionType, _OF_FILTERS),
    ):
        if value in refused or value not in set(kind):
            name = kind(value).name if value in set(kind) else "UNKNOWN"
            raise invalid_request(f"Invalid {what} {name}")
    if ":" not in acl.principal:
        raise invalid_request(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type"
            " from the principal name)"
        )
    return acl


def _filter(request: Any) -> AclFilter:
    """Return the filter of a request. Raises ApiError(INVALID_REQUEST) for unknown values."""
    found = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    for value, kind in (
        (found.resource_type, AclResourceType),
        (found.pattern_type, AclPatternType),
        (found.operation, AclOperation),
        (found.permission_type, AclPermissionType),
    ):
        if not value or value not in set(kind):
            raise invalid_request("Unknown patternFilter.")
    return found
