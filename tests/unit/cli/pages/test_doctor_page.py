"""What `plan doctor profile.json` advises, and what a run within a budget says it left out."""

import pytest

from tests.e2e.command import plan, refused
from tests.unit.profiler.fit.test_coverage import (
    CONSTANTS,
    EVERYTHING,
    MEASURED,
    MESSAGES,
    known,
    noisy,
    profile,
)
from tests.unit.profiler.journal.test_journal import DONE, HEADER
from trainplan.cli.blocks.shown import page_text
from trainplan.cli.files.measuring import left_out_notes
from trainplan.cli.pages.profile import coverage_page
from trainplan.profiler.journal.records import LeftOut, line_of, read_journal


def advice(found, **terms):
    says = tuple(known(found, MEASURED, **terms).values())
    return page_text(*coverage_page(found, says, "a step"))


def test_a_profile_most_of_whose_timings_are_noisy_is_not_all_measured():
    whole = profile(*EVERYTHING[1:], *noisy(59, 71), constants=CONSTANTS, fitted=MESSAGES)
    for terms in ({"gemm": 0.6}, {}):
        page = advice(whole, **terms)
        assert "all that counts is measured" not in page
        assert "plan profile --only gemm --output more.json" in page
        assert "59 of 71 timings are doubtful, off by 17 %" in page
        assert "add your --model" in page
        assert "timings to doubt, of 78: 59 noisy" in page


def test_a_quiet_profile_is_all_measured():
    whole = profile(*EVERYTHING[1:], *noisy(0, 71), constants=CONSTANTS, fitted=MESSAGES)
    assert "all that counts is measured" in advice(whole, gemm=0.6)


@pytest.mark.parametrize(("done", "start"), [((DONE,), False), ((), True)])
def test_what_a_budget_left_out_is_told_with_its_command(done, start):
    left = LeftOut(budget_seconds=60, keys={"gemm": ("a", "b"), "links": ("c",)})
    content = read_journal("".join(map(line_of, (HEADER, *done, left))))
    words = ["profile", "--quick", "--budget", "60s", "--restart", "--output", "a b.json"]
    (note,) = left_out_notes(content, words)
    assert f"left out 3 of {3 + len(done)} tasks: gemm 2, links 1" in note
    assert note.endswith("plan profile --quick --budget 60s --output 'a b.json' --force")
    assert ("its start took all of it" in note) == start
    assert not list(left_out_notes(read_journal(line_of(HEADER)), words))


@pytest.mark.parametrize("text", ["60", "5x", "0s", "5 m", "-1s", "soon"])
def test_a_budget_that_is_no_duration_is_refused_in_a_line(text):
    why = "is below 0" if text.startswith("-") else "is no duration"
    refused(plan("profile", f"--budget={text}"), f"'{text}' {why}: write 90s, 30m or 2h")
