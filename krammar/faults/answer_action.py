"""The action that answers error codes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from krammar.faults.action import Action, Names, Target
from krammar.faults.answers import build, elements_at, merge, place_for, refuse, subjects, without
from krammar.faults.paths import TopicNames
from krammar.faults.shape import Place, Shape
from krammar.faults.steps import Delivery, Exchange, Fate, Verdict

# APIs whose responses carry more than the outcome of each element. They are handled, and then refused.
_READS = frozenset({"Metadata", "ApiVersions", "DescribeCluster", "DescribeTopicPartitions"})


@dataclass(eq=False)
class Answer(Action):
    """Answer an error code instead of handling the request.

    The code goes where it belongs: into the elements of the response that are about the rule's
    topic, partition or group. What else the request asks for is handled.

    Args:
        code: a member of the protocol's ErrorCode, its name, or any number.
        after: handle the request, and then answer the error code.
        at: the path of the error code to set, such as ``responses[*].partitions[*].error_code``.
    """

    code: int | str
    after: bool = field(default=False, kw_only=True)
    at: str | None = field(default=None, kw_only=True)
    key: ClassVar[str] = "answer"

    def settle(self, names: Names) -> None:
        self._number, self._name = names.error_code(self.code)

    def acts_on_request(self, target: Target) -> bool:
        return not self.after and target.api not in _READS

    def check(self, target: Target) -> None:
        self._place(target)

    def fits(self, target: Target, message: Any, names: TopicNames) -> bool:
        return self.acts_on_request(target) or bool(self._elements(target, message, names))

    def _place(self, target: Target) -> Place:
        title = target.title("response")
        return place_for(target.response, self._name, target.selection, self.at, title)

    def _elements(
        self, target: Target, response: Any, names: TopicNames
    ) -> list[tuple[Any, Shape]]:
        selection = target.selection
        place = self._place(target)
        return elements_at(
            response, place, lambda subject: selection.matches(subject, names), target.response
        )

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        shape, request, selection = target.request, verdict.request, target.selection
        response, place = target.response, self._place(target)
        about = [s for s in subjects(request, shape) if selection.matches(s, names)]
        cls = target.schema.package.response_class(target.api_key)
        answer = build(cls, response, about, place, self._number)
        if not _reaches(answer, place.branches):
            return  # the request does not name its elements: it is handled, and then refused
        rest = None
        if selection and place.branches:
            rest = without(request, shape, selection, names)
        if rest is None or rest is request:
            verdict.fate, verdict.answer = Fate.ANSWER, answer
            exchange.refused.append((self, None))
        else:
            verdict.request, verdict.changed = rest, True
            exchange.refused.append((self, answer))

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        shape = target.response
        built = [answer for action, answer in exchange.refused if action is self]
        for answer in built:
            if answer is not None:
                merge(delivery.message, answer, shape)
        if not built:
            for struct, inner in self._elements(target, delivery.message, names):
                refuse(struct, inner, self._place(target), self._number)
        delivery.changed = True

    def describe(self) -> str:
        return f"{'handled, then ' if self.after else ''}answered {self._name}"


def _reaches(struct: Any, branches: Iterable[Any]) -> bool:
    """Whether a response has an element in the last of the branches."""
    holders = [struct]
    for branch in branches:
        holders = [
            element
            for holder in holders
            for element in (getattr(holder, branch.name) or ([] if branch.is_array else [None]))
            if element is not None
        ]
    return bool(holders)
