"""The clock of a command: when it began, and what it says while it runs."""

import io
import math
import subprocess
import sys
from pathlib import Path

import pytest

from trainplan.cli.terminal import age
from trainplan.cli.terminal.clock import Clock, progress_text

BEGUN_EARLIER = """
import time
time.sleep(0.3)
from trainplan.cli.terminal.age import OWN_PROCESS
from trainplan.cli.terminal.clock import Clock
print(Clock(30.0).seconds)
OWN_PROCESS.set(True)
print(Clock(30.0).seconds)
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_clock_of_a_process_for_one_command_counts_its_imports():
    done = subprocess.run(
        [sys.executable, "-c", BEGUN_EARLIER], capture_output=True, text=True, check=True
    )
    shared, own = map(float, done.stdout.split())
    assert shared < 0.3 <= own < 30


def test_where_the_system_does_not_say_when_a_process_began_its_work_counts(monkeypatch):
    monkeypatch.setattr(age, "PROC", Path("/proc/nothing"))
    monkeypatch.setattr(age.time, "process_time", lambda: 1.25)
    assert age.command_seconds() == 0
    age.OWN_PROCESS.set(True)
    assert age.command_seconds() == 1.25
    age.OWN_PROCESS.set(False)


@pytest.mark.parametrize(
    ("stream", "stated"), [(Terminal, [3, 6, 9, 12, 15, 18, 21]), (io.StringIO, [10, 20])]
)
def test_a_line_of_progress_comes_every_few_seconds(monkeypatch, stream, stated):
    now, lines = [0.0], stream()
    monkeypatch.setattr("trainplan.cli.terminal.clock.time.monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", lines)
    clock = Clock(math.inf)
    for now[0] in range(23):
        clock.report(0.5, 8.0, 10.0)
    whole = [
        f"{second} s: fastest with even stages so far: 10 s a step, gap 20.0 %" for second in stated
    ]
    assert lines.getvalue().splitlines() == whole


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ((1.0, 9.5, 9.5), "fastest with even stages so far: 9.5 s a step, gap 0.0 %"),
        ((0.5, math.inf, math.inf), "50 % done"),
        ((0.2, 4.5123, math.inf), "no layout is faster than 4.512 s"),
        ((0.25, 0.0, math.inf), "25 % done"),
    ],
)
def test_a_progress_line_has_the_best_step_and_the_gap(known, text):
    assert progress_text(*known) == text
