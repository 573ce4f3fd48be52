"""The jobs that are tuned on simulated machines."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.costmodel.hardware.cluster import NicSpec, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.presets.presets import preset


@dataclass(frozen=True)
class Nemo:
    """What NeMo's tool tries of a job.

    Source: NVIDIA/NeMo@8cfedd72, nemo/collections/llm/tools/auto_configurator/core/
    training_config.py, GPT3GridSearch: lists by billions of parameters, sequence length and memory;
    where it has none, those of the nearest. It cuts experts only where it is told to.
    """

    tp: tuple[int, ...]
    pp: tuple[int, ...]
    mbs: tuple[int, ...]
    least: int = 1
    """Of tp x pp."""


@dataclass(frozen=True)
class Question:
    """A job, and what other tuners would try of it."""

    name: str
    job: Job
    nemo: Nemo


def _job(model: str, cluster: str, batch: int, length: int, runtime: str = "megatron-lm") -> Job:
    training = TrainingSpec(seq_length=length, global_batch_size=batch)
    place = parse_cluster(cluster)
    return Job(model=preset(model), training=training, cluster=place, runtime=runtime)


def _slow_network(job: Job) -> Job:
    """The job with one adapter of 100 Gb/s in every node."""
    slow = NicSpec(per_node=1, gb_per_s=12.5)
    groups = tuple(group.model_copy(update={"nic": slow}) for group in job.cluster.groups)
    cluster = job.cluster.model_copy(update={"groups": groups})
    return job.model_copy(update={"cluster": cluster})


QUESTIONS = (
    Question(
        "dense, 8 GPUs",
        _job("llama3-8b", "1x8:h100-sxm", 128, 4096),
        Nemo((1, 2, 4), (1, 2), (1, 2, 4)),
    ),
    Question(
        "dense, 64 GPUs",
        _job("llama3-70b", "8x8:h100-sxm", 256, 4096),
        Nemo((4, 8), (1, 2, 4, 5, 8), (1, 2), least=8),
    ),
    Question(
        "experts, 32 GPUs",
        _job("mixtral-8x7b", "4x8:h100-sxm", 256, 4096),
        Nemo((4, 8), (1, 2, 4, 8), (1, 2), least=8),
    ),
    Question(
        "long context, 32 GPUs",
        _job("llama3-8b", "4x8:h100-sxm", 32, 32768),
        Nemo((4, 8), (1, 2), (1,), least=4),
    ),
    Question(
        "slow network, 64 GPUs",
        _slow_network(_job("llama2-13b", "8x8:a100-sxm-40gb", 256, 4096)),
        Nemo((4, 8), (1, 2, 4), (1, 2, 4), least=4),
    ),
    Question(
        "torchtitan, 32 GPUs",
        _job("llama3-8b", "4x8:h100-sxm", 64, 8192, "torchtitan"),
        Nemo((2, 4), (1, 2), (1, 2)),
    ),
)
