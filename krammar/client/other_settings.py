"""Settings of Kafka's and librdkafka's clients that go by another name here, or do not apply."""

from __future__ import annotations

from typing import Final

# Other names of settings that there are: librdkafka's, and Kafka's for PEM.
ALIASES: Final[dict[str, str]] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
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

_NO_GROUP = "there is no membership in groups; positions are the caller's"
_BYTES = "keys and values are bytes"
_LOGIN = "PLAIN and SCRAM are the logins that there are"
_PEM = "keys and certificates are PEM files"

# Whoever sets these relies on something that is not there.
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
    "partitioner.class": "keys are placed as Java's default does (murmur2)",
    "partitioner": "keys are placed as Java's default does (murmur2)",
    "partitioner.ignore.keys": "keys are placed as Java's default does (murmur2)",
    "interceptor.classes": "there are no interceptors",
    "ssl.truststore.password": f"{_PEM}, which have no password",
    "ssl.keystore.password": f"{_PEM}; ssl.key.password is for an encrypted key",
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
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.kerberos.service.name",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.keytab",
            "sasl.kerberos.principal",
            "sasl.oauthbearer.token.endpoint.url",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.method",
            "sasl.oauthbearer.client.id",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.scope",
            "security.providers",
        ),
        _LOGIN,
    ),
    "transaction.two.phase.commit.enable": "two-phase commit (KIP-939) is not released",
    "allow.consumer.downgrade": _NO_GROUP,
}

_METRICS = "there are no metrics"
_OWN = "connections and threads are managed otherwise"

# They tune what does not exist here, or what needs no tuning.
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
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.ms",
            "sasl.login.retry.backoff.max.ms",
        ),
        _LOGIN,
    ),
    **dict.fromkeys(
        (
            "ssl.protocol",
            "ssl.enabled.protocols",
            "ssl.cipher.suites",
            "ssl.curves.list",
            "ssl.sigalgs.list",
            "ssl.secure.random.implementation",
        ),
        "Python's defaults for TLS hold: version 1.2 and up",
    ),
}
