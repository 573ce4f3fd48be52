"""`--allow diloco`: what is joined of islands on the command line, and what is answered."""

from pathlib import Path

import pytest

from tests.e2e.command import plan

ISLANDS = """
name: islands
groups:
- {gpu: h100-sxm, num_nodes: 1, gpus_per_node: 8}
- {gpu: h100-sxm, num_nodes: 1, gpus_per_node: 8}
between_groups: {gb_per_s: 0.125}
"""
JOB = ("--model", "llama3.2-1b", "--global-batch-size", "64", "--seq-length", "1024")
LAYOUT = ("--layout", "dp=8,zero_stage=3", "--runtime", "torchtitan")


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> tuple[str, ...]:
    file = tmp_path / "islands.yaml"
    file.write_text(ISLANDS)
    return ("--cluster", str(file))


def test_an_estimate_is_of_one_island_with_the_rounds_that_keep_it_busy(cluster):
    found = plan("estimate", *JOB, *cluster, *LAYOUT, "--allow", "diloco", "--json").json
    joined, outer = found["outer_step"], found["outer"]
    assert found["training"]["global_batch_size"] == 32
    assert outer["islands"] == 2
    assert outer["every"] == joined["every"] == joined["fewest_steps"]
    assert joined["utilisation"] >= 0.95
    assert found["estimate"]["step_time_s"] == pytest.approx(joined["step_time_s"])
    assert any("outer optimizer" in one for one in found["changes_training"])


def test_every_option_of_outer_steps_reaches_the_job(cluster):
    options = ("--outer-every", "40", "--outer-dtype", "int8", "--outer-overlap", "5")
    more = ("--outer-fragments", "4", "--islands", "2", "--allow", "diloco", "--json")
    found = plan("estimate", *JOB, *cluster, *LAYOUT, *options, *more).json["outer"]
    assert {name: found[name] for name in ("every", "dtype", "overlap", "fragments")} == {
        "every": 40,
        "dtype": "int8",
        "overlap": 5,
        "fragments": 4,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--outer-every", "50"), "add --allow diloco"),
        (("--outer-every", "free"), "add --allow diloco"),
        (("--allow", "diloco", "--outer-every", "0"), "no number of steps"),
        (("--allow", "diloco", "--outer-overlap", "many"), "1 to 999999, none or eager"),
        (("--allow", "diloco", "--islands", "3"), "does not divide among 3 islands"),
        (("--allow", "diloco", "--outer-every", "7", "--outer-fragments", "2"), "does not divide"),
        (("--allow", "diloc"), "did you mean 'diloco'"),
    ],
)
def test_what_makes_no_outer_steps_is_refused_in_a_sentence(cluster, options, words):
    found = plan("estimate", *JOB, *cluster, *LAYOUT, *options)
    assert found.code == 2
    assert words in " ".join(found.err.split())


def test_a_front_needs_rounds_of_one_length(cluster):
    found = plan("search", *JOB, *cluster, "--allow", "diloco", "--pareto", "time,memory")
    assert found.code == 2
    assert "--outer-every STEPS" in found.err


def test_a_baseline_is_priced_as_an_island_too(cluster):
    held = ("--fix", "tp=1", "--fix", "pp=1", "--fix", "cp=1", "--runtime", "torchtitan")
    joined = ("--allow", "diloco", "--outer-every", "30", "--baseline", "dp=8,zero_stage=3")
    found = plan("search", *JOB, *cluster, *held, *joined, "--islands", "2")
    assert found.code == 0
    assert "joined every 30 local steps" in found.out
    assert "Baseline: tp 1" in found.out


def test_an_offer_counts_the_gpus_of_all_islands(cluster):
    offers = ("--offers", f"{cluster[1]}=2", "--objective", "cost", "--tokens", "10B")
    held = ("--fix", "tp=1", "--fix", "pp=1", "--fix", "cp=1", "--runtime", "torchtitan")
    joined = ("--allow", "diloco", "--outer-every", "30", "--all-nodes", "--json")
    (row,) = plan("search", *JOB, *offers, *held, *joined).json["offers"]
    assert row["num_gpus"] == 16
    assert row["money"] == pytest.approx(row["days"] * 24 * 16 * 2)


@pytest.mark.parametrize("objective", ["cost", "gpus"])
def test_what_is_proved_is_of_so_many_islands(cluster, objective):
    held = ("--fix", "tp=1", "--fix", "pp=1", "--fix", "cp=1", "--runtime", "torchtitan")
    joined = ("--allow", "diloco", "--islands", "2", "--outer-every", "30", "--price", "2")
    page = plan("search", *JOB, *cluster, *held, *joined, "--objective", objective)
    assert "proved with 2 islands, other numbers not tried" in " ".join(page.out.split())
