"""Run `plan` in this process or in one of its own."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest import mock

from trainplan.cli.main import run

TINY = (
    *("--model", "gpt2", "--cluster", "1x8:h100-sxm"),
    *("--global-batch-size", "8", "--seq-length", "1024"),
)
"""A job that is searched in a moment."""
LLAMA = (
    *("--model", "llama3-70b", "--cluster", "8x8:h100-sxm"),
    *("--global-batch-size", "128", "--seq-length", "8192"),
)
"""The job of the README."""
SMALLER = (
    *("--model", "llama3-8b", "--cluster", "2x8:h100-sxm"),
    *("--global-batch-size", "64", "--seq-length", "4096"),
)
"""One with pipelines and a table of alternatives, too, that is searched ten times as fast."""
PLAN = (sys.executable, "-c", "from trainplan.cli.main import main; main()")


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        """What it printed, as JSON."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


def plan(*arguments: str | Path) -> Outcome:
    """Run in this process; a bug is an exception, not exit code 1.

    A search that states no limit has none, and no progress is told: a busy machine changes nothing.
    One that does not say which settings of the runtime it tries tries none, in half the time.
    Where `--workers` is left out there is one: the other cores have tests to run.
    """
    out, err, words = StringIO(), StringIO(), [str(argument) for argument in arguments]
    for option in ("--time-limit", "--search-options"):
        if words[:1] == ["search"] and not any(word.startswith(option) for word in words):
            words[1:1] = [option, "none"]
    quiet = mock.patch("trainplan.cli.terminal.clock.EVERY_S_IN_FILES", math.inf)
    alone = mock.patch("trainplan.cli.processes.processes.usable_cores", lambda: 1)
    with quiet, alone, redirect_stdout(out), redirect_stderr(err):
        code = run(words)
    return Outcome(code, out.getvalue(), err.getvalue())


def plan_process(*arguments: str | Path, **environment: str) -> Outcome:
    """Run in a process of its own, as a user does."""
    command = [*PLAN, *(str(argument) for argument in arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment or None
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def refused(outcome: Outcome, *words: str) -> str:
    """The one line of a refusal."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("plan: error: ")
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in lines[0], (word, lines[0])
    return lines[0]


def with_value(job: tuple[str, ...], option: str, value: str) -> tuple[str, ...]:
    """The job with another value of one option."""
    place = job.index(option) + 1
    return (*job[:place], value, *job[place + 1 :])
