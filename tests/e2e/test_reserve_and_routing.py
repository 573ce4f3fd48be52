"""Memory for another tenant and unequal experts, as users ask for them."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan, refused

MOE = (
    *("--model", "qwen3-30b-a3b", "--cluster", "1x8:h100-sxm"),
    *("--global-batch-size", "64", "--seq-length", "4096"),
)
LAYOUT = ("--layout", "ep=8,dp=8,mbs=1")


def test_a_reserve_is_told_with_its_price_and_kept_in_the_plan(tmp_path: Path):
    path = tmp_path / "plan.json"
    held = ("--fix", "pp=1", "--fix", "cp=1", "--fix", "tp=1", "--fix", "recompute=none")
    outcome = plan("search", *TINY, *held, "--reserve", "60GiB", "--output", path)
    assert outcome.code == 0
    words = " ".join(outcome.out.split())
    assert "60.0 GiB of every GPU reserved" in words
    assert "--reserve 60.0GiB costs" in words
    document = json.loads(path.read_text())
    assert document["reserve_bytes"] == 60 * 2**30
    assert document["certificate"]["reserve"]["reserve_bytes"] == 60 * 2**30
    explained = plan("explain", path, "--time-limit", "5").out
    assert "no reserve of 60 GiB" in " ".join(explained.split())


@pytest.mark.parametrize("size", ["60", "60 gigs", "-1GiB", "90GiB"])
def test_a_reserve_that_is_none_is_refused_in_one_line(size: str):
    assert "--reserve" in refused(plan("search", *TINY, "--reserve", size))


def test_an_estimate_says_how_full_the_fullest_rank_is(tmp_path: Path):
    counts = tmp_path / "counts.csv"
    counts.write_text(",".join(str(200 - number) for number in range(128)))
    even, uneven = (
        plan("estimate", *MOE, *LAYOUT, *more).out
        for more in ((), ("--option", f"routing={counts}"))
    )
    assert "the fullest of 8 expert ranks is expected to compute 1.4" in " ".join(uneven.split())
    assert "expert ranks" not in even


def test_a_routing_that_is_none_is_refused_in_one_line(tmp_path: Path):
    counts = tmp_path / "counts.csv"
    counts.write_text("1,2,3")
    wrong = refused(plan("estimate", *MOE, *LAYOUT, "--option", f"routing={counts}"))
    assert "a layer has 3 counts, the model 128 experts" in wrong
    missing = refused(plan("estimate", *MOE, *LAYOUT, "--option", "routing=nowhere.csv"))
    assert "no such file; or write balanced|random|zipf:ALPHA|load:FACTOR|FILE" in missing


def test_an_estimate_begins_with_whether_memory_holds_when_load_shifts(tmp_path: Path):
    counts = tmp_path / "counts.csv"
    lines = [",".join(str(200 - (step + n) % 128) for n in range(128)) for step in range(100)]
    counts.write_text(
        "step,"
        + ",".join(f"e{n}" for n in range(128))
        + "\n"
        + "\n".join(f"{step},{line}" for step, line in enumerate(lines))
    )
    known = plan("estimate", *MOE, *LAYOUT, "--option", f"routing={counts}").out.splitlines()
    assert "100 steps" in " ".join(known[1:4])
    assert known[1].startswith("memory at the 99th percentile ")
    short = json.loads(plan("estimate", *MOE, *LAYOUT, "--option", "routing=random", "--json").out)[
        "load_shift"
    ]
    assert (short["steps"], len(short["percentiles"]), short["fullest"]) == (0, 3, [])
    assert short["fits"] is short["percentiles"][-1]["fits"]
    assert json.loads(plan("estimate", *MOE, *LAYOUT, "--json").out)["load_shift"] is None
