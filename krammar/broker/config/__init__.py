"""What a broker and its topics are told: server.properties, defaults, and the keys' definitions."""

from krammar.broker.config.broker_config import BrokerConfig
from krammar.broker.config.broker_configs import BROKER_CONFIGS
from krammar.broker.config.definitions import ConfigDef, ConfigError, UpdateMode
from krammar.broker.config.listeners import Listener
from krammar.broker.config.topic_configs import TOPIC_CONFIGS

__all__ = [
    "BROKER_CONFIGS",
    "BrokerConfig",
    "ConfigDef",
    "ConfigError",
    "Listener",
    "TOPIC_CONFIGS",
    "UpdateMode",
]
