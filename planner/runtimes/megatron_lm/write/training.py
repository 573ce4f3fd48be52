"""Options of the run itself: number format, batch, learning rate, data, checkpoints.

None but the format moves a step time. Values the job does not know are common choices, and the
notes of the export say that they are the user's to change.
"""

from collections.abc import Iterator, Mapping

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job, Precision, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import Argument, UserVariable, option, steps_of, switch
from trainplan.planner.runtimes.megatron_lm.write.optimizer import FSDP_STRATEGY


def training_arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    """Batch size, steps, learning rate and optimizer."""
    steps = steps_of(job)
    yield option("optimizer", "--global-batch-size", job.training.global_batch_size)
    yield option("optimizer", "--train-iters", steps)
    word = dict(traits.optimizers)[job.training.optimizer.name]
    yield option("optimizer", "--optimizer", word)
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


def data_arguments(training: TrainingSpec) -> Iterator[Argument]:
    """Tokenizer, data, checkpoints and logging."""
    yield option("data", "--tokenizer-type", "HuggingFaceTokenizer")
    yield option("data", "--tokenizer-model", UserVariable("TOKENIZER_MODEL"))
    yield option("data", "--data-path", UserVariable("DATA_PATH"))
    yield option("data", "--split", "99,1,0")
    yield switch("data", "--no-create-attention-mask-in-dataloader")
    if training.packing != "none":
        yield switch("data", "--dataloader-inter-document-masking")
    yield option("data", "--save", UserVariable("CHECKPOINT_PATH"))
    yield option("data", "--load", UserVariable("CHECKPOINT_PATH"))
    yield option("data", "--save-interval", 500)
    yield option("data", "--eval-interval", 500)
    yield option("data", "--eval-iters", 10)
    yield option("data", "--log-interval", 1)
    yield switch("data", "--log-throughput")


BF16 = switch("precision", "--bf16")

FORMATS: Mapping[Precision, tuple[Argument, ...]] = {
    "bf16": (BF16,),
    "fp16": (
        switch("precision", "--fp16"),
        switch("precision", "--accumulate-allreduce-grads-in-fp32"),
    ),
    "fp8": (
        BF16,
        option("precision", "--fp8-format", "hybrid"),
        option("precision", "--fp8-recipe", "tensorwise"),
    ),
    "mxfp8": (
        BF16,
        option("precision", "--fp8-format", "e4m3"),
        option("precision", "--fp8-recipe", "mxfp8"),
    ),
    "nvfp4": (
        BF16,
        option("precision", "--fp4-format", "e2m1"),
        option("precision", "--fp4-recipe", "nvfp4"),
    ),
}
"""fp8 scales per tensor by current values; weights, gradients and states keep 16 or 32 bits.

bf16 accumulates and reduces gradients in fp32 by itself, fp16 only when told (arguments.py:1213);
the cost model counts four bytes for each.
"""


def precision_arguments(training: TrainingSpec) -> Iterator[Argument]:
    """Format of the matrix products.

    Raises:
        UnsupportedError: The options we write run fused attention, which needs 16 bits.
    """
    if training.precision not in FORMATS:
        raise UnsupportedError(
            f"no launch files are written for {training.precision}: fused attention of Megatron-LM "
            f"needs 16 bits, plan for --precision {' or '.join(FORMATS)}"
        )
    yield from FORMATS[training.precision]
