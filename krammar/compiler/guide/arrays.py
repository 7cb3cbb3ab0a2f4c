"""Decides which tagged fields are arrays, where the text does not say it.

The guides from Kafka 4.3 on write ``nodes<tag: 0> => { id }`` for a struct and for an array of structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from krammar.compiler.guide.nodes import GuideMessage, GuideNode
from krammar.compiler.names import singular
from krammar.util.diagnostics import Diagnostics


def decide_arrays(
    messages: Iterable[GuideMessage], answers: Mapping[str, bool], diagnostics: Diagnostics
) -> set[str]:
    """Turn tagged fields into arrays where an answer, another version or a plural name says so.

    A name in the plural is only a guess, so it is reported.

    Args:
        answers: whether a field is an array, by its path.

    Returns:
        The paths of all fields that the texts leave open.
    """
    open_: set[str] = set()
    for message in messages:
        nodes: dict[str, list[GuideNode]] = {}
        for root in message.versions.values():
            for path, node in _tagged(root, message.name):
                nodes.setdefault(path, []).append(node)
        for path, forms in nodes.items():
            unsure = [node for node in forms if node.maybe_array]
            if unsure:
                open_.add(path)
                _decide(path, forms, answers.get(path), diagnostics)
    return open_


def _decide(
    path: str, forms: list[GuideNode], answer: bool | None, diagnostics: Diagnostics
) -> None:
    known = {node.brackets > 0 for node in forms if not node.maybe_array}
    unsure = [node for node in forms if node.maybe_array]
    if answer is None and len(known) == 1:
        (answer,) = known
    if answer is None:
        answer = singular(unsure[0].name) != unsure[0].name
        if answer:
            diagnostics.add(
                "W606",
                f"the text does not contain whether the tagged field {path} is an array; it becomes one, "
                "because its name is a plural",
                unsure[0].position,
                f"confirm it with --array {path}=yes, or give --array {path}=no",
            )
    for node in unsure:
        node.brackets, node.maybe_array = int(answer), False


def _tagged(node: GuideNode, path: str) -> Iterator[tuple[str, GuideNode]]:
    """The tagged fields below a node, with their paths."""
    for child in node.fields or []:
        inner = f"{path}.{child.name}"
        if child.tag is not None:
            yield inner, child
        yield from _tagged(child, inner)
