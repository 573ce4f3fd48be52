"""Options of the run itself: batch, schedule of the learning rate, data, checkpoints.

None of them moves a step time. Values the job does not know are common choices, and the notes of
the export say that they are the user's to change.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.costmodel.spec import Job, Layout
from trainplan.planner.exporters.config import Argument, UserVariable, option, switch
from trainplan.planner.exporters.megatron_lm.optimizer import FSDP_STRATEGY

DEFAULT_TRAIN_ITERS = 1000
"""Steps where the job names no number of tokens."""


def train_iters(job: Job) -> int:
    """Optimizer steps: the job's tokens, rounded up to whole steps."""
    tokens = job.training.tokens
    return -(-tokens // job.training.tokens_per_step) if tokens else DEFAULT_TRAIN_ITERS


def training_arguments(job: Job, layout: Layout) -> Iterator[Argument]:
    """Batch size, steps, learning rate and Adam."""
    steps = train_iters(job)
    yield option("optimizer", "--global-batch-size", job.training.global_batch_size)
    yield option("optimizer", "--train-iters", steps)
    yield option("optimizer", "--optimizer", "adam")
    yield option("optimizer", "--lr", 0.0003)
    yield option("optimizer", "--min-lr", 0.00003)
    yield option("optimizer", "--lr-decay-style", "cosine")
    yield option("optimizer", "--lr-warmup-iters", min(steps // 10, 2000))
    yield option("optimizer", "--weight-decay", 0.1)
    yield option("optimizer", "--adam-beta1", 0.9)
    yield option("optimizer", "--adam-beta2", 0.95)
    yield option("optimizer", "--clip-grad", 1.0)
    if layout.zero_stage not in FSDP_STRATEGY:
        yield option("optimizer", "--ckpt-format", "torch_dist")


def data_arguments() -> Iterator[Argument]:
    """Tokenizer, data, checkpoints and logging."""
    yield option("data", "--tokenizer-type", "HuggingFaceTokenizer")
    yield option("data", "--tokenizer-model", UserVariable("TOKENIZER_MODEL"))
    yield option("data", "--data-path", UserVariable("DATA_PATH"))
    yield option("data", "--split", "99,1,0")
    yield switch("data", "--no-create-attention-mask-in-dataloader")
    yield option("data", "--save", UserVariable("CHECKPOINT_PATH"))
    yield option("data", "--load", UserVariable("CHECKPOINT_PATH"))
    yield option("data", "--save-interval", 500)
    yield option("data", "--eval-interval", 500)
    yield option("data", "--eval-iters", 10)
    yield option("data", "--log-interval", 1)
    yield switch("data", "--log-throughput")
