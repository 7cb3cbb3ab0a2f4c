from types import MemberDescriptorType
from typing import Any

FORMAT: int

class Program:
    def __new__(
        cls,
        format: int,
        of: type[Any],
        unknown_tags: MemberDescriptorType,
        flexible: bool,
        fields: tuple[tuple[Any, ...], ...],
        tags: tuple[tuple[Any, ...], ...],
        absent: tuple[tuple[Any, ...], ...],
        /,
    ) -> Program: ...

def install(cls: type[Any], /) -> None: ...
