"""A tiny decoder and requests to train it on torch alone."""

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.profiler.train.request import TrainingRequest

TINY = ModelSpec(
    num_hidden_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=512,
    max_position_embeddings=64,
)


def request(runtime="torchtitan", model=TINY, steps=2, precision="fp32", **layout):
    """Eight sequences a step of 32 tokens each."""
    made = Layout(**layout)
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=32, global_batch_size=8, precision=precision),
        cluster=parse_cluster(f"1x{made.world_size}:h100-sxm"),
        runtime=runtime,
    )
    return TrainingRequest(trainer="torch", job=job, layout=made, steps=steps, count=True)
