"""What of a job changes its training: each line is printed with every answer."""

from collections.abc import Iterator

from trainplan.costmodel.job import Job
from trainplan.costmodel.optimizers import optimizer_of
from trainplan.costmodel.runtimes import runtime
from trainplan.costmodel.semantics import CHANGES, Change


def changes_training(job: Job) -> tuple[Change, ...]:
    """What was given that trains other weights from the same data; usually nothing."""
    return tuple(CHANGES[name] for name in _names(job))


def _names(job: Job) -> Iterator[str]:
    """Of `CHANGES`, in the order of the options that set them."""
    if of_runtime := runtime(job.runtime).changes:
        yield of_runtime
    if name := optimizer_of(job.training.optimizer).changes:
        yield name
    if job.training.state_precision != "o0":
        yield "bf16 states" if job.training.state_precision == "bf16" else "fp8 states"
    if job.outer:
        yield "diloco"
    yield from _of_options(job)
    trained = job.model.trained
    if trained and trained.quantised:
        yield "4-bit weights"
    elif trained:
        yield "adapters" if trained.adapts else "frozen layers"


def _of_options(job: Job) -> Iterator[str]:
    options, moe = job.options, job.model.moe
    stated = {
        "weights in 8 bits": options.weight_bits,
        "gradients in 4 bits": options.gradient_bits,
        "tokens in 8 bits": moe and options.moe_dispatch_dtype not in (None, "bf16"),
        "dropped tokens": moe and options.moe_capacity_factor,
    }
    yield from (name for name, value in stated.items() if value)
