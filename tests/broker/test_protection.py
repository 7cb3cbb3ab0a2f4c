"""Protection that this broker lacks: it refuses to start with settings that ask for it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner
from kafka_wire import AccessControlEntryRecord

from krammar.broker import Broker, BrokerConfig, BrokerError
from krammar.broker.config import ConfigError
from krammar.broker.config.definitions import BROKER_CONFIGS
from krammar.broker.protection import MISSING, STANDARD_AUTHORIZER, WITHOUT
from krammar.cli import main

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


@pytest.mark.parametrize("name", MISSING)
def test_a_setting_is_refused(name: str) -> None:
    value = "true" if name.endswith("enable") else AUTHORIZER
    with (
        pytest.raises(ConfigError, match="this broker has no") as caught,
        Broker.start(properties={name: value}),
    ):
        pass
    assert str(caught.value).endswith(f"start without it: {WITHOUT}={name}")
    with Broker.start(properties={name: value, WITHOUT: name}) as broker:
        assert broker.port


@pytest.mark.parametrize("name", MISSING)
def test_values_that_ask_for_nothing(name: str) -> None:
    with Broker.start(properties={name: "false" if name.endswith("enable") else ""}) as broker:
        assert broker.port


def test_only_known_protection_can_be_given_up() -> None:
    with pytest.raises(ConfigError, match=rf"{WITHOUT}: .* must be one of: authorizer.class.name"):
        BrokerConfig.defaults(**{WITHOUT: "everything"})
    for name in MISSING:
        assert BrokerConfig.defaults(**{WITHOUT: name}).start_without == [name]
        assert BROKER_CONFIGS[name].effect is (name == "authorizer.class.name")


def test_the_command_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'data'}\nauthorizer.class.name={AUTHORIZER}\n")
    result = CliRunner().invoke(main, ["broker", str(file)])
    assert result.exit_code == 2
    assert "every client may read and write everything" in result.output
    assert "line 2 of server.properties" in " ".join(result.output.split())
    assert not (tmp_path / "data").exists()


def test_a_folder_with_acls(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker:
        entry = AccessControlEntryRecord(id=UUID(int=5), principal="User:a")
        broker.call(broker.cluster.append, [entry])
    with pytest.raises(BrokerError, match=r"the cluster has 1 ACL, but no authorizer"):
        Broker.start(data_dir=tmp_path)
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with Broker.start(data_dir=tmp_path, properties=properties) as broker:
        assert len(broker.cluster.acls) == 1
    for _ in range(2):  # the ACLs stay
        with Broker.start(
            data_dir=tmp_path, properties={WITHOUT: "authorizer.class.name"}
        ) as broker:
            assert len(broker.cluster.acls) == 1
