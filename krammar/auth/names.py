"""The distinguished names of certificates, and the rules that turn them into user names (KIP-371).

Names have the form of RFC 2253. Where the RFC allows a choice, they follow Java's X500Principal.
``ssl.principal.mapping.rules`` sets the rules, for example ``RULE:^CN=([^,]*),.*$/$1/L, DEFAULT``.

The subject is read from the certificate's bytes. An attribute without a keyword, such as an e-mail address, appears
as the hexadecimal form of its encoding, and ``ssl.SSLSocket.getpeercert`` returns the same text for different
encodings, as a test shows. The package cryptography has the encodings, but ``rfc4514_string`` writes such attributes
as text, and its import takes as much time and twice the memory of the broker's TLS.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# The attribute types with a keyword in RFC 2253, section 2.3. Others are shown as numbers.
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE = 0x30
_VERSION = 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString, UniversalString, BMPString.
_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_SPECIAL = re.compile(r'[,=+<>#;"\\]')
# Unescaped spaces at both ends would be lost.
_ENDS = re.compile(r"\A[ \r]+|[ \r]+\Z")


class CertificateError(ValueError):
    """The bytes are not a valid certificate."""


def _elements(data: memoryview) -> list[tuple[int, memoryview, memoryview]]:
    """Return the tag, the content and the whole encoding of each DER element."""
    found = []
    start = 0
    while start < len(data):
        at = start + 2
        size = data[start + 1] if at <= len(data) else 0
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise CertificateError("the certificate is cut off")
        found.append((data[start], data[at : at + size], data[start : at + size]))
        start = at + size
    return found


def subject_of(certificate: bytes) -> str:
    """Return the subject of an X.509 certificate in DER, for example ``CN=alice,OU=Data,O=Example,C=DE``.

    Raises CertificateError.
    """
    outer = _elements(memoryview(certificate))
    if len(outer) != 1 or outer[0][0] != _SEQUENCE:
        raise CertificateError("the bytes are not a certificate")
    signed = _elements(outer[0][1])
    fields = _elements(signed[0][1]) if signed else []
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    # serialNumber, signature, issuer, validity, subject
    if len(fields) < 5:
        raise CertificateError("the bytes are not a certificate")
    sets = [content for _, content, _ in _elements(fields[4][1])]
    return ",".join(
        "+".join(_attribute(part) for _, part, _ in _elements(each)) for each in sets[::-1]
    )


def _attribute(data: memoryview) -> str:
    parts = _elements(data)
    if len(parts) != 2:
        raise CertificateError("an attribute does not consist of type and value")
    number = _number(bytes(parts[0][1]))
    tag, value, whole = parts[1]
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or number}=#{bytes(whole).hex()}"
    return f"{keyword}={_escape(bytes(value).decode('utf-8', 'replace'))}"


def _number(data: bytes) -> str:
    """Convert an object identifier to its dotted form."""
    numbers: list[int] = []
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise CertificateError("an object identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escape(text: str) -> str:
    escaped = _SPECIAL.sub(r"\\\g<0>", text).replace("\0", "\\00")
    return _ENDS.sub(lambda ends: "".join(f"\\{char}" for char in ends[0]), escaped)


_PART = r"(?:\\.|[^\\/])*"
_RULE = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<replacement>{_PART})/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)


class MappingError(ValueError):
    """The rules are invalid."""


class Rule(NamedTuple):
    """One rule. ``case`` is L for lower case, U for upper case, or empty."""

    pattern: re.Pattern[str]
    replacement: str
    case: str


_DEFAULT = Rule(re.compile(".*", re.DOTALL), r"\g<0>", "")


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse the value of the setting. Raises MappingError."""
    rules = []
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise MappingError(f"not a rule: {text[at:].strip()!r}")
        at = match.end()
        if match["default"]:
            rules.append(_DEFAULT)
            continue
        try:
            pattern = re.compile(match["pattern"])
        except re.error as error:
            raise MappingError(f"{match['pattern']!r} is not a pattern: {error}") from None
        rules.append(Rule(pattern, _template(match["replacement"], pattern), match["case"]))
    return tuple(rules) or (_DEFAULT,)


def map_name(rules: tuple[Rule, ...], name: str) -> str | None:
    """Convert a distinguished name by the first rule that matches. Returns None if no rule matches."""
    for pattern, replacement, case in rules:
        if pattern.fullmatch(name):
            name = pattern.sub(replacement, name)
            return name.lower() if case == "L" else name.upper() if case == "U" else name
    return None


def _template(replacement: str, pattern: re.Pattern[str]) -> str:
    """Convert Java's ``$1`` to Python's ``\\g<1>``."""
    for number in map(int, re.findall(r"\$(\d)", replacement)):
        if number > pattern.groups:
            raise MappingError(f"{pattern.pattern!r} has no group {number}")
    return re.sub(r"\$(\d)", r"\\g<\1>", replacement.replace("\\", "\\\\"))
