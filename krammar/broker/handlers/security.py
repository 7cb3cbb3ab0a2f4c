"""SaslHandshake, SaslAuthenticate, and the APIs for SCRAM credentials.

SaslHandshake, v0 to v1 (KIP-43): after v0, tokens follow as frames without headers; after v1, in
SaslAuthenticate.

SaslAuthenticate, v0 to v2 (KIP-152): v1 returns when the client must log in again (KIP-368).

DescribeUserScramCredentials, v0, and AlterUserScramCredentials, v0 (KIP-554).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice

import kafka_wire as kw

from krammar.auth import scram_server
from krammar.broker.cluster import ClusterMetadata
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.security.credentials import check_iterations, mechanism_of
from krammar.broker.security.users import record_of
from krammar.broker.session import Session
from krammar.util.turns import Steps

# The number of users that are written in one step, 15 µs each.
_USERS_AT_ONCE = 500

Record = kw.UserScramCredentialRecord | kw.RemoveUserScramCredentialRecord
Change = (
    kw.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    | kw.AlterUserScramCredentialsRequest.ScramCredentialDeletion
)


@dataclass(eq=False)
class SecurityHandlers:
    cluster: ClusterMetadata

    def sasl_handshake(
        self, session: Session, request: kw.SaslHandshakeRequest, version: int
    ) -> kw.SaslHandshakeResponse:
        if session.sasl is None:  # a listener without SASL
            return kw.SaslHandshakeResponse(error_code=kw.ErrorCode.ILLEGAL_SASL_STATE)
        response: kw.SaslHandshakeResponse = session.sasl.handshake(request.mechanism, version)
        return response

    def sasl_authenticate(
        self, session: Session, request: kw.SaslAuthenticateRequest, version: int
    ) -> kw.SaslAuthenticateResponse:
        if session.sasl is None:
            return kw.SaslAuthenticateResponse(
                error_code=kw.ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        response: kw.SaslAuthenticateResponse = session.sasl.authenticate(
            request.auth_bytes, version
        )
        return response

    def describe_user_scram_credentials(
        self, session: Session, request: kw.DescribeUserScramCredentialsRequest, version: int
    ) -> Steps[kw.DescribeUserScramCredentialsResponse]:
        credentials: dict[str, list[kw.DescribeUserScramCredentialsResponse.CredentialInfo]] = {}
        for (mechanism, user), record in sorted(self.cluster.scram.items()):
            credentials.setdefault(user, []).append(
                kw.DescribeUserScramCredentialsResponse.CredentialInfo(
                    mechanism=mechanism, iterations=record.iterations
                )
            )
            yield None
        asked = Counter(user.name for user in request.users or ())
        response = kw.DescribeUserScramCredentialsResponse()
        for user in asked or sorted(credentials):
            result = kw.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(
                user=user
            )
            response.results.append(result)
            with errors_in(result):
                if asked[user] > 1:
                    raise ApiError(
                        kw.ErrorCode.DUPLICATE_RESOURCE,
                        "Cannot describe SCRAM credentials for the same user twice in a single "
                        f"request: {user}",
                    )
                if user not in credentials:
                    raise ApiError(
                        kw.ErrorCode.RESOURCE_NOT_FOUND,
                        f"Attempt to describe a user credential that does not exist: {user}",
                    )
                result.credential_infos = credentials[user]
            yield None
        return response

    def alter_user_scram_credentials(
        self, session: Session, request: kw.AlterUserScramCredentialsRequest, version: int
    ) -> Steps[kw.AlterUserScramCredentialsResponse]:
        """Change credentials. A request may list a user only once, whatever the mechanism.

        The response has a result for each user, so many users are written in several batches.
        """
        records: dict[str, Record] = {}
        errors: dict[str, ApiError] = {}  # the first one of each user
        changes: list[Change] = [*request.deletions, *request.upsertions]
        for change in changes:
            try:
                if change.name in records:
                    raise ApiError(
                        kw.ErrorCode.DUPLICATE_RESOURCE,
                        "A user credential cannot be altered twice in the same request",
                    )
                records[change.name] = self._record(change)
            except ApiError as error:
                records.pop(change.name, None)
                errors.setdefault(change.name, error)
            yield None
        changed = {name: record for name, record in records.items() if name not in errors}
        names = iter(changed)
        while part := list(islice(names, _USERS_AT_ONCE)):
            try:
                self.cluster.append([changed[name] for name in part])
            except ApiError as error:
                errors.update(dict.fromkeys(part, error))
            yield True
        response = kw.AlterUserScramCredentialsResponse()
        for name in {**changed, **errors}:
            result = kw.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=name, error_message=None
            )
            response.results.append(result)
            if name in errors:
                errors[name].put_into(result)
            yield None
        return response

    def _record(self, change: Change) -> Record:
        """Return the record of a change. Raises ApiError."""
        name = change.name
        mechanism = mechanism_of(name, change.mechanism)
        if isinstance(change, kw.AlterUserScramCredentialsRequest.ScramCredentialDeletion):
            if (change.mechanism, name) not in self.cluster.scram:
                raise ApiError(
                    kw.ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
            return kw.RemoveUserScramCredentialRecord(name=name, mechanism=change.mechanism)
        iterations = change.iterations
        check_iterations(iterations)
        credential = scram_server.credential_of(
            mechanism, change.salted_password, change.salt, iterations
        )
        return record_of(name, mechanism, credential)
