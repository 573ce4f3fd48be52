"""What one block more on a rank costs: seconds, bytes and parameters of every kind of block.

All that a pipeline rank does and holds is a sum over its blocks, so these numbers and the blocks of
each rank give its work and memory for any split of the layers. They come from the same formulas as
an estimate, asked for ranks that hold one block each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows, FloatColumn, IntColumn
from trainplan.costmodel.memory import (
    RankParams,
    rank_memory,
    rank_optimizer_bytes,
    rank_params,
    updated_params,
)
from trainplan.costmodel.pipeline import ENDS, Ranks
from trainplan.costmodel.step import Costed
from trainplan.costmodel.traffic import (
    rank_offload_seconds,
    rank_optimizer_seconds,
    rank_update_seconds,
)

EMBEDDING, HEAD, MTP = -3, -2, -1
"""Kinds of block that are no layers stand behind those that are: 0, 1, ... as `ModelSpec.kinds`."""


Kinds = tuple[int, ...]
"""The kind of every layer in order."""


def layer_counts(kinds: Kinds) -> tuple[tuple[int, int], ...]:
    """Kinds of decoder layer, and how many of each."""
    return tuple(sorted(Counter(kinds).items()))


def usual_layers(kinds: Kinds) -> tuple[int, int]:
    """The kind of decoder layer that there is most of, and how many."""
    return max(layer_counts(kinds), key=lambda pair: pair[1])


Choice = Callable[..., FloatColumn]
"""`np.min` or `np.max`."""
PASSES = ("forward", "backward", "weight", "recompute_forward", "saved_bytes", "freed_bytes")
STATES = ("state_bytes", "optimizer_bytes", "optimizer", "offload")
"""Costs of passes, and of states."""


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """Costs of one block of each kind; matrices have shape (kind, row)."""

    kinds: Kinds
    forward: FloatColumn
    """Seconds of one micro batch, as the other passes."""
    backward: FloatColumn
    weight: FloatColumn
    recompute_forward: FloatColumn
    """Of `backward`, what full recomputation adds."""
    state_bytes: FloatColumn
    """Weights, gradients and optimizer states on the device."""
    optimizer_bytes: FloatColumn
    """Optimizer states, on the device or the host."""
    saved_bytes: FloatColumn
    """Activations of one micro batch between its passes, where the layer is not recomputed."""
    freed_bytes: FloatColumn
    """Of those that waiting on the host takes off the device."""
    input_bytes: FloatColumn
    """Of one layer, what full recomputation keeps; of each row."""
    params: RankParams
    """Those that are trained."""
    optimizer: FloatColumn
    """Seconds of the optimizer step on the device."""
    offload: FloatColumn
    """Seconds that the offloaded share adds."""

    def take(self, rows: IntColumn) -> BlockCosts:
        """Some of the rows."""
        columns = {name: getattr(self, name)[:, rows] for name in (*PASSES, *STATES)}
        params, inputs = self.params.take(rows), self.input_bytes[rows]
        return replace(self, params=params, input_bytes=inputs, **columns)

    def with_one_kind(self, *, states: Choice, passes: Choice) -> BlockCosts:
        """The same with as many layers of one kind: of any kind the least, or the most.

        With the least of both no split takes longer or more memory than it does with all kinds;
        with the least states and the longest passes none has more traffic behind its passes.
        """

        def merged(column: FloatColumn, choose: Choice) -> FloatColumn:
            return np.concatenate([choose(column[:EMBEDDING], axis=0)[None], column[EMBEDDING:]])

        experts = self.params.expert
        params = RankParams(
            merged(self.params.shared, states),
            merged(experts, states) if self.params.has_experts else experts,
            self.params.has_experts,
        )
        columns = {name: merged(getattr(self, name), passes) for name in PASSES}
        columns |= {name: merged(getattr(self, name), states) for name in STATES}
        return replace(self, kinds=(0,) * len(self.kinds), params=params, **columns)

    @property
    def as_if_alike(self) -> BlockCosts:
        """Layers that are all as cheap as the cheapest: a lower bound of any split."""
        return self.with_one_kind(states=np.min, passes=np.min)

    @property
    def bounding(self) -> tuple[BlockCosts, ...]:
        """Costs whose bounds hold, each for itself: these, and of several kinds `as_if_alike`."""
        return (self, self.as_if_alike) if len(set(self.kinds)) > 1 else (self,)

    def with_room(self, fraction: FloatColumn | float) -> BlockCosts:
        """The same where so much more of the optimizer is on the host, at no cost of time."""
        return replace(self, state_bytes=self.state_bytes - fraction * self.optimizer_bytes)


def block_costs(priced: Costed) -> BlockCosts:
    """Costs of every kind of block for each row of a priced table."""
    table = priced.table
    units = _one_block_each(len(priced.job.model.kinds) + ENDS, len(table))
    blocks, params = priced.gathered, priced.params
    held = rank_params(units, params)
    memory = rank_memory(priced, blocks, ranks=units, params=params, held=held)
    updated = updated_params(table, held)
    seconds = priced.seconds.by_kind
    freed = [one.copies.freed_bytes for one in blocks.layers]
    return BlockCosts(
        kinds=priced.job.model.kind_of_layer,
        freed_bytes=np.stack([*freed, *np.zeros((ENDS, len(table)))]),
        forward=np.stack([one.forward for one in seconds]),
        backward=np.stack([one.backward for one in seconds]),
        weight=np.stack([one.weight for one in seconds]) * priced.seconds.splits_backward,
        recompute_forward=np.stack([one.recompute_forward for one in seconds]),
        state_bytes=memory.weights + memory.gradients + memory.optimizer,
        optimizer_bytes=_optimizer_bytes(priced, units, held),
        saved_bytes=memory.activations,
        input_bytes=blocks.kinds.layer_input_bytes[blocks.key],
        params=held.with_gradients,
        optimizer=rank_optimizer_seconds(priced.machine, table, held, updated)
        + rank_update_seconds(priced, priced.machine, units),
        offload=rank_offload_seconds(priced.machine, table, updated),
    )


def _optimizer_bytes(candidates: Candidates, units: Ranks, held: RankParams) -> ClassRows:
    """Bytes of optimizer states of some blocks where nothing is offloaded.

    Source: `rank_optimizer_bytes`.
    """
    table = candidates.table
    whole = candidates.with_table(table.replaced(offload_optimizer=np.zeros(len(table))))
    return rank_optimizer_bytes(whole, units, held.with_gradients)


def _one_block_each(kinds: int, rows: int) -> Ranks:
    """Ranks that hold one block, of each kind in turn, and the activations of one micro batch."""
    one = np.repeat(np.eye(kinds)[:, :, None], rows, axis=2)
    none, layers = np.zeros((kinds, rows)), tuple(one[:EMBEDDING])
    nothing = (none,) * len(layers)
    return Ranks(
        layers=layers,
        embedding=one[EMBEDDING],
        head=one[HEAD],
        mtp=one[MTP],
        rank=none,
        before=nothing,
        recomputed=nothing,
        recomputed_before=nothing,
        whole_held=layers,
        mtp_held=one[MTP],
        embedding_held=one[EMBEDDING],
        received_held=none,
        inputs_held=none,
        layers_at_once=none,
    )
