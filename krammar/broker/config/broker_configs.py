"""The keys of a broker's configuration that this broker acts on, with Apache Kafka 4.4's names and, but for
listeners and replication factors, its defaults."""

from __future__ import annotations

from kafka_wire import ConfigType

from krammar.broker.config.definitions import (
    BOOLEAN,
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
    one_of,
)
from krammar.broker.config.without_effect import WITHOUT_EFFECT

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE

BROKER_CONFIGS: dict[str, ConfigDef] = {}


def _define(
    name: str,
    type_: ConfigType,
    default: str | None,
    validator: Validator | None,
    doc: str,
    mode: UpdateMode = UpdateMode.READ_ONLY,
    internal: bool = False,
    effect: bool = True,
) -> None:
    if not effect:
        doc = f"{doc[:-1]}; this broker does not act on it."
    BROKER_CONFIGS[name] = ConfigDef(
        name, type_, default, validator, doc, mode=mode, effect=effect, internal=internal
    )


_define(
    "advertised.listeners",
    LIST,
    None,
    filled_list,
    "The addresses that clients are told to connect to, one a listener; without it they are those of listeners.",
)
_define(
    "auto.create.topics.enable",
    BOOLEAN,
    "true",
    None,
    "Whether a topic comes into being when a client asks for its metadata and allows it.",
)
_define("broker.id", INT, "-1", None, "The older name of node.id.")
_define(
    "broker.rack",
    STRING,
    None,
    None,
    "The rack or zone of the broker, shown to clients that prefer a near one.",
)
_define(
    "compression.type",
    STRING,
    "producer",
    one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "The default of a topic's compression.type.",
    mode=CLUSTER_WIDE,
)
_define(
    "connection.failed.authentication.delay.ms",
    INT,
    "100",
    at_least(0),
    "How many milliseconds a connection stays open after its login failed.",
)
_define(
    "connections.max.idle.ms",
    LONG,
    "600000",
    None,
    "After how many milliseconds without a request a connection is closed.",
)
_define(
    "connections.max.reauth.ms",
    LONG,
    "0",
    None,
    "After how many milliseconds a login has to be renewed, 0 for never (KIP-368).",
)
_define(
    "controller.listener.names",
    LIST,
    None,
    filled_list,
    "The listeners that are a controller's, which a single node does not open.",
)
_define(
    "default.replication.factor",
    INT,
    "1",
    None,
    "The replication factor of a topic that is created without one; only 1 can be met.",
)
_define("delete.topic.enable", BOOLEAN, "true", None, "Whether topics may be deleted.")
_define(
    "fetch.max.bytes",
    INT,
    "57671680",
    at_least(1024),
    "The most bytes of records in one fetch response.",
)
_define(
    "group.initial.rebalance.delay.ms",
    INT,
    "3000",
    None,
    "How many milliseconds the first rebalance of an empty group waits for more members.",
)
_define(
    "group.max.session.timeout.ms",
    INT,
    "1800000",
    None,
    "The longest session timeout that a member of a group may ask for.",
)
_define("group.max.size", INT, "2147483647", at_least(1), "The most members that a group may have.")
_define(
    "group.min.session.timeout.ms",
    INT,
    "6000",
    None,
    "The shortest session timeout that a member of a group may ask for.",
)
_define(
    "inter.broker.listener.name",
    STRING,
    None,
    None,
    "The listener that brokers use among themselves; a single node only checks the name.",
)
_define(
    "listener.security.protocol.map",
    STRING,
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    None,
    "Which security protocol each listener name stands for.",
)
_define(
    "listeners",
    LIST,
    "PLAINTEXT://127.0.0.1:9092",
    filled_list,
    "The addresses that the broker listens on, each as NAME://host:port; no host stands for all interfaces.",
)
_define(
    "log.cleaner.backoff.ms",
    LONG,
    "15000",
    at_least(0),
    "How many milliseconds compaction rests when there is nothing to compact.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.cleaner.delete.retention.ms",
    LONG,
    "86400000",
    at_least(0),
    "The default of a topic's delete.retention.ms.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.cleaner.enable",
    BOOLEAN,
    "true",
    None,
    "Whether logs with cleanup.policy=compact are compacted.",
)
_define(
    "log.cleaner.max.compaction.lag.ms",
    LONG,
    "9223372036854775807",
    at_least(1),
    "The default of a topic's max.compaction.lag.ms.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.cleaner.min.cleanable.ratio",
    DOUBLE,
    "0.5",
    between(0, 1),
    "The default of a topic's min.cleanable.dirty.ratio.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.cleaner.min.compaction.lag.ms",
    LONG,
    "0",
    at_least(0),
    "The default of a topic's min.compaction.lag.ms.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.cleanup.policy",
    LIST,
    "delete",
    each_of("compact", "delete"),
    "The default of a topic's cleanup.policy.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.dir",
    LIST,
    "/tmp/kafka-logs",
    filled_list,
    "The folder of the logs, where log.dirs is not set.",
)
_define("log.dirs", LIST, None, filled_list, "The folders that partitions are spread over.")
_define(
    "log.index.interval.bytes",
    INT,
    "4096",
    at_least(0),
    "The default of a topic's index.interval.bytes.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.index.size.max.bytes",
    INT,
    "10485760",
    at_least(4),
    "The default of a topic's segment.index.bytes.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.message.timestamp.after.max.ms",
    LONG,
    "3600000",
    at_least(0),
    "The default of a topic's message.timestamp.after.max.ms.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.message.timestamp.before.max.ms",
    LONG,
    "9223372036854775807",
    at_least(0),
    "The default of a topic's message.timestamp.before.max.ms.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.message.timestamp.type",
    STRING,
    "CreateTime",
    one_of("CreateTime", "LogAppendTime"),
    "The default of a topic's message.timestamp.type.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.retention.bytes",
    LONG,
    "-1",
    None,
    "The default of a topic's retention.bytes.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.retention.check.interval.ms",
    LONG,
    "300000",
    at_least(1),
    "How many milliseconds lie between two looks for segments to delete.",
)
_define(
    "log.retention.hours",
    INT,
    "168",
    None,
    "The default of a topic's retention.ms, in hours; minutes and milliseconds go before it.",
)
_define(
    "log.retention.minutes",
    INT,
    None,
    None,
    "The default of a topic's retention.ms, in minutes; milliseconds go before it.",
)
_define(
    "log.retention.ms",
    LONG,
    None,
    None,
    "The default of a topic's retention.ms.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.roll.hours",
    INT,
    "168",
    at_least(1),
    "The default of a topic's segment.ms, in hours; milliseconds go before it.",
)
_define("log.roll.ms", LONG, None, None, "The default of a topic's segment.ms.", mode=CLUSTER_WIDE)
_define(
    "log.segment.bytes",
    INT,
    "1073741824",
    at_least(1048576),
    "The default of a topic's segment.bytes.",
    mode=CLUSTER_WIDE,
)
_define(
    "log.segment.delete.delay.ms",
    LONG,
    "60000",
    at_least(0),
    "The default of a topic's file.delete.delay.ms.",
    mode=CLUSTER_WIDE,
)
_define(
    "max.connections",
    INT,
    "2147483647",
    at_least(0),
    "The most connections that the broker holds at a time.",
    mode=CLUSTER_WIDE,
    effect=False,
)
_define(
    "max.incremental.fetch.session.cache.slots",
    INT,
    "1000",
    at_least(0),
    "The most fetch sessions that the broker keeps (KIP-227).",
)
_define(
    "max.request.partition.size.limit",
    INT,
    "2000",
    at_least(1),
    "The most partitions that one answer to DescribeTopicPartitions holds.",
)
_define(
    "message.max.bytes",
    INT,
    "1048588",
    at_least(0),
    "The default of a topic's max.message.bytes.",
    mode=CLUSTER_WIDE,
)
_define(
    "metadata.log.dir",
    STRING,
    None,
    None,
    "The folder of the cluster's metadata; without it the first of the log folders.",
)
_define(
    "min.insync.replicas",
    INT,
    "1",
    at_least(1),
    "The default of a topic's min.insync.replicas.",
    mode=CLUSTER_WIDE,
    effect=False,
)
_define("node.id", INT, None, at_least(0), "The number of this node in the cluster.")
_define(
    "num.partitions",
    INT,
    "1",
    at_least(1),
    "The number of partitions of a topic that is created without one.",
)
_define(
    "offset.metadata.max.bytes",
    INT,
    "4096",
    None,
    "The longest text that may go with a committed offset.",
)
_define(
    "offsets.retention.check.interval.ms",
    LONG,
    "600000",
    at_least(1),
    "How many milliseconds lie between two looks for committed offsets that have expired.",
)
_define(
    "offsets.retention.minutes",
    INT,
    "10080",
    at_least(1),
    "After how many minutes without members a group's committed offsets expire.",
)
_define(
    "offsets.topic.num.partitions",
    INT,
    "50",
    at_least(1),
    "The number of partitions of the topic of committed offsets.",
)
_define(
    "offsets.topic.replication.factor",
    SHORT,
    "1",
    at_least(1),
    "The replication factor of the topic of committed offsets; only 1 can be met.",
)
_define(
    "offsets.topic.segment.bytes",
    INT,
    "104857600",
    at_least(1),
    "The segment size of the topic of committed offsets.",
)
_define(
    "process.roles",
    LIST,
    None,
    each_of("broker", "controller"),
    "The roles of the node, of which broker has to be one; a single node needs no controller.",
)
_define(
    "producer.id.expiration.check.interval.ms",
    INT,
    "600000",
    at_least(1),
    "How many milliseconds lie between two looks for producer ids that have expired.",
    internal=True,
    effect=False,
)
_define(
    "producer.id.expiration.ms",
    INT,
    "86400000",
    at_least(1),
    "After how many milliseconds without a write a partition forgets a producer id.",
    mode=CLUSTER_WIDE,
)
_define(
    "sasl.enabled.mechanisms",
    LIST,
    "GSSAPI",
    any_list,
    "The SASL mechanisms that clients may log in with: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.",
)
_define(
    "sasl.jaas.config",
    PASSWORD,
    None,
    None,
    "The login module and its options, for SASL/PLAIN the users with their passwords.",
)
_define(
    "sasl.server.max.receive.size",
    INT,
    "524288",
    None,
    "The largest message that a client may send before it has logged in.",
)
_define(
    "socket.listen.backlog.size",
    INT,
    "50",
    at_least(1),
    "How many connections may wait to be accepted.",
    effect=False,
)
_define(
    "socket.receive.buffer.bytes",
    INT,
    "102400",
    None,
    "The receive buffer of a connection's socket, -1 for the system's own choice.",
    effect=False,
)
_define(
    "socket.request.max.bytes", INT, "104857600", at_least(1), "The largest request that is read."
)
_define(
    "socket.send.buffer.bytes",
    INT,
    "102400",
    None,
    "The send buffer of a connection's socket, -1 for the system's own choice.",
    effect=False,
)
_define(
    "ssl.cipher.suites",
    LIST,
    "",
    any_list,
    "The cipher suites that a TLS connection may use; an empty list leaves it to the TLS library.",
)
_define(
    "ssl.client.auth",
    STRING,
    "none",
    one_of("required", "requested", "none"),
    "Whether a TLS client has to show a certificate: required, requested or none.",
)
_define(
    "ssl.enabled.protocols",
    LIST,
    "TLSv1.2,TLSv1.3",
    any_list,
    "The versions of TLS that a connection may use.",
)
_define("ssl.key.password", PASSWORD, None, None, "The password of the private key.")
_define(
    "ssl.keystore.certificate.chain",
    PASSWORD,
    None,
    None,
    "The broker's certificate and those that vouch for it, as PEM text.",
)
_define("ssl.keystore.key", PASSWORD, None, None, "The broker's private key, as PEM text (PKCS#8).")
_define(
    "ssl.keystore.location", STRING, None, None, "The file with the broker's key and certificate."
)
_define(
    "ssl.keystore.password",
    PASSWORD,
    None,
    None,
    "The password of the file with the broker's key.",
    effect=False,
)
_define(
    "ssl.keystore.type",
    STRING,
    "JKS",
    None,
    "The form of that file, of which this broker reads PEM.",
)
_define(
    "ssl.principal.mapping.rules",
    STRING,
    "DEFAULT",
    None,
    "How a client certificate's distinguished name becomes a user's name.",
)
_define(
    "ssl.protocol",
    STRING,
    "TLSv1.3",
    None,
    "The version of TLS that a connection tries first.",
    effect=False,
)
_define(
    "ssl.truststore.certificates",
    PASSWORD,
    None,
    None,
    "The certificates that vouch for clients, as PEM text.",
)
_define(
    "ssl.truststore.location",
    STRING,
    None,
    None,
    "The file with the certificates that vouch for clients.",
)
_define(
    "ssl.truststore.password",
    PASSWORD,
    None,
    None,
    "The password of the file with those certificates.",
    effect=False,
)
_define(
    "ssl.truststore.type",
    STRING,
    "JKS",
    None,
    "The form of that file, of which this broker reads PEM.",
)
_define(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    INT,
    "10000",
    at_least(1),
    "How many milliseconds lie between two looks for transactions that ran out of time.",
    effect=False,
)
_define(
    "transaction.max.timeout.ms",
    INT,
    "900000",
    at_least(1),
    "The longest timeout that a transactional producer may ask for.",
)
_define(
    "transaction.partition.verification.enable",
    BOOLEAN,
    "true",
    None,
    "Whether a transactional write is refused in a partition that its transaction does not know.",
    mode=CLUSTER_WIDE,
)
_define(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    INT,
    "3600000",
    at_least(1),
    "How many milliseconds lie between two looks for transactional ids that have expired.",
)
_define(
    "transaction.state.log.num.partitions",
    INT,
    "50",
    at_least(1),
    "The number of partitions of the topic of transactions.",
)
_define(
    "transaction.state.log.replication.factor",
    SHORT,
    "1",
    at_least(1),
    "The replication factor of the topic of transactions; only 1 can be met.",
)
_define(
    "transaction.state.log.segment.bytes",
    INT,
    "104857600",
    at_least(1),
    "The segment size of the topic of transactions.",
)
_define(
    "transactional.id.expiration.ms",
    INT,
    "604800000",
    at_least(1),
    "After how many milliseconds without a transaction a transactional id is forgotten.",
)

# Settings of this broker's own, which Apache Kafka does not have.
_define(
    "krammar.fsync",
    STRING,
    "interval",
    one_of("always", "interval", "never"),
    "When records are forced to the disk: before each answer, every krammar.fsync.interval.ms, or when the system likes.",
)
_define(
    "krammar.fsync.interval.ms",
    LONG,
    "1000",
    at_least(1),
    "How many milliseconds lie between two times that records are forced to the disk.",
)

BROKER_CONFIGS.update(WITHOUT_EFFECT)
