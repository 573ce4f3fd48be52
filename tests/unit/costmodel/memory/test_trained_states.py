"""Weights, gradients, states and activations where not every weight is trained."""

import numpy as np
import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.blocks.trained import made_weight_seconds
from trainplan.costmodel.candidates.context import context_of, of_kinds
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.trained import held_params, made_weight_bytes
from trainplan.costmodel.model.flops import (
    matrix_params_per_token,
    mixer_flop_per_token,
    trained_flop_per_token,
)
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.shards.cuts import remade_bytes
from trainplan.costmodel.step import price

H, F, HEADS, GROUPS, D, V = 1024, 4096, 8, 2, 128, 32_000
RANK = 16
SEPARATE = RANK * ((H + HEADS * D) + 2 * (H + GROUPS * D) + (HEADS * D + H) + 2 * (H + F) + (F + H))
"""One adapter beside each of q, k, v, o, gate, up and down."""
JOINED = RANK * ((H + (HEADS + 2 * GROUPS) * D) + (HEADS * D + H) + (H + 2 * F) + (F + H))
"""One beside q, k and v together, o, gate and up together, and down."""
LINEAR = H * (HEADS + 2 * GROUPS) * D + HEADS * D * H + 3 * H * F
LLAMA_65B = ModelSpec(
    name="llama-65b",
    num_hidden_layers=80,
    hidden_size=8192,
    intermediate_size=22_016,
    num_attention_heads=64,
    num_key_value_heads=64,
    head_dim=128,
    vocab_size=32_000,
    max_position_embeddings=2048,
)


def small(**fields):
    return ModelSpec(
        name="small",
        num_hidden_layers=4,
        hidden_size=H,
        intermediate_size=F,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        head_dim=D,
        vocab_size=V,
        max_position_embeddings=4096,
        **fields,
    )


def lora(*modules, method="lora"):
    return Trained(method=method, rank=RANK, modules=modules or ("all",))


def frozen(first, last):
    return Trained(method="frozen", layers=(first, last))


@pytest.fixture
def job_of(make_job):
    """(model, runtime) -> Job on eight H100."""

    def make(model, runtime="accelerate", cluster="1x8:h100-sxm", seq_length=2048):
        wanted = {"model": model, "runtime": runtime}
        return make_job("small-dense", cluster, 32, seq_length).model_copy(update=wanted)

    return make


def priced(job, **layout):
    table = LayoutTable.of([Layout(**layout)])
    return price(context_of(job, machine_of(job.cluster, "bf16")).with_table(table))


@pytest.mark.parametrize(("runtime", "each"), [("accelerate", SEPARATE), ("nemo", JOINED)])
def test_adapters_have_rank_times_inputs_and_outputs(job_of, runtime, each):
    job = job_of(small(trained=lora()), runtime)
    held = held_params(job, LayoutTable.of([Layout(dp=8)]))
    assert held.trained.layers[0][0] == each
    assert held.layers[0][0] == each + LINEAR + 2 * H
    assert held.trained.embedding[0] == held.trained.head[0] == 0


def test_of_joined_matrices_some_have_adapters_of_their_own(job_of):
    job = job_of(small(trained=lora("q", "v")), "megatron-bridge")
    held = held_params(job, LayoutTable.of([Layout(dp=8)]))
    assert held.trained.layers[0][0] == RANK * ((H + HEADS * D) + (H + GROUPS * D))


def test_either_half_of_an_adapter_is_cut_over_tensor_ranks(job_of):
    job = job_of(small(trained=lora()), "megatron-bridge")
    held = held_params(job, LayoutTable.of([Layout(tp=4, dp=2)]))
    assert held.trained.layers[0][0] == JOINED / 4


def test_ms_swift_cuts_the_half_at_the_cut_side_alone(job_of):
    """Of qkv, gate and up the second half, of the output and down projections the first."""
    job = job_of(small(trained=lora()), "megatron-lm")
    held = held_params(job, LayoutTable.of([Layout(dp=8), Layout(tp=4, dp=2)]))
    columns = (H + (HEADS + 2 * GROUPS) * D / 4) + (H + 2 * F / 4)
    rows = (HEADS * D / 4 + H) + (F / 4 + H)
    assert held.trained.layers[0].tolist() == [JOINED, RANK * (columns + rows)]


def test_experts_have_adapters_of_their_own_under_ms_swift(make_job):
    job = make_job("small-moe", "1x8:h100-sxm")
    model, moe = job.model, job.model.moe
    model = ModelSpec.model_validate(model.model_dump() | {"trained": lora("mlp").model_dump()})
    job = job.model_copy(update={"model": model, "runtime": "megatron-lm"})
    held = held_params(job, LayoutTable.of([Layout(dp=8, ep=2), Layout(dp=8, ep=4)]))
    kind = next(n for n, one in enumerate(model.kinds) if one.feed_forward == "moe")
    width, h, ups = moe.moe_intermediate_size, model.hidden_size, 1 + model.gated_mlp
    each = RANK * (2 * h + (ups + 1) * width)
    assert held.trained.experts[kind].tolist() == [each * moe.num_experts / ep for ep in (2, 4)]


def test_local_experts_of_a_rank_share_an_adapter(make_job):
    job = make_job("small-moe", "1x8:h100-sxm")
    model, moe = job.model, job.model.moe
    model = ModelSpec.model_validate(model.model_dump() | {"trained": lora("mlp").model_dump()})
    job = job.model_copy(update={"model": model, "runtime": "megatron-bridge"})
    held = held_params(job, LayoutTable.of([Layout(dp=8, ep=2), Layout(dp=8, ep=4)]))
    kind = next(n for n, one in enumerate(model.kinds) if one.feed_forward == "moe")
    width, h = moe.moe_intermediate_size, model.hidden_size
    ups = 2 if model.gated_mlp else 1
    assert held.trained.experts[kind].tolist() == [RANK * (2 * h + (ups + 1) * width)] * 2


def test_replicas_of_adapters_take_12_bytes_a_parameter(job_of):
    """16-bit weight and gradient, both moments in fp32, as of bitsandbytes' PagedAdamW32bit."""
    memory = priced(job_of(small(trained=lora())), dp=8, zero_stage=0).memory
    adapters = 4 * SEPARATE
    base = 4 * (LINEAR + 2 * H) + H + 2 * np.ceil(V / 128) * 128 * H
    assert memory.weights[0, 0] == 2 * (base + adapters)
    assert memory.gradients[0, 0] == 2 * adapters
    assert memory.optimizer[0, 0] == 8 * adapters


def test_fsdp_shards_frozen_weights_in_16_bits_and_adapters_in_32(job_of):
    memory = priced(job_of(small(trained=lora())), dp=8, zero_stage=3).memory
    adapters = 4 * SEPARATE
    base = 4 * (LINEAR + 2 * H) + H + 2 * np.ceil(V / 128) * 128 * H
    assert memory.weights[0, 0] == pytest.approx(2 * base / 8)
    assert memory.gradients[0, 0] == pytest.approx(4 * adapters / 8)
    assert memory.optimizer[0, 0] == pytest.approx(12 * adapters / 8)


def test_qlora_of_65_billion_has_the_states_of_its_paper(job_of):
    """Matrices in 4.127 bits, the rest in 16, adapters of rank 64 in 12 bytes each: 44 GB."""
    trained = Trained(method="qlora", rank=64, modules=("all",))
    model = LLAMA_65B.model_copy(update={"trained": trained})
    job = job_of(model, cluster="1x1:a6000", seq_length=512)
    memory = priced(
        job,
        zero_stage=0,
        recompute="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    ).memory
    states = (memory.weights + memory.gradients + memory.optimizer)[0, 0]
    assert states == pytest.approx(44.05e9, rel=0.001)
    assert memory.used[0] < 0.95 * 48 * 2**30


def test_leading_frozen_layers_run_forward_alone_and_keep_nothing(job_of):
    job = job_of(small(trained=frozen(0, 1)), "deepspeed")
    found = priced(job, dp=8, zero_stage=1)
    first, rest = job.model.kind_of_layer[0], job.model.kind_of_layer[-1]
    layers = found.seconds.layers
    assert layers[first].backward[0] == 0 < layers[first].forward[0]
    assert layers[first].forward[0] == layers[rest].forward[0]
    assert found.seconds.embedding.backward[0] == 0
    half = priced(job_of(small(), "deepspeed"), dp=8, zero_stage=1).memory
    assert found.memory.activations[0, 0] == half.activations[0, 0] / 2


def test_layers_without_a_backward_pass_keep_no_input_for_recomputation(job_of):
    full = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    some = priced(job_of(small(trained=frozen(0, 2)), "deepspeed"), dp=8, zero_stage=1, **full)
    every = priced(job_of(small(), "deepspeed"), dp=8, zero_stage=1, **full)
    assert some.memory.activations[0, 0] == every.memory.activations[0, 0] / 4
    kind = some.job.model.kind_of_layer[0]
    assert some.seconds.layers[kind].recompute_forward[0] == 0


def test_inner_frozen_layers_pass_a_gradient_and_have_none_of_their_own(job_of):
    job = job_of(small(trained=frozen(1, 2)), "deepspeed")
    found, full = (priced(one, dp=8, zero_stage=1) for one in (job, job_of(small(), "deepspeed")))
    inner = found.blocks.layers[job.model.kind_of_layer[1]]
    whole = full.blocks.layers[0]
    assert inner.weight[0] == 0
    assert inner.backward.gemm[0] < 0.6 * whole.backward.gemm[0]
    assert inner.backward.attention[0] == pytest.approx(whole.backward.attention[0], rel=0.1)
    assert 0 < inner.saved_bytes[0] < whole.saved_bytes[0]
    assert found.memory.optimizer[0, 0] < full.memory.optimizer[0, 0]


def test_sharded_frozen_weights_are_gathered_and_only_adapters_reduced(job_of):
    """Of few adapters hardly anything is left to reduce, but all weights are gathered twice."""
    found, full = (
        priced(job_of(model), dp=8, zero_stage=3) for model in (small(trained=lora("o")), small())
    )
    assert found.table.zero_stage[0] == 3
    assert found.memory.gradients[0, 0] < full.memory.gradients[0, 0] / 100
    assert found.memory.transients[0, 0] < full.memory.transients[0, 0]


def test_a_tied_table_is_frozen_at_both_ends(job_of):
    model = small(trained=frozen(0, 0), tie_word_embeddings=True)
    held = held_params(job_of(model, "deepspeed"), LayoutTable.of([Layout(dp=8)]))
    assert held.trained.embedding[0] == 0
    assert held.trained.head[0] == H, "the final norm"


def test_model_flops_leave_out_products_that_do_not_run():
    model = small()
    products = 2 * matrix_params_per_token(model)
    attention = mixer_flop_per_token(model, 2048)
    adapted = small(trained=lora())
    assert trained_flop_per_token(adapted, 2048) == 2 * products + 3 * attention
    head = 2 * H * V
    half = small(trained=frozen(0, 1))
    layers = (products - head) / 2
    expected = layers + attention / 2 + 3 * (layers + attention / 2 + head)
    assert trained_flop_per_token(half, 2048) == expected


def in_fp8(job_of, gpu="h200-sxm", **options):
    job = job_of(small(trained=lora("attention")), "nemo", f"1x8:{gpu}")
    training = job.training.model_copy(update={"precision": "fp8"})
    stated = RuntimeOptions(**options)
    return job.model_copy(update={"training": training, "options": stated})


ENDS = 2 * 2 * np.ceil(V / 128) * 128 * H + 2 * H
"""Bytes of table, output projection and last norm, which are in 16 bits."""


@pytest.mark.parametrize(("gpu", "kept", "copies"), [("h200-sxm", True, 2), ("b200", True, 1)])
def test_frozen_weights_in_fp8_have_a_transpose_where_products_need_one(job_of, gpu, kept, copies):
    memory = priced(in_fp8(job_of, gpu, fp8_transpose_cache=kept), dp=8, zero_stage=1).memory
    adapters = RANK * ((H + (HEADS + 2 * GROUPS) * D) + (HEADS * D + H))
    trained = 4 * 2 * adapters if gpu == "h200-sxm" else 4 * adapters
    assert memory.weights[0, 0] == pytest.approx(copies * 4 * (LINEAR + 2 * H) + ENDS + trained)


def test_a_transpose_that_is_not_kept_is_made_in_every_backward_pass(job_of):
    kept, made = (
        priced(in_fp8(job_of, fp8_transpose_cache=stated), dp=8, zero_stage=1)
        for stated in (True, None)
    )
    spared = kept.memory.weights - made.memory.weights
    assert spared[0, 0] == pytest.approx(4 * (LINEAR + 2 * H))
    machine = machine_of(in_fp8(job_of).cluster, "fp8")
    halves = LayoutTable.of([Layout(dp=8), Layout(tp=2, dp=4)])
    rows = context_of(in_fp8(job_of), machine).with_table(halves)
    assert made_weight_bytes(rows).tolist() == [H * F, H * F / 2]
    both, backward = made_weight_seconds(shapes(of_kinds(rows)[0]))
    assert not both.any()
    assert backward == pytest.approx(elementwise_seconds(machine, np.array([2, 1]) * LINEAR))


@pytest.mark.parametrize("precision", ["mxfp8", "nvfp4"])
def test_blockwise_copies_are_not_made_of_one_another(job_of, precision):
    job = in_fp8(job_of, "b200", fp8_transpose_cache=False)
    job = job.model_copy(
        update={"training": job.training.model_copy(update={"precision": precision})}
    )
    assert remade_bytes(job, traits_of(job)) == 0


def test_inputs_of_a_gated_silu_in_fp8_are_a_byte_each_less(job_of):
    stored, usual = (
        priced(in_fp8(job_of, activation_func_fp8_input_store=stated), dp=8, zero_stage=1)
        for stated in (True, None)
    )
    spared = usual.memory.activations - stored.memory.activations
    assert spared[0, 0] == pytest.approx(4 * 2048 * 2 * F)


def test_fsdp_shards_4_bit_weights_but_not_their_scales(job_of):
    """Per weight half a byte over the ranks; a byte of 64 and four of 16,384 on every rank."""
    job = job_of(small(trained=lora(method="qlora")))
    memory = priced(job, dp=8, zero_stage=3).memory
    matrices = (H * HEADS * D, *2 * (H * GROUPS * D,), HEADS * D * H, *3 * (H * F,))
    scales = sum(one // 64 + 4 * -(-one // 64 // 256) + 4 * 16 + 4 * 256 + 4 for one in matrices)
    others = 4 * 2 * 2 * H + 2 * H + 2 * 2 * np.ceil(V / 128) * 128 * H
    whole = 4 * LINEAR / 2 + others
    assert memory.weights[0, 0] == pytest.approx(whole / 8 + 4 * scales)


def test_a_layer_with_the_weights_of_an_earlier_one_has_its_adapters_too(job_of):
    again = {"name": "again", "own_weights": 0}
    kinds = {"layer_kinds": [{"name": "own"}, again], "layers": ["own", "again"] * 2}
    job = job_of(ModelSpec(**(small(trained=lora()).model_dump() | kinds)))
    held = held_params(job, LayoutTable.of([Layout(dp=8)]))
    assert sorted(one[0] for one in held.trained.layers) == [0, SEPARATE]
    with pytest.raises(ValueError, match="take no qlora"):
        ModelSpec(**(small(trained=lora(method="qlora")).model_dump() | kinds))


@pytest.mark.parametrize(
    ("runtime", "trained", "params"),
    [
        ("torch-eager", Trained(method="lora", rank=RANK, modules=("all",)), 4 * SEPARATE),
        ("accelerate", Trained(method="qlora", rank=RANK, modules=("all",)), 4 * SEPARATE),
        ("torch-eager", Trained(method="frozen", layers=(0, 1)), 2 * (LINEAR + 2 * H) + V * H + H),
    ],
)
def test_moments_in_8_bits_are_those_of_what_is_trained(make_job, runtime, trained, params):
    job = make_job("small-dense", "1x1:h100-sxm", 1, 1024, optimizer="adamw8bit")
    job = job.model_copy(update={"model": small(trained=trained), "runtime": runtime})
    adam = job.model_copy(
        update={"training": job.training.model_copy(update={"optimizer": OptimizerSpec()})}
    )
    table = LayoutTable.of([Layout()])
    one, other = (
        price(context_of(each, machine_of(each.cluster, "bf16")).with_table(table))
        for each in (job, adam)
    )
    saved = (other.memory.optimizer - one.memory.optimizer)[0, 0]
    assert saved == pytest.approx(params * (8 - 2 * (1 + 4 / 256)), rel=2e-3)
    assert 0 < one.optimizer[0] <= other.optimizer[0]
