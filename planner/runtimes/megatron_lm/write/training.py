"""Options of the run itself: number format, batch, learning rate, data, checkpoints.

None but the format moves a step time. Values the job does not know are common choices, and the
notes of the export say that they are the user's to change.
"""

from collections.abc import Iterator, Mapping

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job, Precision, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import Argument, UserVariable, option, steps_of, switch
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write.optimizer import FSDP_STRATEGY


def training_arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    """Batch size, steps, learning rate and optimizer."""
    steps = steps_of(job)
    yield keys.BATCH(job.training.global_batch_size)
    yield keys.STEPS(steps)
    word = dict(traits.optimizers)[job.training.optimizer.name]
    yield keys.OPTIMIZER(word)
    yield keys.LR(0.0003)
    yield keys.MIN_LR(0.00003)
    yield option("optimizer", "--lr-decay-style", "cosine")
    yield option("optimizer", "--lr-warmup-iters", min(steps // 10, 2000))
    yield keys.WEIGHT_DECAY(0.1)
    yield option("optimizer", "--adam-beta1", 0.9)
    yield option("optimizer", "--adam-beta2", 0.95)
    yield option("optimizer", "--clip-grad", 1.0)
    if layout.zero_stage not in FSDP_STRATEGY:
        yield keys.CHECKPOINTS("torch_dist")


def data_arguments(training: TrainingSpec) -> Iterator[Argument]:
    """Tokenizer, data, checkpoints and logging."""
    yield keys.TOKENIZER("HuggingFaceTokenizer")
    yield option("data", "--tokenizer-model", UserVariable("TOKENIZER_MODEL"))
    yield keys.DATA(UserVariable("DATA_PATH"))
    yield option("data", "--split", "99,1,0")
    yield switch("data", "--no-create-attention-mask-in-dataloader")
    if training.packing != "none":
        yield switch("data", "--dataloader-inter-document-masking")
    yield keys.SAVE(UserVariable("CHECKPOINT_PATH"))
    yield option("data", "--load", UserVariable("CHECKPOINT_PATH"))
    yield keys.SAVE_INTERVAL(500)
    yield option("data", "--eval-interval", 500)
    yield option("data", "--eval-iters", 10)
    yield option("data", "--log-interval", 1)
    yield switch("data", "--log-throughput")


BF16 = keys.BF16()

FORMATS: Mapping[Precision, tuple[Argument, ...]] = {
    "bf16": (BF16,),
    "fp16": (keys.FP16(), keys.WHOLE_SUMS()),
    "fp8": (BF16, keys.FP8("hybrid"), keys.FP8_RECIPE("tensorwise")),
    "mxfp8": (BF16, keys.FP8("e4m3"), keys.FP8_RECIPE("mxfp8")),
    "nvfp4": (BF16, keys.FP4("e2m1"), keys.FP4_RECIPE("nvfp4")),
}
"""fp8 scales per tensor by current values, or as the option fp8_recipe has it; weights, gradients
and states keep 16 or 32 bits.

bf16 accumulates and reduces gradients in fp32 by itself, fp16 only when told (arguments.py:1213);
the cost model counts four bytes for each.
"""


def precision_arguments(training: TrainingSpec, options: RuntimeOptions) -> Iterator[Argument]:
    """Format of the matrix products.

    Raises:
        UnsupportedError: The options we write run fused attention, which needs 16 bits.
    """
    if training.precision not in FORMATS:
        raise UnsupportedError(
            f"no launch files are written for {training.precision}: fused attention of Megatron-LM "
            f"needs 16 bits, plan for --precision {' or '.join(FORMATS)}"
        )
    written = FORMATS[training.precision]
    if training.precision == "fp8" and options.fp8_recipe:
        written = (*written[:-1], keys.FP8_RECIPE(options.fp8_recipe))
    yield from written
