"""Runs the console blocks of a Markdown page and writes down what the commands print.

In a block fenced as `console`, three commands are known:

    $ cat FILE           the lines below become that file; one that a command made is shown
    $ plan ...           is run; the lines below are replaced by its output
    $ python FILE        likewise

Any other command is left as it is. All blocks of a page share one temporary folder. `console 12`
keeps the first 12 lines of every output, `console 12-20` only those lines; dots mark a cut.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import re
import runpy
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

from trainplan.cli.main import COLLECTED_EVERY, run
from trainplan.cli.terminal.clock import Clock
from trainplan.costmodel.calibration.machine import NOTHING, Measured
from trainplan.costmodel.job.job import Job
from trainplan.planner import questions
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.plan import Infeasible, Plan
from trainplan.planner.work import ALONE, Budget, Workers

BLOCK = re.compile(r"^```console(?: (\d+)(?:-(\d+))?)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = re.compile(r"\b\d+(?:\.\d+)? s\.$|(?<=in )\d+(?:\.\d+)? s\b", re.MULTILINE)
"""How long a search took: the only part of an output that may differ from run to run."""
CUT = "..."
_ANSWERS: dict[tuple[Job, SearchOptions | None], Plan | Infeasible] = {}


def replayed(page: str) -> str:
    """The page with the real output of its commands."""
    if not BLOCK.search(page):
        return page
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _searched_once():
        return BLOCK.sub(_replay, page)


@contextlib.contextmanager
def _searched_once() -> Iterator[None]:
    """Commands of all pages with the same question and no time limit share one search.

    Those that state none have none, and print no progress: pages depend on no machine. They take
    one core: to share a search costs a third more of the two that `.ci/run` has.
    """
    plain = questions.search
    gc.set_threshold(COLLECTED_EVERY)  # as in a process of `plan`

    def shared(
        job: Job,
        options: SearchOptions | None = None,
        budget: Budget | None = None,
        measured: Measured = NOTHING,
        workers: Workers = ALONE,
    ) -> Plan | Infeasible:
        """The answer of the first command of that question."""
        limited = budget is not None and budget.seconds_left() < math.inf
        if limited or measured != NOTHING:
            return plain(job, options, budget, measured, workers)
        if (job, options) not in _ANSWERS:
            _ANSWERS[job, options] = plain(job, options, budget, measured, workers)
        return _ANSWERS[job, options]

    quiet = mock.patch.object(Clock, "report", lambda *known: None)
    alone = mock.patch("trainplan.cli.processes.processes.usable_cores", lambda: 1)
    with quiet, alone, mock.patch.object(questions, "search", shared):
        yield


def timeless(page: str) -> str:
    """The page without the seconds that searches took."""
    return SECONDS.sub("# s", page)


def _replay(block: re.Match[str]) -> str:
    first, last, text = block.groups()
    start, stop = (int(first) - 1, int(last)) if last else (0, int(first) if first else None)
    lines = [
        line
        for command, below in commands(text)
        for line in (*command, *_output(command, below, slice(start, stop)))
    ]
    head = block.group(0).partition("\n")[0]
    return "\n".join((head, *lines, "```"))


def commands(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Every command, with its continuation lines, and the lines below it."""
    for part in re.split(r"^(?=\$ )", text, flags=re.MULTILINE):
        lines = part.splitlines()
        size = 1 + next((i for i, line in enumerate(lines) if not line.endswith("\\")), 0)
        if lines:
            yield lines[:size], lines[size:]


def _output(command: Sequence[str], below: list[str], shown: slice) -> list[str]:
    words = shlex.split(" ".join(line.rstrip("\\") for line in command), comments=True)
    match words[1:]:
        case ["cat", file] if Path(file).exists():
            return _cut(Path(file).read_text(encoding="utf-8"), shown)
        case ["cat", file]:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text("\n".join((*below, "")), encoding="utf-8")
            return below
        case ["plan", *arguments, ">", file]:
            Path(file).write_text(_printed_by_plan(arguments), encoding="utf-8")
            return []
        case ["plan", *arguments]:
            return _cut(_printed_by_plan(arguments), shown)
        case ["python", file]:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                runpy.run_path(file, run_name="__main__")
            return _cut(out.getvalue(), shown)
    return below


def _printed_by_plan(arguments: Sequence[str]) -> str:
    out = io.StringIO()
    stated = list(arguments[:1]) != ["search"] or "--time-limit" in arguments
    unlimited = arguments if stated else [*arguments, "--time-limit", "none"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run(unlimited)
    assert code != 1, f"plan {shlex.join(arguments)} met a bug: {out.getvalue()}"
    return out.getvalue()


def _cut(text: str, shown: slice) -> list[str]:
    lines = text.rstrip().splitlines()
    kept = [line.rstrip() for line in lines[shown]]
    before = [CUT] if shown.start else []
    after = [CUT] if shown.stop is not None and shown.stop < len(lines) else []
    return [*before, *kept, *after]
