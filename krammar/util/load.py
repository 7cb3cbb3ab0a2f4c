"""Loads objects that settings name as ``module:name``."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LoadError(ValueError):
    """The module or the object does not exist."""


def load(name: str) -> Any:
    """Return the object ``module:name``; Python must be able to import the module.

    Raises:
        LoadError: the name has another form, or there is no such module or object. Errors of the module itself,
            such as a module that it does not find, are passed on.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise LoadError(f'{name!r} is not "module:name"')
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise LoadError(
            f"module {module!r} is not found (it must be installed, in the current folder, or on PYTHONPATH)"
        ) from error
    except AttributeError as error:
        raise LoadError(f"module {module!r} has no {attribute!r}") from error
