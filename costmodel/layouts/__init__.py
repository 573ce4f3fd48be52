"""Candidates as columns: one row is one layout, one numpy array one field.

Formulas take a `LayoutTable` and give an array with one number a row; larger arrays name their
axes by an alias of `table`. A `Rule` says which rows are illegal and which columns it reads, so the
search can apply it early. `even_split` is how runtimes spread layers by themselves.
"""

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn, distinct
from trainplan.costmodel.layouts.even_split import layers_per_stage, stage_layers
from trainplan.costmodel.layouts.rules import Rule, num_microbatches, rule
from trainplan.costmodel.layouts.table import LayoutTable

__all__ = [
    "BoolColumn",
    "FloatColumn",
    "IntColumn",
    "LayoutTable",
    "Rule",
    "distinct",
    "layers_per_stage",
    "num_microbatches",
    "rule",
    "stage_layers",
]
