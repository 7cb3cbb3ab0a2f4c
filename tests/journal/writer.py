"""A process that writes to a journal until it is killed: ``python -m tests.journal.writer ROOT NAME FROM``.

It publishes orders of the customer NAME with the amounts FROM, FROM + 1, …, and says each amount on a line of
its own when it is in the journal. Odd amounts are in transactions of three with those before and behind.
"""

from __future__ import annotations

import sys
from itertools import count

from journal_test_shop import Order

from krammar.journal import FileJournals, Publisher, append_intents

# Large enough for a process to be killed in the middle of writing one.
NOTE = b"x" * 200_000


def main() -> None:
    root, name, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
    journals = FileJournals(root, fragment_bytes=1_500_000)
    spec = journals.create("x")
    publisher = Publisher(journals)

    def mapping(_: object) -> tuple[str, object]:
        return "x", spec.framing

    for amount in count(first, 4):
        message = Order(version=1, customer=name, amount=amount, note=NOTE)
        publisher.publish_committed(mapping, message).result()
        print(amount, flush=True)
        for part in range(1, 4):
            message = Order(version=1, customer=name, amount=amount + part, note=NOTE)
            publisher.publish_uncommitted(mapping, message)
        append_intents(journals, publisher.build_ack_intents())
        print(amount + 1, amount + 2, amount + 3, sep="\n", flush=True)


if __name__ == "__main__":
    main()
