"""Reads messages in the notation of Kafka's protocol guide out of a text, as definitions.

    ApiVersions Response (Version: 3) => error_code [api_keys] throttle_time_ms TAG_BUFFER
      error_code => INT16
      api_keys => api_key min_version max_version TAG_BUFFER
        api_key => INT16

The stages:

1. ``reader`` turns HTML, Markdown and copied text into lines, and finds messages in them, and facts about messages: API
   keys, nullable fields.
2. ``notation`` parses each message-version to a tree of ``nodes.GuideNode``.
3. ``merging`` concludes what the text does not say, and merges the versions of each message to a ``MessageSchema`` with
   ranges of versions.

``definition_writer`` writes the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from krammar.compiler.definition_writer import write_definitions
from krammar.compiler.guide.merging import Merger
from krammar.compiler.guide.nodes import Answers
from krammar.compiler.guide.reader import GuideReader
from krammar.compiler.schemas import ImportResult, ImportSchemaError
from krammar.util.diagnostics import Diagnostics, Position

__all__ = ["Answers", "import_guides"]


def import_guides(
    paths: Sequence[Path], answers: Answers, diagnostics: Diagnostics
) -> ImportResult | None:
    """Convert the messages in texts to definitions.

    Returns:
        None if there were errors. They are in ``diagnostics``, and so are warnings.

    Raises:
        ImportSchemaError: a text cannot be read, the texts contain no messages, or an answer concerns no message.
    """
    reader = GuideReader(answers, diagnostics)
    for path in paths:
        try:
            reader.read(path, path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise ImportSchemaError(path, 0, f"is not UTF-8: {error}") from None
    reader.resolve()
    if not reader.messages and not diagnostics.has_errors:
        raise ImportSchemaError(
            paths[0],
            0,
            "contains no message in the notation of Kafka's protocol guide, such as "
            "`Ping Request (Version: 0) => text`",
        )
    schemas = Merger(reader, answers, diagnostics).merge()
    if diagnostics.has_errors:
        return None
    try:
        files = write_definitions(schemas, [])
    except ImportSchemaError as error:
        position = Position(error.path, max(error.line, 1), 1)
        diagnostics.add("E605", error.message, position, "rename one of the fields in the text")
        return None
    return ImportResult(files, (), tuple(sorted(schema.name for schema in schemas)))
