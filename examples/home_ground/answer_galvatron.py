"""Llama-2-7B on 8 GPUs, as Galvatron ships it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import galvatron
import galvatron_files
from answers import Row
from filled import solved


@dataclass(frozen=True, slots=True)
class Request:
    """A question to Galvatron, and its answer."""

    question: galvatron.Question
    answer_s: float
    search_s: float
    """Seconds of its search; the least where it ran twice."""


REQUEST = (
    Request(galvatron.Question(36), 4.189589479605564, 228),
    Request(galvatron.Question(24, chunks=8), 5.289000, 40),
    Request(galvatron.Question(16, chunks=16), 5.873279, 57),
    Request(galvatron.Question(24, chunks=16), 5.221965, 79),
)
"""Source: its search at commit cea12ff run on a CPU, two cores, `time_profile_mode=batch`."""


def rows(checkout: Path, limit: float) -> Iterator[Row]:
    """Every question."""
    of = galvatron_files.read(checkout)
    for request in REQUEST:
        question = request.question
        chunks = "any" if question.chunks is None else question.chunks
        found = solved(partial(galvatron.cases, of, question), limit)
        problem = f"Llama-2-7B, 8 GPUs of {question.memory_gib} GiB, {chunks} micro batches"
        yield found.row(
            "galvatron", problem, request.answer_s, request.search_s, "the peer proves none"
        )
