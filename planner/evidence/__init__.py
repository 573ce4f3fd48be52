"""How far an answer is from what was ever measured.

The proof of a search is about the cost model; this room says what stands behind the model there.
`shape` describes a job and its layout as the table of published runs does, `distance` finds the
nearest of them, `envelope` the largest values that were measured, `trusted` makes rules of these,
and `evidence` puts together what a plan tells.

Evidence: how far an answer is from what was ever measured.
evidence_of: the evidence for the estimate of a layout.
evidence_on: as `evidence_of`, of a job that is resolved.
is_inside: does a layout stay inside what was measured on runtimes of its family?.
NearRun: a published run near an answer.
OPTION: the option, with which the names of its rules begin.
stays_inside: as `is_inside`, of a job that is resolved.
trusted_rules: what keeps a search inside the envelope of the job's runtime.
"""

from trainplan.planner.evidence.evidence import (
    Evidence,
    NearRun,
    evidence_of,
    evidence_on,
    is_inside,
    stays_inside,
)
from trainplan.planner.evidence.trusted import OPTION, trusted_rules
