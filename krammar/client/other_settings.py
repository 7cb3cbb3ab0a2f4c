"""Settings of Kafka's and librdkafka's clients that have another name here, or do not apply."""

from __future__ import annotations

from typing import Final

# Other names of supported settings: librdkafka's, and Kafka's names for PEM.
ALIASES: Final[dict[str, str]] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "compression.codec": "compression.type",
    "queue.buffering.max.ms": "linger.ms",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "request.required.acks": "acks",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "broker.address.ttl": "metadata.max.age.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

_NO_GROUP = "the client cannot join groups; the caller manages positions"
_BYTES = "keys and values are bytes"
_LOGIN = "only PLAIN, SCRAM and OAUTHBEARER logins are supported"
_PROVIDER = "set krammar.oauthbearer.token.provider to a function that returns tokens"
_FROM_SETTINGS = "the other settings determine the source of tokens"
_REFRESH = "a token is replaced after 80 % of its lifetime"
_NO_CLAIMS = "only brokers read the claims of a token"
_PEM = "keys and certificates are PEM files"

# A program that sets these relies on a feature that is missing, so they are errors.
NOT_SUPPORTED: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "enable.auto.commit",
            "auto.offset.reset",
            "partition.assignment.strategy",
            "max.poll.records",
        ),
        _NO_GROUP,
    ),
    **dict.fromkeys(
        ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer"), _BYTES
    ),
    "partitioner.class": "keys choose partitions as in Java's default (murmur2)",
    "partitioner": "keys choose partitions as in Java's default (murmur2)",
    "partitioner.ignore.keys": "keys choose partitions as in Java's default (murmur2)",
    "interceptor.classes": "the client has no interceptors",
    "ssl.truststore.password": f"{_PEM}, which have no password",
    "ssl.keystore.password": f"{_PEM}; set ssl.key.password for an encrypted key",
    "ssl.engine.factory.class": _PEM,
    "ssl.provider": _PEM,
    "ssl.providers": _PEM,
    "ssl.engine.location": _PEM,
    "ssl.engine.id": _PEM,
    "ssl.keymanager.algorithm": _PEM,
    "ssl.trustmanager.algorithm": _PEM,
    "ssl.crl.location": "revocation lists are not read",
    **dict.fromkeys(
        (
            "sasl.client.callback.handler.class",
            "sasl.login.class",
            "sasl.kerberos.service.name",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.keytab",
            "sasl.kerberos.principal",
            "security.providers",
        ),
        _LOGIN,
    ),
    "sasl.oauthbearer.config": _PROVIDER,
    "sasl.oauthbearer.grant.type": _PROVIDER,
    "sasl.oauthbearer.assertion.file": _PROVIDER,
    "sasl.oauthbearer.assertion.private.key.file": _PROVIDER,
    "transaction.two.phase.commit.enable": "two-phase commit (KIP-939) is not released",
    "allow.consumer.downgrade": _NO_GROUP,
}

_METRICS = "the client has no metrics"
_OWN = "the client manages connections and threads differently"

# These tune features that do not exist here, or need no tuning, so they are ignored with a warning.
WITHOUT_EFFECT: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "enable.metrics.push",
            "auto.include.jmx.reporter",
            "statistics.interval.ms",
        ),
        _METRICS,
    ),
    **dict.fromkeys(
        (
            "reconnect.backoff.ms",
            "reconnect.backoff.max.ms",
            "socket.connection.setup.timeout.max.ms",
            "socket.keepalive.enable",
            "socket.nagle.disable",
            "socket.max.fails",
            "broker.address.family",
            "client.dns.lookup",
            "metadata.max.idle.ms",
            "metadata.recovery.strategy",
            "metadata.recovery.rebootstrap.trigger.ms",
            "api.version.request",
            "api.version.request.timeout.ms",
            "broker.version.fallback",
            "log.connection.close",
            "log.level",
            "debug",
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "exclude.internal.topics",
            "queue.buffering.max.messages",
            "queue.buffering.max.kbytes",
            "batch.num.messages",
            "queued.min.messages",
            "queued.max.messages.kbytes",
            "fetch.error.backoff.ms",
            "fetch.queue.backoff.ms",
            "sticky.partitioning.linger.ms",
            "receive.message.max.bytes",
            "topic.metadata.refresh.fast.interval.ms",
            "enable.partition.eof",
        ),
        _OWN,
    ),
    **dict.fromkeys(
        (
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "auto.commit.interval.ms",
        ),
        _NO_GROUP,
    ),
    **dict.fromkeys(
        (
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        _LOGIN,
    ),
    **dict.fromkeys(
        (
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
        ),
        _REFRESH,
    ),
    **dict.fromkeys(
        (
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope.claim.name",
            "sasl.oauthbearer.sub.claim.name",
        ),
        _NO_CLAIMS,
    ),
    "sasl.login.connect.timeout.ms": "sasl.login.read.timeout.ms limits connecting too",
    "sasl.oauthbearer.method": _FROM_SETTINGS,
    "enable.sasl.oauthbearer.unsecure.jwt": _FROM_SETTINGS,
    **dict.fromkeys(
        (
            "ssl.protocol",
            "ssl.enabled.protocols",
            "ssl.cipher.suites",
            "ssl.curves.list",
            "ssl.sigalgs.list",
            "ssl.secure.random.implementation",
        ),
        "Python's defaults for TLS apply: version 1.2 and newer",
    ),
}
