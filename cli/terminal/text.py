"""What may reach a terminal; imports nothing, so that `plan --help` stays quick."""

WIDTH = 100
"""Columns of tables and paragraphs without a terminal: in a pipe, in a file, in the documentation.
"""
NARROWEST, WIDEST = 40, 160
"""On a terminal lines follow its columns between these."""


def escaped(text: str) -> str:
    """What users or files contain may not steer the terminal: other characters are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
