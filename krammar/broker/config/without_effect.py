"""The keys of Apache Kafka 4.4's broker configuration that mean nothing to a single node in one process: they
are taken, checked and shown as Kafka does it, and nothing comes of them."""

from __future__ import annotations

from kafka_wire import ConfigType

from krammar.broker.config.definitions import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    ConfigDef,
    UpdateMode,
    Validator,
    any_list,
    at_least,
    between,
    each_of,
    filled_list,
    filled_string,
    gzip_level,
    one_of,
)

PER_BROKER = UpdateMode.PER_BROKER
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
DOC = "Known for compatibility; this broker does not act on it."

WITHOUT_EFFECT: dict[str, ConfigDef] = {}


def _define(
    name: str,
    type_: ConfigType,
    default: str | None,
    validator: Validator | None = None,
    mode: UpdateMode = UpdateMode.READ_ONLY,
    internal: bool = False,
) -> None:
    WITHOUT_EFFECT[name] = ConfigDef(
        name, type_, default, validator, DOC, mode=mode, effect=False, internal=internal
    )


_define("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", at_least(0))
_define("add.partitions.to.txn.retry.backoff.ms", INT, "20", at_least(1))
_define("alter.config.policy.class.name", CLASS, None)
_define("alter.log.dirs.replication.quota.window.num", INT, "11", at_least(1))
_define("alter.log.dirs.replication.quota.window.size.seconds", INT, "1", at_least(1))
_define("authorizer.class.name", STRING, "")
_define("auto.leader.rebalance.enable", BOOLEAN, "true")
_define("background.threads", INT, "10", at_least(1), mode=CLUSTER_WIDE)
_define("broker.heartbeat.interval.ms", INT, "2000")
_define("broker.session.timeout.ms", INT, "9000")
_define("client.quota.callback.class", CLASS, None)
_define("compression.gzip.level", INT, "-1", gzip_level, mode=CLUSTER_WIDE)
_define("compression.lz4.level", INT, "9", between(1, 17), mode=CLUSTER_WIDE)
_define("compression.zstd.level", INT, "3", between(-131072, 22), mode=CLUSTER_WIDE)
_define("config.providers", LIST, "", any_list, mode=CLUSTER_WIDE)
_define("controlled.shutdown.enable", BOOLEAN, "true")
_define("controller.performance.always.log.threshold.ms", LONG, "2000", at_least(0), internal=True)
_define("controller.performance.sample.period.ms", LONG, "60000", at_least(100), internal=True)
_define("controller.quorum.append.linger.ms", INT, "25", at_least(0))
_define("controller.quorum.auto.join.enable", BOOLEAN, "false")
_define("controller.quorum.bootstrap.servers", LIST, "", any_list)
_define("controller.quorum.election.backoff.max.ms", INT, "1000", at_least(0))
_define("controller.quorum.election.timeout.ms", INT, "1000", at_least(0))
_define("controller.quorum.fetch.max.bytes", INT, "1048576", at_least(1))
_define("controller.quorum.fetch.snapshot.max.bytes", INT, "1048576", at_least(1))
_define("controller.quorum.fetch.timeout.ms", INT, "2000", at_least(0))
_define("controller.quorum.request.timeout.ms", INT, "2000", at_least(0))
_define("controller.quorum.retry.backoff.ms", INT, "20", at_least(0))
_define("controller.quorum.voters", LIST, "", any_list)
_define("controller.quota.window.num", INT, "11", at_least(1))
_define("controller.quota.window.size.seconds", INT, "1", at_least(1))
_define("controller.socket.timeout.ms", INT, "30000")
_define("cordoned.log.dirs", LIST, "", any_list, mode=PER_BROKER)
_define("create.topic.policy.class.name", CLASS, None)
_define("delegation.token.expiry.check.interval.ms", LONG, "3600000", at_least(1))
_define("delegation.token.expiry.time.ms", LONG, "86400000", at_least(1))
_define("delegation.token.max.lifetime.ms", LONG, "604800000", at_least(1))
_define("delegation.token.secret.key", PASSWORD, None)
_define("delete.records.purgatory.purge.interval.requests", INT, "1")
_define("early.start.listeners", LIST, None, any_list)
_define(
    "errors.deadletterqueue.auto.create.topics.enable", BOOLEAN, "false", None, mode=CLUSTER_WIDE
)
_define("errors.deadletterqueue.topic.name.prefix", STRING, "dlq.", None, mode=CLUSTER_WIDE)
_define("fetch.purgatory.purge.interval.requests", INT, "1000")
_define("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false", None, mode=CLUSTER_WIDE)
_define("group.consumer.assignment.interval.ms", INT, "1000", at_least(0), mode=CLUSTER_WIDE)
_define(
    "group.consumer.assignor.offload.enable",
    BOOLEAN,
    "true",
    None,
    mode=CLUSTER_WIDE,
    internal=True,
)
_define("group.consumer.assignors", LIST, "uniform,range", filled_list)
_define("group.consumer.heartbeat.interval.ms", INT, "5000", at_least(1))
_define("group.consumer.max.assignment.interval.ms", INT, "15000", at_least(0))
_define("group.consumer.max.heartbeat.interval.ms", INT, "15000", at_least(1))
_define("group.consumer.max.session.timeout.ms", INT, "60000", at_least(1))
_define("group.consumer.max.size", INT, "2147483647", at_least(1))
_define(
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    one_of("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", ignore_case=True),
)
_define("group.consumer.min.assignment.interval.ms", INT, "0", at_least(0))
_define("group.consumer.min.heartbeat.interval.ms", INT, "5000", at_least(1))
_define("group.consumer.min.session.timeout.ms", INT, "45000", at_least(1))
_define("group.consumer.regex.refresh.interval.ms", INT, "600000", at_least(10000), internal=True)
_define("group.consumer.session.timeout.ms", INT, "45000", at_least(1))
_define("group.coordinator.append.linger.ms", INT, "-1", at_least(-1))
_define("group.coordinator.background.threads", INT, "2", at_least(1))
_define(
    "group.coordinator.cached.buffer.max.bytes", INT, "1048588", at_least(524288), mode=CLUSTER_WIDE
)
_define(
    "group.coordinator.rebalance.protocols",
    LIST,
    "classic,consumer,streams",
    each_of("consumer", "classic", "share", "streams"),
)
_define("group.coordinator.threads", INT, "4", at_least(1))
_define("group.share.assignment.interval.ms", INT, "1000", at_least(0), mode=CLUSTER_WIDE)
_define(
    "group.share.assignor.offload.enable", BOOLEAN, "true", None, mode=CLUSTER_WIDE, internal=True
)
_define("group.share.assignors", LIST, "simple", filled_list)
_define("group.share.delivery.count.limit", INT, "5", between(2, 10))
_define(
    "group.share.dlq.manager.class.name",
    STRING,
    "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
    None,
    internal=True,
)
_define("group.share.heartbeat.interval.ms", INT, "5000", at_least(1))
_define("group.share.initialize.retry.interval.ms", INT, "30000", at_least(1), internal=True)
_define("group.share.max.assignment.interval.ms", INT, "15000", at_least(0))
_define("group.share.max.delivery.count.limit", INT, "10", between(5, 25))
_define("group.share.max.heartbeat.interval.ms", INT, "15000", at_least(1))
_define("group.share.max.partition.max.record.locks", INT, "4000", between(2000, 10000))
_define("group.share.max.record.lock.duration.ms", INT, "60000", between(30000, 3600000))
_define("group.share.max.session.timeout.ms", INT, "60000", at_least(1))
_define("group.share.max.share.sessions", INT, "2000", at_least(1))
_define("group.share.max.size", INT, "200", between(1, 1000))
_define("group.share.min.assignment.interval.ms", INT, "0", at_least(0))
_define("group.share.min.delivery.count.limit", INT, "2", between(2, 5))
_define("group.share.min.heartbeat.interval.ms", INT, "5000", at_least(1))
_define("group.share.min.partition.max.record.locks", INT, "100", between(100, 2000))
_define("group.share.min.record.lock.duration.ms", INT, "15000", between(1000, 30000))
_define("group.share.min.session.timeout.ms", INT, "45000", at_least(1))
_define("group.share.partition.max.record.locks", INT, "2000", between(100, 10000))
_define(
    "group.share.persister.class.name",
    STRING,
    "org.apache.kafka.server.share.persister.DefaultStatePersister",
    None,
    internal=True,
)
_define("group.share.record.lock.duration.ms", INT, "30000", between(1000, 3600000))
_define("group.share.session.timeout.ms", INT, "45000", at_least(1))
_define("group.streams.acceptable.recovery.lag", LONG, "10000", at_least(0), internal=True)
_define("group.streams.assignment.interval.ms", INT, "1000", at_least(0), mode=CLUSTER_WIDE)
_define(
    "group.streams.assignor.offload.enable", BOOLEAN, "true", None, mode=CLUSTER_WIDE, internal=True
)
_define("group.streams.assignors", LIST, "sticky", filled_list)
_define("group.streams.heartbeat.interval.ms", INT, "5000", at_least(1))
_define("group.streams.initial.rebalance.delay.ms", INT, "3000", at_least(0))
_define("group.streams.max.assignment.interval.ms", INT, "15000", at_least(0))
_define("group.streams.max.heartbeat.interval.ms", INT, "15000", at_least(1))
_define("group.streams.max.session.timeout.ms", INT, "60000", at_least(1))
_define("group.streams.max.size", INT, "2147483647", at_least(1))
_define("group.streams.max.standby.replicas", INT, "2", at_least(0))
_define("group.streams.max.warmup.replicas", INT, "20", at_least(0), internal=True)
_define("group.streams.min.assignment.interval.ms", INT, "0", at_least(0))
_define("group.streams.min.heartbeat.interval.ms", INT, "5000", at_least(1))
_define("group.streams.min.session.timeout.ms", INT, "45000", at_least(1))
_define("group.streams.min.task.offset.interval.ms", INT, "15000", at_least(1), internal=True)
_define("group.streams.num.standby.replicas", INT, "0", at_least(0))
_define("group.streams.num.warmup.replicas", INT, "2", at_least(0), internal=True)
_define("group.streams.rack.aware.assignment.tags", LIST, "", any_list)
_define("group.streams.session.timeout.ms", INT, "45000", at_least(1))
_define("group.streams.task.offset.interval.ms", INT, "60000", at_least(1), internal=True)
_define("group.streams.topology.description.plugin.class", CLASS, None)
_define("initial.broker.registration.timeout.ms", INT, "60000")
_define("internal.metadata.delete.delay.millis", LONG, "60000", None, internal=True)
_define("internal.metadata.log.segment.bytes", INT, None, None, internal=True)
_define("internal.metadata.max.batch.size.in.bytes", INT, "8388608", None, internal=True)
_define("kafka.metrics.polling.interval.secs", INT, "10", at_least(1))
_define("kafka.metrics.reporters", LIST, "", any_list)
_define("leader.imbalance.check.interval.seconds", LONG, "300", at_least(1))
_define("log.cleaner.dedupe.buffer.size", LONG, "134217728", None, mode=CLUSTER_WIDE)
_define("log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", None, mode=CLUSTER_WIDE)
_define("log.cleaner.io.buffer.size", INT, "524288", at_least(0), mode=CLUSTER_WIDE)
_define(
    "log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", None, mode=CLUSTER_WIDE
)
_define("log.cleaner.threads", INT, "1", at_least(0), mode=CLUSTER_WIDE)
_define("log.dir.failure.timeout.ms", LONG, "30000", at_least(1))
_define("log.flush.interval.messages", LONG, "9223372036854775807", at_least(1), mode=CLUSTER_WIDE)
_define("log.flush.interval.ms", LONG, None, None, mode=CLUSTER_WIDE)
_define("log.flush.offset.checkpoint.interval.ms", INT, "60000", at_least(0))
_define("log.flush.scheduler.interval.ms", LONG, "9223372036854775807")
_define("log.flush.start.offset.checkpoint.interval.ms", INT, "60000", at_least(0))
_define("log.initial.task.delay.ms", LONG, "30000", at_least(0), internal=True)
_define("log.local.retention.bytes", LONG, "-2", at_least(-2), mode=CLUSTER_WIDE)
_define("log.local.retention.ms", LONG, "-2", at_least(-2), mode=CLUSTER_WIDE)
_define("log.preallocate", BOOLEAN, "false", None, mode=CLUSTER_WIDE)
_define("log.remote.copy.lag.bytes", LONG, "-1", at_least(-1), mode=CLUSTER_WIDE)
_define("log.remote.copy.lag.ms", LONG, "0", at_least(-1), mode=CLUSTER_WIDE)
_define("log.roll.jitter.hours", INT, "0", at_least(0))
_define("log.roll.jitter.ms", LONG, None, None, mode=CLUSTER_WIDE)
_define("max.connection.creation.rate", INT, "2147483647", at_least(0), mode=CLUSTER_WIDE)
_define("max.connections.per.ip", INT, "2147483647", at_least(0), mode=CLUSTER_WIDE)
_define("max.connections.per.ip.overrides", STRING, "", None, mode=CLUSTER_WIDE)
_define(
    "max.decompressed.message.bytes", INT, "2147483639", between(1, 2147483639), mode=CLUSTER_WIDE
)
_define("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520", at_least(1))
_define("metadata.log.max.snapshot.interval.ms", LONG, "3600000", at_least(0))
_define("metadata.log.segment.bytes", INT, "1073741824", at_least(8388608))
_define("metadata.log.segment.ms", LONG, "604800000")
_define("metadata.max.idle.interval.ms", INT, "500", at_least(0))
_define("metadata.max.retention.bytes", LONG, "104857600")
_define("metadata.max.retention.ms", LONG, "604800000")
_define(
    "metric.reporters",
    LIST,
    "org.apache.kafka.common.metrics.JmxReporter",
    any_list,
    mode=CLUSTER_WIDE,
)
_define("metrics.num.samples", INT, "2", at_least(1))
_define("metrics.recording.level", STRING, "INFO")
_define("metrics.sample.window.ms", LONG, "30000", at_least(1))
_define("num.io.threads", INT, "8", at_least(1), mode=CLUSTER_WIDE)
_define("num.network.threads", INT, "3", at_least(1), mode=CLUSTER_WIDE)
_define("num.recovery.threads.per.data.dir", INT, "2", at_least(1), mode=CLUSTER_WIDE)
_define("num.replica.alter.log.dirs.threads", INT, None)
_define("num.replica.fetchers", INT, "1", at_least(1), mode=CLUSTER_WIDE)
_define("offsets.commit.timeout.ms", INT, "5000", at_least(1))
_define("offsets.load.buffer.size", INT, "5242880", at_least(1))
_define("offsets.topic.compression.codec", INT, "0")
_define(
    "principal.builder.class",
    CLASS,
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    None,
    mode=PER_BROKER,
)
_define("producer.purgatory.purge.interval.requests", INT, "1000")
_define("queued.max.request.bytes", LONG, "-1")
_define("queued.max.requests", INT, "500", at_least(1))
_define("quota.window.num", INT, "11", at_least(1))
_define("quota.window.size.seconds", INT, "1", at_least(1))
_define("remote.fetch.max.wait.ms", INT, "500", at_least(1), mode=CLUSTER_WIDE)
_define("remote.list.offsets.request.timeout.ms", LONG, "30000", at_least(1), mode=CLUSTER_WIDE)
_define(
    "remote.log.index.file.cache.total.size.bytes",
    LONG,
    "1073741824",
    at_least(1),
    mode=CLUSTER_WIDE,
)
_define("remote.log.index.file.cache.ttl.ms", LONG, "900000", at_least(-1), internal=True)
_define("remote.log.manager.copier.thread.pool.size", INT, "10", at_least(1), mode=CLUSTER_WIDE)
_define(
    "remote.log.manager.copy.max.bytes.per.second",
    LONG,
    "9223372036854775807",
    at_least(1),
    mode=CLUSTER_WIDE,
)
_define("remote.log.manager.copy.quota.window.num", INT, "11", at_least(1))
_define("remote.log.manager.copy.quota.window.size.seconds", INT, "1", at_least(1))
_define("remote.log.manager.expiration.thread.pool.size", INT, "10", at_least(1), mode=CLUSTER_WIDE)
_define(
    "remote.log.manager.fetch.max.bytes.per.second",
    LONG,
    "9223372036854775807",
    at_least(1),
    mode=CLUSTER_WIDE,
)
_define("remote.log.manager.fetch.quota.window.num", INT, "11", at_least(1))
_define("remote.log.manager.fetch.quota.window.size.seconds", INT, "1", at_least(1))
_define("remote.log.manager.follower.thread.pool.size", INT, "2", at_least(1), mode=CLUSTER_WIDE)
_define("remote.log.manager.task.interval.ms", LONG, "30000", at_least(1))
_define("remote.log.manager.task.retry.backoff.max.ms", LONG, "30000", at_least(1), internal=True)
_define("remote.log.manager.task.retry.backoff.ms", LONG, "500", at_least(1), internal=True)
_define("remote.log.manager.task.retry.jitter", DOUBLE, "0.2", between(0, 0.5), internal=True)
_define("remote.log.manager.thread.pool.size", INT, "2", at_least(1))
_define("remote.log.metadata.custom.metadata.max.bytes", INT, "128", at_least(0))
_define(
    "remote.log.metadata.manager.class.name",
    STRING,
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    filled_string,
)
_define("remote.log.metadata.manager.class.path", STRING, None)
_define("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", filled_string)
_define("remote.log.metadata.manager.listener.name", STRING, None, filled_string)
_define("remote.log.reader.max.pending.tasks", INT, "100", at_least(1))
_define("remote.log.reader.threads", INT, "10", at_least(1), mode=CLUSTER_WIDE)
_define("remote.log.storage.manager.class.name", STRING, None, filled_string)
_define("remote.log.storage.manager.class.path", STRING, None)
_define("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", filled_string)
_define("remote.log.storage.system.enable", BOOLEAN, "false")
_define("replica.fetch.backoff.ms", INT, "1000", at_least(0))
_define("replica.fetch.max.bytes", INT, "1048576", at_least(0))
_define("replica.fetch.min.bytes", INT, "1")
_define("replica.fetch.response.max.bytes", INT, "10485760", at_least(0))
_define("replica.fetch.wait.max.ms", INT, "500")
_define("replica.high.watermark.checkpoint.interval.ms", LONG, "5000")
_define("replica.lag.time.max.ms", LONG, "30000")
_define("replica.selector.class", STRING, None)
_define("replica.socket.receive.buffer.bytes", INT, "65536")
_define("replica.socket.timeout.ms", INT, "30000")
_define("replication.quota.window.num", INT, "11", at_least(1))
_define("replication.quota.window.size.seconds", INT, "1", at_least(1))
_define("request.timeout.ms", INT, "30000")
_define("sasl.client.callback.handler.class", CLASS, None)
_define("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, mode=PER_BROKER)
_define("sasl.kerberos.min.time.before.relogin", LONG, "60000", None, mode=PER_BROKER)
_define("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", any_list, mode=PER_BROKER)
_define("sasl.kerberos.service.name", STRING, None, None, mode=PER_BROKER)
_define("sasl.kerberos.ticket.renew.jitter", DOUBLE, "0.05", None, mode=PER_BROKER)
_define("sasl.kerberos.ticket.renew.window.factor", DOUBLE, "0.8", None, mode=PER_BROKER)
_define("sasl.login.callback.handler.class", CLASS, None)
_define("sasl.login.class", CLASS, None)
_define("sasl.login.connect.timeout.ms", INT, None)
_define("sasl.login.read.timeout.ms", INT, None)
_define("sasl.login.refresh.buffer.seconds", SHORT, "300", None, mode=PER_BROKER)
_define("sasl.login.refresh.min.period.seconds", SHORT, "60", None, mode=PER_BROKER)
_define("sasl.login.refresh.window.factor", DOUBLE, "0.8", None, mode=PER_BROKER)
_define("sasl.login.refresh.window.jitter", DOUBLE, "0.05", None, mode=PER_BROKER)
_define("sasl.login.retry.backoff.max.ms", LONG, "10000")
_define("sasl.login.retry.backoff.ms", LONG, "100")
_define("sasl.mechanism.controller.protocol", STRING, "GSSAPI")
_define("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, mode=PER_BROKER)
_define("sasl.oauthbearer.allow.unverified.audience", BOOLEAN, "false")
_define("sasl.oauthbearer.allow.unverified.issuer", BOOLEAN, "false")
_define(
    "sasl.oauthbearer.assertion.algorithm",
    STRING,
    "RS256",
    one_of("ES256", "RS256", ignore_case=True),
)
_define("sasl.oauthbearer.assertion.claim.aud", STRING, None)
_define("sasl.oauthbearer.assertion.claim.exp.seconds", INT, "300", between(0, 86400))
_define("sasl.oauthbearer.assertion.claim.iss", STRING, None)
_define("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, "false")
_define("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, "60", between(0, 3600))
_define("sasl.oauthbearer.assertion.claim.sub", STRING, None)
_define("sasl.oauthbearer.assertion.file", STRING, None)
_define("sasl.oauthbearer.assertion.private.key.file", STRING, None)
_define("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None)
_define("sasl.oauthbearer.assertion.template.file", STRING, None)
_define("sasl.oauthbearer.client.credentials.client.id", STRING, None)
_define("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None)
_define("sasl.oauthbearer.clock.skew.seconds", INT, "30")
_define("sasl.oauthbearer.expected.audience", LIST, "", any_list)
_define("sasl.oauthbearer.expected.issuer", STRING, None)
_define("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000")
_define("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000")
_define("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100")
_define("sasl.oauthbearer.jwks.endpoint.url", STRING, None)
_define(
    "sasl.oauthbearer.jwt.retriever.class",
    CLASS,
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
)
_define(
    "sasl.oauthbearer.jwt.validator.class",
    CLASS,
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
)
_define("sasl.oauthbearer.scope", STRING, None)
_define("sasl.oauthbearer.scope.claim.name", STRING, "scope")
_define("sasl.oauthbearer.sub.claim.name", STRING, "sub")
_define("sasl.oauthbearer.token.endpoint.url", STRING, None)
_define("sasl.server.callback.handler.class", CLASS, None)
_define(
    "security.inter.broker.protocol",
    STRING,
    "PLAINTEXT",
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
)
_define("security.providers", STRING, None)
_define("server.max.startup.time.ms", LONG, "9223372036854775807", at_least(0), internal=True)
_define("share.coordinator.append.linger.ms", INT, "-1", at_least(-1))
_define(
    "share.coordinator.cached.buffer.max.bytes", INT, "1048588", at_least(524288), mode=CLUSTER_WIDE
)
_define(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    INT,
    "300000",
    at_least(1),
    internal=True,
)
_define("share.coordinator.load.buffer.size", INT, "5242880", at_least(1))
_define("share.coordinator.snapshot.update.records.per.snapshot", INT, "500", between(0, 500))
_define("share.coordinator.state.topic.compression.codec", INT, "0")
_define("share.coordinator.state.topic.min.isr", SHORT, "2", at_least(1))
_define("share.coordinator.state.topic.num.partitions", INT, "50", at_least(1))
_define(
    "share.coordinator.state.topic.prune.interval.ms", INT, "300000", at_least(1), internal=True
)
_define("share.coordinator.state.topic.replication.factor", SHORT, "3", at_least(1))
_define("share.coordinator.state.topic.segment.bytes", INT, "104857600", at_least(1))
_define("share.coordinator.threads", INT, "1", at_least(1))
_define("share.coordinator.write.timeout.ms", INT, "5000", at_least(1))
_define("share.fetch.purgatory.purge.interval.requests", INT, "1000")
_define("socket.connection.setup.timeout.max.ms", LONG, "30000")
_define("socket.connection.setup.timeout.ms", LONG, "10000")
_define("ssl.allow.dn.changes", BOOLEAN, "false")
_define("ssl.allow.san.changes", BOOLEAN, "false")
_define("ssl.endpoint.identification.algorithm", STRING, "https", None, mode=PER_BROKER)
_define("ssl.engine.factory.class", CLASS, None, None, mode=PER_BROKER)
_define("ssl.keymanager.algorithm", STRING, "SunX509", None, mode=PER_BROKER)
_define("ssl.provider", STRING, None, None, mode=PER_BROKER)
_define("ssl.secure.random.implementation", STRING, None, None, mode=PER_BROKER)
_define("ssl.trustmanager.algorithm", STRING, "PKIX", None, mode=PER_BROKER)
_define("telemetry.max.bytes", INT, "1048576", at_least(1))
_define("transaction.state.log.load.buffer.size", INT, "5242880", at_least(1))
_define("transaction.state.log.min.isr", INT, "2", at_least(1))
_define("transaction.two.phase.commit.enable", BOOLEAN, "false")
_define("unclean.leader.election.enable", BOOLEAN, "false", None, mode=CLUSTER_WIDE)
_define("unclean.leader.election.interval.ms", LONG, "300000", at_least(1), internal=True)
_define("unstable.api.versions.enable", BOOLEAN, "false", None, internal=True)
_define("unstable.feature.versions.enable", BOOLEAN, "false", None, internal=True)
