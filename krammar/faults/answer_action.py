"""Actions that answer error codes, and the action that lets a function decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

from krammar.faults.action import Action, Names, Occasion, Target, copied
from krammar.faults.answers import build, elements_at, merge, place_for, refuse, subjects, without
from krammar.faults.declared import Check
from krammar.faults.errors import FaultError
from krammar.faults.shape import Place, Shape
from krammar.faults.steps import Delivery, Exchange, Fate, Verdict

# Responses of these APIs contain more than the outcome of each element. Requests are handled, and then refused.
_READS = frozenset({"Metadata", "ApiVersions", "DescribeCluster", "DescribeTopicPartitions"})

# The number and the name of an error code.
Code = tuple[int, str]


class _Answering(Action):
    """Base of actions that answer an error code, which is ``exchange.chosen`` after the action has decided."""

    at: str | None = None

    def _place(self, target: Target, code: Code) -> Place:
        title = target.title("response")
        return place_for(target.response, code[1], target.selection, self.at, title)

    def _elements(self, occasion: Occasion, response: Any, code: Code) -> list[tuple[Any, Shape]]:
        target, matches = occasion.target, occasion.target.selection.matches
        place = self._place(target, code)
        return elements_at(
            response, place, lambda subject: matches(subject, occasion.names), target.response
        )

    def _answer(self, occasion: Occasion, verdict: Verdict, code: Code) -> None:
        """Answer a request, or the part of it that the rule is about."""
        target, names, refused = occasion.target, occasion.names, occasion.exchange.refused
        if target.api in _READS:
            return
        shape, request, selection = target.request, verdict.request, target.selection
        response, place = target.response, self._place(target, code)
        about = [s for s in subjects(request, shape) if selection.matches(s, names)]
        cls = target.schema.package.response_class(target.api_key)
        answer = build(cls, response, about, place, code[0])
        if not _reaches(answer, place.branches):
            return  # the request does not name its elements: it is handled, and then refused
        rest = None
        if selection and place.branches:
            rest = without(request, shape, selection, names)
        if rest is None or rest is request:
            verdict.fate, verdict.answer = Fate.ANSWER, answer
            refused.append((self, None))
        else:
            verdict.request, verdict.changed = rest, True
            refused.append((self, answer))

    def response(self, occasion: Occasion, delivery: Delivery) -> None:
        target, exchange = occasion.target, occasion.exchange
        code = exchange.chosen.get(self)
        if code is None:
            return
        built = [answer for action, answer in exchange.refused if action is self]
        for answer in built:
            if answer is not None:
                merge(delivery.message, answer, target.response)
        if not built:
            for struct, inner in self._elements(occasion, delivery.message, code):
                refuse(struct, inner, self._place(target, code), code[0])
        delivery.changed = True


@dataclass(eq=False)
class Answer(_Answering):
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

    def settle(self, names: Names) -> None:
        several = self.code if isinstance(self.code, list) else [self.code]
        if not several:
            raise FaultError("answer needs at least one code")
        self._codes = [
            None if each is None or each is False else names.error_code(each) for each in several
        ]
        self._next = 0

    def uses(self) -> int | None:
        return len(self.code) if isinstance(self.code, list) else None

    def acts_on_request(self, target: Target) -> bool:
        return not self.after and target.api not in _READS

    def check(self, target: Target) -> None:
        for code in self._codes:
            if code is not None:
                self._place(target, code)

    def fits(self, occasion: Occasion, message: Any) -> bool:
        code = self._codes[self._next]
        return (
            code is None
            or self.acts_on_request(occasion.target)
            or bool(self._elements(occasion, message, code))
        )

    def fire(self, exchange: Exchange) -> None:
        exchange.chosen[self] = self._codes[self._next]
        self._next = (self._next + 1) % len(self._codes)

    def request(self, occasion: Occasion, verdict: Verdict) -> None:
        code = occasion.exchange.chosen[self]
        if code is not None and not self.after:
            self._answer(occasion, verdict, code)

    def describe(self, exchange: Exchange) -> str:
        code = exchange.chosen[self]
        if code is None:
            return "let the request pass"
        return f"{'handled, then ' if self.after else ''}answered {code[1]}"


@dataclass(eq=False)
class Call(_Answering):
    """Let a function decide, for each match. It can keep state, and compute values from the request.

    The function gets the request and its exchange, with ``connection``, ``version``, ``client_id`` and others. It
    changes the request in place, and returns

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

    def settle(self, names: Names) -> None:
        self._names = names

    def acts_on_request(self, target: Target) -> bool:
        return self.of == "request"

    def request(self, occasion: Occasion, verdict: Verdict) -> None:
        if self.of != "request":
            return
        target, exchange = occasion.target, occasion.exchange
        request = copied(verdict.request, target.request)
        decided = self.function(request, exchange)
        if request != verdict.request:
            verdict.request, verdict.changed = request, True
        if decided is None:
            return
        if isinstance(decided, (int, str)):
            code = exchange.chosen[self] = self._names.error_code(decided)
            self._answer(occasion, verdict, code)
            return
        verdict.fate, verdict.answer = Fate.ANSWER, self._checked(target, decided)

    def response(self, occasion: Occasion, delivery: Delivery) -> None:
        if self.of == "response":
            exchange = occasion.exchange
            decided = self.function(delivery.message, exchange)
            delivery.changed = True
            if isinstance(decided, (int, str)):
                exchange.chosen[self] = self._names.error_code(decided)
            elif decided is not None:
                delivery.message = self._checked(occasion.target, decided)
        super().response(occasion, delivery)

    def _checked(self, target: Target, decided: Any) -> Any:
        cls = target.schema.package.response_class(target.api_key)
        if cls is None or not isinstance(decided, cls):
            raise FaultError(
                f"the function of call returned {type(decided).__name__} for {target.api}",
                hint="return None, an error code or a response of this API",
            )
        return decided

    def describe(self, exchange: Exchange) -> str:
        return f"called {getattr(self.function, '__name__', 'a function')}"


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
