"""Layers that are no attention with a feed-forward half, as arguments of Megatron-LM."""

import pytest

from tests.megatron_jobs import DENSE, MIXTRAL, export, flags, values
from trainplan.costmodel.architecture.layers import (
    IndexerSpec,
    LinearAttentionSpec,
    SsmSpec,
    listed_kinds,
)
from trainplan.costmodel.architecture.model import MlaSpec, ModelSpec
from trainplan.costmodel.base.errors import UnsupportedError

PATTERN = "MEM*ME-M"
HALVES = {
    "M": ("mamba", "none"),
    "E": ("none", "moe"),
    "*": ("full_attention", "none"),
    "-": ("none", "mlp"),
}
SSM = SsmSpec(num_heads=64, head_dim=64, state_size=128, num_groups=8)
DELTA = LinearAttentionSpec(
    num_key_heads=16, num_value_heads=32, key_head_dim=128, value_head_dim=64
)


def of(base, mixers, feed_forwards, **fields):
    listed = listed_kinds(mixers, feed_forwards)
    return ModelSpec(**(base.model_dump() | {"num_hidden_layers": len(mixers)} | fields | listed))


HYBRID = of(MIXTRAL, *zip(*(HALVES[sign] for sign in PATTERN), strict=True), ssm=SSM)
BOTH_HALVES = of(DENSE, ["mamba", "full_attention"] * 2, ["mlp"] * 4, ssm=SSM)


def test_a_hybrid_model_is_a_pattern_of_a_script_of_its_own():
    config = export(HYBRID)
    assert config.entry_point.file == "pretrain_hybrid.py"
    assert values(config, "--hybrid-layer-pattern") == (PATTERN,)
    assert values(config, "--spec")[1] == "hybrid_stack_spec"
    assert values(config, "--mamba-num-heads") == ("64",)
    assert values(config, "--mamba-head-dim") == ("64",)
    assert values(config, "--mamba-state-dim") == ("128",)
    assert values(config, "--mamba-num-groups") == ("8",)
    assert not flags(config) & {"--num-layers", "--moe-layer-freq"}


def test_stages_of_a_hybrid_model_end_at_bars():
    config = export(HYBRID, pp=2, vpp=2, schedule="interleaved")
    assert values(config, "--hybrid-layer-pattern") == ("ME|M*|ME|-M",)
    apart = {"--num-virtual-stages-per-pipeline-rank", "--pipeline-model-parallel-layout"}
    assert not flags(config) & apart


def test_a_layer_of_both_halves_is_two_signs():
    config = export(BOTH_HALVES, pp=2)
    assert values(config, "--hybrid-layer-pattern") == ("M-*-|M-*-",)


def test_prediction_layers_follow_the_pattern():
    model = HYBRID.model_copy(update={"num_nextn_predict_layers": 2})
    config = export(model)
    assert values(config, "--hybrid-layer-pattern") == (f"{PATTERN}/M/M",)
    assert "--mtp-num-layers" not in flags(config)


def test_recomputing_some_layers_of_two_signs_is_refused():
    some = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 1}
    with pytest.raises(UnsupportedError, match="counts both halves"):
        export(BOTH_HALVES, **some)
    export(HYBRID, **some)
    export(BOTH_HALVES, **(some | {"recompute_method": "uniform"}))


def test_linear_attention_is_listed_layer_by_layer_with_its_sizes():
    mixers = ["linear_attention"] * 3 + ["full_attention"]
    gate = {"linear_attention": DELTA, "attention_output_gate": "elementwise"}
    config = export(of(DENSE, mixers, ["mlp"] * 4, **gate))
    assert config.entry_point.file == "pretrain_gpt.py"
    assert values(config, "--experimental-attention-variant") == ("gdn",)
    assert values(config, "--linear-attention-freq") == ("[1,1,1,0]",)
    assert values(config, "--linear-num-key-heads") == ("16",)
    assert values(config, "--linear-num-value-heads") == ("32",)
    assert values(config, "--linear-key-head-dim") == ("128",)
    assert values(config, "--linear-value-head-dim") == ("64",)
    assert "--attention-output-gate" in flags(config)


def sparse(mixers, **fields):
    latent = MlaSpec(
        q_lora_rank=512, kv_lora_rank=256, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
    )
    indexer = IndexerSpec(num_heads=16, head_dim=128, top_k=512)
    sizes = {"mla": latent, "indexer": indexer, "num_key_value_heads": 32}
    return of(DENSE, mixers, ["mlp"] * len(mixers), **sizes, **fields)


def test_sparse_attention_has_its_indexer():
    config = export(sparse(["sparse_attention"] * 4))
    assert values(config, "--experimental-attention-variant") == ("dsa",)
    assert values(config, "--dsa-indexer-n-heads") == ("16",)
    assert values(config, "--dsa-indexer-head-dim") == ("128",)
    assert values(config, "--dsa-indexer-topk") == ("512",)


@pytest.mark.parametrize(
    "model",
    [
        sparse(["sparse_attention", "full_attention"]),
        sparse(["sparse_attention"] * 2, shares_index=True),
    ],
)
def test_sparse_attention_of_some_layers_is_refused(model):
    with pytest.raises(UnsupportedError, match="indexer of its own"):
        export(model)


def test_experts_in_a_latent_width_say_it():
    moe = MIXTRAL.moe.model_copy(update={"latent_size": 1024})
    assert values(export(MIXTRAL.model_copy(update={"moe": moe})), "--moe-latent-size") == ("1024",)


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ({"ssm": SSM.model_copy(update={"conv_kernel": 3})}, "convolution over 3 tokens"),
        ({"ssm": SSM.model_copy(update={"output_bias": True})}, "biases of its projections"),
        ({"ssm": SSM.model_copy(update={"gated_norm": False})}, "without a gated norm"),
        ({"ssm": SsmSpec(num_heads=64, state_size=16, time_step_rank=4)}, "Mamba-1"),
    ],
)
def test_mamba_that_has_no_option_is_refused_by_name(fields, written):
    with pytest.raises(UnsupportedError, match=written):
        export(HYBRID.model_copy(update=fields))


def test_other_rules_of_linear_attention_are_refused_by_name():
    lightning = {"rule": "lightning", "conv_kernel": None}
    linear = LinearAttentionSpec(**(DELTA.model_dump() | lightning))
    model = of(DENSE, ["linear_attention"] * 2, ["mlp"] * 2, linear_attention=linear)
    with pytest.raises(UnsupportedError, match="linear attention of rule lightning"):
        export(model)
