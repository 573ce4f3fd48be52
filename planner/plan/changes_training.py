"""What of a job changes its training: each line is said with every answer."""

from collections.abc import Iterator

from trainplan.costmodel.job import Job
from trainplan.costmodel.optimizers import optimizer_of
from trainplan.costmodel.runtimes import runtime
from trainplan.costmodel.semantics import CHANGES, Change


def changes_training(job: Job) -> tuple[Change, ...]:
    """What was asked for that trains other weights from the same data; usually nothing."""
    return tuple(CHANGES[name] for name in _names(job))


def _names(job: Job) -> Iterator[str]:
    """Of `CHANGES`, in the order of the options that ask for them."""
    if of_runtime := runtime(job.runtime).changes:
        yield of_runtime
    if name := optimizer_of(job.training.optimizer).changes:
        yield name
    if job.training.state_precision != "o0":
        yield "bf16 states" if job.training.state_precision == "bf16" else "fp8 states"
    if job.outer:
        yield "diloco"
    if job.options.weight_bits:
        yield "weights in 8 bits"
    if job.options.gradient_bits:
        yield "gradients in 4 bits"
    if job.options.moe_dispatch_dtype not in (None, "bf16") and job.model.moe:
        yield "tokens in 8 bits"
    trained = job.model.trained
    if trained and trained.quantised:
        yield "4-bit weights"
    elif trained:
        yield "adapters" if trained.adapts else "frozen layers"
