"""A model becomes the arguments of Megatron-LM that mean the same."""

import pytest

from tests.megatron_jobs import DEEPSEEK, DENSE, GPT3, MIXTRAL, export, flags, values
from trainplan.costmodel.architecture.model import ModelSpec, RopeScaling
from trainplan.costmodel.architecture.moe import MoeSpec, placed_layers
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset, preset_names
from trainplan.planner.launch.config import UserVariable
from trainplan.planner.questions.best_plan import notes
from trainplan.planner.runtimes import EXPORTERS


def test_a_dense_model_with_grouped_queries_has_its_dimensions():
    config = export()
    expected = {
        "--num-layers": "32",
        "--hidden-size": "4096",
        "--ffn-hidden-size": "14336",
        "--num-attention-heads": "32",
        "--num-query-groups": "8",
        "--kv-channels": "128",
        "--vocab-size": "128256",
        "--seq-length": "2048",
        "--max-position-embeddings": "8192",
        "--normalization": "RMSNorm",
        "--position-embedding-type": "rope",
        "--rotary-base": "500000",
        "--make-vocab-size-divisible-by": "128",
    }
    assert {flag: values(config, flag) for flag in expected} == {
        flag: (value,) for flag, value in expected.items()
    }
    assert flags(config) >= {
        "--group-query-attention",
        "--swiglu",
        "--disable-bias-linear",
        "--untie-embeddings-and-output-weights",
        "--bf16",
    }


def test_a_gpt3_keeps_biases_tied_embeddings_and_fused_gelu():
    config = export(GPT3)
    assert values(config, "--normalization") == ("LayerNorm",)
    assert values(config, "--position-embedding-type") == ("learned_absolute",)
    assert not flags(config) & {
        "--disable-bias-linear",
        "--untie-embeddings-and-output-weights",
        "--group-query-attention",
        "--swiglu",
        "--no-bias-gelu-fusion",
    }


def test_every_option_is_written_once():
    config = export(
        DEEPSEEK,
        "4x8:h100-sxm",
        pp=4,
        ep=8,
        recompute="selective",
        recompute_modules=("mla_up_proj", "moe_act"),
    )
    written = [argument.flag for argument in config.arguments]
    assert len(written) == len(set(written))


def test_deepseek_has_latent_attention_router_groups_and_prediction_layers():
    config = export(DEEPSEEK, "4x8:h100-sxm", pp=4, ep=8)
    assert flags(config) >= {
        "--multi-latent-attention",
        "--qk-layernorm",
        "--moe-router-enable-expert-bias",
        "--moe-grouped-gemm",
    }
    assert values(config, "--q-lora-rank") == ("1536",)
    assert values(config, "--moe-layer-freq") == ("([0]*3+[1]*58)",)
    assert values(config, "--moe-router-num-groups") == ("8",)
    assert values(config, "--moe-router-topk-scaling-factor") == ("2.5",)
    assert values(config, "--mtp-num-layers") == ("1",)
    assert values(config, "--rope-type") == ("yarn",)
    assert values(config, "--pipeline-model-parallel-layout") == ("Et*15|t*16|t*15|t*15mL",)
    assert "--group-query-attention" not in flags(config)


def test_experts_with_biases_turn_off_the_kernel_that_cannot_add_them():
    moe = MoeSpec(
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        router_bias=True,
        expert_bias=True,
    )
    biased = {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True}
    written = flags(export(DENSE.model_copy(update={"moe": moe} | biased)))
    assert "--no-bias-dropout-fusion" in written
    assert "--disable-bias-linear" not in written


@pytest.mark.parametrize(
    ("renormalised", "top_k", "first"), [(True, 2, False), (False, 2, True), (True, 1, True)]
)
def test_softmax_comes_before_the_choice_where_scores_are_not_renormalised(
    renormalised, top_k, first
):
    moe = MoeSpec(
        num_experts=8,
        num_experts_per_tok=top_k,
        moe_intermediate_size=64,
        norm_topk_prob=renormalised,
    )
    config = export(DENSE.model_copy(update={"moe": moe}))
    assert ("--moe-router-pre-softmax" in flags(config)) == first


@pytest.mark.parametrize(
    ("precision", "flag", "value"),
    [
        ("fp8", "--fp8-recipe", ("tensorwise",)),
        ("mxfp8", "--fp8-recipe", ("mxfp8",)),
        ("nvfp4", "--fp4-recipe", ("nvfp4",)),
        ("fp16", "--fp16", ()),
    ],
)
def test_the_precision_is_written(precision, flag, value):
    assert values(export(training={"precision": precision}), flag) == value


@pytest.mark.parametrize(
    ("precision", "written"),
    [
        ("fp8", {"--fp8-param-gather"}),
        ("mxfp8", {"--fp8-param-gather", "--reuse-grad-buf-for-mxfp8-param-ag"}),
        ("nvfp4", {"--fp4-param-gather"}),
        ("bf16", set()),
    ],
)
def test_weights_in_few_bits_alone_are_asked_for(precision, written):
    gathers = {"--fp8-param-gather", "--fp4-param-gather", "--reuse-grad-buf-for-mxfp8-param-ag"}
    options = RuntimeOptions(fp8_param_gather=True)
    config = export(training={"precision": precision}, options=options, zero_stage=1)
    assert flags(config) & gathers == written
    alongside = export(training={"precision": precision}, zero_stage=1)
    assert not flags(alongside) & gathers


@pytest.mark.parametrize(
    ("layout", "reason"),
    [({"zero_stage": 0}, "sharded optimizer"), ({"offload": {"optimizer": 1.0}}, "offloaded")],
)
def test_weights_in_few_bits_alone_need_a_sharded_optimizer_on_the_gpu(layout, reason):
    options = RuntimeOptions(fp8_param_gather=True)
    with pytest.raises(UnsupportedError, match=reason):
        export(training={"precision": "fp8"}, options=options, **{"zero_stage": 1, **layout})


def test_tokens_become_whole_steps():
    config = export(training={"tokens": 2048 * 64 * 10 + 1})
    assert values(config, "--train-iters") == ("11",)


def windowed(slides):
    """The dense model with windows in some layers."""
    mixers = ["sliding_attention" if one else "full_attention" for one in slides]
    layers = placed_layers(mixers, None)
    return ModelSpec.model_validate({**DENSE.model_dump(), "sliding_window": 128, **layers})


def test_windows_and_sinks_change_how_context_parallelism_communicates():
    window = windowed([i % 2 == 0 for i in range(32)])
    config = export(window, cp=2)
    assert values(config, "--window-size") == ("127,0",)
    assert values(config, "--window-attn-skip-freq") == ("2",)
    assert values(config, "--cp-comm-type") == ("a2a",)
    assert values(export(cp=2), "--cp-comm-type") == ("p2p",)
    sinks = DENSE.model_copy(update={"attention_sinks": True, "num_key_value_heads": 1})
    with pytest.raises(UnsupportedError, match="sinks"):
        export(sinks, cp=2)


def test_yarn_positions_are_a_kind_of_their_own_outside_latent_attention():
    yarn = DENSE.model_copy(update={"rope_scaling": RopeScaling(rope_type="yarn", factor=32.0)})
    config = export(yarn)
    assert values(config, "--position-embedding-type") == ("yarn",)
    assert values(config, "--rotary-scaling-factor") == ("32.0",)


def test_yarn_outside_latent_attention_writes_every_number():
    config = export(preset("gpt-oss-120b"))
    assert values(config, "--yarn-original-max-position-embeddings") == ("4096",)
    assert values(config, "--yarn-beta-fast") == ("32.0",)
    assert values(config, "--yarn-beta-slow") == ("1.0",)
    assert values(config, "--no-yarn-correction-range-round-to-int") == ()
    assert not [note for note in config.notes if "rope" in note]


def test_yarn_without_its_first_length_means_that_of_the_model():
    yarn = DENSE.model_copy(update={"rope_scaling": RopeScaling(rope_type="yarn", factor=32.0)})
    config = export(yarn)
    assert values(config, "--yarn-original-max-position-embeddings") == ("8192",)
    assert "--no-yarn-correction-range-round-to-int" not in flags(config)


@pytest.mark.parametrize(("name", "strength"), [("deepseek-v3", "1.0"), ("deepseek-v2", "0.707")])
def test_yarn_in_latent_attention_writes_the_strength_of_the_logits(name, strength):
    config = export(preset(name), pp=4)
    assert values(config, "--mscale") == (strength,)
    assert values(config, "--mscale-all-dim") == (strength,)
    assert not [flag for flag in flags(config) if "yarn" in flag]
    assert not [note for note in config.notes if "rope" in note]


@pytest.mark.parametrize(
    ("model", "change", "note"),
    [
        (DEEPSEEK, {"beta_fast": 16.0}, "rope_scaling.beta_fast = 16.0 has no option"),
        (DEEPSEEK, {"truncate": False}, "rope_scaling.truncate = False has no option"),
        (
            DEEPSEEK,
            {"original_max_position_embeddings": 8192},
            "rope_scaling.original_max_position_embeddings = 8192 has no option",
        ),
        (
            DENSE,
            {"rope_type": "llama3", "low_freq_factor": 2.0},
            "rope_scaling.low_freq_factor = 2.0 has no option",
        ),
    ],
)
def test_numbers_of_a_scaling_without_an_option_are_noted_where_the_runtime_differs(
    model, change, note
):
    usual = {"rope_type": "yarn", "factor": 40.0}
    if model is DEEPSEEK:
        usual["original_max_position_embeddings"] = 4096
    plain = RopeScaling(**usual | {"rope_type": change.get("rope_type", "yarn")})
    changed = RopeScaling(**usual | change)
    before = export(model.model_copy(update={"rope_scaling": plain}), "1x8:h100-sxm", pp=4).notes
    after = export(model.model_copy(update={"rope_scaling": changed}), "1x8:h100-sxm", pp=4).notes
    assert not [text for text in before if "rope" in text]
    assert [text for text in after if text.startswith(note)]


def test_gradients_are_accumulated_in_the_four_bytes_the_cost_model_counts():
    half = export(training={"precision": "fp16"})
    assert "--accumulate-allreduce-grads-in-fp32" in flags(half)


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_exported_or_its_notes_say_that_it_will_not_be(name):
    model = preset(name)
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=1024, global_batch_size=64),
        cluster=parse_cluster("1x8:h100-sxm"),
    )
    warnings = [note for note in notes(job) if note.startswith("megatron-lm cannot express")]
    if not warnings:
        assert EXPORTERS["megatron-lm"](job, Layout(dp=8)).arguments
        return
    [warning] = warnings
    assert warning.endswith(": `plan export` will refuse")
    with pytest.raises(UnsupportedError) as refusal:
        EXPORTERS["megatron-lm"](job, Layout(dp=8))
    reason = warning.removesuffix(": `plan export` will refuse")
    assert str(refusal.value).startswith(reason)


@pytest.mark.parametrize(
    ("name", "feature"),
    [("gemma2-9b", "norms in position 'both'"), ("gpt-neox-20b", "attention and MLP in parallel")],
)
def test_the_first_feature_without_an_option_is_what_is_refused(name, feature):
    with pytest.raises(UnsupportedError, match=f"cannot express {feature}"):
        export(preset(name))


def test_an_exporter_names_its_runtimes_sources_and_recorded_options():
    exporter = EXPORTERS["megatron-lm"]
    job = Job(
        model=DENSE,
        training=TrainingSpec(seq_length=2048, global_batch_size=64),
        cluster=parse_cluster("1x8:h100-sxm"),
    )
    assert exporter(job, Layout(dp=8)) == exporter.export(job, Layout(dp=8))
    assert exporter.source_patterns[0] == "megatron/training/arguments.py"
    assert exporter.recorded_flags == "megatron_lm/options.json"


def test_irregular_windows_are_listed_layer_by_layer():
    slides = [i not in (0, 3, 9, 30, 31) for i in range(32)]
    [pattern] = values(export(windowed(slides)), "--window-attn-skip-freq")
    assert [value == "1" for value in pattern.strip("[]").split(",")] == slides


@pytest.mark.parametrize(
    "feature",
    [
        {"norm_position": "post"},
        {"parallel_residual": True},
        {"attn_logit_softcapping": 50.0},
        {"final_logit_softcapping": 30.0},
        {"scale_embeddings": True},
        {"activation": "relu", "gated_mlp": False},
        {"activation": "gelu_tanh"},
        {"swiglu_limit": 7.0},
        {"mlp_bias": True},
        {"qk_norm": "full"},
        {"rope_theta": 10000.5},
        {"rope_scaling": RopeScaling(rope_type="longrope", factor=4.0)},
        {"embedding_size": 512},
        {"final_norm": False},
        {"qk_norm": "head", "norm": "layernorm"},
        {"qkv_bias": True, "attention_output_bias": True},
        {"attention_output_bias": True, "mlp_bias": True},
        {"mla": DEEPSEEK.mla, "qkv_bias": True},
        {"mla": DEEPSEEK.mla, "rope_scaling": RopeScaling(rope_type="llama3", factor=8.0)},
        {"rope_scaling": RopeScaling(rope_type="linear", factor=2.5)},
        {"rope_scaling": DEEPSEEK.rope_scaling, "num_nextn_predict_layers": 1},
        {"moe": MIXTRAL.moe.model_copy(update={"router_bias": True})},
        {
            "moe": MIXTRAL.moe.model_copy(
                update={"router_score_function": "sigmoid", "norm_topk_prob": False}
            )
        },
        {
            "moe": MIXTRAL.moe.model_copy(
                update={
                    "router_bias": True,
                    "expert_bias": True,
                    "shared_expert_intermediate_size": 64,
                }
            ),
            "qkv_bias": True,
            "attention_output_bias": True,
        },
    ],
)
def test_what_has_no_option_is_refused_by_name_with_a_way_out(feature):
    with pytest.raises(UnsupportedError, match="megatron-lm"):
        export(DENSE.model_copy(update=feature))


def test_the_user_supplies_paths_by_variable():
    config = export()
    assert values(config, "--tokenizer-model") == (UserVariable("TOKENIZER_MODEL"),)
    assert {v.name for v in config.required_environment} == {
        "MEGATRON_PATH",
        "TOKENIZER_MODEL",
        "DATA_PATH",
        "CHECKPOINT_PATH",
    }


def test_small_tensors_stay_on_the_device():
    """Below 128 KiB in 16 bits, as the source of the constant says."""
    written = export(DENSE, offload_modules=("core_attn", "attn_proj"), dp=8)
    assert values(written, "--min-offloaded-tensor-size") == ("65536",)


@pytest.mark.parametrize(
    ("modules", "graphed"),
    [((), ("attn", "moe_router", "moe_preprocess")), (("moe",), ("attn",))],
)
def test_a_graph_holds_no_router_that_is_recomputed(modules, graphed):
    """Source: Megatron-LM transformer_config.py:2862."""
    recompute = {"recompute": "selective", "recompute_modules": modules} if modules else {}
    options = RuntimeOptions(cuda_graph="partial", moe_dispatcher="alltoall")
    config = export(MIXTRAL, ep=8, zero_stage=1, options=options, **recompute)
    assert values(config, "--cuda-graph-modules") == graphed


@pytest.mark.parametrize(
    ("model", "usual"),
    [(MIXTRAL, "0.01"), (preset("gpt-oss-20b"), "0.01"), (DEEPSEEK, "0.0001")],
)
@pytest.mark.parametrize("stated", [None, 0.0, 0.001])
def test_the_loss_that_balances_has_the_weight_of_the_model(model, usual, stated):
    """The bias of gpt-oss is that of a linear layer, which balances nothing."""
    moe = model.moe.model_copy(update={"router_aux_loss_coef": stated})
    config = export(model.model_copy(update={"moe": moe}), ep=8)
    weight = float(usual) if stated is None else stated
    assert [float(one) for one in values(config, "--moe-aux-loss-coeff")] == [weight]
    (note,) = [one for one in config.notes if "loss that balances the experts" in one]
    assert note.startswith("assumed: " if stated is None else "the loss")
    assert f"{weight:g}" in note
