"""A progress bar for work on a list, on a terminal and after a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

T = TypeVar("T")
QUIET_SECONDS = 1.0
"""Shorter work shows no bar."""


def watched(items: Sequence[T], what: str) -> Iterator[T]:
    """The items, with a bar on stderr that counts those taken."""
    start = time.monotonic()
    progress = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = progress.add_task(what, total=len(items))
    shown, possible = False, sys.stderr is not None and sys.stderr.isatty()
    try:
        for done, item in enumerate(items):
            if possible and not shown and time.monotonic() - start > QUIET_SECONDS:
                progress.start()
                shown = True
            if shown:
                progress.update(task, completed=done)
            yield item
    finally:
        if shown:
            progress.stop()
