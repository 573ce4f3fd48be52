"""Frozen layers of every mixer, and adapters beside each of their matrices."""

from typing import get_args

import pytest

from tests.conftest import SMALL_DENSE
from tests.unit.costmodel.blocks.test_mixers import DELTA, LENGTH, SSM, layer, model
from trainplan.costmodel.architecture.layers import LowRankSpec, Mixer, MlaSpec
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.trained import projections
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.trained import held_params
from trainplan.costmodel.model.adapters import adapted_matrices, matrices
from trainplan.costmodel.model.params import layer_params, router_params
from trainplan.costmodel.presets import preset, preset_names

RANK = 16
H, F = SMALL_DENSE.hidden_size, SMALL_DENSE.intermediate_size
SIDE = {"side_products": ((H, 32), (32, H))}
CASES = {mixer: model(mixer, feed_forward="mlp") for mixer in get_args(Mixer)} | {
    "side products": model("full_attention", **SIDE),
    "low rank": model("full_attention", low_rank=LowRankSpec(query_rank=64, output_rank=48)),
    "gated": model("full_attention", attention_output_gate="elementwise"),
    "latent": model(
        "full_attention",
        mla=MlaSpec(
            q_lora_rank=64,
            kv_lora_rank=32,
            qk_nope_head_dim=32,
            qk_rope_head_dim=16,
            v_head_dim=32,
        ),
    ),
}


def adapted(spec, *modules):
    fields = spec.model_dump() | {"trained": {"method": "lora", "rank": RANK, "modules": modules}}
    return ModelSpec.model_validate(fields)


def priced(spec):
    """A layer of the second kind, which a gradient reaches, under Megatron-Bridge."""
    return layer(spec, runtime="megatron-bridge")


@pytest.mark.parametrize("name", preset_names())
def test_matrices_of_a_layer_are_all_of_it_but_vectors_and_routers(name):
    for kind in preset(name).kinds:
        assert {matrix.projections[0] for matrix in matrices(kind)} == set(projections(kind))
        number = kind.moe.num_experts if kind.moe else 1
        own = sum(one.size * (number if one.experts else 1) for one in matrices(kind))
        router = router_params(kind, kind.moe) if kind.moe else 0
        rest = layer_params(kind) - own - router - kind.layer_weights
        width = 16 * kind.hidden_size + 8 * kind.intermediate_size
        if linear := kind.linear_attention:  # its convolutions
            keys = 2 * linear.num_key_heads * linear.key_head_dim
            values = linear.num_value_heads * linear.value_head_dim
            width += linear.conv_kernel * (keys + values)
        assert 0 <= rest <= width * (number if kind.moe and kind.moe.expert_bias else 1)


@pytest.mark.parametrize("name", CASES)
def test_every_matrix_of_every_mixer_may_have_an_adapter(name):
    spec = CASES[name]
    job = Job(
        model=adapted(spec, "all"),
        training=TrainingSpec(seq_length=LENGTH, global_batch_size=16),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="accelerate",
    )
    held = held_params(job, LayoutTable.of([Layout(dp=8)]))
    (kind,) = job.model.kinds
    each = sum(RANK * (one.inputs + one.outputs) for one in matrices(kind))
    assert held.trained.layers[0][0] == each


@pytest.mark.parametrize("name", CASES)
def test_frozen_weights_keep_less_and_take_less_time(name):
    """Adapters of a last product alone: all other weights lose their gradients and their inputs."""
    whole, frozen = priced(CASES[name]), priced(adapted(CASES[name], "down"))
    adapter = 2 * LENGTH * RANK
    assert 0 < frozen.saved_bytes[0] < whole.saved_bytes[0] + adapter
    assert frozen.backward.gemm[0] < whole.backward.gemm[0]
    assert frozen.weight[0] < whole.weight[0]
    dropped = sum(one.dropped_bytes[0] for one in frozen.modules)
    assert dropped <= frozen.saved_bytes[0]


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("linear_attention", DELTA.value_width),
        ("mamba", SSM.inner_width),
        ("convolution", H),
        ("none", 0),
        ("gated", SMALL_DENSE.num_attention_heads * SMALL_DENSE.head_dim),
    ],
)
def test_the_input_of_an_output_projection_is_kept_for_its_adapter_alone(name, columns):
    """Without one neither it nor the outputs of both norms are kept, nor the MLP's product."""
    halves = 1 if name == "none" else 2
    spared = priced(CASES[name]).saved_bytes - priced(adapted(CASES[name], "gate")).saved_bytes
    adapter = 2 * LENGTH * (H + RANK)
    assert spared[0] + adapter == pytest.approx(2 * LENGTH * (halves * H + F + columns))


@pytest.mark.parametrize(
    ("name", "modules", "inputs"),
    [
        ("linear_attention", ("mixer",), H + DELTA.value_width),
        ("mamba", ("in_proj",), H),
        ("convolution", ("out_proj",), H),
        ("side products", ("side",), H),
    ],
)
def test_adapters_of_a_mixer_keep_their_inputs_once(name, modules, inputs):
    bare = priced(adapted(CASES[name], "down"))
    both = priced(adapted(CASES[name], "down", *modules))
    spec = adapted(CASES[name], *modules)
    (kind,) = spec.kinds
    number = len(adapted_matrices(kind, joined=True))
    kept = both.saved_bytes - bare.saved_bytes
    assert kept[0] == pytest.approx(2 * LENGTH * (inputs + RANK * number))
