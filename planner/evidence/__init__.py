"""How far an answer is from what was ever measured.

The proof of a search is about the cost model; this room states what measurements are behind the
model there. `shape` describes a job and its layout as the table of published runs does, `distance`
finds the nearest of them, `axes` is what is compared of both, `envelope` the limits that the runs
set, `trusted` makes rules of these, and `evidence` puts together what a plan prints.

Beyond: a limit of what was measured that an answer breaks.
Evidence: how far an answer is from what was ever measured.
evidence_of: the evidence for the estimate of a layout.
evidence_on: as `evidence_of`, of a job that is resolved.
is_inside: does a layout break no limit of what was measured?.
NearRun: a published run near an answer.
OPTION: the option, with which the names of its rules begin.
PUBLISHED_ONLY: with which the names of `published_rules` begin.
PUBLISHED_THERE: as that, of GPUs of one architecture.
published_rules: what keeps a search to layouts like published ones.
settings_rules: those rules that are on settings of the runtime.
STATED_SETTINGS: among chosen axes, that a search chooses no setting.
stays_inside: as `is_inside`, of a job that is resolved.
trusted_rules: what keeps a search inside what was measured.
unmeasured: what every layout of a job leaves of what was measured.
unpublished: what of a layout no run had, or none of its kind of model.
was_published: is a scored run under a runtime, or another over its library?
"""

from trainplan.planner.evidence.envelope import STATED_SETTINGS, Beyond
from trainplan.planner.evidence.evidence import (
    Evidence,
    NearRun,
    evidence_of,
    evidence_on,
    is_inside,
    stays_inside,
    unpublished,
    was_published,
)
from trainplan.planner.evidence.trusted import (
    OPTION,
    PUBLISHED_ONLY,
    PUBLISHED_THERE,
    published_rules,
    settings_rules,
    trusted_rules,
    unmeasured,
)
