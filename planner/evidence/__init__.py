"""How far an answer is from what was ever measured.

The proof of a search is about the cost model; this room says what stands behind the model there.
`shape` describes a job and its layout as the table of published runs does, `distance` finds the
nearest of them, `envelope` the largest values that were measured, `trusted` makes rules of these,
and `evidence` puts together what a plan tells.
"""

from trainplan.planner.evidence.evidence import Evidence, evidence_of

__all__ = ["Evidence", "evidence_of"]
