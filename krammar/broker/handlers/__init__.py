"""Handlers: convert requests to calls of the broker's parts, and their results to responses.

Each module is imported at its first use, so that a broker starts fast:
``handlers.fetch.FetchHandlers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from krammar.broker.handlers import acls as acls
    from krammar.broker.handlers import api_versions as api_versions
    from krammar.broker.handlers import configs as configs
    from krammar.broker.handlers import elections as elections
    from krammar.broker.handlers import fetch as fetch
    from krammar.broker.handlers import group_offsets as group_offsets
    from krammar.broker.handlers import groups as groups
    from krammar.broker.handlers import metadata as metadata
    from krammar.broker.handlers import node as node
    from krammar.broker.handlers import offsets as offsets
    from krammar.broker.handlers import produce as produce
    from krammar.broker.handlers import quotas as quotas
    from krammar.broker.handlers import security as security
    from krammar.broker.handlers import share_fetch as share_fetch
    from krammar.broker.handlers import share_groups as share_groups
    from krammar.broker.handlers import share_states as share_states
    from krammar.broker.handlers import telemetry as telemetry
    from krammar.broker.handlers import topics as topics
    from krammar.broker.handlers import transactions as transactions
    from krammar.broker.handlers import unserved as unserved
else:

    def __getattr__(name):
        from importlib import import_module

        if name.startswith("_"):
            raise AttributeError(name)
        return import_module(f"{__name__}.{name}")
