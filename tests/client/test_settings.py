"""Settings by Kafka's names."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from krammar.client.errors import SettingsError
from krammar.client.settings import (
    NOT_SUPPORTED,
    WITHOUT_EFFECT,
    Settings,
    client_settings,
)

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def of(**values: Any) -> Settings:
    return Settings.of({"bootstrap.servers": "a:1"}, **values)


LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


def test_names_with_dots_and_with_underscores() -> None:
    settings = Settings.of(
        {"bootstrap.servers": "a:9092, SSL://b:9093,[::1]:9094", "request.timeout.ms": "5000"},
        fetch_max_bytes=1000,
        isolation_level="READ_COMMITTED",
    )
    assert settings.bootstrap_servers == (("a", 9092), ("b", 9093), ("::1", 9094))
    assert settings.request_timeout_ms == 5000
    assert settings.fetch_max_bytes == 1000
    assert settings.read_committed


def test_they_can_be_pickled() -> None:
    settings = of(client_id="x", sasl_password="secret")
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("isolation.levels", "isolation.level"),
        ("sasl.mechanisme", "sasl.mechanism"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(SettingsError, match=rf'{name}: .*did you mean "{nearest}"\?') as caught:
        of(**{name: "x"})
    assert caught.value.name == name


def test_a_name_like_no_other_is_an_error_too() -> None:
    with pytest.raises(SettingsError, match=r"zzzz: unknown setting$"):
        of(zzzz=1)


@pytest.mark.parametrize("name", sorted(NOT_SUPPORTED))
def test_what_is_not_supported_says_why(name: str) -> None:
    with pytest.raises(SettingsError, match="is not supported: ") as caught:
        of(**{name: "x"})
    assert NOT_SUPPORTED[name] in str(caught.value)


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_what_has_no_effect_is_taken_and_says_so(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "krammar.client"):
        assert of(**{name: "x"}) == of()
    assert f"{name} has no effect: {WITHOUT_EFFECT[name]}" in caplog.text


def test_each_name_has_one_meaning() -> None:
    table = client_settings()
    names = [each.name for each in table.values()]
    aliases = [alias for each in table.values() for alias in each.aliases]
    assert len(names) + len(aliases) == len({*names, *aliases})
    assert {*NOT_SUPPORTED, *WITHOUT_EFFECT} < {*names}
    assert not {*NOT_SUPPORTED} & {*WITHOUT_EFFECT}


def test_librdkafkas_names() -> None:
    settings = Settings.of(
        {
            "metadata.broker.list": "a:1",
            "sasl.mechanisms": "PLAIN",
            "compression.codec": "zstd",
            "fetch.wait.max.ms": 7,
        }
    )
    assert settings.bootstrap_servers == (("a", 1),)
    assert settings.sasl_mechanism == "PLAIN"
    assert settings.compression_type == "zstd"
    assert settings.fetch_max_wait_ms == 7


def test_two_names_of_one_setting_that_differ() -> None:
    with pytest.raises(SettingsError, match=r"linger\.ms"):
        of(linger_ms=1, queue_buffering_max_ms=2)
    assert of(linger_ms=1, queue_buffering_max_ms=1).linger_ms == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bootstrap.servers", "a"),
        ("bootstrap.servers", ""),
        ("bootstrap.servers", "a:0"),
        ("bootstrap.servers", "a:65536"),
        ("request.timeout.ms", "soon"),
        ("request.timeout.ms", 0),
        ("request.timeout.ms", True),
        ("fetch.max.bytes", -1),
        ("isolation.level", "serializable"),
        ("security.protocol", "TLS"),
        ("sasl.mechanism", "GSSAPI"),
        ("sasl.mechanism", "CRAM-MD5"),
        ("acks", "2"),
        ("enable.idempotence", "yes"),
        ("compression.type", "brotli"),
        ("compression.lz4.level", 18),
        ("client.id", 5),
        ("sasl.password", 5),
        ("sasl.jaas.config", "nonsense"),
        ("ssl.keystore.type", "JKS"),
    ],
)
def test_a_malformed_value_names_the_setting(name: str, value: object) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.of({"bootstrap.servers": "a:1", name: value})
    assert caught.value.name == name


@pytest.mark.parametrize(("store", "option"), [("keystore", "-nodes"), ("truststore", "-nokeys")])
def test_javas_key_stores_have_to_be_converted(store: str, option: str) -> None:
    settings = {"bootstrap.servers": "a:1", f"ssl.{store}.type": "PKCS12"}
    with pytest.raises(SettingsError, match=rf"ssl\.{store}\.type: only PEM is supported"):
        Settings.of(settings)
    steps = rf"`openssl pkcs12 -in a\.p12 {option} -out {store}\.pem`, then set"
    with pytest.raises(SettingsError, match=rf"ssl\.{store}\.type: .*{steps}"):
        Settings.of({**settings, f"ssl.{store}.location": "a.p12"})


def test_servers_are_required() -> None:
    with pytest.raises(SettingsError, match=r"bootstrap\.servers: is required"):
        Settings.of({})


def test_none_is_the_default() -> None:
    assert of(request_timeout_ms=None) == of()


def test_a_login_in_javas_way() -> None:
    settings = of(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=f'{SCRAM_MODULE} required\n username="al ice" password="a\\"b;=c" ;',
    )
    assert (settings.sasl_username, settings.sasl_password) == ("al ice", 'a"b;=c')
    settings = of(sasl_jaas_config=f"{PLAIN_MODULE} required username=u password='p q';")
    assert (settings.sasl_mechanism, settings.sasl_password) == ("PLAIN", "p q")


@pytest.mark.parametrize(
    "text",
    [
        f"{SCRAM_MODULE} required username=u;",
        f"{SCRAM_MODULE} required username=u password=secret",
        f'{SCRAM_MODULE} required username=u password="secret;',
        f"{SCRAM_MODULE} username=u password=secret;",
        f"{SCRAM_MODULE} required username=u password=my secret;",
        f'{SCRAM_MODULE} required username=u password="my"secret;',
        f"{SCRAM_MODULE} required username=u password=secret tokenauth=true;",
        "com.sun.security.auth.module.Krb5LoginModule required password=secret;",
    ],
)
def test_a_wrong_login_does_not_repeat_the_password(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        of(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=text)
    assert "secret" not in str(caught.value)


def test_a_login_for_another_mechanism() -> None:
    with pytest.raises(SettingsError, match="is for SCRAM"):
        of(
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f"{SCRAM_MODULE} required username=u password=p;",
        )


@pytest.mark.parametrize("missing", ["sasl_mechanism", "sasl_username", "sasl_password"])
def test_a_login_is_required_with_sasl(missing: str) -> None:
    values = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}
    del values[missing]
    with pytest.raises(SettingsError, match=f"{missing.replace('_', '.')}: is required"):
        of(security_protocol="SASL_PLAINTEXT", **values)


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(of(sasl_password="hush", ssl_key_password="hush", ssl_key_pem="hush"))


def test_idempotence_follows_what_it_needs() -> None:
    assert of().enable_idempotence
    assert not of(acks=1).enable_idempotence
    assert not of(retries=0).enable_idempotence
    assert not of(max_in_flight_requests_per_connection=6).enable_idempotence


@pytest.mark.parametrize(
    "values",
    [
        {"acks": "1", "enable_idempotence": True},
        {"acks": "0", "transactional_id": "t"},
        {"retries": 0, "transactional_id": "t"},
        {"max_in_flight": 6, "enable_idempotence": "true"},
        {"enable_idempotence": False, "transactional_id": "t"},
    ],
)
def test_contradictions_are_errors(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        of(**values)


@pytest.mark.parametrize(
    "change", [{"acks": "1"}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}]
)
def test_a_change_does_not_turn_off_idempotence_that_was_given(change: dict[str, Any]) -> None:
    given = of(enable_idempotence="true")
    for settings in (given, pickle.loads(pickle.dumps(given)), given.with_(client_id="x")):
        assert settings.with_(linger_ms=1).enable_idempotence
        with pytest.raises(SettingsError, match="for an idempotent producer"):
            settings.with_(change)
    assert not of().with_(change).enable_idempotence
    assert not of().with_(change).with_(client_id="x").enable_idempotence
    assert of(**change).with_(acks="all", retries=1, max_in_flight=5).enable_idempotence


def test_values_that_follow_from_others_follow_changes_too() -> None:
    settings = of(retry_backoff_ms=2000)
    assert settings.retry_backoff_max_ms == 2000
    assert settings.with_(retry_backoff_ms=3000).retry_backoff_max_ms == 3000


def test_errors_show_no_secrets() -> None:
    with pytest.raises(SettingsError) as caught:
        of(ssl_key_password=b"secret")
    assert str(caught.value) == "ssl.key.password: needs text, not bytes"


def test_some_settings_changed() -> None:
    base = of(client_id="x", acks=1)
    changed = base.with_({"compression.type": "gzip"}, linger_ms=0)
    assert (changed.client_id, changed.compression_type, changed.linger_ms) == ("x", "gzip", 0)
    assert not changed.enable_idempotence
    assert base.with_(acks="all").enable_idempotence
    with pytest.raises(SettingsError):
        base.with_(transactional_id="t")


@pytest.mark.parametrize("name", ["ssl.key.location", "ssl.keystore.key"])
@pytest.mark.parametrize("login", [{}, LOGIN])
def test_a_key_without_its_certificate(name: str, login: dict[str, str]) -> None:
    protocol = "SASL_SSL" if login else "SSL"
    given = {"bootstrap.servers": "a:1", "security.protocol": protocol, **login, name: "x"}
    with pytest.raises(
        SettingsError, match=r"no certificate: set ssl\.keystore\.certificate\.chain"
    ):
        Settings.of(given)
    for certificate in (
        "ssl.keystore.certificate.chain",
        "ssl.keystore.location",
        "ssl.certificate.pem",
    ):
        Settings.of({**given, certificate: "x"})
    Settings.of({**given, "security.protocol": "SASL_PLAINTEXT" if login else "PLAINTEXT"})
