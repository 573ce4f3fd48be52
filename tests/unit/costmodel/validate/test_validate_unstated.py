"""What a record leaves open, filled in from the defaults and recipes of its runtime."""

import pytest

from trainplan.costmodel.architecture.trained import adapted
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.layout.layout import stage_specs
from trainplan.costmodel.validate.cases.cases import Case, Skipped, case_of
from trainplan.costmodel.validate.cases.unstated import layers_by_cost

MLA = {"kv_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}


def run_of(runtime="megatron-lm", **changed):
    """A run of a small model on eight GPUs; `changed` replaces whole sections in part."""
    sections = {
        "model": {
            "num_layers": 24,
            "hidden_size": 2048,
            "intermediate_size": 4096,
            "num_attention_heads": 32,
            "head_dim": 64,
            "vocab_size": 50257,
            "gated_mlp": True,
        },
        "training": {"seq_length": 1024, "global_batch_size": 64, "precision": "bf16"},
        "cluster": {"gpu": "h100-sxm", "num_gpus": 8, "gpus_per_node": 8},
        "layout": {"tp": 1, "pp": 1, "micro_batch_size": 1},
    }
    for name, values in changed.items():
        sections[name] = {**sections[name], **values}
    return MeasuredRun.model_validate({"id": "one", "runtime": runtime, **sections})


def case(*args, **changed):
    found = case_of(run_of(*args, **changed))
    assert isinstance(found, Case)
    return found


def test_models_of_the_gpt_generation_drop_out_in_megatron_lm():
    assert case(model={"gated_mlp": False}).job.options.dropout is True
    assert case(model={"gated_mlp": True}).job.options.dropout is None
    assert case("nanotron", model={"gated_mlp": False}).job.options.dropout is None


@pytest.mark.parametrize(
    ("name", "gated", "activation"),
    [("OPT-350M", False, "relu"), ("GPT-Neo-2.7B", False, "gelu"), ("OPT-350M", True, "silu")],
)
def test_opt_has_relu_other_plain_models_gelu_and_gated_ones_silu(name, gated, activation):
    model = case(model={"name": name, "gated_mlp": gated}).job.model
    assert model.activation == activation


def test_a_model_of_experts_alone_needs_no_dense_width():
    moe = {"num_experts": 8, "top_k": 2, "expert_intermediate_size": 1024}
    case(model={"intermediate_size": None, "moe": moe})
    first = {"intermediate_size": None, "moe": moe | {"num_dense_layers": 1}}
    assert case_of(run_of(model=first)).reason == "incomplete"


def test_bridge_recipes_of_latent_attention_keep_moments_in_bf16():
    assert case("megatron-bridge", model={"mla": MLA}).job.options.moment_dtype == "bf16"
    assert case("megatron-bridge").job.options.moment_dtype is None
    assert case("megatron-lm", model={"mla": MLA}).job.options.moment_dtype is None


def test_offloaded_layers_are_read_from_the_words_of_the_record():
    offload = {"offload": "activation cpu offload, 20 layers"}
    assert case(layout=offload).job.options.offload_activation_layers == 20
    assert case().job.options.offload_activation_layers is None


@pytest.mark.parametrize(
    "changed",
    [
        {"training": {"task": "lora"}},
        {"layout": {"offload": "--rl-offload-optimizer-during-inference"}},
    ],
)
def test_training_of_something_else_is_skipped_with_the_reason(changed):
    found = case_of(run_of(**changed))
    assert isinstance(found, Skipped)
    assert found.reason == "other_task"


def test_adapters_of_a_run_are_those_of_its_recipe():
    task = {"training": {"task": "lora"}}
    assert case("megatron-bridge", **task).job.model.trained.text == "lora:rank=16,modules=q,k,v"
    assert case("nemo", **task).job.model.trained.rank == 32
    assert case("nemo").job.model.trained is None
    peft = case("accelerate", layout={"zero_stage": 3}, **task).job
    assert peft.model.trained.text == "lora:rank=8,modules=q,v"
    assert peft.options.adapter_dtype == "fp32"
    assert case("accelerate", layout={"zero_stage": 3}).job.options.adapter_dtype is None


def test_the_release_of_a_run_is_that_of_its_job():
    record = run_of().model_copy(update={"release": "nemo 26.04"})
    assert case_of(record).job.release == "nemo 26.04"
    assert case("megatron-lm").job.release is None


def test_inputs_of_activations_in_fp8_are_as_a_run_states():
    stored = {"activation_func_fp8_input_store": True}
    assert case("nemo", layout=stored).job.options.activation_func_fp8_input_store is True
    assert case("nemo").job.options.activation_func_fp8_input_store is None


@pytest.mark.parametrize(
    ("modules", "own"),
    [
        (["linear_qkv", "linear_proj"], ["q", "k", "v", "o"]),
        (["q_proj", "down_proj"], ["q", "down"]),
        (["attention"], ["q", "k", "v", "o"]),
        (["all-linear"], ["q", "k", "v", "o", "gate", "up", "down"]),
        (None, ["q", "k", "v", "o", "gate", "up", "down"]),
    ],
)
def test_a_run_states_rank_and_modules_in_its_runtimes_words(modules, own):
    adapters = {"rank": 16} | ({"modules": modules} if modules else {})
    task = {"training": {"task": "lora", "adapters": adapters}}
    found = case("accelerate", **task).job.model
    assert found.trained.rank == 16
    assert list(adapted(found.kinds[0])) == own


def test_a_run_with_adapters_of_no_matrix_is_skipped():
    adapters = {"rank": 16, "modules": ["in_proj"]}
    found = case_of(run_of("nemo", training={"task": "lora", "adapters": adapters}))
    assert isinstance(found, Skipped)
    assert "no layer has the module 'in_proj'" in found.detail


def test_a_share_of_single_operations_is_the_attention_core():
    shares = {"recompute": "partial", "recompute_fraction_per_stage": (0.3,)}
    assert case(layout=shares).layout.recompute_modules == ("core_attn",)
    nothing = {"recompute": "partial", "recompute_fraction_per_stage": (0.0,)}
    assert case(layout=nothing).layout.recompute == "none"


def test_torchtitan_knows_operations_only_whatever_the_record_calls_them():
    layout = {"recompute": "selective", "recompute_modules": ("core_attn",)}
    assert case("torchtitan", layout=layout).layout.recompute_modules == (
        "torchtitan_selective_op",
    )


def test_nanotron_gives_every_rank_an_equal_share_of_the_weights_in_products():
    """A layer weighs 41.9 million, the output projection 102.9: 26.45 layers on two ranks.

    The layer in which a rank's share ends is its own, so the first of two ranks has 14.
    """
    model = case("nanotron").job.model
    assert layers_by_cost(model, 1) == (24,)
    assert layers_by_cost(model, 2) == (14, 10)
    assert layers_by_cost(model, 4) == (7, 7, 6, 4)
    assert layers_by_cost(model, 8) == (4, 3, 3, 4, 3, 3, 4, 0)
    assert case("nanotron", layout={"pp": 2}).layout.stages == stage_specs((14, 10))


def test_bloom_has_a_norm_behind_its_table_and_no_position_table():
    model = case("megatron-deepspeed", model={"name": "BLOOM-tuning-h14336"}).job.model
    assert model.embedding_norm
    assert model.position_embedding == "alibi"
    assert not case(model={"name": "GPT-BLOOMS"}).job.model.embedding_norm


@pytest.mark.parametrize(("precision", "stand_in"), [("fp8", "h100-sxm"), ("nvfp4", "b200")])
def test_an_unknown_gpu_stands_for_one_that_multiplies_so(precision, stand_in):
    found = case(cluster={"gpu": None}, training={"precision": precision})
    assert found.job.cluster.groups[0].gpu == stand_in
    assert not found.timed


@pytest.mark.parametrize(
    ("training", "states"),
    [
        ({}, "o0"),
        ({"state_precision": "bf16"}, "bf16"),
        ({"precision_detail": "pure bf16: weights, gradients and Adam states in bf16"}, "bf16"),
        ({"precision_detail": "pure bf16", "state_precision": "o0"}, "o0"),
    ],
)
def test_a_record_states_what_states_are_kept_in(training, states):
    job = case("accelerate", training=training, layout={"zero_stage": 3}).job
    assert job.training.state_precision == states


def test_a_record_names_its_optimizer_and_what_updates_weights():
    job = case("accelerate", training={"optimizer": "adamw8bit", "fused_optimizer": True}).job
    assert (job.training.optimizer.name, job.options.fused_optimizer) == ("adamw8bit", True)
    silent = case("accelerate").job
    assert (silent.training.optimizer.name, silent.options.fused_optimizer) == ("adamw", False)
