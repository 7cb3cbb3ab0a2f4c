"""A parser for ``sasl.jaas.config``, a login module with its options:

```
org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";
```
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_USER = "user_"

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<sign>[=;{}])
  | (?P<word>[\w$.\-]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


class JaasError(ValueError):
    """The value is invalid. The message contains no option's value, which can be a password."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module. ``options`` contains the values without their quotes."""

    name: str
    flag: str
    options: dict[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """Passwords by user name, from the options ``user_NAME`` of PlainLoginModule."""
        return {
            key.removeprefix(_USER): value
            for key, value in self.options.items()
            if key.startswith(_USER)
        }


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] in "\"'":
                raise JaasError(f"the quote at character {at + 1} is not closed")
            raise JaasError(
                f"unexpected {text[at]!r} at character {at + 1} (put values in double quotes, unless "
                "they contain only letters, digits and . - _ $)"
            )
        at = match.end()
        kind = match.lastgroup
        assert kind is not None
        if kind == "quoted":
            tokens.append(_Token("value", _ESCAPE.sub(_unescape, match[0][1:-1])))
        elif kind != "skip":
            tokens.append(_Token(kind, match[0]))
    return tokens


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ESCAPES.get(code, code)


def parse_login_module(text: str) -> LoginModule:
    """Parse a login module. Raises JaasError."""
    tokens = _tokens(text)
    if not tokens:
        raise JaasError("the login module is missing")
    if any(token.kind == "sign" and token.text in "{}" for token in tokens):
        raise JaasError("give only the login module, without `KafkaServer { }` around it")
    if tokens[0].kind != "word":
        raise JaasError("the value must begin with the class of a login module")
    if len(tokens) < 2 or tokens[1].text.lower() not in _FLAGS:
        raise JaasError(f"`required` (or another flag) must follow {tokens[0].text}")
    if tokens[-1] != _Token("sign", ";"):
        raise JaasError("the value must end with a semicolon")
    options: dict[str, str] = {}
    at = 2
    while tokens[at] != _Token("sign", ";"):
        key = tokens[at]
        if key.kind == "sign":
            raise JaasError(f"a name is missing before {key.text!r}")
        if tokens[at + 1] != _Token("sign", "="):
            # The text may be a part of a password that is not quoted.
            raise JaasError(
                f"`=` and a value must follow the name of option {len(options) + 1} (put values in double "
                "quotes)"
            )
        # The last token is a semicolon, so a token follows every `=`.
        value = tokens[at + 2]
        if value.kind == "sign":
            raise JaasError(f"the option {key.text!r} has no value")
        options[key.text] = value.text
        at += 3
    if at != len(tokens) - 1:
        raise JaasError("the value has more than one login module; give only one")
    return LoginModule(tokens[0].text, tokens[1].text.lower(), options)
