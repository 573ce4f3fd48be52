"""Exact solvers, behind plain data: nothing here knows a layout.

`schedules` orders passes, `layers` assigns layers to stages, `nodes` orders nodes. Libraries (PuLP
with HiGHS, OR-Tools) are imported inside functions, here alone.

CLOSE: relative; an order of nodes so near to a bound is not improved.
constraint_solver_is_there: can models be built and solved?.
Counts: layers of each stage run in each way.
good_order: the best order found.
LayerAssignment: layers to lay on stages, with costs and needs of each.
least_seconds: step time no order of the nodes is below.
load_solvers: load the solver of small programs now.
Matrix: a continuous program.
MISSING: what to install where OR-Tools is missing.
MOST_NODES: nodes whose order is proved; more are placed by exchanges alone.
Problem: a pipeline whose order of passes is looked for.
pack_experts: experts into packs whose fullest is as empty as can be.
proved_order: search a better order than `start` for so many seconds.
ROUNDING: part of a capacity that sums of needs may miss by rounding.
solve: the best answer whose value is below `cutoff`, as far as the deadline allows.
synthesise: the fastest order found before the deadline, and how much faster another could be.
UNITS: of a whole step, in which orders of nodes are compared.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.solvers.constraint_solver import MISSING, constraint_solver_is_there
    from trainplan.planner.solvers.expert_packing import pack_experts
    from trainplan.planner.solvers.layer_assignment import ROUNDING, Counts, LayerAssignment, solve
    from trainplan.planner.solvers.linear import Matrix, load_solvers
    from trainplan.planner.solvers.nodes.order_bound import least_seconds
    from trainplan.planner.solvers.nodes.orders import CLOSE, good_order
    from trainplan.planner.solvers.nodes.placement import MOST_NODES, UNITS, proved_order
    from trainplan.planner.solvers.schedules.instance import Problem
    from trainplan.planner.solvers.schedules.solve import synthesise
else:
    __getattr__ = door(__name__)
