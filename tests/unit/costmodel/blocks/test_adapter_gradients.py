"""Gradients of adapters are added by the ranks that cut them."""

import numpy as np
import pytest

from tests.conftest import SMALL_MOE
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.blocks.adapters import _adapter
from trainplan.costmodel.blocks.parts import Shapes, shapes
from trainplan.costmodel.calibration.machine import context_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.model.adapters import adapted_matrices

RANK, TP, ETP = 24, 2, 4


def test_those_of_experts_by_their_own_tensor_ranks(monkeypatch):
    trained = Trained(method="lora", rank=RANK, modules=("all",))
    moe = SMALL_MOE.moe.model_copy(update={"first_k_dense_replace": 0})
    update = {"trained": trained, "moe": moe, "num_nextn_predict_layers": 0}
    job = Job(
        model=SMALL_MOE.model_copy(update=update),
        training=TrainingSpec(seq_length=2048, global_batch_size=32),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="megatron-bridge",
    )
    layout = Layout(tp=TP, dp=4, etp=ETP, sequence_parallel=True)
    of = shapes(context_for(job).with_table(LayoutTable.of([layout])))
    added = []
    monkeypatch.setattr(
        Shapes, "accumulation_seconds", lambda own, weights: added.append(weights) or 0.0 * weights
    )
    seen = set()
    (kind,) = of.job.model.kinds
    for matrix in adapted_matrices(kind, joined=of.traits.adapting.joins):
        _adapter(of, matrix)
        own = ETP if matrix.experts else TP
        assert added[-1] == pytest.approx(np.array([matrix.adapter_params(RANK) / own]))
        seen.add(own)
    assert seen == {TP, ETP}
