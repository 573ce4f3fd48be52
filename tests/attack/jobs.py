"""Small jobs drawn at random, most of them short of memory: that is where layouts differ."""

from random import Random

from trainplan.costmodel.spec import Job, ModelSpec, MoeSpec, TrainingSpec
from trainplan.costmodel.spec.cluster import parse_cluster

CLUSTERS = ("1x4:h100-sxm", "1x8:l40s", "2x4:a100-sxm-80gb", "4x2:h100-sxm", "1x2:h200-sxm")
RUNTIMES = ("megatron-lm", "megatron-lm", "megatron-lm", "megatron-zero-bubble", "torchtitan")
PRICE_PER_GPU_HOUR = 2.0


def model(random: Random) -> ModelSpec:
    """Some layers, maybe of experts, between a small or a large vocabulary."""
    layers, hidden = random.randint(2, 14), random.choice((1024, 2048, 4096))
    moe = None
    if random.random() < 0.4:
        moe = MoeSpec(
            num_experts=random.choice((4, 8, 16)),
            num_experts_per_tok=2,
            moe_intermediate_size=random.choice((1024, 4096)),
            first_k_dense_replace=random.choice((0, 0, 1, 3)) % layers,
        )
    heads = hidden // 128
    return ModelSpec(
        name="drawn",
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_attention_heads=heads,
        num_key_value_heads=random.choice((heads, heads // 4)),
        head_dim=128,
        vocab_size=random.choice((32_000, 256_000)),
        max_position_embeddings=8192,
        moe=moe,
    )


def job(random: Random) -> Job:
    """A model on two to eight GPUs with a price, each of some memory."""
    cluster = parse_cluster(random.choice(CLUSTERS))
    changes = {
        "memory_gib": random.choice((2.0, 4.0, 8.0, 16.0, 48.0)),
        "price_per_gpu_hour": PRICE_PER_GPU_HOUR,
    }
    groups = tuple(group.model_copy(update=changes) for group in cluster.groups)
    return Job(
        model=model(random),
        training=TrainingSpec(
            seq_length=random.choice((512, 2048)),
            global_batch_size=random.choice((4, 8, 16, 48)),
            tokens=10**9,
        ),
        cluster=cluster.model_copy(update={"groups": groups}),
        runtime=random.choice(RUNTIMES),
    )
