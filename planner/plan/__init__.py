"""The answer: a layout with its evidence, what was asked, and the document of both.

`plan` holds candidates, certificate and sources; `options` what a search must respect beside the
job; `written` reads a document back.
"""

from trainplan.planner.plan.document import plan_json
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.plan import Candidate, Certificate, Infeasible, Plan

__all__ = ["Candidate", "Certificate", "Infeasible", "Plan", "SearchOptions", "plan_json"]
