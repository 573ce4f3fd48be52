"""A tower on GPUs of its own: its step, its memory, and the hand-over to the decoder.

It runs data-parallel, over tensor ranks where its matrices can be cut, with a sharded optimizer.
Its micro batches are samples, not sequences. It keeps the activations of all samples that wait for
their gradients from the decoder; or the inputs of its layers and repeats those; or the patches
alone and runs all forward again.
Source: Zhang et al., DistTrain, arXiv:2408.04275, sections 4 and 5 (encoder and decoder on GPUs of
their own, each with its parallelism).
"""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.architecture import TowerSpec
from trainplan.costmodel.axes import tp_divides_tower
from trainplan.costmodel.blocks import TowerBlock, row_blocks
from trainplan.costmodel.candidates import Candidates, context_of
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.comm import message_seconds
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.memory import (
    RESERVE_FACTOR,
    RankParams,
    TowerParams,
    tower_bytes,
    tower_rank_params,
    updated_params,
    workspace_bytes,
)
from trainplan.costmodel.schedules import SCHEDULES, RankSeconds, earliest_ends
from trainplan.costmodel.step import with_overhead
from trainplan.costmodel.traffic import (
    exposed_seconds,
    rank_optimizer_seconds,
    step_traffic_seconds,
)

KEPT = ("all", "inputs of layers", "patches")
"""What a tower keeps from forward to backward, by what it costs: nothing, its layers again, all of
its forward pass again."""


@dataclass(frozen=True, slots=True)
class TowerStep:
    """The fastest way of a tower through its samples of a step on so many GPUs."""

    num_gpus: int
    tp: int
    dp: int
    samples_at_once: int
    """Of each replica."""
    keeps: str
    step_s: float
    forward_s: float
    """Of one pass, as `backward_s`."""
    backward_s: float
    used_bytes: float
    least_sample_s: float
    """Both passes of one sample at least, by any way through it."""


def tower_on_gpus(
    job: Job, machine: Machine, memory_bytes: float, waiting: int
) -> TowerStep | None:
    """The fastest that fits, on all GPUs of the job's cluster; null: nothing fits.

    `waiting` are samples whose gradients are not back; a replica holds at least one pass.
    Source: the sum of its passes, the gradient traffic that outlasts them and the update, as
    `costmodel.step.estimate`.
    """
    rows = _ways(job, machine)
    tower, blocks = job.model.tower, row_blocks(rows)
    made = blocks.kinds.tower
    assert tower is not None
    assert made is not None
    params = tower_rank_params(tower, rows.table)
    own, samples = rows.table.micro_batch_size, rows.job.training.global_batch_size
    passes = np.ceil(samples / rows.table.dp / own).astype(np.int64)
    held = np.minimum(passes, 1 + -(-waiting // (rows.table.dp * own)))
    state = tower_bytes(rows, blocks, params)
    outside = rows.traits.footprint.outside(machine.outside_bytes)
    best: TowerStep | None = None
    for keeps in KEPT:
        forward, backward, kept = _kept(rows, made, blocks.key, keeps)
        seconds = _step_seconds(rows, params, forward, backward, passes=passes)
        allocated = state + held * kept + workspace_bytes(job, rows.traits)
        used = allocated * RESERVE_FACTOR + outside
        seconds = np.where(used <= memory_bytes, seconds, np.inf)
        row = int(np.argmin(seconds))
        if np.isfinite(seconds[row]) and (best is None or seconds[row] < best.step_s):
            best = TowerStep(
                job.cluster.num_gpus,
                int(rows.table.tp[row]),
                int(rows.table.dp[row]),
                samples_at_once=int(own[row]),
                keeps=keeps,
                step_s=float(seconds[row]),
                forward_s=float(forward[row]),
                backward_s=float(backward[row]),
                used_bytes=float(used[row]),
                least_sample_s=_least_sample(rows, made, blocks.key),
            )
    return best


def _ways(job: Job, machine: Machine) -> Candidates:
    """Every tensor degree that a node holds and every power of two of samples at once."""
    tower, gpus = job.model.tower, job.cluster.num_gpus
    assert tower is not None
    alone = tower.model_copy(update={"samples_per_sequence": 1})
    training = job.training.model_copy(
        update={"global_batch_size": job.training.global_batch_size * tower.samples_per_sequence}
    )
    model = job.model.model_copy(update={"tower": alone})
    of_samples = job.model_copy(update={"model": model, "training": training})
    most = machine.gpus_per_node if tower.tensor_parallel else 1
    layouts = [
        Layout(tp=tp, dp=gpus // tp, micro_batch_size=1 << power, zero_stage=1)
        for tp in range(1, most + 1)
        if gpus % tp == 0
        for power in range(_each(training.global_batch_size, gpus // tp).bit_length())
    ]
    table = LayoutTable.of(layouts)
    table = table.take(~tp_divides_tower.broken(of_samples, table))
    return context_of(of_samples, machine).with_table(table)


def _least_sample(rows: Candidates, made: TowerBlock, key: IntColumn) -> float:
    """Seconds of both passes of a sample, nothing repeated.

    Source: derived; whatever way is chosen for the tower, none of all the ways is faster than this.
    """
    both = (made.block.forward.total + made.block.backward.total)[key]
    return float((both / rows.table.micro_batch_size).min())


def _each(samples: int, replicas: int) -> int:
    """Samples of the replica that has most."""
    return -(-samples // replicas)


def _kept(
    rows: Candidates, made: TowerBlock, key: IntColumn, keeps: str
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Seconds of both passes, and bytes that one keeps.

    Source: derived; what is repeated adds its forward seconds to the backward pass, and what is not
    kept is made again: KEPT.
    """
    block, tower = made.block, rows.job.model.tower
    assert tower is not None
    forward, backward = block.forward.total[key], block.backward.total[key]
    if keeps == "all":
        return forward, backward, block.saved_bytes[key]
    if keeps == "inputs of layers":
        return forward, backward + block.recompute_forward.total[key], made.recomputed_bytes[key]
    read = sum(one.in_features * one.rows for one in tower.embeddings)
    patches = rows.table.micro_batch_size.astype(np.float64) * tower.patches_per_sample
    # a pass that runs again holds what it keeps until its backward pass has used it
    return forward, backward + forward, rows.job.training.storage_bytes * patches * read


def _step_seconds(
    rows: Candidates,
    params: TowerParams,
    forward: FloatColumn,
    backward: FloatColumn,
    *,
    passes: IntColumn,
) -> FloatColumn:
    """All passes of a replica, what its gradient traffic exposes, and the update.

    Source: as `costmodel.step.estimate`, of ranks that hold the tower alone.
    """
    nothing = np.zeros((1, len(rows.table)))
    work = RankSeconds(
        forward[None], backward[None], nothing, nothing, nothing, unsynchronised=nothing[0] > 0
    )
    held = RankParams(params.trained[None], nothing, has_experts=False)
    traffic = step_traffic_seconds(rows, held, work)
    busy = passes * (forward + backward)
    exposed = exposed_seconds(busy, earliest_ends(work, passes), traffic)
    updated = updated_params(rows.table, held)
    update = rank_optimizer_seconds(rows.machine, rows.table, held, updated).max(axis=0)
    return with_overhead(rows.machine, busy + exposed + update)


def handed_seconds(job: Job, machine: Machine, tower: TowerSpec, sequences: int) -> float:
    """One message of the tokens of so many sequences to a replica of the decoder.

    By one NIC, or one link within a node. Source: `message_seconds`.
    """
    handed = job.training.storage_bytes * sequences * tower.tokens_per_sequence
    size = np.array([float(handed * job.model.hidden_size)])
    across = float(job.cluster.num_nodes > 1)
    nic = machine.nic_bytes_per_second * machine.constants.nic_efficiency
    link = machine.link_bytes_per_second[:1]
    return float(message_seconds(machine, size, np.array([across]), link, np.array([nic]))[0])


def exposed_by_handing_over(
    job: Job, machine: Machine, step: TowerStep, sequences: int, replicas: int
) -> tuple[float, float]:
    """Seconds that a step of the decoder waits for the tower, and one of the tower for messages.

    The decoder begins when the samples of the first micro batch of each of its replicas have
    passed the tower and arrived; behind its end the tower still runs the last of them backward. A
    tower that is frozen whole works a step ahead, so only messages are left.
    Source: derived; the two ends of a pipeline of two stages; a pass of fewer samples takes its
    share of a whole one.
    """
    tower = job.model.tower
    assert tower is not None
    message = handed_seconds(job, machine, tower, sequences)
    if tower.frozen == "all":
        return message, message
    first = sequences * replicas * tower.samples_per_sequence
    share = -(-first // step.dp) / step.samples_at_once
    return share * (step.forward_s + step.backward_s) + 2 * message, 2 * message


def least_exposed(job: Job, machine: Machine, step: TowerStep) -> tuple[float, float]:
    """The same of any layout of the decoder, at least: one sequence, one sample of it.

    Source: more sequences or replicas take no fewer rounds and no smaller messages.
    """
    tower = job.model.tower
    assert tower is not None
    message = handed_seconds(job, machine, tower, 1)
    if tower.frozen == "all":
        return message, message
    return step.least_sample_s + 2 * message, 2 * message


def waiting_samples(job: Job, layout: Layout) -> int:
    """Samples that a decoder of this layout, and the link to it, hold at once.

    Source: micro batches that fill its pipeline, of every replica, and one on its way.
    """
    tower, schedule = job.model.tower, SCHEDULES[layout.schedule]
    assert tower is not None
    sequences = layout.dp * layout.micro_batch_size
    full = min(job.training.global_batch_size // sequences, schedule.rounds_to_fill * layout.pp)
    return (full + 1) * sequences * tower.samples_per_sequence


def joined(decoder_s: float, tower_s: float, exposed: tuple[float, float]) -> float:
    """Seconds of a step: the slower of the two, each with what it waits for.

    Source: derived; steps follow one another as far apart as the longer of both takes.
    """
    return max(decoder_s + exposed[0], tower_s + exposed[1])


def decoder_alone(job: Job) -> Job:
    """The job without its tower, whose tokens arrive from other GPUs."""
    model = job.model.model_copy(update={"tower": None, "name": f"{job.model.name} (decoder)"})
    return job.model_copy(update={"model": model})
