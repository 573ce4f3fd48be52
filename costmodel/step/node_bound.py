"""A coarse lower bound of the step time, before virtual stages and sharding are chosen."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.blocks import Blocks, block_counts, blocks, distinct_keys
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step.estimate import p2p_seconds, with_overhead

Each = Callable[[Callable[[Candidates], FloatColumn], Sequence[Candidates]], Iterable[FloatColumn]]
"""What `map` does with one function and some candidates."""
KEYS_AT_ONCE = 16_384
"""Block keys priced together: there are 100,000, and their columns stay in the processor's cache.

Source: measured, 8,000 to 45,000 take three quarters of the time of all at once.
"""


def node_bound_seconds(candidates: Candidates, each: Each = map) -> FloatColumn:
    """Seconds no choice of vpp, schedule, ZeRO stage, recomputation or offload can beat.

    A step takes as long as its slowest rank, hence at least the mean over ranks of

        m (F + B) + the way to the rank,

    and the way to rank r sends r messages and crosses r stages, of which only the first may be
    empty, in both directions where every schedule waits for the whole backward pass on its way
    home. A schedule that sends input gradients first leaves the way there; one that counts a step
    from each rank's own first pass leaves neither. `each` prices pieces of the work, in order.
    Source: the mean over ranks r = 0 ... pp - 1 of the text above, with r messages and max(0, r -
    1) stages, (pp - 1)(pp - 2) / 2pp in the mean; tests/properties/test_bounds.py holds it below
    `estimate.price`.
    """
    table = candidates.table
    keys, key = distinct_keys(candidates)
    priced = each(_of_keys, [keys.with_table(one) for one in keys.table.batches(KEYS_AT_ONCE)])
    total, crossing = np.concatenate([np.zeros((2, 0)), *priced], axis=1)
    fill, drain = counts_fill_and_drain(candidates.traits)
    hops = (table.pp - 1) / 2
    crossed = hops * np.maximum(0, table.pp - 2) / table.pp
    messages = (fill + drain) * p2p_seconds(candidates)
    way = crossed * crossing[key] + hops * messages
    pipeline = num_microbatches(candidates.job, table) * total[key] / table.pp + way
    return with_overhead(candidates.machine, pipeline)


def _of_keys(keys: Candidates) -> FloatColumn:
    """The whole model and the cheapest crossing of a layer; (which, key). Source: as below."""
    kinds, model = blocks(keys), keys.job.model
    return np.stack([_whole_model(model, kinds), _crossing(kinds, keys.traits)])


def _whole_model(model: ModelSpec, kinds: Blocks) -> FloatColumn:
    """Forward and backward of one micro batch through all blocks.

    Source: a micro batch passes each block once each way, one after the other, so the seconds of a
    kind count as often as the model has it.
    """
    return np.asarray(
        sum(
            count * (block.forward.total + block.backward.total)
            for count, block in zip(block_counts(model), kinds.by_kind, strict=True)
        )
    )


def _crossing(kinds: Blocks, traits: RuntimeTraits) -> FloatColumn:
    """Seconds of the cheapest layer in the directions that every schedule counts.

    Source: as `node_bound_seconds`.
    """
    fill, drain = counts_fill_and_drain(traits)
    passes = [fill * one.forward.total + drain * one.backward.total for one in kinds.layers]
    return np.asarray(np.min(passes, axis=0))


def counts_fill_and_drain(traits: RuntimeTraits) -> tuple[bool, bool]:
    """Do all schedules of the runtime count the way to a rank, and all of the way home?

    One schedule that does not is enough to leave it out: the floor holds for every one.

    Source: as `node_bound_seconds`.
    """
    split = any(SCHEDULES[name].splits_backward for name in traits.pipeline.schedules)
    return not traits.pipeline.unsynchronised, not (split or traits.pipeline.unsynchronised)
