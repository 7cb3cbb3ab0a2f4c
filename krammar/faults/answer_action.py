"""Actions that answer error codes, and the action that lets a function decide."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from krammar.faults.action import Action, Occasion
from krammar.faults.answers import build, elements_at, merge, place_for, refuse, subjects, without
from krammar.faults.declared import Check
from krammar.faults.errors import FaultError
from krammar.faults.shape import Place, Shape
from krammar.faults.targets import Target, Targets
from krammar.proxy.interface import Exchange

# Responses of these APIs contain more than the outcome of each element. Requests are handled, and then refused.
_READS = frozenset({"Metadata", "ApiVersions", "DescribeCluster", "DescribeTopicPartitions"})


@dataclass(eq=False)
class Answer(Action):
    """Answer an error code instead of handling the request.

    The code is set in the elements of the response that are about the rule's
    topic, partition or group. The rest of the request is handled.

    Args:
        code: a member of the protocol's ErrorCode, its name, or any number. A list has the codes for one
            match after the other; None, in files false, lets a request pass. The rule ends with the list,
            unless ``times`` says more; then the list begins again.
        after: handle the request, and then answer the error code.
        at: the path of the error code to set, such as ``responses[*].partitions[*].error_code``.
    """

    code: int | str | list[int | str | None]
    _: KW_ONLY
    after: bool = False
    at: str | None = None
    key: ClassVar[str] = "answer"

    def settle(self, targets: Targets) -> None:
        several = self.code if isinstance(self.code, list) else [self.code]
        if not several:
            raise FaultError("answer needs at least one code")
        # The numbers and names of the codes; the first one is next.
        self._codes = [
            None if each is None or each is False else targets.error_code(each) for each in several
        ]

    def uses(self) -> int | None:
        return len(self.code) if isinstance(self.code, list) else None

    def acts_on_request(self, target: Target) -> bool:
        return not self.after and target.api not in _READS

    def check(self, target: Target) -> None:
        for code in self._codes:
            if code is not None:
                self._place(target, code[1])

    def fits(self, target: Target, occasion: Occasion, message: Any) -> bool:
        code = self._codes[0]
        return (
            code is None
            or self.acts_on_request(target)
            or bool(self._elements(target, occasion, message, self._place(target, code[1])))
        )

    def drawn(self) -> Self:
        one = copy(self)
        self._codes = [*self._codes[1:], self._codes[0]]
        return one

    def describe(self, occasion: Occasion) -> str:
        if self._codes[0] is None:
            return "let the request pass"
        return f"{'handled, then ' if self.after else ''}answered {self._codes[0][1]}"

    def act(self, target: Target, occasion: Occasion) -> None:
        if self._codes[0] is None:
            return
        number, name = self._codes[0]
        place = self._place(target, name)
        refused = partial(self._refuse, target, occasion, place, number)
        if occasion.response is not None:
            refused()
        elif target.api in _READS or not self._answer(target, occasion, place, number):
            occasion.later.append(refused)

    def _place(self, target: Target, code_name: str) -> Place:
        title = target.title("response")
        return place_for(target.response, code_name, target.selection, self.at, title)

    def _elements(
        self, target: Target, occasion: Occasion, response: Any, place: Place
    ) -> list[tuple[Any, Shape]]:
        matches = partial(target.selection.matches, names=occasion.names)
        return elements_at(response, target.response, place, matches)

    def _refuse(self, target: Target, occasion: Occasion, place: Place, code: int) -> None:
        """Set the code in the response."""
        for struct, shape in self._elements(target, occasion, occasion.change("response"), place):
            refuse(struct, shape, place, code)

    def _answer(self, target: Target, occasion: Occasion, place: Place, code: int) -> bool:
        """Answer a request, or the part of it that the rule is about. Returns False if the request does not name
        its elements: it is handled, and then refused."""
        request, selection, names = occasion.request, target.selection, occasion.names
        about = [s for s in subjects(request, target.request) if selection.matches(s, names)]
        cls = target.schema.class_of("response", target.api_key)
        answer = build(cls, target.response, about, place, code)
        if not place.structs(answer):
            return False
        rest = None
        if selection and place.branches:
            rest = without(request, target.request, selection, names)
        if rest is None or rest is request:
            occasion.outcome = answer
        else:
            occasion.request = rest
            occasion.later.append(
                lambda: merge(occasion.change("response"), answer, target.response)
            )
        return True


@dataclass(eq=False)
class Call(Action):
    """Let a function decide, for each match. It can keep state, and compute values from the request.

    The function gets the request and its ``krammar.proxy.Exchange``, with ``version``, ``client_id``, ``connection``
    and others. It changes the request in place, and returns

    - None to let it be handled,
    - an error code, a number or a name, which is answered as by ``answer``,
    - a response to answer.

    With ``of="response"`` it gets the response and the exchange, whose ``request`` is the request. It changes the
    response in place, or returns another one or an error code. It runs in the thread of the broker or the
    proxy, so it must not wait. An exception closes the connection. Files cannot have this action.

    Args:
        function: decides.
        of: ``request`` or ``response``.
    """

    function: Annotated[
        Callable[[Any, Exchange], Any], Check(callable, "call needs a function, not {value}")
    ]
    _: KW_ONLY
    of: Literal["request", "response"] = "request"

    def settle(self, targets: Targets) -> None:
        self._targets = targets

    def acts_on_request(self, target: Target) -> bool:
        return self.of == "request"

    def describe(self, occasion: Occasion) -> str:
        return f"called {getattr(self.function, '__name__', 'a function')}"

    def act(self, target: Target, occasion: Occasion) -> None:
        before = occasion.request
        decided = self.function(occasion.change(self.of), occasion.exchange)
        if occasion.request == before:
            occasion.request = before
        if decided is None:
            return
        if isinstance(decided, (int, str)):
            answer = Answer(decided)
            answer.settle(self._targets)
            answer.act(target, occasion)
            return
        cls = target.schema.class_of("response", target.api_key)
        if cls is None or not isinstance(decided, cls):
            raise FaultError(
                f"the function of call returned {type(decided).__name__} for {target.api}",
                hint="return None, an error code or a response of this API",
            )
        if self.of == "request":
            occasion.outcome = decided
        else:
            occasion.response = decided
