"""Launches of other projects: their keys read by tables, under the runtime that is nearest."""

from dataclasses import replace

import pytest

from tests.grids import number
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.presets import preset, preset_named
from trainplan.planner.formats import FORMATS, document_of, format_of
from trainplan.planner.runtimes import Reading, Request
from trainplan.planner.runtimes.foreign import FOREIGN
from trainplan.planner.runtimes.foreign.tables import tables
from trainplan.planner.shell import Launch, Place, Word, launch_of_command, launches_of_script

NEMO1 = """
run: {name: a}
trainer: {num_nodes: 4, devices: 8, precision: bf16}
exp_manager: {}
model:
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  encoder_seq_length: 4096
  max_position_embeddings: 4096
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: ${multiply:2, ${multiply:2, ${.hidden_size}}}
  num_attention_heads: 32
  activation: fast-swiglu
  bias: false
  normalization: rmsnorm
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  sequence_parallel: true
  activations_checkpoint_granularity: selective
  optim: {name: mcore_distributed_optim}
"""
PRIMUS = """
work_group: ${PRIMUS_TEAM:amd}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${PRIMUS_MODEL:llama3.1_8B}.yaml
    overrides:
      micro_batch_size: 2
      global_batch_size: 128
      seq_length: 8192
      tensor_model_parallel_size: ${PRIMUS_TP:2}
      pipeline_model_parallel_size: 1
      recompute_granularity: full
      recompute_method: uniform
      recompute_num_layers: 1
"""
FLAGSCALE = """
experiment:
  exp_name: a
  exp_dir: b
  task: {type: train, backend: megatron, entrypoint: flagscale/train/train_gpt.py}
  runner: {nnodes: 2, nproc_per_node: 8}
defaults: [_self_, {train: 7b}]
"""
FLAGSCALE_TRAIN = """
system:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  disable_bias_linear: true
  use_distributed_optimizer: true
  sequence_parallel: true
  precision: {bf16: true}
model:
  num_layers: 28
  hidden_size: 3584
  ffn_hidden_size: 18944
  num_attention_heads: 28
  num_query_groups: 4
  seq_length: 4096
  max_position_embeddings: 4096
  normalization: RMSNorm
  swiglu: true
  micro_batch_size: 1
  global_batch_size: 256
data:
  tokenizer: {vocab_size: 152064}
"""
NEMO_RL = """
defaults: base.yaml
policy:
  model_name: Qwen/Qwen3-30B-A3B
  train_global_batch_size: 512
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
  dtensor_cfg: {enabled: false}
  megatron_cfg:
    enabled: true
    tensor_model_parallel_size: 2
    expert_model_parallel_size: 8
    activation_checkpointing: true
  generation: {colocated: {enabled: false, resources: {num_nodes: 1, gpus_per_node: 8}}}
"""
NEMO_RL_BASE = """
cluster: {num_nodes: 3, gpus_per_node: 8}
policy:
  megatron_cfg:
    tensor_model_parallel_size: 8
    pipeline_model_parallel_size: 1
    sequence_parallel: true
    recompute_granularity: full
"""
VERL = (
    "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml "
    "data.max_prompt_length=1024 data.max_response_length=3072 "
    "actor_rollout_ref.model.path=/models/Qwen3-8B actor_rollout_ref.rollout.n=8 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=32 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 "
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 "
    "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 "
    "trainer.n_gpus_per_node=8 trainer.nnodes=2"
)
SLIME = (
    "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --hf-checkpoint /a/Qwen3-8B "
    "--rollout-batch-size 32 --n-samples-per-prompt 8 --rollout-max-response-len 7168 "
    "--tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1 "
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
)
SWIFT = (
    "megatron sft --model Qwen/Qwen3-8B --tensor_model_parallel_size 2 --sequence_parallel true "
    "--micro_batch_size 4 --global_batch_size 16 --max_length 2048 --tuner_type lora --lora_rank 16"
)


NANOTRON = """
general: {project: a, run: b}
parallelism: {dp: 4, tp: 2, pp: 2, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, recompute_layer: true}
tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 8, sequence_length: 4096}
optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true}
model:
  dtype: bfloat16
  model_config:
    is_llama_config: true
    hidden_act: silu
    hidden_size: 4096
    intermediate_size: 14336
    num_attention_heads: 32
    num_key_value_heads: 8
    num_hidden_layers: 32
    vocab_size: 128256
    max_position_embeddings: 4096
"""
NEOX = """
pipe-parallel-size: 2
model-parallel-size: 2
num-layers: 24
hidden-size: 2048
num-attention-heads: 16
seq-length: 2048
max-position-embeddings: 2048
pos-emb: rotary
rotary-pct: 0.25
no-weight-tying: true
gpt-j-residual: true
zero_optimization: {stage: 1}
fp16: {enabled: true}
train_micro_batch_size_per_gpu: 4
gradient_accumulation_steps: 8
checkpoint-activations: true
"""
MAXTEXT = (
    "python3 -m MaxText.train base.yml model_name=llama2-7b per_device_batch_size=4 "
    "ici_fsdp_parallelism=8 dcn_data_parallelism=2 max_target_length=4096 remat_policy=full "
    "hardware=gpu"
)
VERL_FSDP = (
    "python3 -m verl.trainer.main_ppo data.max_prompt_length=1024 data.max_response_length=1024 "
    "actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.n=4 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=64 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 "
    "trainer.n_gpus_per_node=8 trainer.nnodes=1"
)
TORCHTUNE = """
model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_rank: 16}
tokenizer: {_component_: a.b, max_seq_len: 4096}
batch_size: 2
gradient_accumulation_steps: 4
enable_activation_checkpointing: true
dtype: bf16
"""


def of_file(text: str, suffix: str = ".yaml", name: str = "train") -> Launch:
    [document] = document_of(text, suffix)
    program = Word(f"{name}{suffix}", Place(f"{name}{suffix}", None))
    alone = Launch("file", program, is_module=False, arguments=(), environment={})
    return replace(alone, document=document, format=format_of(document))


def read(launch: Launch, cluster: str | None = None, **files: str) -> Reading:
    def model_of(name: str):
        last = name.rpartition("/")[2]
        known = preset_named(name) or preset_named(last)
        return preset(known) if known else None

    texts = {name.replace("__", "/"): text for name, text in files.items()}
    request = Request(
        cluster=parse_cluster(cluster) if cluster else None,
        model_of=model_of,
        text_of=lambda path: texts.get(path.removesuffix(".yaml")),
    )
    assert FOREIGN.recognises(launch)
    return FOREIGN.read(launch, request)


def causes(reading: Reading, verdict: str) -> set[str]:
    return {one.cause for one in reading.problems if one.verdict == verdict}


def test_a_configuration_of_nemo_1_is_read_with_its_resolvers() -> None:
    reading = read(of_file(NEMO1))
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None and reading.legal is True
    assert (layout.tp, layout.pp, layout.dp, layout.micro_batch_size) == (4, 2, 4, 1)
    assert (layout.sequence_parallel, layout.zero_stage, layout.recompute) == (True, 1, "selective")
    assert (job.cluster.num_gpus, job.training.global_batch_size) == (32, 128)
    assert (job.model.intermediate_size, job.model.norm, job.model.gated_mlp) == (
        16384,
        "rmsnorm",
        True,
    )
    assert "foreign_format" in causes(reading, "unmodelled")


def test_what_a_file_states_of_the_layout_is_named_where_it_makes_no_job() -> None:
    lines = [one for one in NEMO1.splitlines() if "heads" not in one and "encoder" not in one]
    reading = read(of_file("\n".join(lines)))
    assert (reading.job, reading.legal) == (None, None)
    named = {one.name: one.value for one in reading.fields}
    assert named["layout.tp"] == 4
    assert (named["cluster.num_nodes"], named["cluster.gpus_per_node"]) == (4, 8)
    [says] = [one.says for one in reading.problems if one.cause == "unread_job"]
    assert "model.num_attention_heads" in says
    assert "--model and --seq-length" in says


def test_the_rules_of_megatron_core_are_those_of_what_stands_on_it() -> None:
    reading = read(of_file(NEMO1.replace("num_attention_heads: 32", "num_attention_heads: 30")))
    assert reading.legal is False
    assert all("--" not in one.says for one in reading.problems if one.verdict == "illegal")


def test_models_that_are_no_decoders_are_named_and_not_priced() -> None:
    reading = read(of_file(NEMO1 + "  bert_binary_head: true\n"))
    assert (reading.job, reading.legal) == (None, None)
    assert "BERT" in reading.problems[0].says


def test_primus_is_read_with_the_files_that_it_names() -> None:
    model = "extends: [base.yaml]\nnum_layers: 4\nhidden_size: 1024\nnum_attention_heads: 8\n"
    base = "swiglu: true\nhidden_dropout: 0.0\nattention_dropout: 0.0\nvocab_size: 1024\n"
    above = "../primus/configs/models/megatron/"
    reading = read(
        of_file(PRIMUS, name="examples/MI300X/train"),
        **{f"{above}llama3.1_8B": model, f"{above}base": base},
    )
    job, layout = reading.job, reading.layout
    assert job is None and layout is None
    assert "world_size" in causes(reading, "unread")
    named = {one.name: one.value for one in reading.fields}
    assert (named["layout.tp"], named["layout.micro_batch_size"]) == (2, 2)


def test_primus_without_its_files_takes_the_model_by_its_name() -> None:
    launch = of_file(PRIMUS, name="examples/MI300X/train")
    launch = replace(
        launch, nodes=Word("1", Place(None, None)), gpus_per_node=Word("8", Place(None, None))
    )
    reading = read(launch)
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None
    assert (job.model.name, job.cluster.groups[0].gpu) == ("llama3.1-8b", "mi300x")
    assert (layout.tp, layout.dp, layout.recompute, layout.zero_stage) == (2, 4, "full", 1)


def test_flagscale_is_read_with_the_train_file_that_it_names() -> None:
    reading = read(of_file(FLAGSCALE), train__7b=FLAGSCALE_TRAIN)
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None and reading.legal is True
    assert (layout.tp, layout.pp, layout.dp) == (2, 2, 4)
    assert (job.model.vocab_size, job.model.num_key_value_heads) == (152064, 4)


def reading_of_flagscale(more: str, name: str = "train") -> tuple[Reading, str]:
    text = FLAGSCALE_TRAIN.replace("model:\n", f"model:\n{more}", 1)
    reading = read(of_file(text, name=name), "2x8:h100-sxm")
    return reading, " ".join(one.says for one in reading.problems)


def test_a_switch_that_is_off_leaves_every_head_its_own_keys() -> None:
    reading, says = reading_of_flagscale("  group_query_attention: false\n  use_dualpipev: true\n")
    assert reading.job is not None and reading.job.model.num_key_value_heads == 28
    assert "num_query_groups 4 does nothing" in says and "DualPipeV" in says


def test_a_folder_of_flagscale_names_what_is_no_language_model() -> None:
    reading, says = reading_of_flagscale("", "examples/rwkv/conf/train/3b")
    assert reading.job is None and "not priced" in says
    reading, says = reading_of_flagscale("", "examples/qwen2_5_vl/conf/train/7b")
    assert reading.job is not None and "vision tower" in says


@pytest.mark.parametrize(
    ("command", "tokens"),
    [
        (f"{SLIME} --use-dynamic-batch-size --max-tokens-per-gpu 20480", 20480),
        (f"{VERL} actor_rollout_ref.actor.use_dynamic_bsz=True", 16384),
        (f"{VERL_FSDP} actor_rollout_ref.actor.use_dynamic_bsz=True", 16384),
    ],
)
def test_micro_batches_that_are_filled_to_a_number_of_tokens_are_named(command, tokens) -> None:
    reading = read(launch_of_command(command.split(), {}))
    assert f"filled to {tokens} tokens" in " ".join(one.says for one in reading.problems)


def test_ranks_of_several_kinds_are_not_judged() -> None:
    hetero = FLAGSCALE_TRAIN + "hetero: {}\n"
    text = hetero.replace("system:\n", "system:\n  hetero: {enable_hetero: true}\n", 1)
    reading = read(of_file(text), "2x8:h100-sxm")
    assert (reading.job, reading.legal) == (None, None)


BRIDGE = """
_target_: megatron.bridge.training.config.ConfigContainer
model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  vocab_size: 128256
  seq_length: 8192
  normalization: RMSNorm
  gated_linear_unit: true
  activation_func: {_target_: torch.nn.functional.silu, _call_: false}
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
train: {micro_batch_size: 1, global_batch_size: 128}
ddp: {use_distributed_optimizer: true}
mixed_precision: bf16_with_fp8_current_scaling_mixed
"""


def test_a_saved_configuration_of_megatron_bridge_is_read() -> None:
    reading = read(of_file(BRIDGE), "2x8:h100-sxm")
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None
    assert (layout.tp, layout.pp, layout.dp, layout.zero_stage) == (2, 2, 4, 1)
    assert (job.training.precision, job.training.global_batch_size) == ("fp8", 128)
    assert (job.model.gated_mlp, job.model.norm) == (True, "rmsnorm")
    assert reading.own_name("--context-parallel-size") == "model.context_parallel_size"


def test_the_policy_of_nemo_rl_has_the_nodes_that_do_not_generate() -> None:
    reading = read(of_file(NEMO_RL), base=NEMO_RL_BASE)
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None and reading.legal is True
    assert (job.cluster.num_gpus, job.model.name) == (16, "qwen3-30b-a3b")
    assert (layout.tp, layout.pp, layout.ep, layout.dp) == (2, 1, 8, 8)
    assert (layout.recompute, layout.sequence_parallel) == ("full", True)


def test_the_actor_of_verl_is_read_from_words() -> None:
    reading = read(launch_of_command(VERL.split(), {}))
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None and reading.legal is True
    assert (layout.tp, layout.pp, layout.dp, layout.micro_batch_size) == (4, 2, 2, 2)
    assert (job.training.seq_length, job.training.global_batch_size) == (4096, 256)
    assert "rollouts" in " ".join(one.says for one in reading.problems)


def test_the_actor_of_slime_is_read_from_options() -> None:
    reading = read(launch_of_command(SLIME.split(), {}))
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None
    assert (layout.tp, layout.dp, layout.recompute) == (2, 4, "full")
    assert (job.training.seq_length, job.training.global_batch_size) == (8192, 256)


def test_megatron_of_ms_swift_is_read_with_its_adapters() -> None:
    [launch] = launches_of_script(f"NPROC_PER_NODE=8 {SWIFT}\n", None, {})
    reading = read(launch)
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None and job.model.trained is not None
    assert (job.model.trained.rank, job.cluster.num_gpus) == (16, 8)
    assert (layout.tp, layout.dp, layout.micro_batch_size) == (2, 4, 4)


def test_an_engine_on_megatron_exchanges_its_experts_where_nothing_is_stated() -> None:
    """Megatron-LM itself gathers all tokens then."""
    words = SWIFT.replace("Qwen3-8B", "Qwen3-30B-A3B")
    [launch] = launches_of_script(f"NPROC_PER_NODE=8 {words}\n", None, {})
    job = read(launch).job
    assert job is not None and job.model.moe is not None
    assert job.options.moe_dispatcher is None


def test_nanotron_is_read_with_its_ranks_and_its_batch() -> None:
    reading = read(of_file(NANOTRON))
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None and reading.legal is True
    assert (job.runtime, job.cluster.num_gpus, job.training.global_batch_size) == (
        "nanotron",
        16,
        64,
    )
    assert (layout.tp, layout.pp, layout.dp, layout.zero_stage) == (2, 2, 4, 1)
    assert (layout.sequence_parallel, layout.recompute) == (True, "full")
    assert job.model.num_key_value_heads == 8


def test_gpt_neox_is_read_under_either_spelling() -> None:
    for text in (NEOX, NEOX.replace("-size", "_size").replace("num-", "num_")):
        reading = read(of_file(text), "2x8:a100-sxm-80gb")
        job, layout = reading.job, reading.layout
        assert job is not None and layout is not None
        assert (job.runtime, job.training.precision) == ("megatron-lm", "fp16")
        assert (layout.tp, layout.pp, layout.dp, layout.recompute) == (2, 2, 4, "full")
        assert (job.training.global_batch_size, job.model.hidden_size) == (128, 2048)


def test_maxtext_is_read_from_its_words() -> None:
    reading = read(launch_of_command(MAXTEXT.split(), {}), "2x8:h100-sxm")
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None
    assert (job.runtime, job.model.name, job.training.global_batch_size) == (
        "maxtext",
        "llama2-7b",
        64,
    )
    assert (layout.dp, layout.dp_replicate, layout.micro_batch_size) == (16, 2, 4)
    assert (layout.zero_stage, layout.recompute) == (3, "full")


def test_the_actor_of_verl_is_one_of_fsdp_where_nothing_states_megatron() -> None:
    reading = read(launch_of_command(VERL_FSDP.split(), {}))
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None
    assert (layout.zero_stage, layout.recompute, layout.micro_batch_size) == (3, "full", 8)
    assert (job.training.seq_length, job.training.global_batch_size) == (2048, 256)


def test_torchtune_names_its_model_by_the_function_that_builds_it() -> None:
    reading = read(of_file(TORCHTUNE), "1x8:h100-sxm")
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None and job.model.trained is not None
    assert (job.model.name, job.model.trained.rank, job.runtime) == (
        "llama3.1-8b",
        16,
        "accelerate",
    )
    assert (job.training.global_batch_size, layout.micro_batch_size) == (64, 2)


TUNE = (
    "tune run --nproc_per_node 8 full_finetune_distributed --config llama3_1/8B_full batch_size=2 "
    "tokenizer.max_seq_len=4096 model._component_=torchtune.models.llama3_1.llama3_1_8b"
)
OPENRLHF = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor.num_nodes 1 --actor.num_gpus_per_node 8 "
    "--actor.model_name_or_path Qwen/Qwen3-8B --ds.zero_stage 3 --train.micro_batch_size 2 "
    "--train.batch_size 128 --data.max_len 2048 --actor.gradient_checkpointing_enable"
)


@pytest.mark.parametrize(
    ("command", "micro", "batch", "recompute"),
    [(TUNE, 2, 16, "none"), (OPENRLHF, 2, 128, "full")],
)
def test_commands_of_their_own_are_read(command, micro, batch, recompute) -> None:
    [launch] = launches_of_script(command, None, {})
    reading = read(launch)
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None
    assert (job.cluster.num_gpus, job.training.global_batch_size) == (8, batch)
    assert (layout.micro_batch_size, layout.recompute) == (micro, recompute)


def test_a_command_is_read_with_the_configuration_that_it_names() -> None:
    for command in (
        "torchrun run_train.py --config-file a.yaml",
        "torchrun nanotron/run_train.py --config-file a.yaml tokens.micro_batch_size=1",
    ):
        reading = read(launch_of_command(command.split(), {}), a=NANOTRON)
        assert reading.layout is not None
        assert reading.layout.micro_batch_size == 2 - command.count("=1")


NEMO2 = """
import nemo_run as run
from nemo.collections import llm

def recipe():
    tp_size = 2
    made = llm.llama3_8b.pretrain_recipe(num_nodes=2, num_gpus_per_node=8)
    made = set_primary_perf_configs(made, mbs=1, gbs=128, tp_size=tp_size, pp_size=2, cp_size=1)
    made.data.seq_length = 8192
    return made
"""
OLMO_CORE = """
from olmo_core.train import TrainerConfig

SEQUENCE_LENGTH = 4096
GLOBAL_BATCH_SIZE = 256 * SEQUENCE_LENGTH

def build_model_config(common):
    return TransformerConfig.olmo2_7B(vocab_size=common.size())

def build_train_module_config(common):
    return TransformerTrainModuleConfig(
        rank_microbatch_size=2 * 4096, dp_config=Parallel(name=DataParallelType.fsdp)
    )
"""


def test_a_missing_sequence_length_is_reported() -> None:
    reading = read(of_file(NEMO2.replace("made.data.seq_length = 8192", "pass"), ".py"))
    assert reading.job is None
    [problem] = [one for one in reading.problems if one.cause == "unread_job"]
    assert "seq_length" in problem.says


def test_recipes_in_python_are_read_by_their_calls_and_not_run() -> None:
    reading = read(of_file(NEMO2, ".py"))
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None
    assert (job.model.name, job.cluster.num_gpus) == ("llama3-8b", 16)
    assert (job.training.seq_length, job.training.global_batch_size) == (8192, 128)
    assert (layout.tp, layout.pp, layout.dp, layout.zero_stage) == (2, 2, 4, 1)
    reading = read(of_file(OLMO_CORE, ".py"), "2x8:h100-sxm")
    job, layout = reading.job, reading.layout
    assert job is not None and layout is not None
    assert (job.model.name, job.training.global_batch_size) == ("olmo2-7b", 256)
    assert (layout.dp, layout.micro_batch_size, layout.zero_stage) == (16, 2, 3)


def test_a_part_of_hydra_is_of_the_format_of_what_it_is_joined_to() -> None:
    reading = read(of_file("defaults: whole.yaml\nx: {y: 1}\n"), whole=NANOTRON)
    assert reading.layout is not None
    assert reading.layout.tp == 2


@pytest.mark.parametrize("text", [NEMO1, PRIMUS, FLAGSCALE_TRAIN, NEMO_RL, NANOTRON, NEOX])
def test_no_other_project_is_named_in_its_place(text: str) -> None:
    says = " ".join(one.says for one in read(of_file(text)).problems)
    assert "accelerate" not in says.lower()
    assert "deepspeed" not in says.lower()


def test_what_breaks_a_rule_of_ours_is_not_judged_elsewhere() -> None:
    reading = read(of_file(NANOTRON.replace("num_attention_heads: 32", "num_attention_heads: 31")))
    assert reading.legal is not False
    reading = read(of_file(NANOTRON.replace("tp: 2", "tp: 3")))
    assert reading.legal is None


def test_what_a_price_may_hang_on_and_no_table_has_is_named() -> None:
    reading = read(of_file(NEMO1 + "  new_expert_sharding: 4\n"))
    [says] = [one.says for one in reading.problems if one.cause == "unused_keys"]
    assert says == "not used in the price: model.new_expert_sharding"


WHOLE = {
    "nemo1": NEMO1,
    "primus": PRIMUS,
    "flagscale": FLAGSCALE_TRAIN,
    "nemo_rl": NEMO_RL,
    "nanotron": NANOTRON,
    "gpt_neox": NEOX,
    "torchtune": TORCHTUNE,
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_line_that_is_missing_stops_nothing(name: str) -> None:
    lines = WHOLE[name].splitlines()
    for at in range(len(lines)):
        document = document_of("\n".join(lines[:at] + lines[at + 1 :]), ".yaml")
        if document and format_of(document[0]) == name:
            text = "\n".join(lines[:at] + lines[at + 1 :])
            assert read(of_file(text), "2x8:h100-sxm").legal is not False, lines[at]


ODD = ("-1", "[1, 2]", "{a: 1}", "null", ".nan", '"${x"', "text")


@pytest.mark.parametrize("value", ODD)
def test_a_value_of_another_kind_is_no_error(value: str) -> None:
    for name, text in WHOLE.items():
        # each line takes every third value, beginning with another one than the line before
        for line in text.splitlines()[ODD.index(value) % number(3, by_night=1) :: number(3, 1)]:
            key, colon, _ = line.partition(": ")
            changed = text.replace(line, f"{key}: {value}") if colon else text
            document = document_of(changed, ".yaml")
            if document and format_of(document[0]) == name:
                read(of_file(changed))


def test_values_that_grow_without_end_are_cut_off() -> None:
    twice = "".join(
        f"a{n}: &a{n} {{{','.join(f'k{m}: *a{n - 1}' for m in range(9))}}}\n" for n in range(1, 14)
    )
    launch = of_file(f"a0: &a0 {{x: 1}}\n{twice}actor_rollout_ref: *a13\n")
    assert read(launch).legal is None
    assert read(of_file("actor_rollout_ref: &a {b: *a}\n")).legal is None


def test_every_table_is_of_a_format_and_states_its_source() -> None:
    assert set(tables()) <= set(FORMATS)
    assert all(
        one.source and one.called and one.priced_as for of in tables().values() for one in of
    )


LITGPT = """
checkpoint_dir: checkpoints/meta-llama/Llama-3.1-8B
devices: 1
lora_r: 32
train: {micro_batch_size: 2, global_batch_size: 8, max_seq_length: 512}
"""


@pytest.mark.parametrize(
    ("more", "modules"),
    [
        ("", "q_proj,v_proj"),
        ("lora_key: true\nlora_query: false\n", "k_proj,v_proj"),
        (
            "lora_projection: true\nlora_mlp: true",
            "q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
        ),
    ],
)
def test_adapters_are_of_the_matrices_that_litgpt_states(more: str, modules: str) -> None:
    reading = read(of_file(LITGPT + more))
    assert reading.job is not None and reading.job.model.trained is not None
    assert reading.job.model.trained.text == f"lora:rank=32,modules={modules}"


def test_adapters_are_of_the_matrices_that_torchtune_states() -> None:
    shape = "lora_rank: 16, lora_attn_modules: [q_proj, output_proj]"
    more = "optimizer_in_bwd: true\noptimizer: {_component_: bitsandbytes.optim.PagedAdamW}\n"
    reading = read(of_file(TORCHTUNE.replace("lora_rank: 16", shape) + more), "1x8:h100-sxm")
    assert reading.job is not None and reading.job.model.trained is not None
    assert reading.job.model.trained.text == "lora:rank=16,modules=q_proj,o_proj"
    assert {"backward", "optimizer"} <= {
        word for one in reading.problems if one.cause == "left_out" for word in one.says.split()
    }


@pytest.mark.parametrize(
    ("name", "more", "named"),
    [
        ("train", "", False),
        ("qwen2_5_vl", "", True),
        ("train", "  freeze_ViT: false\n", True),
        ("train", "  tokenizer_type: Qwen2VLTokenizer\n", True),
    ],
)
def test_a_vision_tower_is_named(name: str, more: str, named: bool) -> None:  # noqa: FBT001
    reading = read(of_file(NEMO1 + more, name=name))
    assert any("vision tower" in one.says for one in reading.problems) is named


@pytest.mark.parametrize(
    ("launch", "modules", "left"),
    [
        (f"{VERL_FSDP} actor_rollout_ref.model.target_modules=[k_proj,v_proj]", "k_proj,v_proj", 0),
        (f"{VERL_FSDP} actor_rollout_ref.model.target_modules=all-linear", "all", 0),
        (f"{VERL_FSDP} actor_rollout_ref.model.target_modules=[q_proj,to_q]", "q_proj", 1),
    ],
)
def test_adapters_are_of_the_modules_that_a_list_names(
    launch: str, modules: str, left: int
) -> None:
    words = f"{launch} actor_rollout_ref.model.lora_rank=8"
    reading = read(launches_of_script(words, "x.sh", {})[0])
    assert reading.job is not None and reading.job.model.trained is not None
    assert reading.job.model.trained.text == f"lora:rank=8,modules={modules}"
    assert sum(one.cause == "adapter_modules" for one in reading.problems) == left


def test_modules_of_nemo_1_have_names_of_their_own() -> None:
    tuned = "lora_tuning: {adapter_dim: 16, target_modules: [attention_qkv, mlp_fc1]}"
    reading = read(of_file(f"{NEMO1}  peft: {{peft_scheme: lora, {tuned}}}\n"))
    assert reading.job is not None and reading.job.model.trained is not None
    assert reading.job.model.trained.text == "lora:rank=16,modules=linear_qkv,linear_fc1"
