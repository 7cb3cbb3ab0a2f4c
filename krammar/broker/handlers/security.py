"""SaslHandshake, SaslAuthenticate, and the APIs for SCRAM credentials."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_wire import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseResult,
    DescribeUserScramCredentialsResponseResultCredentialInfo,
    ErrorCode,
    RemoveUserScramCredentialRecord,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    UserScramCredentialRecord,
)

from krammar.auth.scram import MIN_ITERATIONS, Mechanism
from krammar.broker.errors import ApiError
from krammar.broker.security import scram
from krammar.broker.security.users import record_of

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.session import Session


@dataclass(eq=False)
class SecurityHandlers:
    """Handles logins, and the APIs for SCRAM credentials."""

    cluster: ClusterMetadata

    def sasl_handshake(
        self, session: Session, request: SaslHandshakeRequest, version: int
    ) -> SaslHandshakeResponse:
        if session.sasl is None:  # a listener without SASL
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        response: SaslHandshakeResponse = session.sasl.handshake(request.mechanism, version)
        return response

    def sasl_authenticate(
        self, session: Session, request: SaslAuthenticateRequest, version: int
    ) -> SaslAuthenticateResponse:
        if session.sasl is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        response: SaslAuthenticateResponse = session.sasl.authenticate(request.auth_bytes, version)
        return response

    def describe_user_scram_credentials(
        self, session: Session, request: DescribeUserScramCredentialsRequest, version: int
    ) -> DescribeUserScramCredentialsResponse:
        credentials: dict[str, list[DescribeUserScramCredentialsResponseResultCredentialInfo]] = {}
        for (mechanism, user), record in sorted(self.cluster.scram.items()):
            credentials.setdefault(user, []).append(
                DescribeUserScramCredentialsResponseResultCredentialInfo(
                    mechanism=mechanism, iterations=record.iterations
                )
            )
        asked = Counter(user.name for user in request.users or ())
        results = []
        for user in asked or sorted(credentials):
            if asked[user] > 1:
                code = ErrorCode.DUPLICATE_RESOURCE
                text = (
                    "Cannot describe SCRAM credentials for the same user twice in a single request: "
                    + user
                )
            elif user not in credentials:
                code = ErrorCode.RESOURCE_NOT_FOUND
                text = f"Attempt to describe a user credential that does not exist: {user}"
            else:
                results.append(
                    DescribeUserScramCredentialsResponseResult(
                        user=user, credential_infos=credentials[user]
                    )
                )
                continue
            results.append(
                DescribeUserScramCredentialsResponseResult(
                    user=user, error_code=code, error_message=text
                )
            )
        return DescribeUserScramCredentialsResponse(results=results)

    def alter_user_scram_credentials(
        self, session: Session, request: AlterUserScramCredentialsRequest, version: int
    ) -> AlterUserScramCredentialsResponse:
        changes = _Changes(self.cluster)
        for deletion in request.deletions:
            changes.delete(deletion)
        for upsertion in request.upsertions:
            changes.upsert(upsertion)
        return changes.write()


class _Changes:
    """The changes of a request. A request may list a user only once, whatever the mechanism."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self.cluster = cluster
        self._records: dict[str, RemoveUserScramCredentialRecord | UserScramCredentialRecord] = {}
        self._errors: dict[str, ApiError] = {}

    def delete(self, deletion: AlterUserScramCredentialsRequestDeletion) -> None:
        name = deletion.name
        try:
            self._check(name, deletion.mechanism)
            if (deletion.mechanism, name) not in self.cluster.scram:
                raise ApiError(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
        except ApiError as error:
            self._refuse(name, error)
        else:
            self._records[name] = RemoveUserScramCredentialRecord(
                name=name, mechanism=deletion.mechanism
            )

    def upsert(self, upsertion: AlterUserScramCredentialsRequestUpsertion) -> None:
        name, iterations = upsertion.name, upsertion.iterations
        try:
            mechanism = self._check(name, upsertion.mechanism)
            if iterations < MIN_ITERATIONS:
                raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
            if iterations > scram.MAX_ITERATIONS:
                raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        except ApiError as error:
            self._refuse(name, error)
        else:
            credential = scram.credential_of(
                mechanism, upsertion.salted_password, upsertion.salt, iterations
            )
            self._records[name] = record_of(name, mechanism, credential)

    def _check(self, name: str, mechanism: int) -> Mechanism:
        if name in self._records:
            raise ApiError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        if not name:
            raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if mechanism not in scram.BY_NUMBER:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        return scram.BY_NUMBER[mechanism]

    def _refuse(self, name: str, error: ApiError) -> None:
        # The first error of a user wins.
        self._records.pop(name, None)
        self._errors.setdefault(name, error)

    def write(self) -> AlterUserScramCredentialsResponse:
        changed = {
            name: record for name, record in self._records.items() if name not in self._errors
        }
        if changed:
            try:
                self.cluster.append(list(changed.values()))
            except ApiError as error:
                self._errors.update(dict.fromkeys(changed, error))
                changed = {}
        results = [
            AlterUserScramCredentialsResponseResult(user=name, error_message=None)
            for name in changed
        ]
        results += [
            AlterUserScramCredentialsResponseResult(
                user=name, error_code=error.code, error_message=error.message
            )
            for name, error in self._errors.items()
        ]
        return AlterUserScramCredentialsResponse(results=results)
