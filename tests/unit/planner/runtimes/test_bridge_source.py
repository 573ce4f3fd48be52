"""Recipes of a checkout beside the launch, read from their text."""

from functools import partial

import pytest

from tests.launches import word
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_bridge.read import MEGATRON_BRIDGE
from trainplan.planner.shell import Launch

BASE = """
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.bridge.training.config import ConfigContainer, TrainingConfig
from megatron.bridge.peft.lora import LoRA
def _common():
    return ConfigContainer(
        model=None,
        train=TrainingConfig(global_batch_size=64, micro_batch_size=1),
        ddp=DistributedDataParallelConfig(use_distributed_optimizer=True),
        checkpoint=CheckpointConfig(save="/x", ckpt_format="torch_dist"),
        mixed_precision="bf16_mixed",
        peft=None,
    )
"""
OWN = """
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _common
from megatron.bridge.peft.lora import LoRA
def _layout(pp):
    return [["embedding"] + ["decoder"] * 16] + [["decoder"] * 16] * (pp - 2) + [
        ["decoder"] * 16 + ["loss"]
    ]
def my_8b_pretrain_16gpu_h100_bf16_config():
    cfg = _common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").get_model_config()
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_layout = _layout(2)
    cfg.model.seq_length = 8192
    cfg.dataset.seq_length = 8192
    if cfg.model.tensor_model_parallel_size > 1:
        cfg.model.sequence_parallel = True
    {}
    return cfg
"""
MOE = """
from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _common
def my_moe_pretrain_64gpu_gb200_bf16_config():
    cfg = _common()
    cfg.model = AutoBridge.from_hf_pretrained("{}").to_megatron_provider(load_weights=False)
    cfg.model.pipeline_model_parallel_size = 8
    cfg.model.num_layers_in_first_pipeline_stage = 10
    cfg.model.expert_tensor_parallel_size = 1
    cfg.model.expert_model_parallel_size = 32
    cfg.model.seq_length = 4096
    return cfg
"""
HYBRID = """
from megatron.bridge.models.hybrid.hybrid_provider import HybridModelProvider
from megatron.bridge.recipes.common import _common
from megatron.core.activations import squared_relu
def my_hybrid_pretrain_8gpu_h100_bf16_config():
    cfg = _common()
    cfg.model = HybridModelProvider(
        hybrid_layer_pattern="M-M*M-", num_layers=6, hidden_size=1024, ffn_hidden_size=4096,
        num_attention_heads=16, num_query_groups=4, mamba_num_heads=32, mamba_head_dim=64,
        mamba_state_dim=128, mamba_num_groups=8, kv_channels=64, vocab_size=32000,
        activation_func=squared_relu,
    )
    cfg.model.seq_length = 4096
    return cfg
"""


def files(own):
    root = "src/megatron/bridge/"
    return {
        f"{root}recipes/__init__.py": "from megatron.bridge.recipes.mine import *\n",
        f"{root}recipes/mine.py": own,
        f"{root}recipes/common.py": BASE,
        f"{root}peft/lora.py": (
            "class LoRA:\n    dim: int = 32\n    target_modules: list = field("
            "default_factory=lambda: ['linear_qkv', 'linear_proj'])\n"
        ),
    }


def read(own, recipe, cluster="2x8:h100-sxm", arguments="", program="scripts/training"):
    machines = parse_cluster(cluster)
    ranks, nodes = machines.num_gpus, machines.groups[0].num_nodes
    words = f"--recipe {recipe} {arguments}".split()
    launch = Launch(
        "torchrun",
        word(f"{program}/run_recipe.py"),
        is_module=False,
        arguments=tuple(map(word, words)),
        environment={},
        nodes=word(str(nodes)),
        gpus_per_node=word(str(ranks // nodes)),
    )
    text_of = partial(dict.get, files(own))
    return MEGATRON_BRIDGE.read(launch, Request(cluster=machines, text_of=text_of))


NAME = "my_8b_pretrain_16gpu_h100_bf16_config"


def test_a_recipe_is_read_from_its_text():
    reading = read(OWN.format("pass"), NAME)
    assert reading.legal, reading.problems
    assert reading.job.model == preset("llama3-8b")
    assert (reading.layout.tp, reading.layout.pp, reading.layout.dp) == (2, 2, 4)
    assert reading.job.training.seq_length == 8192
    assert reading.job.training.global_batch_size == 64


def test_the_checkout_is_that_of_the_program():
    below = {f"bridge/{name}": text for name, text in files(OWN.format("pass")).items()}
    launch = Launch(
        "torchrun",
        word("bridge/scripts/performance/run_recipe.py"),
        is_module=False,
        arguments=(word("--recipe"), word(NAME)),
        environment={},
        nodes=word("2"),
        gpus_per_node=word("8"),
    )
    assert MEGATRON_BRIDGE.read(launch, Request(text_of=below.get)).layout.tp == 2


def test_a_key_wins_over_the_text_of_a_recipe():
    arguments = "model.transformer.tensor_model_parallel_size=4"
    assert read(OWN.format("pass"), NAME, arguments=arguments).layout.tp == 4


def test_adapters_of_a_recipe_are_trained_alone():
    reading = read(OWN.format("cfg.peft = LoRA(dim=16)"), NAME)
    trained = reading.job.model.trained
    assert (trained.method, trained.rank) == ("lora", 16)
    assert set(trained.modules) == {"q", "k", "v", "o"}
    unread = read(OWN.format("cfg.peft = pick()"), NAME)
    assert unread.job is None
    assert [one.cause for one in unread.problems] == ["unread_adapters"]


def test_an_expert_grid_beyond_the_ranks_is_refused_though_the_model_is_unknown():
    """As Megatron-Core is at `initialize_model_parallel`."""
    for repository in ("Qwen/Qwen3-235B-A22B", "someone/unknown-moe"):
        reading = read(
            MOE.format(repository), "my_moe_pretrain_64gpu_gb200_bf16_config", "16x4:gb200"
        )
        refused = [one.cause for one in reading.problems if one.verdict == "illegal"]
        assert refused == ["experts_fold_into_ranks"]
    assert "unread_model" in [one.cause for one in reading.problems]


def test_layers_of_mamba_are_not_priced_as_attention():
    reading = read(HYBRID, "my_hybrid_pretrain_8gpu_h100_bf16_config", "1x8:h100-sxm")
    kinds = [kind.mixer for kind in reading.job.model.kinds]
    assert reading.legal
    assert "mamba" in "".join(map(str, kinds)) or "ssm" in "".join(map(str, kinds))


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("cfg.model.virtual_pipeline_model_parallel_size = 4", "one_pipeline_split"),
        (
            "cfg.model.moe_deepep_num_sms, cfg.model.moe_hybridep_num_sms = 20, 16",
            "one_sm_count",
        ),
        ("cfg.ddp.use_megatron_fsdp = True", "fsdp_checkpoint_format"),
        ("raise NotImplementedError('no adapters')", "recipe_raises"),
        ("cfg.train.global_batch_size = 65", "micro_batch_divides_batch"),
        (
            "cfg.model.pipeline_model_parallel_layout = None; "
            "cfg.model.pipeline_model_parallel_size = 8; "
            "cfg.model.virtual_pipeline_model_parallel_size = 3",
            "virtual_stages_divide_layers",
        ),
        (
            "cfg.model.pipeline_model_parallel_layout = None; "
            "cfg.model.num_layers = 30; cfg.model.pipeline_model_parallel_size = 4; "
            "cfg.model.virtual_pipeline_model_parallel_size = 2",
            "pp_divides_layers",
        ),
    ],
)
def test_what_bridge_itself_stops_at_is_refused(line, cause):
    """Each was refused by its own validation, on fake ranks."""
    reading = read(OWN.format(line), NAME)
    assert cause in [one.cause for one in reading.problems if one.verdict == "illegal"]


@pytest.mark.parametrize(
    "line",
    [
        "cfg.model.cpu_offloading_num_layers = 95",
        "cfg.model.cuda_graph_scope = 'full'",
        "cfg.ddp.use_megatron_fsdp = True; cfg.checkpoint.save = None; "
        "cfg.model.pipeline_model_parallel_size = 1; "
        "cfg.model.pipeline_model_parallel_layout = None",
        "cfg.model.moe_router_dtype = 'bf16'",
        "cfg.ddp.use_distributed_optimizer = False; cfg.mixed_precision = Precision("
        "bf16=True, fp8='hybrid', fp8_param_gather=True)",
    ],
)
def test_what_bridge_accepts_is_not_refused(line):
    assert read(OWN.format(line), NAME).legal


@pytest.mark.parametrize("value", ["pick() + 1", "pick()", "int(os.environ['MBS'])"])
def test_what_only_a_run_would_tell_of_a_recipe_is_named(value):
    reading = read(OWN.format(f"cfg.train.micro_batch_size = {value}"), NAME)
    (problem,) = (one for one in reading.problems if one.cause == "unread_value")
    assert "train.micro_batch_size" in problem.says
    assert (reading.legal, reading.job) == (None, None)
