"""All actions, by their keys in files, in the order in which hints list them."""

from __future__ import annotations

from krammar.faults.action import Action
from krammar.faults.answer_action import Answer
from krammar.faults.message_actions import Change, Corrupt, Offer, Throttle
from krammar.faults.wire_actions import (
    AdvanceClock,
    Bandwidth,
    BlackHole,
    CorrelationId,
    Delay,
    Drop,
    FlipBits,
    Reorder,
    Trickle,
    Truncate,
)

ACTIONS: dict[str, type[Action]] = {
    each.key: each
    for each in (
        Answer,
        Drop,
        Delay,
        Throttle,
        Trickle,
        Bandwidth,
        BlackHole,
        Truncate,
        FlipBits,
        CorrelationId,
        Offer,
        Corrupt,
        Reorder,
        AdvanceClock,
        Change,
    )
}
