"""Refuses to start without protection that the settings or the folder promise, and that this broker does not have.

A Kafka configuration with ACLs would start a broker that is open to everybody.
``krammar.start.without`` names what a user gives up knowingly.
"""

from __future__ import annotations

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.config.definitions import ConfigError
from krammar.broker.errors import BrokerError

AUTHORIZER = "authorizer.class.name"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
WITHOUT = "krammar.start.without"

# What is missing, and what follows, by setting. ``WITHOUT`` in broker.csv accepts the same names.
MISSING = {
    AUTHORIZER: f"this broker has no authorizer but {STANDARD_AUTHORIZER}, so every client may read and write everything",
    "client.quota.callback.class": "this broker has no callbacks for quotas, so clients have no quotas but those of the metadata log",
    "alter.config.policy.class.name": "this broker has no policies, so every change of settings is allowed",
    "create.topic.policy.class.name": "this broker has no policies, so every topic is allowed",
    "remote.log.storage.system.enable": "this broker has no remote storage, so records only exist on its disk",
}


def has_authorizer(config: BrokerConfig) -> bool:
    """Return whether clients may only do what ACLs allow."""
    return (
        config.authorizer_class_name.strip() == STANDARD_AUTHORIZER
        and AUTHORIZER not in config.start_without
    )


def check_settings(config: BrokerConfig) -> None:
    """Raise ConfigError if a setting asks for protection that does not exist."""
    given_up = config.start_without
    for name, missing in MISSING.items():
        value = config.get(name)
        if value is None or value.strip().lower() in ("", "false") or name in given_up:
            continue
        if name == AUTHORIZER and has_authorizer(config):
            continue
        reason = f"{missing}. Remove the setting, or start without it: {WITHOUT}={name}"
        raise ConfigError(name, value, reason, config.origins.get(name, ""))


def check_folder(config: BrokerConfig, cluster: ClusterMetadata) -> None:
    """Raise BrokerError if the metadata contain ACLs, and no authorizer acts on them."""
    acls = len(cluster.acls)
    if not acls or has_authorizer(config) or AUTHORIZER in config.start_without:
        return
    raise BrokerError(
        f"{config.metadata_log_dir}: the cluster has {acls} ACL{'' if acls == 1 else 's'}, but no authorizer, so"
        f" every client may read and write everything. Set {AUTHORIZER}={STANDARD_AUTHORIZER}, or start without"
        f" them, which keeps them in the folder: {WITHOUT}={AUTHORIZER}"
    )
