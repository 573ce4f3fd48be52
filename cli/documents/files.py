"""The document of `plan export` and `plan report`: files that are made of another document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainplan.planner.documents import Document


@dataclass(frozen=True, kw_only=True)
class FilesDocument(Document):
    """Files, as they are written or would be."""

    SCHEMA = "trainplan/files/v1"
    schema: Literal["trainplan/files/v1"] = field(default_factory=lambda: "trainplan/files/v1")
    """`trainplan/files/v1`."""
    written: tuple[str, ...] = field(default_factory=tuple)
    """Paths of those that were written; none where no folder was named."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of launch files by name, below their folder. The plan, which lies next to them, and the
    page of a report are not repeated here."""
    executable: tuple[str, ...] = field(default_factory=tuple)
    """Names of those that are run as programs."""
    start: str = field(default_factory=str)
    """Command that starts the training, in the folder of the files; empty where there is none."""
    runtime: str = field(default_factory=str)
    """Training runtime that reads them, or the project of `--keys`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables to set first, with what each is."""
    settings: tuple[str, ...] = field(default_factory=tuple)
    """Of `--keys`: lines to paste."""
    lacking: tuple[str, ...] = field(default_factory=tuple)
    """Of `--keys`: options that the plan needs and the project has no key for."""
    notes: tuple[str, ...] = field(default_factory=tuple)
    """What is approximated or left to you."""
