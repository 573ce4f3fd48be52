"""Files of a peer's checkout that the user names."""

from __future__ import annotations

from pathlib import Path

from trainplan.costmodel.base.entries import Entry, json_entry
from trainplan.costmodel.base.errors import SpecError


def text_of(checkout: Path, file: str) -> str:
    """The text of a file.

    Raises:
        SpecError: The checkout lacks it.
    """
    try:
        return (checkout / file).read_text("utf-8")
    except OSError as error:
        raise SpecError(
            f"{checkout / file}: {error.strerror}: give --checkout the top of the peer's repository"
        ) from None


def json_of(checkout: Path, file: str) -> Entry:
    """The top of a JSON file."""
    return json_entry(file, text_of(checkout, file))
