"""Questions of a job or a layout: search, estimate, simulate, and the notes of their answers.

ANSWERED: kinds of `Status` with a layout.
check: is the layout legal for the job? Raises.
check_model: what no layout of the model helps. Raises.
estimate: price one layout.
Estimates: estimates of many layouts.
estimates: price many layouts of a job at once, each as `estimate` would.
expert_costs: what unequal experts cost, and how steps differ in it.
Imbalance: experts of a layer under the routing and the options of a job.
kept_layout: the layout of a similar job, with data parallelism that fills the cluster.
layout_notes: what a reader of the price of a layout should know, and of any figure for its job.
no_cpu: that a runtime does not train without GPUs, and which ones do.
NO_FILES: a note of plans that cannot be exported starts so.
no_files: why a runtime without an exporter has no launch files.
node_order: names of nodes in rank order, from a plan document.
notes: what a reader of any figure for this job should know.
Outcome: how the search of a case ended.
outcome: the best layout of a case alone, or why there is none.
outcomes: the same of some cases, by workers.
search: the best layout of a job, with alternatives and a certificate.
simulate: the schedule of a layout, op by op.
Simulation: one step, op by op.
StepFacts: what a step of a priced layout takes, the settings that its price assumes, how steps
    differ.
Status: how a search ended: with a proof, with a layout, with nothing that fits, or not begun.
UNSEARCHED: kinds of `Status` of what no search was made of.
width_notes: a sentence for each width that kernels do not take as it is.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.questions.assumed_settings import StepFacts
    from trainplan.planner.questions.best_plan import (
        NO_FILES,
        layout_notes,
        no_cpu,
        no_files,
        notes,
    )
    from trainplan.planner.questions.case_search import (
        ANSWERED,
        UNSEARCHED,
        Outcome,
        Status,
        kept_layout,
        outcome,
        outcomes,
    )
    from trainplan.planner.questions.estimation import (
        Estimates,
        check,
        check_model,
        estimates,
    )
    from trainplan.planner.questions.kernel_widths import width_notes
    from trainplan.planner.questions.load_shift import estimate
    from trainplan.planner.questions.placement import node_order
    from trainplan.planner.questions.shifting_load import search
    from trainplan.planner.questions.simulation import Simulation, simulate
    from trainplan.planner.questions.unequal_experts import Imbalance, expert_costs
else:
    __getattr__ = door(__name__)
