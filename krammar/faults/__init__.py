"""Faults on the wire: rules that answer errors, drop connections, delay, change and corrupt messages.

``Faults`` is the engine. The broker has one as ``broker.faults``; ``krammar tap --faults`` and
``krammar broker --faults`` read its rules from a file. docs/faults.md describes both.
"""

from krammar.faults.engine import Faults
from krammar.faults.errors import FaultError, FaultNotFired
from krammar.faults.event import Event
from krammar.faults.rules import Rule

__all__ = ["Event", "FaultError", "FaultNotFired", "Faults", "Rule"]
