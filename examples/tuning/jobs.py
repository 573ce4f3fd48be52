"""The jobs that are tuned on simulated machines."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.costmodel.catalog.models import preset
from trainplan.costmodel.spec import Job, TrainingSpec
from trainplan.costmodel.spec.cluster import parse_cluster


@dataclass(frozen=True)
class Question:
    """A job, and what other tuners would try of it."""

    name: str
    job: Job
    nemo_tp: tuple[int, ...]
    """Source: NVIDIA/NeMo@8cfedd72, nemo/collections/llm/tools/auto_configurator/core/
    training_config.py, GPT3GridSearch: lists by parameters, sequence length and GPU memory."""
    nemo_pp: tuple[int, ...]
    nemo_mbs: tuple[int, ...]


def _job(model: str, cluster: str, batch: int, length: int, runtime: str = "megatron-lm") -> Job:
    training = TrainingSpec(seq_length=length, global_batch_size=batch)
    place = parse_cluster(cluster)
    return Job(model=preset(model), training=training, cluster=place, runtime=runtime)


QUESTIONS = (
    Question(
        "dense, 8 GPUs", _job("llama3-8b", "1x8:h100-sxm", 128, 4096), (2, 4), (1, 2), (1, 2, 4)
    ),
    Question(
        "dense, 64 GPUs",
        _job("llama3-70b", "8x8:h100-sxm", 256, 4096),
        (4, 8),
        (1, 2, 4, 5, 8),
        (1, 2),
    ),
    Question(
        "experts, 32 GPUs", _job("mixtral-8x7b", "4x8:h100-sxm", 256, 4096), (4, 8), (2, 4), (1, 2)
    ),
    Question(
        "long context, 32 GPUs", _job("llama3-8b", "4x8:h100-sxm", 32, 32768), (2, 4), (1, 2), (1,)
    ),
    Question(
        "slow network, 64 GPUs",
        _job("llama2-13b", "8x8:a100-sxm-40gb", 256, 4096),
        (2, 4),
        (1, 2, 4),
        (1, 2, 4),
    ),
    Question(
        "torchtitan, 32 GPUs",
        _job("llama3-8b", "4x8:h100-sxm", 64, 8192, "torchtitan"),
        (2, 4),
        (1, 2),
        (1, 2),
    ),
)
