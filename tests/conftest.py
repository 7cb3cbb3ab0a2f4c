"""What holds for all tests."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let Ctrl-C end the processes that tests start.

    A shell without job control has its background jobs ignore it, and processes inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
