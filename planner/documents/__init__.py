"""What is written as JSON: the classes of its keys, the document of a plan, and how it is read.

BASES: of classes that `document_class` made, the spec.
chosen_from_json: the job and the chosen layout of a plan document.
COUNTS: what the model of a document has beside the fields of a model.
Document: base of all documents.
document_class: the fields of a spec as its document has them, with keys added or changed.
estimate_json: an estimate as plain JSON values.
Json: a value of a document.
layout_from_json: a layout out of its JSON; keys that follow from others are left out.
layout_json: the value of every axis, with the numbers that follow.
made_otherwise: was a step time written with other numbers than those of now? Not if it is not
    written.
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
written_step_time: seconds of a step of the best layout as the document says.
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
    Written,
    made_otherwise,
    with_candidate,
    written,
    written_step_time,
)
