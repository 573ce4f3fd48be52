"""The launch files and the commands of a plan's page."""

import shlex

import pytest

from trainplan.cli.blocks.blocks import Code, Paragraph
from trainplan.cli.commands.search import command
from trainplan.cli.files.inputs import load_cluster, load_model
from trainplan.cli.pages.report.plan.launch import launch_section
from trainplan.cli.pages.report.plan.reproduce import reproduce_section, search_command, short_form
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import LengthSpec
from trainplan.costmodel.job.optimizer import OptimizerSpec
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.space import parse_choice


@pytest.fixture(scope="module")
def plan(make_job):
    fix = (parse_choice("tp=2", excluded=False), parse_choice("pp=1", excluded=True))
    return search(make_job("small-dense", "1x4:h100-sxm"), SearchOptions(fix=fix))


def words_of(plan):
    """What the command line says, as click reads it."""
    words = shlex.split(search_command(plan, "p.json").replace("\\\n", ""))
    assert words[:2] == ["plan", "search"]
    return command.make_context("search", words[2:]).params


def codes(section):
    return {block.name: block.text for block in section.blocks if isinstance(block, Code)}


def test_the_search_again_states_job_choices_and_margin(plan):
    training = plan.job.training.model_copy(
        update={"tokens": 10**12, "optimizer": OptimizerSpec.parse("galore:rank=64")}
    )
    job = plan.job.model_copy(update={"training": training, "reserve_bytes": 3 * 2**29})
    wanted = words_of(plan.model_copy(update={"job": job, "memory_margin": 0.1}))
    assert wanted["global_batch_size"] == training.global_batch_size
    assert wanted["seq_length"] == training.seq_length
    assert wanted["tokens"] == 10**12
    assert wanted["optimizer"] == "galore:rank=64"
    assert wanted["reserve_bytes"] == 3 * 2**29
    assert wanted["memory_margin"] == 0.1
    assert wanted["cluster"] == "1x4:h100-sxm"
    assert {*wanted["fix"]} == {"tp=2"}
    assert str(wanted["output"]) == "p.json"


def test_a_preset_is_named_and_other_models_and_clusters_are_files_beside(plan, tmp_path):
    written = codes(reproduce_section(plan, "p.json"))
    (tmp_path / "model.yaml").write_text(written["model.yaml"])
    assert load_model(str(tmp_path / "model.yaml")) == plan.job.model
    assert "cluster.yaml" not in written
    thin = plan.job.cluster.model_copy(update={"currency": "EUR"})
    preset = load_model("llama3-8b")
    job = plan.job.model_copy(update={"model": preset, "cluster": thin})
    other = plan.model_copy(update={"job": job})
    written = codes(reproduce_section(other, "p.json"))
    (tmp_path / "cluster.yaml").write_text(written["cluster.yaml"])
    assert load_cluster(str(tmp_path / "cluster.yaml")) == thin
    assert "model.yaml" not in written
    assert words_of(other)["model"] == "llama3-8b"


@pytest.mark.parametrize(
    "text", ["8x8:h100-sxm", "1x8:h100-sxm+2x4:a100-sxm-80gb", "1x16:v100-sxm-32gb@dgx-2"]
)
def test_a_cluster_has_the_short_form_it_was_read_of(text):
    assert short_form(parse_cluster(text)) == text


def test_what_a_command_cannot_say_is_said(plan):
    lengths = LengthSpec(counts=((512, 3), (2048, 1)))
    training = plan.job.training.model_copy(update={"lengths": lengths})
    job = plan.job.model_copy(update={"training": training})
    section = reproduce_section(plan.model_copy(update={"job": job}), "p.json")
    lines = [block.text for block in section.blocks if isinstance(block, Paragraph)]
    assert any("--lengths" in text for text in lines)


def test_launch_files_are_those_of_plan_export(plan):
    config = EXPORTERS["megatron-lm"](plan.job, plan.best.layout)
    script = LAUNCHERS["torchrun"](config, plan.job.cluster, ())
    assert codes(launch_section(plan))[script.name] == script.text


def test_a_runtime_without_launch_files_says_why(plan):
    job = plan.job.model_copy(update={"runtime": "nanotron"})
    blocks = launch_section(plan.model_copy(update={"job": job})).blocks
    assert [block.tone for block in blocks] == ["doubtful"]
    assert "no launch files are written for nanotron" in blocks[0].text
