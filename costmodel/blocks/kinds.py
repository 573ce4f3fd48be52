"""Seconds and bytes of each kind of block, for one micro batch on one rank.

Blocks depend on few columns (`KEY`), so they are priced once for each distinct key and candidates
gather them by row number.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from trainplan.costmodel.architecture import ATTENTIONS, ModelSpec, trains_embedding, trains_head
from trainplan.costmodel.blocks.accumulation import (
    adds_whole,
    always_added_bytes,
    counted_microbatches,
    layer_weights,
)
from trainplan.costmodel.blocks.activations import norm_module
from trainplan.costmodel.blocks.adapters import adapter_casts
from trainplan.costmodel.blocks.attention.core import all_but_projections
from trainplan.costmodel.blocks.attention.packed import waiting_columns
from trainplan.costmodel.blocks.block import Block
from trainplan.costmodel.blocks.embedding_and_head import (
    embedding_passes,
    head_passes,
    mtp_projection_passes,
)
from trainplan.costmodel.blocks.exchanges import (
    overlapped_columns,
    slots_of,
    waits_for_exchange,
    with_exposed,
)
from trainplan.costmodel.blocks.feed_forward.mlp import mlp_part
from trainplan.costmodel.blocks.feed_forward.moe import moe_part
from trainplan.costmodel.blocks.host import Launches, layer_launches
from trainplan.costmodel.blocks.measured_layers import (
    Levels,
    Passes,
    end_levels,
    layer_sizes,
    levels,
    scaled,
)
from trainplan.costmodel.blocks.mixers import MIXER_PARTS
from trainplan.costmodel.blocks.parts import (
    Module,
    Part,
    PassSeconds,
    Shapes,
    by_its_library,
    pass_seconds,
    shapes,
    under_power_limit,
)
from trainplan.costmodel.blocks.residual import side_part
from trainplan.costmodel.blocks.tower import TowerBlock, tower_block, with_tower
from trainplan.costmodel.blocks.trained import frozen_layer, frozen_passes, with_frozen_weights
from trainplan.costmodel.candidates import Candidates, of_kinds, remembered
from trainplan.costmodel.columns import FloatColumn, IntColumn, distinct
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.shards import matrix_shards

KEY = (
    *("tp", "cp", "ep", "etp", "sequence_parallel", "micro_batch_size"),
    *("tiled_loss", "tiled_mlp", "cp_heads"),
)
"""Columns a block depends on, with the micro batches of a step where their number changes it, and
with whether the pipeline makes gradients tensors of their own; packed rows also on who waits for
whom."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """All kinds of block of one model."""

    layers: tuple[Block, ...]
    """One of each kind, in the order of `ModelSpec.kinds`."""
    embedding: Block
    head: Block
    mtp: Block
    layer_input_bytes: FloatColumn
    """What full recomputation keeps of a layer: its input."""
    tower: TowerBlock | None
    """Runs beside the embedding; not in it."""

    @property
    def by_kind(self) -> tuple[Block, ...]:
        """Each kind of layer, embedding with the tower, head, MTP."""
        return *self.layers, with_tower(self.embedding, self.tower), self.head, self.mtp


def block_counts(model: ModelSpec) -> tuple[int, ...]:
    """Blocks of the model, in the order of `Blocks.by_kind`."""
    layers = Counter(model.kind_of_layer)
    return *(layers[kind] for kind in sorted(layers)), 1, 1, model.num_nextn_predict_layers


def _other_key_columns(candidates: Candidates) -> tuple[IntColumn, ...]:
    """The parts of a key that are no columns of every block."""
    whole = adds_whole(candidates.traits, candidates.table)
    added = counted_microbatches(candidates), whole.astype(np.int64)
    apart = matrix_shards(candidates.table)[:1]  # context ranks are so far apart
    overlapped = overlapped_columns(candidates)
    return (*added, *waiting_columns(candidates), adapter_casts(candidates), *apart, *overlapped)


def distinct_keys(candidates: Candidates) -> tuple[Candidates, IntColumn]:
    """Distinct block keys of a table, and for each row the number of its key."""
    table = candidates.table
    if len(table) == 1:
        return candidates, np.zeros(1, dtype=np.int64)
    first, key = distinct(*(getattr(table, name) for name in KEY), *_other_key_columns(candidates))
    return candidates.take(first), key


@remembered
def blocks(keys: Candidates) -> Blocks:
    """Price every kind of block of the model for each key."""
    columns = shapes(keys)
    layers = tuple(_layer_at_level(keys, kind) for kind in range(len(keys.job.model.kinds)))
    head = _end_at_level(columns, head=True)
    layer_input = columns.storage * columns.tokens * keys.job.model.hidden_size
    return Blocks(
        layers=layers,
        embedding=_end_at_level(columns, head=False),
        head=head,
        mtp=_mtp(columns, [layers[kind] for kind in keys.job.model.kinds_of_module], head),
        layer_input_bytes=layer_input / columns.residual_shards,
        tower=tower_block(keys, _layer_of_kind),
    )


def _of_kind(keys: Candidates, kind: int) -> Shapes:
    """The columns of a layer of that kind, whose products may multiply in 16 bits."""
    columns, job = shapes(keys), of_kinds(keys)[kind].job
    machine = columns.machine
    if columns.job.training.casts and not job.training.casts:
        machine = replace(machine, linear=machine.half)
    return replace(columns, job=job, machine=machine)


@remembered
def _mixer(keys: Candidates, kind: int) -> Part:
    """What mixes tokens in a layer of that kind: it knows nothing of experts."""
    return _mixer_part(_of_kind(keys, kind))


def _mixer_part(columns: Shapes) -> Part:
    model = columns.job.model
    base = columns if model.trained is None else with_frozen_weights(columns)
    return MIXER_PARTS[model.mixer](base)


def _layer_of_kind(columns: Shapes, mixer: Part | None = None) -> Block:
    """A layer of a model with one kind."""
    model = columns.job.model
    experts = model.feed_forward == "moe"
    latent = model.mla is not None and model.mixer in ATTENTIONS
    norms, launches = norm_module(columns, experts + latent), layer_launches(columns)
    base = columns if model.trained is None else with_frozen_weights(columns)
    first, second, width = mixer or _mixer_part(columns), None, model.intermediate_size
    if model.feed_forward != "none":
        second = moe_part(base) if experts else mlp_part(base, width, "mlp")
    if model.side_products:
        first += side_part(columns)
    if model.trained is None:
        part = first if second is None else first + second
        added = columns.accumulation_seconds(layer_weights(model, columns.table))
        return _layer(columns, part.accumulating(added), norms, launches)
    part = frozen_layer(columns, first, second)
    unread = replace(norms, dropped_bytes=np.zeros(columns.size))
    block = _layer(columns, part, unread, launches)
    return block if model.trained.passes_gradient else block.forward_alone()


@remembered
def _layer_at_level(keys: Candidates, kind: int) -> Block:
    """A layer of a model with one kind, at the level of those that were measured, if any were."""
    columns = _of_kind(keys, kind)
    block, moe = (
        _layer_of_kind(columns, _mixer(keys, kind)),
        columns.job.model.feed_forward == "moe",
    )
    if not columns.machine.layers or not _measured(columns.job.model):
        return block

    def parts(keys: Candidates, in_step: bool) -> Passes:  # noqa: FBT001 (of a callable type)
        layer = _layer_of_kind(_measured_shapes(_of_sort(keys, moe=moe), in_step=in_step))
        return Passes(layer.forward, layer.backward)

    measured = levels(columns, parts, moe=moe)
    sizes = layer_sizes(columns.job.model, columns.job.training.seq_length, columns.table, moe=moe)
    return _scaled(block, measured, sizes) if measured else block


def _measured(model: ModelSpec) -> bool:
    """Is it a layer as those that are measured: attention, and a feed-forward half?"""
    return model.mixer in ATTENTIONS and model.feed_forward != "none"


def _of_sort(keys: Candidates, *, moe: bool) -> Candidates:
    """Layouts with a model of the first kind of layer that has experts, or has none."""
    for kind in of_kinds(keys):
        model = kind.job.model
        if _measured(model) and (model.feed_forward == "moe") == moe:
            return kind
    dense = keys.job.model.model_copy(update={"moe": None, "feed_forward": "mlp"})
    return replace(keys, job=keys.job.model_copy(update={"model": dense}))


def _end_at_level(columns: Shapes, *, head: bool) -> Block:
    """The embedding or the head at the level of those that were measured, where some were."""
    passes, model = head_passes if head else embedding_passes, columns.job.model
    if (trains_head if head else trains_embedding)(model):
        block = _end(columns, *passes(columns))
    else:
        forward, backward, weight = passes(with_frozen_weights(columns))
        backward = frozen_passes(backward, weight)
        block = _end(columns, forward, backward, np.zeros(columns.size))
        block = block if head else block.forward_alone()
    if not columns.machine.ends:
        return block

    def parts(keys: Candidates, in_step: bool) -> Passes:  # noqa: FBT001 (of a callable type)
        forward, backward, _ = passes(_measured_shapes(keys, in_step=in_step))
        return Passes(forward, backward)

    measured = end_levels(columns, parts, head=head)
    hidden = np.full(columns.size, float(model.hidden_size))
    sizes = (columns.tokens, hidden, model.vocab_size / columns.table.tp)
    return _scaled(block, measured, sizes) if measured else block


def _measured_shapes(keys: Candidates, *, in_step: bool) -> Shapes:
    """Blocks as they are measured: in a step all gradients meet others, alone none do."""
    columns = shapes(keys)
    if in_step:
        return replace(columns, added_bytes=always_added_bytes(keys))
    return replace(columns, added_bytes=np.zeros(columns.size), table_added_bytes=0)


def _scaled(block: Block, measured: Levels, sizes: Sequence[FloatColumn]) -> Block:
    forward, backward = measured.factors(sizes)
    inside = measured.collectives_inside
    return replace(
        block,
        forward=scaled(block.forward, forward, tensor_parallel=inside),
        backward=scaled(block.backward, backward, tensor_parallel=inside),
        weight=block.weight * backward,
        modules=tuple(replace(one, seconds=one.seconds * forward) for one in block.modules),
        recompute_forward=scaled(block.recompute_forward, forward, tensor_parallel=inside),
        host_ahead=block.host_ahead * backward,
    )


def _layer(columns: Shapes, part: Part, norms: Module, host: Launches) -> Block:
    """A layer of its parts, at the clock they allow, with the time the GPU waits for the host.

    A forward pass that is repeated runs inside a backward pass as a whole: no other micro batch is
    beside its exchange of tokens.
    """
    size = columns.size
    part = _graphed(columns, part)
    slots = slots_of(part)
    part = replace(
        part,
        forward=by_its_library(columns, part.forward),
        backward=by_its_library(columns, part.backward),
        tail=by_its_library(columns, part.tail),
    )
    overlapped = with_exposed(columns, part, slots, host)
    whole = under_power_limit(columns.machine, part, overlapped, host.sync_seconds)
    part = with_exposed(columns, whole, slots, host)
    alone = waits_for_exchange(columns)
    behind = part.backward.total - alone * part.backward.ep_comm
    repeated = whole.forward - whole.tail if columns.traits.recompute.stops_early else whole.forward

    def waiting(forward: PassSeconds) -> PassSeconds:
        busy = forward.total - alone * forward.ep_comm
        return forward + pass_seconds(size, host=host.waiting_forward(busy))

    return Block(
        forward=waiting(part.forward),
        backward=part.backward + pass_seconds(size, host=host.waiting_backward(behind)),
        weight=part.weight,
        saved_bytes=part.saved_bytes,
        modules=(
            *map(host.launching, (*part.modules, norms)),
            *all_but_projections(columns, repeated, part.saved_bytes),
        ),
        recompute_forward=waiting(repeated),
        host_ahead=host.ahead(behind),
    )


def _graphed(columns: Shapes, part: Part) -> Part:
    """A part of whose layer graphs hold a half: what enters them is copied to where they read.

    Source: NVIDIA/TransformerEngine `pytorch/graph.py`, Graphed: the input forward, and backward
    the gradients of what leaves the graph, the residual and the input of the experts.
    """
    if columns.traits.host.cuda_graph != "partial":
        return part
    moved = 2 * columns.storage * columns.tokens * columns.job.model.hidden_size
    copy = elementwise_seconds(columns.machine, moved / columns.residual_shards)
    return replace(
        part,
        forward=part.forward + pass_seconds(columns.size, elementwise=copy),
        backward=part.backward + pass_seconds(columns.size, elementwise=2 * copy),
    )


def _end(
    columns: Shapes, forward: PassSeconds, backward: PassSeconds, weight: FloatColumn
) -> Block:
    nothing = np.zeros(columns.size)
    forward, backward = (by_its_library(columns, one) for one in (forward, backward))
    return Block(
        forward,
        backward,
        weight,
        saved_bytes=nothing,
        modules=(),
        recompute_forward=forward,
        host_ahead=nothing,
    )


def _mtp(columns: Shapes, layers: Sequence[Block], head: Block) -> Block:
    """One multi-token-prediction module: projection, its layers, and the shared head again.

    Source: DeepSeek-V3, arXiv:2412.19437, section 2.2.
    """
    frozen = columns.job.model.trained is not None and columns.job.model.trained.adapts
    forward, backward, weight = mtp_projection_passes(
        with_frozen_weights(columns) if frozen else columns
    )
    if frozen:
        backward, weight = frozen_passes(backward, weight), np.zeros(columns.size)
    joined = 2 * columns.storage * columns.tokens * columns.job.model.hidden_size
    inside = reduce(add, layers)
    forward = inside.forward + head.forward + forward
    return Block(
        forward=forward,
        backward=inside.backward + head.backward + backward,
        weight=inside.weight + head.weight + weight,
        saved_bytes=inside.saved_bytes + joined / columns.residual_shards,
        modules=inside.modules,
        recompute_forward=forward,
        host_ahead=inside.host_ahead,
    )
