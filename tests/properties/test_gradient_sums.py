"""Virtual stages of a rank that sum gradients at one time, against the order of their passes."""

from itertools import product

import numpy as np
import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.states import stages_one_by_one
from trainplan.costmodel.program.ops import Op, Shape
from trainplan.costmodel.runtimes.registry import runtime
from trainplan.costmodel.schedules import program_for

SHAPES = list(product((2, 3, 4), (1, 2, 3), (1, 2, 3, 4, 5, 6, 8, 9, 12)))
MAKES_GRADIENTS = (Op.WEIGHT, Op.WHOLE)


def most_at_once(program):
    """Stages of one rank between their first and their last weight gradient, at most."""
    most = 0
    for kinds, stages in zip(program.kind, program.stage, strict=True):
        (places,) = np.nonzero(np.isin(kinds, MAKES_GRADIENTS))
        spans = [places[stages[places] == stage] for stage in np.unique(stages[places])]
        open_sums = [sum(s[0] <= place <= s[-1] for s in spans) for place in places]
        most = max(most, *open_sums)
    return most


@pytest.mark.parametrize("name", runtime("torchtitan").pipeline.schedules)
def test_no_schedule_holds_more_sums_at_once_than_counted(make_job, name):
    tried = 0
    for pp, vpp, microbatches in SHAPES:
        try:
            program = program_for(name, Shape(pp, vpp, microbatches))
        except SpecError:
            continue
        job = make_job("small-dense", f"1x{pp}:h100-sxm", microbatches)
        table = LayoutTable.of([Layout(pp=pp, vpp=vpp, schedule=name)])
        counted = vpp / stages_one_by_one(job, table)[0]
        found = most_at_once(program)
        assert found <= counted, (pp, vpp, microbatches)
        if name in ("interleaved", "breadth-first"):
            assert found == counted, (pp, vpp, microbatches)
        tried += 1
    assert tried
