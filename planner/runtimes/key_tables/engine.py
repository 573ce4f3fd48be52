"""What a rollout engine beside a trainer takes: its share of a GPU, and the GPUs of one copy."""

from dataclasses import dataclass
from math import ceil

from trainplan.costmodel.base import GIB, UnsupportedError
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.model import num_parameters
from trainplan.costmodel.step import simulated

BYTES_PER_WEIGHT = 2
"""An engine serves in 16 bits. Source: volcengine/verl `verl/trainer/config/rollout/rollout.yaml`,
dtype; NVIDIA-NeMo/RL `examples/configs/grpo_math_1B.yaml`, vllm_cfg.precision."""
MOST_WEIGHTS = 0.5
"""Share of an engine's memory that its weights take at most. Source: assumed; the rest is for keys
and values, of which it needs many to answer many prompts at once."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A rollout engine on the GPUs that train."""

    share: float
    """Of the memory of a GPU, rounded down to hundredths."""
    tp: int
    """GPUs that hold one copy of the weights."""
    note: str


def rollout_engine(job: Job, layout: Layout, called: str) -> Engine:
    """The engine that fits beside a plan: in `--reserve`, else in what the estimate leaves.

    A reserve of the least that it takes is that of a search without --reserve, and a floor.

    Source: derived; the smallest tensor parallelism at which 16-bit weights take half
    of the memory that is left.

    Raises:
        UnsupportedError: The weights do not fit.
    """
    whole = job.model_copy(update={"reserve_bytes": 0})
    machine = machine_for(whole)
    least, sizes = least_engine_bytes(job), _sizes(job)
    reserved = job.reserve_bytes not in (0, least)
    left: float = job.reserve_bytes
    if not reserved:
        table = LayoutTable.of([layout])
        estimate = simulated(context_of(whole, machine).with_table(table), 0.0).row(0)
        free = estimate.memory.capacity_bytes - estimate.memory.peak_reserved_bytes
        left = max(left, free)
    weights = BYTES_PER_WEIGHT * num_parameters(job.model)
    source = "--reserve" if reserved else "by the estimate free under the plan"
    tp = next((n for n in sizes if weights / n <= MOST_WEIGHTS * left), 0)
    if not tp:
        raise UnsupportedError(
            f"{called} generates on the GPUs that train: {max(left, 0) / GIB:.1f} GiB of each are "
            f"{source}, and the weights of its engine take {weights / GIB / sizes[-1]:.1f} GiB on "
            f"{sizes[-1]}: search with --reserve {ceil(least / GIB)}GiB or more"
        )
    share = int(100 * left / machine.memory_bytes) / 100
    why = (
        f"{left / GIB:.1f} GiB of every GPU, the --reserve of the plan"
        if reserved
        else f"the {left / GIB:.1f} GiB of every GPU that the estimate leaves free, since no "
        "--reserve states how much: give that to a search to choose it"
    )
    return Engine(share, tp, f"the rollout engine has {share:g} of the memory of a GPU: {why}")


def least_engine_bytes(job: Job) -> int:
    """What an engine takes of each GPU at least, in bytes: its weights over all that share them.

    Source: derived, as `rollout_engine`.
    """
    weights = BYTES_PER_WEIGHT * num_parameters(job.model)
    return ceil(weights / _sizes(job)[-1] / MOST_WEIGHTS)


def _sizes(job: Job) -> list[int]:
    """Powers of two that divide the GPUs and the heads."""
    world, heads = job.cluster.num_gpus, job.model.num_attention_heads
    sizes = [1]
    while world % (size := 2 * sizes[-1]) == 0 and heads % size == 0:
        sizes.append(size)
    return sizes
