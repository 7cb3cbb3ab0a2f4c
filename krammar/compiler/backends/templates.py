"""The base class of backends that render Jinja templates.

A folder of templates mirrors the package. ``X.j2`` becomes ``X``: once per package, or once per definition
file if its path contains ``{module}``. ``{name}`` in a path is the name of the package. Templates in ``macros/``
are only imported.
"""

from __future__ import annotations

import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from krammar.compiler import ir
from krammar.compiler.backends.interface import Backend, File, Source
from krammar.compiler.front.source import SourceError

if TYPE_CHECKING:
    from jinja2 import Environment

# Jinja is imported only when something is rendered: a run of `krammar gen` that changes nothing does without it.
Filters = Mapping[str, Callable[..., Any]]


def templates_folder(backend: str) -> Path:
    """Return the folder of krammar's templates for a backend, in the wheel or in the repository."""
    inside = Path(str(resources.files("krammar"))) / "templates"
    folder = inside if inside.is_dir() else inside.parent.parent / "templates"
    return folder / backend


def environment(folder: Path, filters: Filters, *, html: bool = False) -> Environment:
    """Return the Jinja environment for the templates of ``folder``.

    Args:
        html: escape values for HTML.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not html,
        autoescape=html,
    )
    made.filters |= {"kind": lambda value: type(value).__name__, "pprint": repr, "block": _block}
    made.filters |= filters
    return made


@lru_cache(maxsize=8)
def _environment(backend: type[TemplateBackend], folder: Path) -> Environment:
    """Return the environment of a backend, the same in all runs of a process.

    To compile the templates takes longer than to render a small package. Jinja compiles those that change again.
    """
    return environment(folder, backend.FILTERS, html=backend.HTML)


class TemplateBackend(Backend):
    """Renders the templates of ``FOLDER``, or those of the option ``templates``."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "templates": "A folder of templates that replaces krammar's."
    }
    FOLDER: ClassVar[str]
    FILTERS: ClassVar[Filters] = {}
    HTML: ClassVar[bool] = False

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        super().__init__(options)
        folder = self.options.get("templates")
        self.templates = templates_folder(self.FOLDER) if folder is None else Path(folder)
        if not any(self.templates.rglob("*.j2")):
            raise SourceError(f"{self.templates} contains no templates (*.j2)")

    @cached_property
    def environment(self) -> Environment:
        """The Jinja environment, created when the first file is rendered."""
        return _environment(type(self), self.templates)

    def inputs(self) -> list[Path]:
        return sorted(self.templates.rglob("*.j2"))

    @abstractmethod
    def context(self, source: Source) -> dict[str, Any]:
        """Return the variables of all templates."""

    def module_context(
        self, source: Source, file: ir.DefinitionFile, shared: dict[str, Any]
    ) -> dict[str, Any]:
        """Return further variables for the templates of a definition file.

        Args:
            shared: the result of ``context``.
        """
        return {}

    def name(self, source: Source) -> str:
        """Return what replaces ``{name}`` in the path of a template."""
        return source.title.replace("/", ".")

    def is_rendered(self, template: str, source: Source) -> bool:
        """Return whether a template is rendered for this protocol."""
        return not template.startswith("macros/")

    def files(self, source: Source) -> tuple[ir.DefinitionFile, ...]:
        """Return the definition files for which the templates with ``{module}`` are rendered."""
        return source.protocol.files

    def module(self, source: Source, module: str) -> str:
        """Render ``{module}.py.j2`` for a single definition file, by the name of its module."""
        file = next(file for file in source.protocol.files if file.module == module)
        context = self.context(source)
        context |= self.module_context(source, file, context) | source.header(file.path.name)
        return self.text("{module}.py.j2", context)

    def render(self, source: Source) -> Iterator[File]:
        paths = (p.relative_to(self.templates).as_posix() for p in self.templates.rglob("*.j2"))
        rendered = [name for name in sorted(paths) if self.is_rendered(name, source)]
        if not rendered:
            return
        shared = self.context(source)
        modules = {
            file.module: self.module_context(source, file, shared) for file in self.files(source)
        }
        for name in rendered:
            path = name.removesuffix(".j2").replace("{name}", self.name(source))
            if "{module}" not in name:
                yield File(Path(path), self.text(name, shared | source.header()))
                continue
            for file in self.files(source):
                context = shared | modules[file.module] | source.header(file.path.name)
                yield File(Path(path.replace("{module}", file.module)), self.text(name, context))

    def text(self, name: str, context: dict[str, Any]) -> str:
        """Render a template. Raises SourceError, with the line of the template, if it fails."""
        try:
            return self.environment.get_template(name).render(context)
        except Exception as error:  # a user's template can raise anything
            raise self._error(name, error) from error

    def _error(self, name: str, error: Exception) -> SourceError:
        """Build an error with the path and line of the template."""
        from jinja2 import TemplateError, TemplateSyntaxError

        place = self.templates / name
        line = 0
        if isinstance(error, TemplateSyntaxError):
            place, line = self.templates / (error.name or name), error.lineno
        else:
            # Jinja gives compiled templates the file names and lines of their sources.
            for frame in traceback.extract_tb(error.__traceback__):
                if self.templates in Path(frame.filename).parents:
                    place, line = Path(frame.filename), frame.lineno or 0
        what = str(error) if isinstance(error, TemplateError) else repr(error)
        return SourceError(f"{place}{f':{line}' if line else ''}: {what}")


def _block(text: str, width: int = 4) -> str:
    """Indent all lines but the first, and remove the final newline."""
    return text.rstrip("\n").replace("\n", "\n" + " " * width)
