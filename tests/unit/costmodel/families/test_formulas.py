"""Sizes of families by formulas, and layers that have the weights of an earlier one."""

import numpy as np
import pytest

from tests.golden.composites import recorded as composites
from tests.golden.decoder_counts import recorded
from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.reading import model_from_config, read_config
from trainplan.costmodel.families.tables.formulas import value_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.states import block_params, rank_params
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.pipeline.ranks import ranks_of

FILE = HfConfig("x", "x", {"a": 7, "b": 2, "ratio": 2.5, "on": True, "several": [3, 4], "none": 0})


@pytest.mark.parametrize(
    ("formula", "value"),
    [("a // b * b", 6), ("a * (b - 1) + 3", 10), ("several[1] * on", 4), ("ratio * b", 5)],
)
def test_a_formula_is_of_fields_of_the_file(formula, value):
    assert value_of(FILE, formula) == value


@pytest.mark.parametrize("formula", ["a // none", "several[2]", "missing + 1", "several + 1"])
def test_a_formula_that_is_no_size_is_refused(formula):
    with pytest.raises(SpecError):
        value_of(FILE, formula)


def small(name):
    return next(one for one in recorded() if (one.model_type, one.variant) == (name, "small"))


REPEATED = ("zamba", "zamba2")


@pytest.mark.parametrize("name", REPEATED)
def test_a_rank_holds_shared_weights_once(name):
    one = small(name)
    model = model_from_config(one.config, name)
    assert any(kind.own_weights is not None for kind in model.kinds)
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=512, global_batch_size=8),
        cluster=parse_cluster("1x8:h100-sxm"),
    )
    table = LayoutTable.of([Layout(dp=8)])
    found = rank_params(ranks_of(job, table, merged=False), block_params(job, table))
    padded = np.ceil(model.vocab_size / 128) * 128 - model.vocab_size
    assert found.shared[0, 0] == one.parameters + padded * model.hidden_size


DORY = {
    "model_type": "dory",
    "hidden_size": 96,
    "intermediate_size": 176,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 131_072,
    "max_position_embeddings": 8192,
    "sliding_window": 1024,
    "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp"] * 2,
    "n_input_layers": 2,
    "n_recurrent_layers": 4,
    "n_output_layers": 2,
    "n_recurrent_loops": 2,
}


def test_a_loop_adds_layers_without_weights():
    """25,674,880: DoryForCausalLM of transformers 5.24 on the meta device."""
    for times in (1, 2, 5):
        model = model_from_config({**DORY, "n_recurrent_loops": times}, "x")
        assert model.num_hidden_layers == 8 + 4 * (times - 1)
        assert num_parameters(model) == 25_674_880


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["sliding_attention"] * 8},
        {"layer_types": None},
        {"layer_types": ["other"] * 8},
        {"n_recurrent_loops": 0},
        {"n_recurrent_loops": 10**9},
    ],
)
def test_a_loop_without_its_sizes_is_refused(changes):
    with pytest.raises(PlanError, match=r"layer_types|n_recurrent_loops"):
        model_from_config({**DORY, **changes}, "x")


def test_norms_of_heads_follow_a_word_of_the_file():
    config = composites()["molmo2"]["config"]
    for word, norm in (("qwen3", "head"), ("olmo", "full")):
        text = {**config["text_config"], "qk_norm_type": word}
        assert model_from_config({**config, "text_config": text}, "x").qk_norm == norm
    text = {**config["text_config"], "qk_norm_type": "other"}
    with pytest.raises(SpecError, match=r"qk_norm_type.*qwen3, olmo"):
        model_from_config({**config, "text_config": text}, "x")


STEP = {
    "model_type": "step3p5",
    "vocab_size": 128_815,
    "hidden_size": 96,
    "intermediate_size": 176,
    "num_hidden_layers": 6,
    "num_nextn_predict_layers": 1,
    "num_attention_heads": 8,
    "num_attention_groups": 4,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "moe_num_experts": 10,
    "moe_top_k": 2,
    "moe_intermediate_size": 56,
    "share_expert_dim": 40,
    "moe_layers_enum": "2,3,4,5",
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"] * 2
    + ["sliding_attention"],
    "sliding_window": 512,
    "attention_other_setting": {"num_attention_heads": 12},
    "rope_theta": [1e4] * 7,
}


def test_step_is_read_as_it_is_published():
    """25,806,816: Step3p7ForConditionalGeneration of transformers 5.24, its text part."""
    model = model_from_config(STEP, "x")
    assert num_parameters(model) == 25_806_816
    assert model.moe_layers == (False, False, True, True, True, True)
    assert {kind.num_attention_heads for kind in model.kinds} == {8, 12}


def test_what_is_not_priced_of_a_family_is_noted():
    assert any("recurrence" in note for note in read_config(small("rwkv").config, "x").notes)
