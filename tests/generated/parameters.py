"""What tests of all messages are parametrized with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.generated.catalogue import messages

every_message = pytest.mark.parametrize("message", messages(), ids=str)


def _by_codec(*, flexible: bool = False) -> list[object]:
    """Each message with one version per codec: versions with the same layout share their code. The other
    versions are sweeps.

    Args:
        flexible: only messages with flexible versions, and only these versions
    """
    parameters = []
    for message in messages():
        if flexible:
            some = tuple(v for v in message.versions if message.layout(v).flexible)
            message = replace(message, versions=some)
            if not some:
                continue
        codecs = {
            (message.cls._decoder(version), message.cls._encoder(version)): version
            for version in message.versions
        }
        chosen = tuple(sorted(codecs.values()))
        others = tuple(version for version in message.versions if version not in chosen)
        parameters.append(pytest.param(replace(message, versions=chosen), id=str(message)))
        if others:
            parameters.append(
                pytest.param(
                    replace(message, versions=others),
                    id=f"{message}-other versions",
                    marks=pytest.mark.sweep,
                )
            )
    return parameters


every_codec = pytest.mark.parametrize("message", _by_codec())
every_flexible_codec = pytest.mark.parametrize("message", _by_codec(flexible=True))
