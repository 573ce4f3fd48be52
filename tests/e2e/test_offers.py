"""`plan search --offers`: the same answers as one search an offer, the cheapest first."""

import json
from functools import cache

import pytest

from tests.e2e.command import TINY, plan, refused

PLACE = TINY.index("--cluster")
JOB = (*TINY[:PLACE], *TINY[PLACE + 2 :])
FEW = ("--fix", "stages=even", "--fix", "pp=1", "--fix", "recompute=none")
COST = ("--objective", "cost", "--search-options", "none", *FEW)
GIVEN = {
    "near": ("2x4:h100-sxm", 3.5),
    "far": ("1x8:a100-sxm-80gb", 1.25),
    "l40s": ("1x4:l40s", 0.5),
}
HEAD = "name,cluster,price_per_gpu_hour,currency"


@pytest.fixture
def listed(tmp_path):
    """A file in the form of its name."""

    def write(form):
        path = tmp_path / f"offers.{form}"
        rows = [(name, cluster, price, "EUR") for name, (cluster, price) in GIVEN.items()]
        if form == "csv":
            path.write_text("\n".join([HEAD, *(",".join(map(str, row)) for row in rows)]))
        else:
            keys = HEAD.split(",")
            path.write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
        return path

    return write


@cache
def alone(name):
    """The answer of a search of one offer's cluster at its price."""
    cluster, price = GIVEN[name]
    where = ("--cluster", cluster, "--price", f"EUR {price}", "--tokens", "1B", "--json")
    return plan("search", *JOB, *COST, *where).json


@pytest.mark.parametrize("form", ["csv", "json", "yaml"])
def test_each_offer_costs_what_it_costs_alone(listed, form):
    found = plan("search", *JOB, *COST, "--tokens", "1B", "--offers", listed(form), "--json").json
    money = [one["money"] for one in found["offers"]]
    assert money == sorted(money)
    assert found["lower_bound"] == money[0] == found["offers"][0]["lower_bound"]
    assert {one["name"] for one in found["offers"]} == {*GIVEN}
    for one in found["offers"]:
        own = alone(one["name"])
        assert one["money"] == pytest.approx(own["certificate"]["objective"]["value"])
        for degree in ("tp", "pp", "vpp", "cp", "dp", "micro_batch_size", "zero_stage"):
            assert one["layout"][degree] == own["best"]["layout"][degree]
        assert one["num_gpus"] == sum(
            group["num_nodes"] * group["gpus_per_node"] for group in own["cluster"]["groups"]
        )


def test_the_first_line_is_the_cheapest_and_the_plan_is_written(tmp_path):
    path = tmp_path / "plan.json"
    text = "1x8:h100-sxm=2,1x8:a100-sxm-80gb=$1.9"
    outcome = plan("search", *JOB, *COST, "--offers", text, "--output", path)
    first, _, heads, *rows = outcome.out.splitlines()
    assert first.startswith("Cheapest: 1x8:h100-sxm, ")
    assert first.endswith("; proved")
    assert heads.split()[:2] == ["offer", "GPUs"]
    assert rows[0].startswith("1x8:h100-sxm ")
    assert json.loads(path.read_text())["cluster"]["groups"][0]["gpu"] == "h100-sxm"
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_where_no_offer_holds_the_job_nothing_is_written(tmp_path):
    path = tmp_path / "plan.json"
    large = ("--model", "llama3-70b", *JOB[JOB.index("--model") + 2 :])
    outcome = plan("search", *large, *COST, "--offers", "1x1:l4=1", "--output", path)
    assert outcome.code == 2
    assert outcome.out.startswith("None of 1 offer has an answer.")
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--offers", "1x8:h100-sxm=2"), ("--objective cost",)),
        ((*COST, "--offers", "none.csv"), ("no such file", "price_per_gpu_hour")),
        (
            (*COST, "--offers", "1x8:h100-sxm=2,1x8:a100-sxm-80gb=EUR 1"),
            ("EUR and USD", "one currency"),
        ),
        ((*COST, "--offers", "1x8:h100-sxm=2,1x8:h100-sxm=1"), ("two offers", "name")),
        ((*COST, "--offers", "1x8:h100-sxm=much"), ("is no price",)),
        ((*COST, "--offers", "1x8:h100-sxm=2", "--cluster", "1x8:h100"), ("--cluster", "give one")),
        ((*COST, "--offers", "1x8:h100-sxm=2", "--price", "2"), ("--price", "give one")),
    ],
    ids=str,
)
def test_offers_that_cannot_be_compared_are_refused(arguments, words):
    refused(plan("search", *JOB, *arguments), *words)
