"""Which runtime runs which layers, and how Megatron Core cuts them."""

import pytest

from tests.conftest import SMALL_DENSE, SMALL_MOE
from trainplan.costmodel.architecture.layers import (
    ConvolutionSpec,
    IndexerSpec,
    LinearAttentionSpec,
    SsmSpec,
)
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes.executes import (
    executes_layers,
    model_modules,
    recomputes_layers,
)
from trainplan.costmodel.runtimes.megatron.options import hybrids_exchange_alone
from trainplan.costmodel.runtimes.megatron.settings import OVERLAPPED_WITH_COMPUTE
from trainplan.costmodel.runtimes.megatron.state_rules import (
    STATE_RULES,
    low_precision_states_fill_blocks,
)
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.runtimes.traits.layers import OF_TRANSFORMERS, is_hybrid, uncommon_parts

SSM = SsmSpec(num_heads=32, head_dim=64, state_size=128, num_groups=8)
MAMBA_1 = SsmSpec(num_heads=2048, state_size=16, time_step_rank=64)
HEADS = {"num_key_heads": 8, "num_value_heads": 16, "key_head_dim": 64, "value_head_dim": 64}
DELTA = LinearAttentionSpec(**HEADS)
LIGHTNING = LinearAttentionSpec(**HEADS, rule="lightning", conv_kernel=None)
INDEXER = IndexerSpec(num_heads=8, head_dim=64, top_k=512)
PARTS = {
    "Mamba-2": {"mixer": "mamba", "ssm": SSM},
    "Mamba-1": {"mixer": "mamba", "ssm": MAMBA_1},
    "linear attention of rule gated_delta": {
        "mixer": "linear_attention",
        "linear_attention": DELTA,
    },
    "linear attention of rule lightning": {
        "mixer": "linear_attention",
        "linear_attention": LIGHTNING,
    },
    "sparse attention": {"mixer": "sparse_attention", "indexer": INDEXER},
    "chunked attention": {"mixer": "chunked_attention", "attention_chunk_size": 512},
    "convolution": {"mixer": "convolution", "convolution": ConvolutionSpec(kernel=3)},
    "attention and mamba": {"mixer": "attention_and_mamba", "ssm": SSM},
    "layers of a mixer or a feed-forward alone": {"feed_forward": "none"},
    "a gate on attention's output": {"attention_output_gate": "elementwise"},
    "a gate on attention's output by head": {"attention_output_gate": "head"},
}
RUN_BY_MEGATRON = {
    "Mamba-2",
    "linear attention of rule gated_delta",
    "sparse attention",
    "layers of a mixer or a feed-forward alone",
    "a gate on attention's output",
}
METHODS_ON = {
    "megatron-dualpipe": "megatron-bridge",
    "tutel": "megatron-lm",
    "fsmoe": "megatron-lm",
}
"""Published methods: another schedule or exchange in the layers of this runtime."""
OF_BRIDGE = {"a gate on attention's output by head"}  # its models/stepfun


def test_runtimes_that_train_the_model_s_own_code_have_its_layers():
    for name in ("accelerate", "deepspeed"):
        assert RUNTIMES[name].layers == OF_TRANSFORMERS
    for name in ("torchtitan", "fsdp2", "megatron-lm"):
        assert RUNTIMES[name].layers != OF_TRANSFORMERS


def job(runtime="megatron-lm", **fields):
    return Job(
        model=ModelSpec(**(SMALL_DENSE.model_dump() | fields)),
        training=TrainingSpec(seq_length=2048, global_batch_size=64),
        cluster=parse_cluster("8x8:h100-sxm"),
        runtime=runtime,
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_not_every_runtime_has_is_named(part):
    assert uncommon_parts(job(**PARTS[part]).model) == {part}


def test_experts_in_a_latent_width_are_named():
    moe = SMALL_MOE.moe.model_copy(update={"latent_size": 256})
    model = SMALL_MOE.model_copy(update={"moe": moe})
    assert uncommon_parts(model) == {"experts in a latent width"}
    assert uncommon_parts(SMALL_MOE) == uncommon_parts(SMALL_DENSE) == frozenset()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_without_such_layers_refuses_them(runtime):
    megatron, base = {"megatron-lm", "megatron-bridge"}, METHODS_ON.get(runtime, runtime)
    nemo = {"Mamba-2", "layers of a mixer or a feed-forward alone"}
    rule = executes_layers(RUNTIMES[runtime])
    assert RUNTIMES[runtime].name in rule.says
    for part, fields in PARTS.items():
        runs = part in RUN_BY_MEGATRON if base in megatron else runtime == "nemo" and part in nemo
        runs = runs or (base == "megatron-bridge" and part in OF_BRIDGE)
        if RUNTIMES[runtime].layers == OF_TRANSFORMERS:
            runs = part != "sparse attention"
        broken = rule.broken(job(runtime, **fields), LayoutTable.of([Layout(), Layout(tp=2)]))
        assert list(broken) == [not runs] * 2, part


@pytest.mark.parametrize(
    ("fields", "layout", "broken"),
    [
        (PARTS["Mamba-2"], {"tp": 8}, set()),
        (PARTS["Mamba-2"], {"tp": 16}, {"tp_divides_state_heads"}),
        (PARTS["Mamba-2"], {"tp": 4, "cp": 8}, set()),
        (PARTS["Mamba-2"], {"tp": 8, "cp": 8}, {"cp_divides_state_heads"}),
        (PARTS["linear attention of rule gated_delta"], {"tp": 4, "cp": 2}, set()),
        (
            PARTS["linear attention of rule gated_delta"],
            {"tp": 4, "cp": 4},
            {"linear_heads_are_divided"},
        ),
        ({}, {"tp": 16, "cp": 4}, set()),
    ],
)
def test_megatron_gives_every_rank_whole_heads_and_groups(fields, layout, broken):
    table = LayoutTable.of([Layout(**layout)])
    found = {rule.name for rule in STATE_RULES if rule.broken(job(**fields), table).any()}
    assert found == broken


@pytest.mark.parametrize(
    ("precision", "heads", "broken"), [("fp8", 32, 0), ("fp8", 24, 1), ("bf16", 24, 0)]
)
def test_low_precision_needs_whole_blocks_of_projected_columns(precision, heads, broken):
    ssm = SSM.model_copy(update={"num_heads": heads})  # 2 x 64 x heads + 2,048 + heads columns
    one = job(mixer="mamba", ssm=ssm)
    training = one.training.model_copy(update={"precision": precision})
    found = low_precision_states_fill_blocks.broken(
        one.model_copy(update={"training": training}), LayoutTable.of([Layout()])
    )
    assert found == broken


def test_a_model_without_attention_has_no_core_to_recompute():
    assert "core_attn" not in model_modules(job(**PARTS["Mamba-2"]).model)
    assert "core_attn" in model_modules(job().model)


def test_hybrid_models_exchange_tokens_of_experts_alone():
    wanted = RuntimeOptions(overlap_moe_a2a=True)
    moe = {"moe": SMALL_MOE.moe, "feed_forward": "moe"}
    for fields, hybrid in (
        (moe, False),
        (moe | PARTS["Mamba-2"], True),
        (moe | {"mixer": "none"}, True),
    ):
        one = job(**fields)
        assert is_hybrid(one.model) == hybrid
        with_option = one.model_copy(update={"options": wanted})
        table = LayoutTable.of([Layout(ep=2, dp=8)])
        assert hybrids_exchange_alone.broken(with_option, table) == hybrid
        assert not hybrids_exchange_alone.broken(one, table)
        assert bool(OVERLAPPED_WITH_COMPUTE.lacks(one)) == hybrid


@pytest.mark.parametrize(
    ("pp", "vpp", "every", "broken"),
    [(2, 2, 3, False), (2, 2, 4, True), (2, 1, 4, False), (1, 1, 8, False), (2, 2, 2, False)],
)
def test_every_kth_layer_is_recomputed_alike_on_all_virtual_stages(pp, vpp, every, broken):
    """24 layers: 6 of each of 4 stages, where every fourth is in some of them twice."""
    rule = recomputes_layers(RUNTIMES["torchtitan"])[0]
    layout = Layout(
        pp=pp,
        vpp=vpp,
        dp=64 // pp,
        schedule="interleaved" if vpp > 1 else "1f1b",
        recompute="full",
        recompute_method="block",
        recompute_num_layers=every,
    )
    found = rule.broken(job("torchtitan", num_hidden_layers=24), LayoutTable.of([layout]))
    assert found.tolist() == [broken]


@pytest.mark.parametrize("mixer", ["chunked attention", "sparse attention", "attention and mamba"])
def test_every_mixer_that_attends_has_a_core_to_recompute(mixer):
    assert "core_attn" in model_modules(job(**PARTS[mixer]).model)
