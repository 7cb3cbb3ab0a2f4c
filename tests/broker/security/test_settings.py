"""JAAS, mapping rules and the other settings of logins."""

from __future__ import annotations

import pytest

from krammar.auth import jaas
from krammar.auth.names import MappingError, map_name, parse_rules
from krammar.broker.config import BrokerConfig, ConfigError
from krammar.broker.security.settings import SaslSettings, sasl_settings

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_reads_a_login_module() -> None:
    module = jaas.parse_login_module(f"""{PLAIN_MODULE} Required // all of it
            username="admin" password="admin-secret" /* for the
            broker itself */
            user_alice="a \\"quoted\\" \\\\ secret; with = and \\u"
            user_bob = plain-word.1
            user_carol='single "quotes"'
            user_12=\t"\\101\\n";
        """)
    assert module.name == PLAIN_MODULE
    assert module.flag == "required"
    assert module.options["username"] == "admin"
    assert module.users == {
        "alice": 'a "quoted" \\ secret; with = and u',
        "bob": "plain-word.1",
        "carol": 'single "quotes"',
        "12": "A\n",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the login module is missing"),
        ("// nothing", "the login module is missing"),
        ("=;", "class of a login module"),
        ("Module", "must follow Module"),
        ("Module needed;", "must follow Module"),
        ("Module required", "semicolon"),
        ('Module required a="1"', "semicolon"),
        ("Module required a;", "must follow the name of option 1"),
        ("Module required a=;", "has no value"),
        ("Module required =b;", "a name is missing"),
        ('Module required a="b;', "quote at character 19 is not closed"),
        ("Module required a=b!;", "unexpected '!'"),
        ("Module required; Other required;", "more than one login module"),
        ("KafkaServer { Module required; };", "without `KafkaServer { }`"),
    ],
)
def test_says_what_is_wrong_with_jaas(text: str, message: str) -> None:
    with pytest.raises(jaas.JaasError, match="^.*" + message.replace("{", r"\{")):
        jaas.parse_login_module(text)


def settings(**values: str) -> SaslSettings:
    config = BrokerConfig.defaults(**{"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **values})
    return sasl_settings(config, config.listeners[0])


USERS = f'{PLAIN_MODULE} required user_alice="secret";'


def test_listener_settings_go_first() -> None:
    found = settings(
        **{
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512, PLAIN,PLAIN",
            "sasl.jaas.config": f'{PLAIN_MODULE} required user_bob="b";',
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
            "connections.max.reauth.ms": "1000",
            "listener.name.sasl_plaintext.connections.max.reauth.ms": "2000",
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "3000",
        }
    )
    assert found.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert found.plain_users == {"alice": "secret"}
    assert found.max_reauth_ms == {"SCRAM-SHA-512": 2000, "PLAIN": 3000}
    assert "secret" not in repr(found)


def test_scram_needs_no_jaas() -> None:
    found = settings(**{"sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    assert found.mechanisms == ("SCRAM-SHA-256",)
    assert found.max_reauth_ms == {"SCRAM-SHA-256": 0}


def test_plain_by_default_where_it_has_users() -> None:
    assert settings().mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    found = settings(**{"sasl.jaas.config": USERS})
    assert found.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"sasl.enabled.mechanisms": "GSSAPI"},
            "sasl.enabled.mechanisms.*GSSAPI.*is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms.*needs at least one of"),
        (
            {"sasl.enabled.mechanisms": "PLAIN"},
            "listener.name.sasl_plaintext.plain.sasl.jaas.config: PLAIN needs users",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": USERS[:-1]},
            "sasl.jaas.config: the value must end with a semicolon",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.jaas.config": "ScramLoginModule required user_alice=secret;",
            },
            "PlainLoginModule, not ScramLoginModule",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.jaas.config": USERS,
                "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "soon",
            },
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms.*soon",
        ),
    ],
)
def test_says_what_is_wrong_with_settings(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings(**values)
    assert "secret" not in str(caught.value).replace("user_NAME", "")


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("", "CN=alice,O=x", "CN=alice,O=x"),
        ("DEFAULT", "CN=alice,O=x", "CN=alice,O=x"),
        (r"RULE:^CN=(.*?),.*$/$1/", "CN=Alice,O=x", "Alice"),
        (r"RULE:^CN=(.*?),.*$/$1/L", "CN=Alice,O=x", "alice"),
        (r"RULE:^CN=(.*?),.*$/$1/U , DEFAULT", "CN=Alice,O=x", "ALICE"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/,RULE:.*/no one/", "CN=a,OU=b,O=c", "a@b"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/,DEFAULT", "O=c", "O=c"),
        (r"RULE:^CN=a\/b$/slash\/slash/", "CN=a/b", r"slash\/slash"),
        (r"RULE:^CN=(.*?),.*$/$1/", "O=x", None),
    ],
)
def test_mapping_rules(rules: str, name: str, expected: str | None) -> None:
    assert map_name(parse_rules(rules), name) == expected


@pytest.mark.parametrize(
    "rules", ["RULE:a", "RULE:a/b", "RULE:(/b/", "RULE:a/$1/", "default", "RULE:a/b/X"]
)
def test_refuses_mapping_rules(rules: str) -> None:
    with pytest.raises(MappingError):
        parse_rules(rules)
