"""Energy of one step: what the GPUs draw while they multiply, move memory and wait.

energy = power limit of all GPUs x (waiting share x step
         + (1 - waiting share) x seconds of matrix products
         + (memory share - waiting share) x seconds of other kernels)

The last two are known before a schedule is run, and the first grows with the step time alone, so a
lower bound of seconds gives one of joules. Hosts, switches and cooling are not counted.
"""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.blocks import (
    Block,
    Blocks,
    PassSeconds,
    block_counts,
    blocks,
    distinct_keys,
)
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.run_costs.goodput import Goodput, goodput_of
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.step import Priced, price

WAITING_SHARE = 0.35
"""Power of a GPU that communicates or waits, over its power limit.

Source: midway between the troughs at the end of an iteration, 20 % (which is idle) and 50 % of the
limit on A100; Patel et al., POLCA, arXiv:2308.12908, section on training. It holds for bubbles
too: the kernel that waits for a message spins."""
MEMORY_SHARE = 0.6
"""Power of a GPU that runs kernels without reuse, over its power limit.

Source: assumed, between waiting and products; the same paper, section on inference, shows that
phases limited by memory draw visibly less than the limit."""
PRODUCTS_SHARE = 1.0
"""Power of a GPU in matrix products and attention, over its power limit.

Source: the same paper, section on training: peaks of an iteration reach the limit. Sustained
speeds of the catalog are those at the limit."""


@dataclass(frozen=True, slots=True)
class Energy(Context):
    """Joules of the layouts of one job."""

    limit_watts: float
    """Power limit of all GPUs together."""
    goodput: Goodput | None = None
    """What of the run is without training; null: not stated."""

    def joules(self, seconds: FloatColumn, busy: FloatColumn) -> FloatColumn:
        """Joules of one step of all GPUs.

        `busy` are the seconds at the power limit that draw as much above waiting as a GPU does.
        With failures each step has its share of the time that does not train.
        Source: the sum at the head of this module. All seconds of a run draw what waiting does;
        above it draws what trains, and what a failure undid once more.
        """
        if self.goodput is not None:
            seconds = seconds / self.goodput.fraction
            busy = busy * (1 + self.goodput.lost_fraction / self.goodput.fraction)
        return self.limit_watts * (WAITING_SHARE * seconds + busy / self.machine.speed)

    def of_step(self, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        """Joules of one step of all GPUs, whose simulated time is known.

        Source: the sum at the head of this module, each rank counted by itself.
        """
        priced = price(self.with_table(table), merged=False)
        return self.joules(seconds, self.busy(priced, separate=True))

    def least_busy(self, table: LayoutTable) -> FloatColumn:
        """Busy seconds of one GPU that no recomputation can fall below.

        Source: all ranks together run each micro batch through the whole model, the mean rank
        through 1 / pp of it; what is recomputed only adds.
        """
        keys, key = distinct_keys(self.with_table(table))
        kinds = blocks(keys)
        return self._share(table) * _whole_model(self.job.model, kinds)[key]

    def busy(self, priced: Priced, *, separate: bool) -> FloatColumn:
        """Busy seconds of one GPU, mean over ranks; a lower bound unless ranks are `separate`.

        Source: the mean rank runs 1 / pp of the model and of what is recomputed selectively; layers
        that are repeated as a whole are summed over the ranks that repeat them.
        """
        key, ranks = priced.key, priced.ranks
        total = _whole_model(self.job.model, priced.blocks)[key]
        total = total + _selective(self.job.model, priced)
        for again, layer in zip(ranks.recomputed, priced.blocks.layers, strict=True):
            repeated = _busy(layer.recompute_forward)[key]
            total = total + _over_ranks(again, priced.table, separate=separate) * repeated
        return self._share(priced.table) * total

    def _share(self, table: LayoutTable) -> FloatColumn:
        """Micro batches of a replica times the share of the model on one rank.

        Source: each micro batch of a replica goes through all `pp` ranks once, so the mean rank
        runs 1 / pp of the model for each.
        """
        return num_microbatches(self.job, table) / table.pp


def energy_of(job: Job, machine: Machine, traits: RuntimeTraits) -> Energy:
    """Energy of the layouts of a job.

    Raises:
        SpecError: The power limit of a GPU is unknown.
    """
    watts = job.islands * limit_watts(job.cluster)
    return Energy(job, machine, traits, watts, goodput_of(job))


def limit_watts(cluster: ClusterSpec) -> float:
    """Watts all GPUs of the cluster may draw together.

    Source: derived, the sum over node groups of GPUs x their limit, else `tdp_w` of the catalog.

    Raises:
        SpecError: The catalog has no power limit of a GPU.
    """
    total = 0.0
    for group in cluster.groups:
        usual = catalog.device(group).tdp_w
        limit = group.power_limit_w or (usual.value if usual else None)
        if limit is None:
            raise SpecError(
                f"the power limit of {group.gpu} is unknown, so its energy is too: choose another "
                "--objective, or give the group a `device` with `tdp_w`"
            )
        total += group.num_gpus * limit
    return total


def _busy(seconds: PassSeconds) -> FloatColumn:
    """Seconds at the limit that draw as much above waiting as one pass. Source: `Energy`."""
    products = (PRODUCTS_SHARE - WAITING_SHARE) * (seconds.gemm + seconds.attention)
    return products + (MEMORY_SHARE - WAITING_SHARE) * seconds.elementwise


def _whole_model(model: ModelSpec, kinds: Blocks) -> FloatColumn:
    """Busy seconds of one micro batch through all blocks, both ways.

    Source: blocks follow one another, so busy seconds add up: of each kind the number of blocks
    times those of both passes of one.
    """
    passes = zip(block_counts(model), kinds.by_kind, strict=True)
    return np.asarray(sum(n * (_busy(b.forward) + _busy(b.backward)) for n, b in passes))


def _selective(model: ModelSpec, priced: Priced) -> FloatColumn:
    """Busy seconds that selective recomputation adds: its seconds at the mix of a forward pass.

    Source: modules run again as they ran forward, so the share of their seconds that is busy is
    taken to be that of the whole forward pass of the block.
    """
    kinds = zip(block_counts(model), priced.blocks.by_kind, priced.seconds.by_kind, strict=True)
    parts = (n * seconds.recompute * _mix(block)[priced.key] for n, block, seconds in kinds)
    return np.asarray(sum(parts, start=np.zeros(len(priced.table))))


def _mix(block: Block) -> FloatColumn:
    """Busy share of the forward pass of a block.

    Source: busy seconds of the pass, as `_busy` weighs products and memory traffic, over all its
    seconds; none where it takes none.
    """
    total = block.forward.total
    return _busy(block.forward) / np.where(total > 0, total, 1.0)


def _over_ranks(layers: FloatColumn, table: LayoutTable, *, separate: bool) -> FloatColumn:
    """Sum over ranks of what is known of each; of classes of ranks, pp times the least.

    Source: each rank counts once, and a row with fewer ranks than others repeats its last one,
    which is left out; pp times the least class is no more than the sum over pp ranks.
    """
    if not separate:
        return np.asarray(table.pp * layers.min(axis=0))
    own = np.arange(len(layers))[:, None] < table.pp
    return np.asarray((layers * own).sum(axis=0))
