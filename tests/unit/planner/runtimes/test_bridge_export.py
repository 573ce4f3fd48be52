"""Megatron-Bridge: arguments of Megatron-LM become keys of its configuration."""

import ast

import pytest

from tests import megatron_jobs as models
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.presets.presets import preset, preset_names
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.compare import missing_flags, recorded_flags
from trainplan.planner.runtimes.key_tables import key_table

GOLDEN = {
    "model.num_layers": "32",
    "model.seq_length": "1024",
    "dataset.seq_length": "1024",
    "model.activation_func": "silu",
    "model.gated_linear_unit": "true",
    "model.add_bias_linear": "false",
    "model.share_embeddings_and_output_weights": "false",
    "model.tensor_model_parallel_size": "2",
    "model.sequence_parallel": "true",
    "model.pipeline_model_parallel_size": "2",
    "model.virtual_pipeline_model_parallel_size": "4",
    "model.context_parallel_size": "1",
    "model.bias_activation_fusion": "true",
    "model.apply_rope_fusion": "true",
    "model.cross_entropy_loss_fusion": "true",
    "model.cross_entropy_fusion_impl": "te",
    "comm_overlap.tp_comm_overlap": "true",
    "comm_overlap.overlap_grad_reduce": "true",
    "mixed_precision.grad_reduce_in_fp32": "false",
    "train.micro_batch_size": "1",
    "train.global_batch_size": "64",
    "ddp.use_distributed_optimizer": "true",
}


def exported(model=models.DENSE, cluster="1x8:h100-sxm", precision="bf16", options=None, **layout):
    gpus = parse_cluster(cluster).num_gpus
    used = layout.get("tp", 1) * layout.get("pp", 1) * layout.get("cp", 1)
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=1024, global_batch_size=64, precision=precision),
        cluster=parse_cluster(cluster),
        runtime="megatron-bridge",
        options=RuntimeOptions(**(options or {})),
    )
    return EXPORTERS["megatron-bridge"](job, Layout(**{"dp": gpus // used} | layout))


def spelled_out(name, **changes):
    """A preset that no bridge builds, as nothing says its family."""
    return preset(name).model_copy(update={"model_type": None} | changes)


def keys(config):
    return dict(config.settings)


def test_a_plan_is_written_as_keys():
    config = exported(tp=2, pp=2, vpp=4, schedule="interleaved", sequence_parallel=True)
    assert {key: keys(config)[key] for key in GOLDEN} == GOLDEN
    assert all(argument.assigned for argument in config.arguments)
    script = LAUNCHERS["torchrun"](config, parse_cluster("1x8:h100-sxm")).text
    assert "  model.tensor_model_parallel_size=2\n" in script
    assert "-m bridge_recipe" in script


def test_no_key_is_written_twice():
    config = exported(tp=2, pp=2, vpp=4, schedule="interleaved", sequence_parallel=True)
    written = [argument.flag for argument in config.arguments]
    assert len(written) == len(set(written))


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8"])
@pytest.mark.parametrize("name", preset_names())
def test_every_preset_of_the_runtime_is_written_in_recorded_keys(name, precision):
    model = preset(name)
    if RUNTIMES["megatron-bridge"].refuses(model):
        with pytest.raises(UnsupportedError):
            exported(model)
        return
    config = exported(model, precision=precision)
    assert missing_flags(config, recorded_flags("megatron-bridge")) == ()


def test_keys_of_the_table_are_recorded():
    table = key_table("megatron_bridge")
    parts = (table.keys, table.latent, table.absent, table.latent_absent)
    templates = (t for part in parts for texts in part.values() for t in texts)
    assert {t.partition("=")[0] for t in templates} <= recorded_flags("megatron-bridge")


def test_the_recipe_is_python_that_knows_latent_attention_and_unlike_layers():
    dense, latent = (exported(model).files[0].text for model in (models.DENSE, models.DEEPSEEK))
    assert ast.parse(dense)
    assert ast.parse(latent)
    assert "recipe.model = GPTModelProvider()" in dense
    assert "recipe.model = MLAModelProvider(transformer_layer_spec=layers)" in latent


def test_unlike_layers_are_a_list():
    assert keys(exported(models.DEEPSEEK))["model.moe_layer_freq"] == f"[{'0,' * 3}{'1,' * 57}1]"


def test_uneven_stages_are_a_quoted_text_with_their_number():
    stages = stage_specs((7, 9, 8, 8))
    written = keys(exported(pp=2, vpp=2, schedule="interleaved", stages=stages))
    assert written["model.pipeline_model_parallel_layout"] == '"Et*7|t*9|t*8|t*8L"'
    assert written["model.virtual_pipeline_model_parallel_size"] == "2"


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp8", {"mixed_precision.fp8": "hybrid", "mixed_precision.fp8_param_gather": "true"}),
        ("mxfp8", {"mixed_precision.reuse_grad_buf_for_mxfp8_param_ag": "true"}),
        ("nvfp4", {"mixed_precision.fp4": "e2m1", "mixed_precision.fp4_param_gather": "true"}),
        ("fp16", {"mixed_precision.fp16": "true", "mixed_precision.bf16": "false"}),
    ],
)
def test_weights_of_few_bits_are_gathered_as_they_are(precision, expected):
    written = keys(exported(precision=precision))
    assert {key: written.get(key) for key in expected} == expected


def test_attention_in_fp8_has_a_key_of_its_own():
    key, options = "mixed_precision.fp8_dot_product_attention", {"fp8_attention": True}
    assert keys(exported(precision="mxfp8", options=options))[key] == "true"
    assert key not in keys(exported(precision="mxfp8"))


def test_what_is_kept_in_fp8_has_keys_of_its_own():
    stored = {"activation_func_fp8_input_store": True}
    written = keys(exported(precision="fp8", options=stored))
    assert written["model.activation_func_fp8_input_store"] == "true"
    assert "model.disable_parameter_transpose_cache" not in written
    adapters = Trained(method="lora", rank=16, modules=("q", "k", "v"))
    fields = models.DENSE.model_dump() | {"trained": adapters.model_dump()}
    model = ModelSpec.model_validate(fields)
    for options, expected in (({}, "true"), ({"fp8_transpose_cache": True}, None)):
        written = keys(exported(model, precision="fp8", options=options))
        assert written.get("model.disable_parameter_transpose_cache") == expected
        assert "model.activation_func_fp8_input_store" not in written


def test_yarn_has_other_keys_beside_latent_attention():
    latent = keys(exported(spelled_out("deepseek-v3"), "16x8:h100-sxm", pp=4))
    assert latent["model.rotary_scaling_factor"] == "40.0"
    plain = keys(exported(spelled_out("gpt-oss-20b", swiglu_limit=None)))
    assert plain["model.yarn_rotary_scaling_factor"] == "32.0"


def test_what_the_runtime_ignores_is_refused():
    with pytest.raises(UnsupportedError, match="attention=unfused"):
        exported(options={"attention": "unfused"})


def test_defaults_of_latent_attention_are_said():
    lite = keys(exported(spelled_out("deepseek-v2-lite")))
    assert lite["model.q_lora_rank"] == "null"
    assert lite["model.gradient_accumulation_fusion"] == "true"
    assert keys(exported(models.DEEPSEEK))["model.q_lora_rank"] == "1536"


def test_rotations_are_fused_where_megatron_lm_fuses_them():
    scaled = keys(exported(spelled_out("gpt-oss-20b", swiglu_limit=None)))
    assert scaled["model.apply_rope_fusion"] == "false"
    latent = keys(exported(spelled_out("deepseek-v3"), "16x8:h100-sxm"))
    assert latent["model.apply_rope_fusion"] == "true"


def test_a_graph_of_a_step_with_experts_has_its_stash():
    written = keys(
        exported(
            preset("qwen3-30b-a3b"),
            options={"cuda_graph": "full_iteration", "moe_dispatcher": "hybridep"},
            ep=8,
        )
    )
    assert written["model.cuda_graph_impl"] == "full_iteration"
    assert written["model.moe_paged_stash"] == "true"
    assert written["model.moe_flex_dispatcher_backend"] == "hybridep"
    assert written["rerun_state_machine.check_for_nan_in_loss"] == "false"
