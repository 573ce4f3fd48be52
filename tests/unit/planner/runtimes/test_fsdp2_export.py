"""A layout as a module of plain PyTorch: every value is said, or refused by name."""

import ast
from pathlib import Path

import pytest

from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.compare import missing_flags, recorded_flags
from trainplan.planner.space.choices import broken_rules

GOLDEN = Path(__file__).parents[3] / "golden" / "fsdp2" / "train_fsdp2.txt"
BLOCK = {"recompute": "full", "recompute_method": "block"}
SHARDED = {"dp": 8, "zero_stage": 3}


def job_of(model="llama3.1-8b", options=None, **training):
    stated = {"seq_length": 2048, "global_batch_size": 64} | training
    return Job(
        model=preset(model) if isinstance(model, str) else model,
        training=TrainingSpec(**stated),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="fsdp2",
        options=RuntimeOptions(**(options or {})),
    )


def export(model="llama3.1-8b", options=None, training=None, **layout):
    return EXPORTERS["fsdp2"](job_of(model, options, **(training or {})), Layout(**layout))


def settings(**changes):
    return dict(export(**changes).keys)


def test_the_module_is_as_it_was_checked():
    config = export(
        tp=2, dp=4, dp_replicate=2, zero_stage=3, sequence_parallel=True, **BLOCK,
        recompute_num_layers=8,
    )  # fmt: skip
    assert [file.name for file in config.files] == ["train_fsdp2.py"]
    assert config.files[0].text == GOLDEN.read_text("utf-8")


def test_the_module_has_two_hundred_lines_of_code():
    lines = (line.strip() for line in export(**SHARDED).files[0].text.splitlines())
    assert sum(bool(line) and not line.startswith("#") for line in lines) <= 200


@pytest.mark.parametrize(
    ("layout", "stated"),
    [
        ({"dp": 8, "zero_stage": 0}, ("8", "1", "False", "False")),
        ({"dp": 8, "zero_stage": 1}, ("1", "8", "False", "False")),
        ({"dp": 8, "zero_stage": 2}, ("1", "8", "False", "True")),
        ({"dp": 8, "zero_stage": 3}, ("1", "8", "True", "True")),
        ({"dp": 8, "zero_stage": 3, "dp_replicate": 4}, ("4", "2", "True", "True")),
    ],
)
def test_the_zero_stage_is_a_mesh_and_when_weights_are_freed(layout, stated):
    names = ("DP_REPLICATE", "DP_SHARD", "RESHARD_AFTER_FORWARD", "EVERY_MICRO_BATCH")
    assert tuple(settings(**layout)[name] for name in names) == stated


@pytest.mark.parametrize(
    ("recompute", "layers"),
    [
        ({}, "0"),
        ({**BLOCK, "recompute_num_layers": 5}, "5"),
        ({**BLOCK, "recompute_method": "uniform", "recompute_num_layers": 1}, "32"),
    ],
)
def test_the_first_layers_are_recomputed(recompute, layers):
    assert settings(**SHARDED, **recompute)["RECOMPUTED_LAYERS"] == layers


def test_the_batch_is_told_in_micro_batches():
    stated = settings(dp=4, tp=2, micro_batch_size=2)
    assert (stated["MICRO_BATCH_SIZE"], stated["MICRO_BATCHES"]) == ("2", "8")


def test_the_number_of_steps_is_that_of_the_tokens():
    training = {"tokens": 2048 * 64 * 10 + 1}
    [steps] = export(training=training, **SHARDED).arguments
    assert (steps.flag, steps.values) == ("--steps", ("11",))
    assert any("placeholder" in note for note in export(**SHARDED).notes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pp": 2, "dp": 4}, "no option for pp = 2"),
        ({"cp": 2, "dp": 4}, "no option for cp = 2"),
        ({"dp": 8, "ep": 2}, "no option for ep = 2"),
        ({"dp": 8, "offload": OffloadSpec(optimizer=1.0)}, "no option for offload.optimizer"),
        (
            {"recompute": "selective", "recompute_modules": ("core_attn",), **SHARDED},
            "no option for recompute_modules",
        ),
        ({**SHARDED, **BLOCK, "recompute_method": "uniform", "recompute_num_layers": 2}, "block"),
        ({"model": "qwen2.5-7b", "tp": 2, "dp": 4}, "biases of attention"),
        ({"model": "mixtral-8x7b", **SHARDED}, "experts"),
        ({"model": "qwen3-8b", **SHARDED}, "norms of queries and keys"),
        ({"model": "gpt3-175b", **SHARDED}, "norms other than RMSNorm"),
        ({"model": "mistral-7b", **SHARDED}, "sliding windows"),
        ({"training": {"precision": "fp8"}, **SHARDED}, "precision fp8 is not written"),
        ({"training": {"seq_length": 1 << 20}, **SHARDED}, "longer than the 131072 positions"),
        ({"options": {"cross_entropy": "fused"}, **SHARDED}, "cross_entropy=fused is not written"),
        ({"options": {"moment_dtype": "bf16"}, **SHARDED}, "moment_dtype=bf16 is not written"),
        ({"options": {"compile": True}, "tp": 2, "dp": 4}, "use tp=1"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(changes, says):
    with pytest.raises(UnsupportedError, match=says):
        export(**changes)


def test_key_value_heads_and_vocabulary_are_cut_evenly():
    odd = preset("llama3.1-8b").model_copy(update={"vocab_size": 50_257})
    few = preset("llama3.1-8b").model_copy(update={"num_key_value_heads": 4})
    for model, tp in ((odd, 2), (few, 8)):
        with pytest.raises(UnsupportedError, match="num_key_value_heads and vocab_size"):
            export(model=model, tp=tp, dp=8 // tp)


def test_a_layout_of_other_ranks_is_refused():
    with pytest.raises(SpecError, match="needs tp"):
        export(dp=4)


def test_an_option_that_says_what_the_module_does_is_taken():
    usual = {"attention": "flash", "cuda_graph": "none", "moment_dtype": "fp32"}
    assert settings(options=usual, **SHARDED)["COMPILE"] == "False"
    assert settings(options={"compile": True}, **SHARDED)["COMPILE"] == "True"


def test_the_runtime_searches_what_the_module_runs():
    rows = [Layout(dp=8), Layout(dp=4, tp=2), Layout(dp=4, pp=2), Layout(dp=4, cp=2)]
    broken = broken_rules(job_of(), LayoutTable.of(rows))
    assert [bool(rules) for rules in broken] == [False, False, True, True]
    assert RUNTIMES["fsdp2"].refuses(preset("deepseek-v3")) == "experts"


def test_every_setting_is_recorded():
    assert missing_flags(export(**SHARDED), recorded_flags("fsdp2")) == ()


@pytest.mark.parametrize(
    "name",
    ["a'''\nimport os\n", '"""', "x\\", "$(touch canary)", "\u2028import os", "# SETTINGS\n"],
)
def test_a_hostile_name_stays_a_comment(name):
    model = preset("llama3.1-8b").model_copy(update={"name": name})
    hostile, plain = (export(model=m, **SHARDED).files[0].text for m in (model, "llama3.1-8b"))
    assert ast.dump(ast.parse(hostile)) == ast.dump(ast.parse(plain))


def test_scripts_start_the_module_and_note_that_it_is_read_back():
    config = export(**SHARDED)
    text = LAUNCHERS["torchrun"](config, parse_cluster("1x8:h100-sxm")).text
    assert "-m train_fsdp2" in text
    assert "`plan check` reads it again" in text
