"""Objects that the end of a ``with`` block closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """A base class with ``with``. Subclasses define ``close``."""

    __slots__ = ()

    def close(self) -> None:
        """Close the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
