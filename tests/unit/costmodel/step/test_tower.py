"""A tower on the first stage: its seconds, its bytes, and what freezing or recomputing saves."""

from dataclasses import astuple

import numpy as np
import pytest

from tests.conftest import TOWER
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import price
from trainplan.costmodel.towers.tower import encoder_params, projector_params, tower_params
from trainplan.planner.questions import estimate

WHOLE = TOWER.model_copy(update={"tensor_parallel": False})
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


@pytest.fixture(name="priced")
def _priced(make_job):
    """Price of a layout on eight GPUs with a tower, or none, every pipeline rank apart."""

    def make(tower, **layout):
        job = make_job("small-seeing", "1x8:h100-sxm", 32)
        job = job.model_copy(update={"model": job.model.model_copy(update={"tower": tower})})
        table = LayoutTable.of([Layout(**layout)])
        return price(
            context_of(job, machine_of(job.cluster, "bf16")).with_table(table), merged=False
        )

    return make


def first_rank(priced, name):
    return float(getattr(priced.memory, name)[0, 0])


def others(priced, name):
    return getattr(priced.memory, name)[1:, 0].tolist()


TERMS = ("weights", "gradients", "optimizer", "activations", "transients")


@pytest.mark.parametrize("frozen", ["none", "encoder", "all"])
def test_only_the_first_rank_holds_the_tower(priced, frozen):
    layout = {"pp": 2, "dp": 4, "zero_stage": 1}
    tower = WHOLE.model_copy(update={"frozen": frozen})
    seeing, blind = priced(tower, **layout), priced(None, **layout)
    for name in TERMS:
        assert others(seeing, name) == others(blind, name)
    held = encoder_params(WHOLE), projector_params(WHOLE)
    trained = {"none": sum(held), "encoder": held[1], "all": 0}[frozen]
    more = {name: first_rank(seeing, name) - first_rank(blind, name) for name in TERMS}
    assert more["weights"] == pytest.approx(2 * tower_params(WHOLE))
    assert more["gradients"] == pytest.approx(4 * trained)
    assert more["optimizer"] == pytest.approx(12 / 4 * trained)


def test_the_first_rank_keeps_the_tower_of_every_micro_batch_in_flight(priced):
    kept = []
    for pp in (1, 2, 4):
        layout = {"pp": pp, "dp": 8 // pp, "zero_stage": 1}
        seeing, blind = priced(WHOLE, **layout), priced(None, **layout)
        kept.append(first_rank(seeing, "activations") - first_rank(blind, "activations"))
    own = float(seeing.blocks.tower.block.saved_bytes[0])
    assert kept == pytest.approx([own, 2 * own, 4 * own])


def test_a_first_stage_without_layers_keeps_its_tower_all_the_same(priced):
    stages = [{"layers": 0}, {"layers": 6}]
    seeing = priced(WHOLE, pp=2, dp=4, zero_stage=1, stages=stages)
    own = float(seeing.blocks.tower.block.saved_bytes[0])
    assert first_rank(seeing, "activations") == pytest.approx(2 * own)


def test_of_several_chunks_the_first_is_counted_at_its_own_fullest_moment(priced):
    """Interleaved, two ranks of two chunks: four passes of the first, three when both are full."""
    layout = {"pp": 2, "vpp": 2, "dp": 4, "zero_stage": 1, "schedule": "interleaved"}
    stages = [{"layers": n} for n in (1, 2, 2, 1)]
    seeing, blind = (priced(tower, **layout, stages=stages) for tower in (WHOLE, None))
    own = float(seeing.blocks.tower.block.saved_bytes[0])
    more = first_rank(seeing, "activations") - first_rank(blind, "activations")
    assert more == pytest.approx(4 * own)


def test_a_frozen_tower_keeps_nothing_and_has_no_backward_pass(priced):
    layout = {"pp": 2, "dp": 4, "zero_stage": 1}
    blind = priced(None, **layout)
    frozen = priced(WHOLE.model_copy(update={"frozen": "all"}), **layout)
    trained = priced(WHOLE, **layout)
    assert first_rank(frozen, "activations") == first_rank(blind, "activations")
    assert frozen.seconds.embedding.backward[0] == blind.seconds.embedding.backward[0]
    assert frozen.seconds.embedding.forward[0] == trained.seconds.embedding.forward[0]
    projector = priced(WHOLE.model_copy(update={"frozen": "encoder"}), **layout)
    backward = [one.seconds.embedding.backward[0] for one in (frozen, projector, trained)]
    assert backward[0] < backward[1] < backward[2]


def test_layers_of_a_tower_cost_what_such_layers_of_a_decoder_cost(priced, make_job):
    """Without a window, with all else the same; four samples are as many sequences."""
    plain = WHOLE.model_copy(
        update={
            **{"window_patches": None, "full_attention_layers": (), "class_tokens": 0},
            **{"projectors": (), "merged_patches": 1},
        }
    )
    layout = Layout(dp=8, zero_stage=1)
    one, two = (
        priced(plain.model_copy(update={"num_hidden_layers": n}), **layout.model_dump())
        for n in (1, 2)
    )
    job = make_job("small-dense", "1x8:h100-sxm", 4 * 32, 1024)
    decoder = job.model.model_copy(
        update={
            **{"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8},
            **{"num_key_value_heads": 8, "gated_mlp": False, "norm": "layernorm"},
            **{"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True},
            **{"mixer": "bidirectional_attention", "activation": "gelu"},
            **{"position_embedding": "learned"},
        }
    )
    job = job.model_copy(update={"model": decoder})
    table = LayoutTable.of([layout.model_copy(update={"micro_batch_size": 4})])
    layer = blocks(context_of(job, machine_of(job.cluster, "bf16")).with_table(table)).layers[0]
    for name in ("forward", "backward"):
        towers = [getattr(made.blocks.tower.block, name).total[0] for made in (one, two)]
        assert towers[1] - towers[0] == pytest.approx(getattr(layer, name).total[0], rel=1e-9)
    saved = [made.blocks.tower.block.saved_bytes[0] for made in (one, two)]
    assert saved[1] - saved[0] == pytest.approx(layer.saved_bytes[0])


def test_twice_the_samples_are_twice_the_activations(priced):
    layout = {"dp": 8, "zero_stage": 1}
    kept = [
        priced(
            WHOLE.model_copy(update={"samples_per_sequence": samples}), **layout
        ).blocks.tower.block.saved_bytes[0]
        for samples in (2, 4)
    ]
    assert kept[1] == pytest.approx(2 * kept[0])


def test_full_recomputation_repeats_the_layers_of_the_tower_and_keeps_their_inputs(priced):
    layout = {"pp": 2, "dp": 4, "zero_stage": 1}
    none, full = priced(WHOLE, **layout), priced(WHOLE, **layout, **FULL)
    again = full.seconds.embedding.backward[0] - none.seconds.embedding.backward[0]
    assert again == pytest.approx(none.blocks.tower.block.recompute_forward.total[0])
    blind = priced(None, **layout, **FULL)
    kept = first_rank(full, "activations") - first_rank(blind, "activations")
    # two micro batches; padded windows of 64 in three layers of four, and the full layer
    inputs = 2 * 512 * 4 * (3 * 17 * 64 + 1025)
    outside = priced(WHOLE.model_copy(update={"num_hidden_layers": 4}), **layout)
    rest = outside.blocks.tower.recomputed_bytes[0] - inputs
    assert 0 < rest < 0.2 * outside.blocks.tower.block.saved_bytes[0]
    assert kept == pytest.approx(2 * (inputs + rest))


def test_a_tower_that_is_cut_is_cut_over_tensor_ranks(priced):
    layout = {"tp": 4, "dp": 2, "zero_stage": 1}
    cut, whole, blind = priced(TOWER, **layout), priced(WHOLE, **layout), priced(None, **layout)
    more = [first_rank(one, "weights") - first_rank(blind, "weights") for one in (cut, whole)]
    assert 0.25 < more[0] / more[1] < 0.4
    passes = [one.blocks.tower.block.forward for one in (cut, whole)]
    assert passes[0].gemm[0] < passes[1].gemm[0]
    assert passes[0].tp_comm[0] > passes[1].tp_comm[0] == 0


def test_layers_of_the_decoder_cost_the_same_to_the_bit(priced):
    layout = {"pp": 2, "dp": 4, "zero_stage": 1}
    seeing, blind = priced(WHOLE, **layout), priced(None, **layout)
    for name in ("forward", "backward", "weight"):
        one, other = (getattr(made.seconds.layers[0], name) for made in (seeing, blind))
        assert np.array_equal(one, other)
    assert seeing.seconds.head.forward.tolist() == blind.seconds.head.forward.tolist()


def test_the_terms_of_a_step_with_a_tower_add_up(make_job):
    job = make_job("frozen-eyes", "1x8:h100-sxm", 32)
    found = estimate(job, Layout(pp=2, dp=4, zero_stage=1, **FULL))
    assert sum(astuple(found.terms)) == pytest.approx(found.step_time_s, rel=1e-9)
