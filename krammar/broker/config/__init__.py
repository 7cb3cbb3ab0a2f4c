"""The settings of brokers, topics, groups and clients' metrics: server.properties, defaults, and the definitions of all keys."""

from krammar.broker.config.broker_config import BrokerConfig
from krammar.broker.config.definitions import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigError,
    UpdateMode,
)
from krammar.broker.config.listeners import Listener

__all__ = [
    "BROKER_CONFIGS",
    "BrokerConfig",
    "CLIENT_METRICS_CONFIGS",
    "ConfigDef",
    "ConfigError",
    "GROUP_CONFIGS",
    "Listener",
    "TOPIC_CONFIGS",
    "UpdateMode",
]
