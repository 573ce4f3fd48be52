"""A plan in the words of projects over Megatron."""

import re

import pytest
import yaml

from tests import megatron_jobs as models
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes.compare import recorded_flags
from trainplan.planner.runtimes.key_tables import OTHERS, key_table
from trainplan.planner.runtimes.key_tables.lines import key_lines

LAYOUT = {
    "tp": 2,
    "pp": 2,
    "dp": 2,
    "sequence_parallel": True,
    "recompute": "selective",
    "recompute_modules": ("core_attn", "mlp"),
}


def stated(target, model=models.DENSE, **layout):
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=2048, global_batch_size=64),
        cluster=parse_cluster("1x8:h100-sxm"),
    )
    return key_lines(target, job, Layout(**LAYOUT | layout))


@pytest.mark.parametrize("target", OTHERS)
def test_options_of_a_table_are_those_of_megatron_lm_and_keys_are_plain(target):
    table = key_table(OTHERS[target])
    assert {*table.keys, *table.absent} <= recorded_flags("megatron-lm")
    assert re.fullmatch(r"[0-9a-f]{40}", table.commit)
    templates = [t for part in (table.keys, table.absent) for ts in part.values() for t in ts]
    assert all(re.fullmatch(r"\+?[a-z_0-9.]+=.+", template) for template in templates)


@pytest.mark.parametrize("target", OTHERS)
def test_every_project_is_told_the_degrees(target):
    text = "\n".join(stated(target).lines)
    for degree in ("tensor_model", "pipeline_model"):
        assert re.search(rf"{degree}_parallel_size\W+2", text)


def test_hydra_keys_are_shell_words():
    lines = stated("verl").lines
    assert "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2" in lines
    recompute = "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_modules"
    assert f"'{recompute}=[core_attn,mlp]'" in lines


def test_options_take_their_values_as_words():
    lines = stated("ms-swift").lines
    assert "--recompute_modules core_attn mlp" in lines
    assert "--sequence_parallel true" in lines


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ("all", "all-linear"),
        ("linear_qkv,o", "linear_qkv linear_proj"),
        ("mlp", "linear_fc2 linear_fc1"),
    ],
)
def test_adapters_are_options_of_ms_swift(modules, expected):
    trained = {"method": "lora", "rank": 8, "modules": tuple(modules.split(","))}
    model = ModelSpec.model_validate(models.DENSE.model_dump() | {"trained": trained})
    lines = stated("ms-swift", model).lines
    assert {"--tuner_type lora", "--lora_rank 8", f"--target_modules {expected}"} <= set(lines)
    assert "--tensor_model_parallel_size 2" in lines


def test_adapters_of_a_part_of_a_joined_matrix_are_refused():
    trained = {"method": "lora", "rank": 8, "modules": ("q", "o")}
    model = ModelSpec.model_validate(models.DENSE.model_dump() | {"trained": trained})
    with pytest.raises(UnsupportedError, match="name all of linear_proj, linear_qkv"):
        stated("ms-swift", model)


@pytest.mark.parametrize("target", ["primus", "flagscale"])
def test_a_small_number_is_one_to_yaml(target):
    found = yaml.safe_load("\n".join(stated(target).lines))
    (epsilon,) = {v for k, v in leaves(found) if k in ("norm_epsilon", "layernorm_epsilon")}
    assert epsilon == models.DENSE.norm_eps


def leaves(value, key=""):
    if isinstance(value, dict):
        for name, one in value.items():
            yield from leaves(one, name)
    else:
        yield key, value


def test_sections_of_a_file_are_yaml():
    config = yaml.safe_load("\n".join(stated("nemo-rl").lines))["policy"]
    assert config["megatron_cfg"]["tensor_model_parallel_size"] == 2
    assert config["megatron_cfg"]["recompute_modules"] == ["core_attn", "mlp"]
    assert config["megatron_cfg"]["optimizer"]["use_distributed_optimizer"] is True
    assert config["train_global_batch_size"] == 64


@pytest.mark.parametrize("target", ["primus", "flagscale", "llama-factory"])
def test_every_file_is_read_back(target):
    moe = stated(target, preset("qwen3-30b-a3b"), recompute="none", recompute_modules=())
    config = yaml.safe_load("\n".join(moe.lines))
    values = {**config, **config.get("model", {}), **config.get("system", {})}
    assert values["tensor_model_parallel_size"] == 2
    assert values["pipeline_model_parallel_size"] == 2
    assert values["expert_model_parallel_size"] == 1
    assert values["moe_token_dispatcher_type"] == "alltoall"
    assert (values.get("recompute_modules") or []) == []


def test_what_is_off_is_said_where_the_project_has_it_on():
    lines = stated("verl", tp=1, dp=4, sequence_parallel=False).lines
    assert "actor_rollout_ref.actor.megatron.sequence_parallel=false" in lines


def test_what_no_key_says_is_named():
    uneven = stated("nemo-rl", stages=stage_specs((15, 17)))
    assert "--pipeline-model-parallel-layout Et*15|t*17L" in uneven.lacking


@pytest.mark.parametrize("target", ["verl", "nemo-rl"])
def test_the_plan_of_reinforcement_learning_is_that_of_the_step_alone(target):
    assert any("the plan prices the training step alone" in note for note in stated(target).notes)
