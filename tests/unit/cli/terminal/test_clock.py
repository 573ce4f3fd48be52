"""What the clock of a command says while it runs."""

import io
import math
import sys

import pytest

from trainplan.cli.terminal.clock import Clock, progress_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "told"), [(Terminal, [3, 6, 9, 12, 15, 18, 21]), (io.StringIO, [10, 20])]
)
def test_a_line_of_progress_comes_every_few_seconds(monkeypatch, stream, told):
    now, lines = [0.0], stream()
    monkeypatch.setattr("trainplan.cli.terminal.clock.time.monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", lines)
    clock = Clock(None)
    for now[0] in range(23):
        clock.report(0.5, 8.0, 10.0)
    whole = [f"{second} s: best so far 10 s a step, gap 20.0 %" for second in told]
    assert lines.getvalue().splitlines() == whole


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ((1.0, 9.5, 9.5), "best so far 9.5 s a step, gap 0.0 %"),
        ((0.2, 4.5123, math.inf), "no layout is faster than 4.512 s"),
        ((0.25, 0.0, math.inf), "25 % done"),
    ],
)
def test_progress_says_what_is_known(known, text):
    assert progress_text(*known) == text
