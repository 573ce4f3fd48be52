"""Layers on stages, stages on ranks, and a proven lower bound of the pipelined part of a step.

`stages` fills virtual stages with layers, `ranks` sums what each pipeline rank holds, `node_groups`
has which ranks live in which machines, `bound` is the closed form that never exceeds a simulation.

adds_to_a_copy: whether a rank holds one of two copies of the token table.
COLUMNS: all columns of a `LayerSeconds` in their order.
decoder_of: the layers of a model in order, as far as stages care.
ENDS: number of kinds of block that are no layers: embedding, head, MTP module.
group_jobs: the job on each node group alone.
in_groups: rows that state the node group of each stage.
is_heterogeneous: whether it matters which node group runs a stage.
layer_seconds: seconds of one kind of block gathered for each row.
layers_before: layers of each kind before every layer, (layer, kind).
LayerSeconds: seconds of one layer of a kind for each row: forward, backward, parts of them.
misplaced: whether stages of a row do not lie in the node groups as whole ranks.
pipeline_lower_bound: seconds that no order of a schedule's passes beats, by row.
rank_groups: node group of every pipeline rank.
rank_seconds: seconds of each rank class and of the way to it.
Ranks: layers, embeddings, heads and what is held, of each rank class and row.
ranks_of: those of every row of a table of layouts.
recomputed_layers: layers of each kind that full recomputation repeats, (row, stage).
RowSeconds: seconds of every kind of block for each row.
splits_backward: rows whose schedule runs weight gradients as passes of their own.
stage_groups: node group of every virtual stage.
stage_layers: layers of each kind, embedding, head and MTP modules of every virtual stage.
StageLayers: the same as columns over stages.
table_sum_seconds: seconds in which ranks with a copy of the token table add its gradients.
unsynchronised: rows whose ranks start their next step without waiting for the last rank.
waits_for_messages: rows in which a rank computes nothing while it sends or receives.
"""

from trainplan.costmodel.pipeline.bound import (
    COLUMNS,
    LayerSeconds,
    RowSeconds,
    adds_to_a_copy,
    layer_seconds,
    pipeline_lower_bound,
    rank_seconds,
    splits_backward,
    table_sum_seconds,
    unsynchronised,
    waits_for_messages,
)
from trainplan.costmodel.pipeline.node_groups import (
    group_jobs,
    in_groups,
    is_heterogeneous,
    misplaced,
    rank_groups,
    stage_groups,
)
from trainplan.costmodel.pipeline.ranks import Ranks, ranks_of
from trainplan.costmodel.pipeline.stages import (
    ENDS,
    StageLayers,
    decoder_of,
    layers_before,
    recomputed_layers,
    stage_layers,
)
