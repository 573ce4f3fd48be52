"""Pages on terminals of any width: no line is longer, no row is broken, no number gets lost."""

import re

import pytest

from tests.e2e.command import SMALLER, TINY, plan, with_value
from tests.e2e.measured_runs import own_run, write_runs
from tests.e2e.test_commands import calibrated_run
from tests.e2e.test_profiles import NCCL, SIMUMAX
from tests.e2e.test_schemas import LAUNCH
from tests.grids import number
from tests.plugged import simumax_profile
from trainplan.cli.blocks import shown
from trainplan.cli.terminal.text import NARROWEST, WIDEST

QUICK = ("--search-options", "none")
EVEN = ("--fix", "stages=even", "--slack", "0")
FEW = ("--fix", "pp=1", "--fix", "tp=1", "--fix", "recompute=none", "--fix", "cp=1")
"""Of those whose pages are alike."""
HIDDEN = "not shown for lack of room"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Command -> a function that makes its page of a width."""
    folder = tmp_path_factory.mktemp("plans")
    made, other, tiny = (folder / f"{name}.json" for name in ("plan", "other", "tiny"))
    runs = folder / "runs.jsonl"
    write_runs(runs, [own_run()])
    links, profile = folder / "links.txt", folder / "profile.json"
    links.write_text(NCCL)
    simumax_profile(SIMUMAX, profile)
    moe = with_value(with_value(TINY, "--model", "qwen3-30b-a3b"), "--global-batch-size", "64")
    wanted = (
        ("search", *SMALLER, *QUICK, "--output", made),
        ("search", *SMALLER, *QUICK, "--fix", "tp=2", *EVEN, "--tokens", "15T", "--output", other),
        ("search", *moe, *QUICK, *FEW, "--top", "30"),
        ("search", *with_value(SMALLER, "--cluster", "1x1:a100-sxm-40gb"), *QUICK),
        ("search", *TINY, *QUICK, *FEW, "--pareto", "time,memory"),
        ("estimate", *SMALLER, "--layout", "tp=2,pp=2,sp=true,offload=0.5"),
        ("why-not", made, "--layout", "tp=3,dp=2"),
        ("why-not", made, "--layout", "tp=2", "--time-limit", "1"),
        ("compare", made, other),
        ("sweep", made, "--vary", "gpus=8,16,32"),
        ("replan", made, "--lost", "1", "--restart", "10m", "--repair", "2h"),
        ("simulate", made),
        ("schedule", "--kind", "1f1b", "--pp", "4", "--num-microbatches", "8"),
        ("validate", runs),
        ("search", *TINY, *QUICK, *FEW, "--output", tiny),
        ("explain", tiny, "--time-limit", "0.1"),
        ("check", "--time-limit", "1", "--", *LAUNCH),
        ("calibrate", *calibrated_run(folder), "--output", folder / "calibration.json"),
        ("import", "nccl-tests", links, "--gpu", "b200", "--output", folder / "links.json"),
        ("doctor", profile),
        *(("catalog", what) for what in ("gpus", "models", "hosts", "methods", "optimizers")),
        ("catalog", "clusters"),
        ("catalog", "gpus", "b200"),
        ("catalog", "models", "gpt-oss-20b"),
        ("doctor",),
    )  # fmt: skip
    made_by = {}
    with pytest.MonkeyPatch.context() as patch:
        for arguments in wanted:
            taken = []
            patch.setattr(shown, "page_text", lambda *parts, to=taken, **_: to.append(parts) or "")
            plan(*arguments)
            name = " ".join(str(word).removeprefix(f"{folder}/") for word in arguments)
            (made_by[name],) = taken
    return made_by


def numbers(text):
    """Figures of a page."""
    return set(re.findall(r"\d[\d,.]*\d|\d", text))


def test_no_page_has_a_line_longer_than_the_terminal(pages):
    for name, parts in pages.items():
        for width in range(NARROWEST, WIDEST + 1, number(30, 1)):
            lines = shown.page_text(*parts, width=width).splitlines()
            assert max(map(len, lines)) <= width, (name, width)
            assert not any("…" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_number_is_lost_without_a_word(pages, width):
    for name, parts in pages.items():
        if name.startswith(("simulate", "schedule", "sweep")):  # pictures have fewer columns
            continue
        text = shown.page_text(*parts, width=width)
        lost = numbers(shown.page_text(*parts, width=WIDEST)) - numbers(text)
        lost -= set(
            re.findall("|".join(map(re.escape, lost)) or "-", "".join(text.split()))
        )  # in long addresses
        assert not lost or HIDDEN in text, (name, lost)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_every_alternative_stands_on_a_line_with_its_step(pages, width):
    (parts,) = (parts for name, parts in pages.items() if name.endswith("--output plan.json"))
    text = shown.page_text(*parts, width=width)
    table = text[text.index(" #") :].splitlines()
    rows = [line for line in table if re.match(r" ?\d+ ", line)]
    assert [int(row.split()[0]) for row in rows[:10]] == list(range(1, 11))
    assert all(re.search(r"\d s .*\d", row) for row in rows[:10])


def test_columns_that_say_least_go_first_and_are_named(pages):
    (parts,) = (parts for name, parts in pages.items() if name.endswith("--output plan.json"))
    text = shown.page_text(*parts, width=50)
    (line,) = re.findall(rf"{HIDDEN}: (.*?); a\s+terminal", text, re.DOTALL)
    gone = line.replace("\n", " ").split(", ")
    assert gone[-1] == "MFU"
    assert "zero" in gone
    assert not {"#", "tp", "pp", "cp", "dp", "step", "GiB"} & set(gone)
