"""Gradients of adapters are added by the ranks that cut them."""

import numpy as np
import pytest

from tests.conftest import SMALL_DENSE, SMALL_MOE
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.blocks.adapters import _adapter, _sizes, adapter_exchange, adapters_part
from trainplan.costmodel.blocks.parts import Shapes, shapes
from trainplan.costmodel.calibration.machine import context_for
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds
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


@pytest.mark.parametrize(("parallel", "sharded"), [(True, TP), (False, 1)])
def test_adapters_of_ms_swift_send_their_rank_alone_and_read_own_tokens(parallel, sharded):
    """Beside columns the first half reads a rank's own tokens, beside rows the second adds so."""
    trained = Trained(method="lora", rank=RANK, modules=("q", "k", "v", "o"))
    job = Job(
        model=SMALL_DENSE.model_copy(update={"trained": trained}),
        training=TrainingSpec(seq_length=2048, global_batch_size=32),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="megatron-lm",
    )
    layout = Layout(tp=TP, dp=4, sequence_parallel=parallel)
    of = shapes(context_for(job).with_table(LayoutTable.of([layout])))
    (kind,) = of.job.model.kinds
    columns, rows = adapted_matrices(kind, joined=True)
    links = group(of.machine, of.table.tp, np.ones_like(of.table.tp))
    moved = np.array([2.0 * 2048 * RANK])
    summed = collective_seconds(of.machine, "all_reduce", moved, links)
    for matrix in (columns, rows):
        sent = adapter_exchange(of, matrix)
        assert sent.forward + sent.backward == pytest.approx(summed)
    first, second = _sizes(of, columns), _sizes(of, rows)
    assert (first.rows, first.added_rows) == (2048 / sharded, 2048)
    assert (second.rows, second.added_rows) == (2048, 2048 / sharded)
    assert (first.outputs, second.outputs) == (columns.outputs / TP, rows.outputs)


WAYS = {  # options, state precision, ZeRO stage; bytes moved per input and output, both ways
    "16 bits": ((None, "o0", 0), (0, 10, 6, 4), 2),
    "autocast": (("fp32", "o0", 0), (12, 10, 18, 4), 2),
    "mixed precision of FSDP": (("fp32", "o0", 3), (0, 10, 6, 4), 2),
    "all in bf16": (("fp32", "bf16", 3), (6, 24, 12, 20), 4),
}


@pytest.mark.parametrize("way", WAYS)
def test_adapters_of_peft_take_the_bytes_that_their_kernels_move(way):
    """Of 4,096 inputs and outputs for 8,192 tokens, whose products stream theirs."""
    (stated, states, stage), (into, out, into_back, out_back), element = WAYS[way]
    trained = Trained(method="lora", rank=RANK, modules=("q", "k"))
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32}
    job = Job(
        model=SMALL_DENSE.model_copy(update=sizes | {"trained": trained, "head_dim": 128}),
        training=TrainingSpec(seq_length=8192, global_batch_size=32, state_precision=states),
        cluster=parse_cluster("1x8:a100-sxm-80gb"),
        runtime="accelerate",
        options=RuntimeOptions(adapter_dtype=stated),
    )
    of = shapes(context_for(job).with_table(LayoutTable.of([Layout(dp=8, zero_stage=stage)])))
    (kind,) = of.job.model.kinds
    part = _adapter(of, adapted_matrices(kind, joined=False)[0])
    elements = 8192 * 4096.0

    def streamed(each):
        return elementwise_seconds(of.machine, np.array([each * elements]))

    launch = of.machine.constants.launch_seconds * (
        2 if way in ("16 bits", "mixed precision of FSDP") else 4
    )
    assert part.forward.elementwise == pytest.approx(streamed(into + out) + launch)
    assert part.backward.elementwise >= streamed(into_back + out_back) + launch
    assert part.forward.gemm >= streamed(2 * element)
    assert part.backward.gemm >= streamed(4 * element)
    both = adapters_part(of, mlp=False).saved_bytes - 2 * element * 8192 * RANK
    shared = way in ("16 bits", "mixed precision of FSDP")
    assert both == pytest.approx((1 if shared else 2) * element * elements)
