"""Candidates as columns: one row is one layout, one numpy array one field.

Formulas take a `LayoutTable` and give an array with one number a row; larger arrays name their
axes by an alias of `table`. A `Rule` states which rows are illegal and which columns it reads, so
the search can apply it early. `even_split` is how runtimes spread layers by themselves.

BLOCK: codes of the column `recompute_method`.
COLUMNS: all columns of a table in their order.
EMPTY_ENDS: stages that may hold no layer.
evenly: which rows leave the split of layers to the runtime, wherever its stages live?.
FIELDS: field of `Layout` of every column.
FULL: codes of the column `recompute`.
legal_rows: which rows break none of some rules.
is_torn: which groups of ranks borders of scale-up domains cut.
layers_per_stage: decoder layers of every virtual stage, in pipeline order.
LayoutTable: candidates as columns, one row a layout.
module_bits: bit set of modules as a column holds it.
moves_states: rows that keep states or what passes keep off the GPU, `offload_modules` left out.
NONE: codes of the column `recompute`.
num_microbatches: micro batches of one replica in one step.
offloads: do activations of any of these modules wait on the host?.
ON_DRIVE: codes of the column `offload_parameters`.
ON_HOST: codes of the column `offload_parameters`.
place: write the value of a field, or of a field of a field, where `Layout` takes it.
recomputes: does selective recomputation drop this module?.
Rule: one thing a legal layout must respect.
rule: turn a predicate into a `Rule`.
SELECTIVE: codes of the column `recompute`.
stage_codes: a number for every distinct `stages` of a table, and which.
stage_layers: layers of every virtual stage.
UNIFORM: codes of the column `recompute_method`.
"""

from trainplan.costmodel.layouts.rules import Rule, is_torn, legal_rows, num_microbatches, rule
from trainplan.costmodel.layouts.table import (
    BLOCK,
    COLUMNS,
    EMPTY_ENDS,
    FIELDS,
    FULL,
    NONE,
    ON_DRIVE,
    ON_HOST,
    SELECTIVE,
    UNIFORM,
    LayoutTable,
    evenly,
    layers_per_stage,
    module_bits,
    moves_states,
    offloads,
    place,
    recomputes,
    stage_codes,
    stage_layers,
)
