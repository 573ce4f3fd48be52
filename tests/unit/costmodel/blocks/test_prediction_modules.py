"""Multi-token-prediction modules of several layers, and of the same weights."""

import numpy as np
import pytest

from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.blocks.rows import row_blocks
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import block_params
from trainplan.costmodel.model.flops import matrix_params_per_token
from trainplan.costmodel.presets.presets import preset, preset_config

SUPER = preset("nemotron-3-super")
MOE, ATTENTION = "none+moe", "full_attention+none"


def candidates(model, **layout):
    cluster = parse_cluster("8x8:b200")
    training = TrainingSpec(seq_length=8192, global_batch_size=512, precision="bf16")
    job = Job(model=model, training=training, cluster=cluster, runtime="megatron-bridge")
    machine = machine_of(cluster, training.precision)
    table = LayoutTable.of([Layout(dp=64, ep=64, **layout)])
    return context_of(job, machine).with_table(table)


def with_modules(**fields):
    return SUPER.model_copy(update=fields)


def test_a_module_of_two_layers_is_one_of_each_and_what_all_modules_have():
    pair, one = with_modules(nextn_layers=(ATTENTION, MOE)), with_modules(nextn_layers=(MOE,))
    both, single = blocks(candidates(pair)), blocks(candidates(one))
    attention = both.layers[SUPER.kind_of_layer[SUPER.layers.index(ATTENTION)]]
    for name in ("forward", "backward"):
        added = getattr(both.mtp, name).total - getattr(single.mtp, name).total
        assert added == pytest.approx(getattr(attention, name).total)
    assert both.mtp.saved_bytes - single.mtp.saved_bytes == pytest.approx(attention.saved_bytes)


def test_what_a_module_recomputes_is_that_of_its_layers():
    dropping = {"recompute": "selective", "recompute_modules": ("core_attn", "moe_act")}
    rows = row_blocks(candidates(with_modules(nextn_layers=(ATTENTION, MOE)), **dropping))
    places = [SUPER.kind_of_layer[SUPER.layers.index(name)] for name in (ATTENTION, MOE)]
    assert rows.mtp.seconds == pytest.approx(sum(rows.layers[i].seconds for i in places))
    assert rows.mtp.dropped_bytes == pytest.approx(
        sum(rows.layers[i].dropped_bytes for i in places)
    )
    assert (rows.mtp.dropped_bytes > 0).all()


@pytest.mark.parametrize(("runtime", "one_price"), [("torchtitan", True), ("megatron-lm", False)])
def test_torchtitan_recomputes_its_layers_and_no_module_by_either_method(runtime, one_price):
    model = preset("deepseek-v3")
    cluster = parse_cluster("8x8:b200")
    training = TrainingSpec(seq_length=8192, global_batch_size=512, precision="bf16")
    job = Job(model=model, training=training, cluster=cluster, runtime=runtime)
    methods = {"uniform": 1, "block": model.num_hidden_layers}
    layouts = [
        Layout(dp=64, recompute="full", recompute_method=method, recompute_num_layers=number)
        for method, number in methods.items()
    ]
    table = LayoutTable.of(layouts)
    rows = row_blocks(context_of(job, machine_of(cluster, "bf16")).with_table(table))
    uniform, block = rows.mtp.seconds
    assert bool(uniform == block) is one_price
    assert bool(rows.mtp.saved_bytes[0] == rows.mtp.saved_bytes[1]) is one_price


def test_modules_of_the_same_weights_hold_them_once():
    two = {"num_nextn_predict_layers": 2, "nextn_layers": (ATTENTION, MOE)}
    found = {}
    for shared in (False, True):
        wanted = candidates(with_modules(**two, nextn_shared=shared))
        params = block_params(wanted.job, wanted.table)
        found[shared] = 2 * params.mtp, 2 * params.mtp_experts
    for alone, together in zip(found[False], found[True], strict=True):
        assert alone == pytest.approx(2 * together)
        assert np.all(together > 0)


def test_a_token_is_multiplied_with_the_weights_of_every_module():
    none, two = (
        matrix_params_per_token(with_modules(num_nextn_predict_layers=n, nextn_shared=True))
        for n in (0, 2)
    )
    h, moe = SUPER.hidden_size, SUPER.moe
    attention = h * 128 * (32 + 2 * 2) + 32 * 128 * h
    experts = 22 * 2 * moe.latent_size * moe.moe_intermediate_size + 2 * h * moe.latent_size
    shared, router = 2 * h * moe.shared_expert_intermediate_size, h * 512
    module = attention + experts + shared + router + 2 * h * h + h * SUPER.vocab_size
    assert two - none == 2 * module


def test_nemotrons_modules_are_read_from_their_pattern():
    assert (SUPER.nextn_layers, SUPER.nextn_shared) == ((ATTENTION, MOE), True)
    config = dict(preset_config("nemotron-3-super"))
    own = model_from_config(config | {"mtp_use_repeated_layer": False}, "own")
    assert own.nextn_shared is False
    listed = config | {"mtp_layers_block_type": ["attention", "moe"]}
    assert model_from_config(listed, "listed").nextn_layers == SUPER.nextn_layers
    assert model_from_config(config | {"num_nextn_predict_layers": 0}, "none").nextn_layers is None


def test_a_module_of_layers_that_the_model_has_not_is_refused():
    config = dict(preset_config("nemotron-3-super")) | {"mtp_hybrid_override_pattern": "*-"}
    with pytest.raises(
        UnsupportedError, match="'mtp_hybrid_override_pattern' has '-', which no layer"
    ):
        model_from_config(config, "other")


def test_layers_of_a_module_are_kinds_that_some_layer_is_of():
    with pytest.raises(ValueError, match="nextn_layers has 'wide', of which kind no layer is"):
        type(SUPER).model_validate(SUPER.model_dump() | {"nextn_layers": ("wide",)})
