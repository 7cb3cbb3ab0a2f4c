"""The last requests of a broker in a test, one line each, as ``krammar tap`` prints them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import kafka_wire

from krammar.broker.recent import RecordedExchange, RecordedFrame
from krammar.tap.describe import Describer
from krammar.tap.exchanges import Exchanges, TappedExchange
from krammar.tap.frame import Frame
from krammar.tap.inspector import Inspector
from krammar.tap.listing import exchange_line
from krammar.util.printable import escape
from krammar.wire.package import package_of


def request_lines(
    recorded: Iterable[RecordedExchange], open_connections: Collection[int]
) -> list[str]:
    """Decode and describe requests with their responses, in the order of the requests.

    Args:
        recorded: the requests
        open_connections: the numbers of connections whose requests can still be answered
    """
    package = package_of(kafka_wire)
    lines: list[str] = []

    def ended(exchange: TappedExchange) -> None:
        lines.append(escape(exchange_line(exchange)))

    exchanges = Exchanges(Describer(package), ended)
    inspectors: dict[int, Inspector] = {}
    for each in recorded:
        inspector = inspectors.setdefault(each.connection, Inspector(package, each.connection))
        request = _inspected(inspector, True, each.request)
        request.note = "; ".join(each.notes)
        # Of a large Produce, the inspector cannot know that.
        request.is_answered |= each.response is not None
        exchanges.frame(request)
        if each.response is not None:
            exchanges.frame(_inspected(inspector, False, each.response))
        elif each.connection in open_connections:
            exchanges.close()
        else:
            exchanges.closed(0, each.connection, "")
    return lines


def _inspected(inspector: Inspector, is_request: bool, recorded: RecordedFrame) -> Frame:
    if recorded.size > len(recorded.data):
        frame = inspector.oversized(is_request, recorded.data, recorded.size, recorded.time_ns)
        frame.error = "too large to be remembered"
        return frame
    inspect = inspector.request if is_request else inspector.response
    return inspect(recorded.data, recorded.time_ns)
