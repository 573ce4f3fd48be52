"""As `cli.words`, for commands until they take it from there."""

from trainplan.cli.words import gib, layout_line, percent, plural, seconds  # noqa: F401
