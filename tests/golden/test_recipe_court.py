"""The court's recorded verdicts, its page, and recipes that were recorded by running them."""

import json
import re

import pytest

from tests import examples
from trainplan.planner.runtimes.megatron_bridge.read_recipes import recipes

examples.on_path("recipe_court")

import court  # noqa: E402
import judge  # noqa: E402
import optimum  # noqa: E402
import recipes as recipes_of_court  # noqa: E402

ROWS = court.recorded()
BRIDGE = [row for row in ROWS if row["project"] == "Megatron-Bridge"]
TWICE = re.compile(r"deepseek_v3_pretrain_1024|gpt_oss_120b_pretrain_64gpu_h100|qwen3_\w+_h100")
"""Names that the library and the benchmarks share: the benchmark is judged."""


def test_the_page_and_the_table_are_those_of_the_verdicts():
    assert court.PAGE.read_text("utf-8") == court.page(ROWS, court.reproduced())
    assert court.README.read_text("utf-8") == court.table(ROWS)


def test_every_row_is_a_fact_with_its_source():
    assert {row["project"] for row in ROWS} == {
        *("Megatron-Bridge", "Megatron-LM", "torchtitan", "Primus", "MaxText")
    }
    for row in ROWS:
        assert all(row[key] for key in ("repository", "path", "commit", "licence", "recipe"))
        assert row["verdict"] in ("starts", "does not start", "undecided")
        assert row["verdict"] == "starts" or (row["cause"] and row["says"])
        assert len(json.dumps(row)) < 2000


def test_nine_of_ten_pretraining_recipes_of_bridge_are_priced_or_refused():
    own = [row for row in BRIDGE if row["task"] == "pretraining"]
    read = [row for row in own if row["verdict"] == "does not start" or "step_s" in row]
    assert len(own) > 450
    assert len(read) / len(own) >= 0.9


def test_every_refusal_of_bridge_was_seen_in_its_own_validation():
    seen = court.reproduced()["Megatron-Bridge"]
    refused = {str(row["recipe"]) for row in BRIDGE if row["verdict"] == "does not start"}
    assert refused == set(seen)


@pytest.mark.parametrize("name", ["llama3_8b_pretrain_8gpu_h100_bf16_config"])
def test_a_recipe_is_as_far_from_the_optimum_as_recorded(name):
    """Recorded of the pinned release: no checkout is read."""
    words = ("torchrun", "--nproc_per_node", "8", "run_recipe.py", "--recipe", name)
    recipe = recipes_of_court.Recipe("Megatron-Bridge", "", name, "", words, "1x8:h100-sxm")
    found = judge.checked(judge.read(recipe), 30)
    lines = optimum.OPTIMA.read_text("utf-8").splitlines()
    [row] = [one for one in map(json.loads, lines) if one["recipe"] == name]
    assert found.estimate.step_time_s == pytest.approx(row["step_s"], rel=0.03)
    proof = found.optimum.certificate
    assert proof.lower_bound_s == pytest.approx(row["bound_s"], rel=0.03)
    assert proof.optimal
    assert row["proved"]


def test_dense_recipes_that_fit_have_an_optimum_on_file():
    lines = optimum.OPTIMA.read_text("utf-8").splitlines()
    assert {json.loads(line)["recipe"] for line in lines} == optimum.names()


def test_the_recipes_that_were_repaired_within_a_month_are_refused():
    """Source: the pull requests that the page names."""
    refused = {str(row["recipe"]): row["cause"] for row in BRIDGE if row["verdict"] != "starts"}
    grids = [
        name
        for name, cause in refused.items()
        if cause == "experts_fold_into_ranks" and re.search("qwen3_235b.*64gpu|vr200", name)
    ]
    assert len(grids) == 7 + 4
    assert sum("397b" in name and cause == "pp_divides_layers" for name, cause in refused.items())


@pytest.mark.parametrize(
    "name", [one for one in recipes() if "gpu" in one and not TWICE.match(one)]
)
def test_the_text_of_a_recipe_states_what_was_recorded_by_running_it(name):
    row = next((one for one in BRIDGE if one["recipe"] == name), None)
    if row is None or "layout" not in row:
        pytest.skip("it is not there, or not priced")
    keys, said = recipes()[name].keys, f" {row['layout']} "
    for short, key in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "expert")):
        degree = keys.get(
            f"model.{key}_model_parallel_size", keys.get(f"model.{key}_parallel_size")
        )
        assert degree in (None, "1") or f" {short} {degree} " in said, (name, said)
    assert str(row["global_batch_size"]) == keys["train.global_batch_size"]
    assert str(row["seq_length"]) == keys["dataset.seq_length"]
