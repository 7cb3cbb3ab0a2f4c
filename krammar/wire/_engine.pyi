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

class Frames:
    def __new__(cls, request: type[Any], response: type[Any], /) -> Frames: ...
    def add(
        self, of_requests: bool, api_key: int, version: int, header: Program, body: Program, /
    ) -> None: ...
    def request(self, frame: bytes, allow_trailing: bool, views: Any, /) -> Any: ...
    def response(self, frame: bytes, api_key: int, version: int, copy: bool, /) -> Any: ...

def install(cls: type[Any], /) -> None: ...
