"""Compiles one module of the native backend: Python to C by mypyc, C to an extension module.

Usage: ``python -m krammar.compiler.backends.native.build FOLDER NAME CACHE LEVEL``. Each module has a process of its
own, because mypyc stores state in its modules, and because several modules are then compiled at once.

FOLDER   contains ``NAME.py``
CACHE    the folder of mypy's cache of the standard library
LEVEL    the optimization level of the C compiler

The last line of standard output is the path of the extension module. Errors go to standard error.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from krammar.compiler.backends.templates import templates_folder

_OBJECTS = [
    "bool_at",
    "int8_at",
    "int16_at",
    "int32_at",
    "int64_at",
    "uint16_at",
    "uint32_at",
    "float64_at",
    "uuid_at",
]
# mypyc's runtime is a part of every extension module. Without the functions that a module does not call, and
# without names for debuggers, the modules take half the space.
_ONLY_WHAT_IS_USED = ["-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"]
_STRIPPED = ["-Wl,--gc-sections", "-Wl,--strip-all"]
_STRIPPED_MACOS = ["-Wl,-dead_strip", "-Wl,-x"]
_PUTS = ["bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "float64", "uuid"]


def register_operations() -> None:
    """Register the operations of ``krammar_ops.h`` with mypyc: argument types, result type and error value."""
    from mypyc.ir.deps import BYTES_WRITER_EXTRA_OPS, LIBRT_STRINGS
    from mypyc.ir.ops import ERR_FALSE, ERR_MAGIC, ERR_MAGIC_OVERLAPPING, ERR_NEVER
    from mypyc.ir.rtypes import (
        bool_rprimitive,
        bytes_rprimitive,
        bytes_writer_rprimitive,
        int64_rprimitive,
        object_rprimitive,
        str_rprimitive,
    )
    from mypyc.primitives.registry import function_op

    i64, any_, buf = int64_rprimitive, object_rprimitive, bytes_rprimitive
    w, done = bytes_writer_rprimitive, bool_rprimitive

    def operation(name: str, takes: list[Any], gives: Any, fails: int, c_name: str = "") -> None:
        function_op(
            name=f"krammar_ops.{name}",
            arg_types=takes,
            return_type=gives,
            c_function_name=f"kn_{c_name or name}",
            error_kind=fails,
            # The header includes librt's header, also for modules that do not use it.
            dependencies=[LIBRT_STRINGS, BYTES_WRITER_EXTRA_OPS],
        )

    for name in ("byte_at", "count16_at", "count32_at", "uvarint_at", "zigzag_at"):
        operation(name, [buf, i64], i64, ERR_NEVER)
    operation("varint_size_at", [buf, i64, i64], i64, ERR_NEVER)
    for name in _OBJECTS:
        operation(name, [buf, i64], any_, ERR_MAGIC)
    for name in ("varint_at", "string_at", "bytes_at"):
        operation(name, [buf, i64, i64], any_, ERR_MAGIC)
    operation("slice_at", [buf, i64, i64, any_], any_, ERR_MAGIC)
    operation("values_at", [buf, i64, i64, i64], any_, ERR_MAGIC)
    operation("new_list", [i64], any_, ERR_MAGIC, "list")
    operation("fill", [any_, any_], done, ERR_NEVER)
    for name in _PUTS:
        operation(f"put_{name}", [w, any_], done, ERR_FALSE)
    for name in ("put_byte", "put_uvarint"):
        operation(name, [w, i64], done, ERR_FALSE)
    operation("put_varint", [w, any_, i64], done, ERR_FALSE)
    operation("put_count", [w, i64, i64], done, ERR_FALSE)
    operation("put_string", [w, any_, i64, i64], done, ERR_FALSE)
    operation("put_bytes", [w, any_, i64, i64, any_], done, ERR_FALSE)
    operation("put_values", [w, any_, i64, i64, i64], done, ERR_FALSE)
    operation("put_length", [w, any_, i64, i64], done, ERR_FALSE)
    operation("put_list", [w, any_, i64, i64], i64, ERR_MAGIC_OVERLAPPING)
    operation("element", [any_, i64], any_, ERR_MAGIC)
    operation("is_number", [any_, i64], done, ERR_NEVER)
    operation("as_version", [any_], i64, ERR_NEVER, "version")
    operation("finish", [w, any_], buf, ERR_MAGIC)
    for name in ("new_bytes", "new_zeros"):
        operation(name, [i64], buf, ERR_MAGIC)
    for name in ("store32", "store64"):
        operation(name, [buf, i64, i64], done, ERR_NEVER)
    for name in ("load32", "load64"):
        operation(name, [buf, i64], i64, ERR_NEVER)
    operation("copy", [buf, i64, buf, i64, i64], done, ERR_NEVER)
    operation("set_bit", [buf, i64], done, ERR_NEVER)
    operation("put_slice", [w, buf, i64, i64], done, ERR_FALSE)
    operation("put_zigzag", [w, i64], done, ERR_FALSE)
    operation("zigzag_size", [i64], i64, ERR_NEVER)
    operation("slot", [any_, str_rprimitive], i64, ERR_MAGIC_OVERLAPPING)
    operation("new_object", [any_], any_, ERR_MAGIC)
    operation("set_slot", [any_, i64, any_], done, ERR_NEVER)
    operation("get_slot", [any_, i64], any_, ERR_MAGIC)
    operation("int64", [any_], i64, ERR_MAGIC_OVERLAPPING)
    operation("new_tracked_list", [i64], any_, ERR_MAGIC, "tracked_list")
    operation("new_pair", [any_, any_], any_, ERR_MAGIC, "pair")
    operation("is_string_at", [any_, buf, i64, i64], done, ERR_NEVER)
    operation("put_octets", [w, any_], done, ERR_FALSE)
    operation("put_offset", [w, i64], done, ERR_FALSE)
    operation("put_writer", [w, w], done, ERR_FALSE)
    operation("octets", [any_], i64, ERR_NEVER)
    operation("is_utf8", [buf, i64, i64], done, ERR_NEVER)


def build_extension(folder: Path, name: str, cache: Path, level: str) -> Path:
    """Compile ``folder/name.py``, and return the path of the extension module."""
    from mypyc.build import mypycify
    from setuptools import Distribution  # type: ignore[import-untyped]

    register_operations()
    shutil.copy(templates_folder("native") / "krammar_ops.pyi", folder)
    os.chdir(folder)
    extensions = mypycify(
        [
            f"--cache-dir={cache}",
            "--no-error-summary",
            "--disable-error-code=misc",
            "--follow-imports=silent",
            f"{name}.py",
        ],
        opt_level=level,
        debug_level="0",
        target_dir="c",
    )
    header = templates_folder("native") / "krammar_ops.h"
    for extension in extensions:
        flags = extension.extra_compile_args
        if "-Werror" in flags:  # a compiler's warning must not prevent the build
            flags.remove("-Werror")
        if os.name == "nt":
            flags.append(f"/FI{header}")
            continue
        flags += ["-include", str(header), *_ONLY_WHAT_IS_USED]
        extension.extra_link_args += _STRIPPED_MACOS if sys.platform == "darwin" else _STRIPPED
    distribution = Distribution({"name": name, "ext_modules": extensions})
    command: Any = distribution.get_command_obj("build_ext")
    command.build_lib = str(folder / "built")
    command.build_temp = str(folder / "objects")
    command.ensure_finalized()
    command.run()
    (built,) = (Path(path) for path in command.get_outputs())
    return built


if __name__ == "__main__":
    print(
        build_extension(
            Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3]).resolve(), sys.argv[4]
        )
    )
