"""The names of topics by their ids, which newer versions send instead."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from krammar.faults.paths import TopicNames
from krammar.faults.shape import Shape
from krammar.util.remembered import Remembered

# No cluster has more topics; a hostile peer could name more.
_MOST = 100_000


class LearnedNames:
    """Learns the names from responses that have both, such as Metadata.

    Args:
        known: returns names that were not learned.
    """

    def __init__(self, known: TopicNames | None = None) -> None:
        self._known = known
        # Those that were learned or used last, so that rules know the topics of now.
        self._names: Remembered[UUID, str] = Remembered(_MOST)

    @property
    def learns(self) -> bool:
        """Whether names come from messages only."""
        return self._known is None

    def __call__(self, topic_id: UUID) -> str | None:
        name = self._names.use(topic_id)
        return self._known(topic_id) if name is None and self._known is not None else name

    def learn(self, message: Any, shape: Shape) -> None:
        """Learn from a message."""
        roles = {role: name for name, role in shape.plain}
        if "topic" in roles and "topic_id" in roles:
            topic, topic_id = getattr(message, roles["topic"]), getattr(message, roles["topic_id"])
            if topic and isinstance(topic, str) and isinstance(topic_id, UUID) and topic_id.int:
                self._names[topic_id] = topic
        for branch in shape.branches:
            if branch.shape is not None and "topic_id" in branch.shape.roles:
                for element in branch.elements(message):
                    self.learn(element, branch.shape)
