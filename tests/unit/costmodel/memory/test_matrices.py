"""The matrices of a block are those whose parameters `block_params` counts."""

from dataclasses import fields

import numpy as np
import pytest

from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.matrices import experts, of_blocks, products
from trainplan.costmodel.memory.states import BlockParams, block_params
from trainplan.costmodel.presets.presets import preset_names

LAYOUTS = LayoutTable.of(
    [
        Layout(dp=8),
        Layout(tp=2, dp=4, sequence_parallel=True),
        Layout(tp=4, pp=2),
        Layout(dp=8, ep=2),
        Layout(tp=2, dp=4, ep=2, etp=2, sequence_parallel=True),
    ]
)


def same(job, table):
    found, counted = of_blocks(job, table, lambda one: one.elements), block_params(job, table)
    for name in {field.name for field in fields(BlockParams)} - {"tower", "trained"}:
        np.testing.assert_allclose(getattr(found, name), getattr(counted, name), rtol=1e-12)


@pytest.mark.parametrize("name", preset_names())
def test_the_elements_of_all_matrices_are_the_parameters_of_a_block(make_job, name):
    same(make_job(name, "1x8:h100-sxm"), LAYOUTS)


@pytest.mark.parametrize(
    "changes",
    [
        {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True},
        {"norm": "layernorm", "norm_position": "both", "gated_mlp": False, "activation": "gelu"},
        {"qk_norm": "head"},
        {"qk_norm": "full"},
        {"attention_sinks": True, "tie_word_embeddings": True},
        {"position_embedding": "learned", "num_nextn_predict_layers": 2},
    ],
    ids="+".join,
)
@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
def test_biases_norms_and_tables_are_among_them(make_job, model, changes):
    job = make_job(model, "1x8:h100-sxm")
    same(job.model_copy(update={"model": job.model.model_copy(update=changes)}), LAYOUTS)


def test_tensor_ranks_cut_rows_of_what_comes_first_and_columns_of_what_comes_last(make_job):
    """Queries 1024 x 1024 and keys 256 x 1024 by rows, the output 1024 x 1024 by columns."""
    model = make_job("small-dense", "1x8:h100-sxm").model
    table = LayoutTable.of([Layout(tp=4, dp=2)])
    cut = [*products(model, table)][:4]
    sizes = [(float(one.rows), float(one.columns), one.count) for one in
             (row_of(one) for one in cut)]  # fmt: skip
    assert sizes == [(256, 1024, 1), (64, 1024, 1), (64, 1024, 1), (1024, 256, 1)]
    whole = [one.whole() for one in cut]
    assert [(float(one.rows[()].max()), float(one.columns[()].max())) for one in whole] == [
        (1024, 1024),
        (256, 1024),
        (256, 1024),
        (1024, 1024),
    ]


def row_of(one):
    """The first row of the table, as plain numbers."""
    rows, columns = (np.ravel(side)[0] for side in (one.rows, one.columns))
    return type(one)(rows, columns, one.count, one.role)


def test_each_expert_of_a_rank_has_matrices_of_its_own(make_job):
    """16 experts over 4 ranks: 4 a rank, each with gate, up and down."""
    job = make_job("small-moe", "1x8:h100-sxm")
    table = LayoutTable.of([Layout(dp=8, ep=4)])
    found = [*experts(job.model.kinds[-1], table)]
    assert [float(np.ravel(one.count)[0]) for one in found] == [4, 4, 4]
