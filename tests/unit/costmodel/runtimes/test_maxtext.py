"""MaxText: weights cut over all ranks by a compiler, and its policy that keeps projections."""

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.questions import estimate

FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
POLICY = {"recompute": "selective", "recompute_modules": ("maxtext_save_qkv_proj",)}
JOB = Job(
    model=preset("llama3.1-8b"),
    training=TrainingSpec(seq_length=4096, global_batch_size=64),
    cluster=parse_cluster("8x8:h100-sxm"),
    runtime="maxtext",
)


def of(**layout):
    return estimate(JOB, Layout(**{"dp": 64, "zero_stage": 3, **layout}))


def activations(found):
    return found.memory.pipeline_ranks[0].activations_bytes


def test_the_policy_repeats_all_but_the_products_of_queries_keys_and_values():
    none, policy, full = of(), of(**POLICY), of(**FULL)
    assert none.step_time_s < policy.step_time_s < full.step_time_s
    share = (policy.step_time_s - none.step_time_s) / (full.step_time_s - none.step_time_s)
    assert 0.75 < share < 0.95


def test_the_policy_keeps_the_input_queries_keys_and_values_of_a_layer():
    model, tokens = JOB.model, 4096
    width = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
    more = activations(of(**POLICY)) - activations(of(**FULL))
    assert more == pytest.approx(2 * tokens * width * model.num_hidden_layers, rel=0.1)


def test_it_cuts_neither_layers_nor_tensors():
    for degree in ("tp", "pp", "cp"):
        with pytest.raises(SpecError, match="data_parallel_only"):
            of(**{degree: 2, "dp": 32})


def test_others_do_not_know_its_policy():
    job = JOB.model_copy(update={"runtime": "torchtitan"})
    with pytest.raises(SpecError, match="recompute_modules_exist"):
        estimate(job, Layout(dp=64, zero_stage=3, **POLICY))
