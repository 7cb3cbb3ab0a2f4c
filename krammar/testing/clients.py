"""Ready-made settings for the clients of a broker in a test."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any

from krammar.testing.certificates import TlsFiles


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How clients reach a broker, as one user.

    ```python
    Producer(kafka_broker.clients.confluent_kafka)
    AIOKafkaProducer(**kafka_broker.clients.aiokafka)
    KafkaProducer(**kafka_broker.clients.kafka_python)
    Client(**kafka_broker.clients.krammar)
    ```

    Attributes:
        protocol: the security protocol: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or
            ``SASL_SSL``
        mechanism: of SASL; None without logins, as ``user`` and ``password`` are
        tls: the files for TLS; None without it
        client_certificate: whether the broker asks clients for a certificate
    """

    bootstrap_servers: str
    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None
    client_certificate: bool = False

    @property
    def confluent_kafka(self) -> dict[str, Any]:
        """For confluent-kafka, and for librdkafka in other languages."""
        return _given(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "security.protocol": self.protocol,
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
                "ssl.ca.location": self.tls and self.tls.ca,
                "ssl.certificate.location": self._own and self._own.certificate,
                "ssl.key.location": self._own and self._own.key,
            }
        )

    @property
    def krammar(self) -> dict[str, Any]:
        """For ``krammar.client.Client``, as keywords."""
        return {name.replace(".", "_"): value for name, value in self.confluent_kafka.items()}

    @property
    def kafka_python(self) -> dict[str, Any]:
        """For kafka-python, as keywords."""
        return _given(
            {
                **self._keywords,
                "ssl_cafile": self.tls and self.tls.ca,
                "ssl_certfile": self._own and self._own.certificate,
                "ssl_keyfile": self._own and self._own.key,
            }
        )

    @property
    def aiokafka(self) -> dict[str, Any]:
        """For aiokafka, as keywords; with TLS, ``ssl_context`` is a new context."""
        return _given({**self._keywords, "ssl_context": self.ssl_context()})

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return a new TLS context that trusts only the broker; None without TLS."""
        if self.tls is None:
            return None
        context = ssl.create_default_context(cafile=self.tls.ca)
        if self._own is not None:
            context.load_cert_chain(self._own.certificate, self._own.key)
        return context

    @property
    def _own(self) -> TlsFiles | None:
        return self.tls if self.client_certificate else None

    @property
    def _keywords(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.protocol,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
