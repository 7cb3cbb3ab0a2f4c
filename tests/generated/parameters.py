"""What tests of all messages are parametrized with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.generated.catalogue import Message, messages
from tests.support.groups import Test, in_groups

every_message = in_groups("message", messages())


def _by_codec(found: Sequence[Message]) -> Callable[[Test], Test]:
    """Each message with one version per codec: versions with the same layout share their code. The other
    versions are sweeps."""
    chosen, others = [], []
    for message in found:
        codecs = {
            (message.cls._decoder(version), message.cls._encoder(version)): version
            for version in message.versions
        }
        some = tuple(sorted(codecs.values()))
        rest = tuple(version for version in message.versions if version not in some)
        chosen.append(replace(message, versions=some))
        if rest:
            others.append(replace(message, versions=rest))
    return in_groups("message", chosen, sweeps=others)


def _flexible() -> list[Message]:
    """The messages with flexible versions, and only these versions."""
    found = [
        replace(each, versions=tuple(v for v in each.versions if each.layout(v).flexible))
        for each in messages()
    ]
    return [each for each in found if each.versions]


every_codec = _by_codec(messages())
every_flexible_codec = _by_codec(_flexible())
