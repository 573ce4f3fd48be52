"""Pipeline schedules by name. To add one: write its module, add one line to `SCHEDULES`.

Names are those of `costmodel.layout.SCHEDULE_NAMES`, in its order.
"""

from collections.abc import Mapping

from trainplan.costmodel.columns import FloatColumn, IntMatrix
from trainplan.costmodel.program import EQUAL, Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.groups import Schedules
from trainplan.costmodel.schedules.programs import (
    bidirectional,
    controllable_memory,
    on_a_v,
    one_forward_one_backward,
    split_backward,
    vocabulary_parallel,
    wave,
    zero_bubble,
)
from trainplan.costmodel.schedules.schedule import Schedule

SCHEDULES: Mapping[str, Schedule] = Schedules(
    {
        "1f1b": one_forward_one_backward.ONE_F_ONE_B,
        "interleaved": one_forward_one_backward.INTERLEAVED,
        "zb-1p": zero_bubble.SAME_MEMORY,
        "zb-2p": zero_bubble.TWICE_THE_MEMORY,
        "zb-h1": split_backward.ZB_H1,
        "zb-h2": split_backward.ZB_H2,
        "zb-auto": zero_bubble.UNDER_A_LIMIT,
        "zb-v": on_a_v.ZB_V,
        "v-half": controllable_memory.V_HALF,
        "v-min": controllable_memory.V_MIN,
        "dualpipe-v": on_a_v.DUALPIPE_V,
        "hanayo": wave.SCHEDULE,
        "gpipe": one_forward_one_backward.GPIPE,
        "breadth-first": one_forward_one_backward.BREADTH_FIRST,
        "grouped-interleaved": split_backward.GROUPED_INTERLEAVED,
        "2bp": split_backward.TWO_BP,
        "chimera": bidirectional.CHIMERA,
        "dualpipe": bidirectional.DUALPIPE,
        "seq-1f1b": one_forward_one_backward.SEQUENCE_CHUNKED,
        "vocab-1f1b": vocabulary_parallel.ONE_BARRIER,
        "vocab-1f1b-2": vocabulary_parallel.TWO_BARRIERS,
    }
)


def program(
    name: str, pp: int, vpp: int, num_microbatches: int, relative: RelativeSeconds = EQUAL
) -> Program:
    """Ops of every rank under the named schedule, for passes of some relative durations."""
    return program_for(name, Shape(pp, vpp, num_microbatches), relative)


def program_for(name: str, shape: Shape, relative: RelativeSeconds = EQUAL) -> Program:
    """Ops of every rank under the named schedule.

    Raises:
        SpecError: The schedule does not run in this shape.
    """
    SCHEDULES[name].refuse(name, shape)
    return SCHEDULES[name].program(shape, relative)


def held_passes(name: str, num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight on each rank when it holds most layers; shape (rank, chunk).

    `layers` are the layers of each chunk of each rank. Source: that of the schedule.
    """
    return SCHEDULES[name].held(num_microbatches, layers)
