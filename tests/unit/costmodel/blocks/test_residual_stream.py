"""What is kept of the residual stream: everything on it is cut by sequence parallelism."""

import numpy as np
import pytest

from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.blocks.residual import gathered_rows, residual_bytes, residual_columns
from trainplan.costmodel.calibration.machine import context_for
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes import RUNTIMES


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("model", ["llama3-8b", "gpt2-xl", "olmo2-7b"])
def test_sequence_parallelism_cuts_all_of_it_norms_included(make_job, runtime, model):
    job = make_job(model, "1x8:h100-sxm", 64).model_copy(update={"runtime": runtime})
    table = LayoutTable.of([Layout(tp=tp, dp=8 // tp, sequence_parallel=tp > 1) for tp in (1, 8)])
    of = shapes(context_for(job).with_table(table))
    assert of.residual_shards.tolist() == [1, 8]
    gathered = of.storage * job.model.hidden_size * gathered_rows(of)
    whole, cut = residual_bytes(of) - gathered
    assert whole == pytest.approx(8 * cut)
    whole, cut = np.broadcast_to(residual_columns(of), (2,))
    assert whole == pytest.approx(8 * cut)
