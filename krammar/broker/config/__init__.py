"""The settings of brokers, topics and groups: server.properties, defaults, and the definitions of all keys."""

from krammar.broker.config.broker_config import BrokerConfig
from krammar.broker.config.definitions import (
    BROKER_CONFIGS,
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
    "ConfigDef",
    "ConfigError",
    "GROUP_CONFIGS",
    "Listener",
    "TOPIC_CONFIGS",
    "UpdateMode",
]
