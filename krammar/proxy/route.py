"""A route: what is done for the frames of one api key and version."""

from __future__ import annotations

from dataclasses import dataclass, field

from krammar.proxy.interface import Method, Patch


@dataclass(slots=True, eq=False)
class Route:
    """What is done for requests of one api key and version, and for their responses.

    Attributes:
        requests, responses: the methods of filters, in the order in which they run
        in_place: whether one of them changes messages in place
        patch_request, patch_response: change frames as bytes, or are None
        rewrite: whether the response can name brokers or versions
        has_acks: whether the request says if there is a response (Produce)
        tokens: whether frames without headers follow (SaslHandshake v0)
        silent: whether there is no response
        refusal: why the request is refused; empty if it is not
        counts: whether requests and responses are counted for the metrics
        reads_response: whether the response is read
        follows: whether the response is read or counted
        is_plain: whether nothing is read of the request but its head and its acks
        ends_with_nodes: whether the response can name brokers, but only in a tagged field at its end
    """

    api_key: int
    version: int
    requests: tuple[Method, ...] = ()
    responses: tuple[Method, ...] = ()
    patch_request: Patch | None = None
    patch_response: Patch | None = None
    rewrite: bool = False
    has_acks: bool = False
    tokens: bool = False
    silent: bool = False
    refusal: str = ""
    counts: bool = False
    in_place: bool = False
    ends_with_nodes: bool = False
    reads_response: bool = field(init=False)
    follows: bool = field(init=False)
    is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        self.reads_response = self.rewrite or bool(self.responses)
        self.follows = self.reads_response or self.counts
        self.is_plain = not (
            self.requests
            or self.patch_request
            or self.responses
            or self.tokens
            or self.silent
            or self.refusal
            or self.counts
        )

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do; otherwise the frames pass as they arrive."""
        return (
            self.follows
            or bool(self.requests)
            or self.has_acks
            or self.tokens
            or self.silent
            or bool(self.refusal)
        )
