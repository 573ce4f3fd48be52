"""What is written as JSON: the classes of its keys, the document of a plan, and how it is read.

BASES: of classes that `document_class` made, the spec.
Changed: a value of a written estimate that is another one now.
changed_values: what of a written estimate was made with other numbers.
chosen_from_json: the job and the chosen layout of a plan document.
COUNTS: what the model of a document has with the fields of a model.
Document: base of all documents.
document_class: the fields of a spec as its document has them, with keys added or changed.
estimate_json: an estimate as plain JSON values.
Json: a value of a document.
layout_from_json: a layout out of its JSON; keys that follow from others are left out.
layout_json: the value of every axis, with the numbers that follow.
model_json: a model with its exact parameter counts.
Notes: base of documents with sources and notes.
of_job: the fields of `OfJob`.
of_priced: the fields of `Priced`, of what has a layout and its estimate.
OfJob: base of documents of a job: its model, training, cluster and options.
plan_from_json: a whole plan out of its document.
plan_json: a plan as the public document `trainplan/plan/v1`.
PlanDocument: the document of a plan.
Priced: a layout and what it costs.
with_candidate: a plan document whose best layout is another one of its table.
Written: a plan document read back.
written: read a plan document.
WrittenLayout: a layout as a document has it.
WrittenModel: a model as a document has it.
"""

from trainplan.planner.documents.chosen import COUNTS, chosen_from_json, model_json
from trainplan.planner.documents.document import (
    BASES,
    Document,
    Notes,
    OfJob,
    PlanDocument,
    Priced,
    WrittenLayout,
    WrittenModel,
    document_class,
    estimate_json,
    of_job,
    of_priced,
    plan_json,
)
from trainplan.planner.documents.layout import Json, layout_from_json, layout_json
from trainplan.planner.documents.read_back import plan_from_json
from trainplan.planner.documents.written_plan import (
    Changed,
    Written,
    changed_values,
    with_candidate,
    written,
)
