"""Which measured runs cannot have run as they are recorded."""

from trainplan.costmodel.axes import RULES
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import runtime
from trainplan.costmodel.validate.cases.cases import Case

RESTRICTIONS = frozenset(
    {
        "cp_divides_sequence",
        "recompute_within_stage",
        "tp_fits_key_value_heads",
        "vpp_needs_pp",
        "sequence_parallel_divides_sequence",
    }
)
"""Rules of the axes that a run may break: the formulas price it all the same."""
SHAPES = frozenset({"interleaved_needs_whole_groups"})
"""Rules of runtimes without which a schedule has no program of theirs."""


def impossible(case: Case) -> str | None:
    """Degrees that cannot hold together, checked before arrays of their size are made."""
    table = LayoutTable.of([case.layout])
    needed = [one for one in RULES if one.name not in RESTRICTIONS]
    needed += [one for one in runtime(case.job.runtime).rules if one.name in SHAPES]
    for one in needed:
        if one.broken(case.job, table)[0]:
            return f"{one.name}: {one.says}"
    return None
