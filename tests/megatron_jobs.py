"""Models and their exports to Megatron-LM, for the tests of what is written."""

from trainplan.costmodel.architecture.layers import MlaSpec
from trainplan.costmodel.architecture.model import ModelSpec, RopeScaling
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.launch.config import LaunchConfig
from trainplan.planner.runtimes import EXPORTERS

DENSE = ModelSpec(
    name="dense",
    num_hidden_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=128256,
    max_position_embeddings=8192,
    rope_theta=500000.0,
)
GPT3 = ModelSpec(
    name="gpt3",
    num_hidden_layers=96,
    hidden_size=12288,
    intermediate_size=49152,
    num_attention_heads=96,
    num_key_value_heads=96,
    head_dim=128,
    vocab_size=50257,
    max_position_embeddings=2048,
    position_embedding="learned",
    norm="layernorm",
    activation="gelu_tanh",
    gated_mlp=False,
    qkv_bias=True,
    attention_output_bias=True,
    mlp_bias=True,
    tie_word_embeddings=True,
)
MIXTRAL = DENSE.model_copy(
    update={"moe": MoeSpec(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=14336)}
)
DEEPSEEK = DENSE.model_copy(
    update={
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "mla": MlaSpec(
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
        ),
        "moe": MoeSpec(
            num_experts=256,
            num_experts_per_tok=8,
            moe_intermediate_size=2048,
            shared_expert_intermediate_size=2048,
            first_k_dense_replace=3,
            router_bias=True,
            router_score_function="sigmoid",
            n_group=8,
            topk_group=4,
            routed_scaling_factor=2.5,
        ),
        "num_nextn_predict_layers": 1,
        "rope_scaling": RopeScaling(rope_type="yarn", factor=40.0),
    }
)


def export(model=DENSE, cluster="1x8:h100-sxm", training=None, **layout) -> LaunchConfig:
    values = {"seq_length": 2048, "global_batch_size": 64} | (training or {})
    described = parse_cluster(cluster)
    gpus = described.num_gpus
    used = layout.get("tp", 1) * layout.get("pp", 1) * layout.get("cp", 1)
    settings = {"options": layout.pop("options")} if "options" in layout else {}
    job = Job(model=model, training=TrainingSpec(**values), cluster=described, **settings)
    return EXPORTERS["megatron-lm"](job, Layout(**{"dp": gpus // used} | layout))


def values(config: LaunchConfig, flag: str) -> tuple:
    """Values of an option that must be there exactly once."""
    [found] = [a.values for a in config.arguments if a.flag == flag]
    return found


def flags(config: LaunchConfig) -> set[str]:
    return {argument.flag for argument in config.arguments}
