"""The answer: a layout with its evidence, what was asked, and the document of both.

`plan` holds candidates, certificate and sources; `options` what a search must respect beside the
job; `written` reads a document back.

Apart: GPUs of a tower and of a decoder, and the step they make.
BASES: classes that documents take fields from.
Candidate: one layout of the table of alternatives.
Certificate: what was searched and how far from the best the answer can be at most.
changes_training: what was asked for that trains other weights from the same data.
chosen_from_json: the job and the chosen layout of a plan document.
COUNTS: what the model of a document has beside the fields of a model.
Document: base of all documents.
document_class: the fields of a spec as its document has them, with keys that come to them or
    differ.
estimate_json: an estimate as plain JSON values.
finite: the number as JSON has it.
Infeasible: the answer where nothing fits, with reasons and changes that help.
Json: a value of a document.
layout_from_json: read `layout_json` back.
layout_json: the value of every axis, with the numbers that follow.
made_otherwise: was a step time written with other numbers than those of now? Not if it is not
    written.
model_json: a model with its exact parameter counts.
Name: objectives of a search.
NO_EXPORT: the note of a plan with a tower on GPUs of its own.
Notes: sources and notes of a plan.
of_job: the fields of `OfJob`.
of_priced: the fields of `Priced`, of what has a layout and its estimate.
OfJob: what was asked.
OtherSchedule: the chosen layout under a schedule that the runtime does not execute.
Plan: a chosen layout, its estimate, the alternatives, and the proof.
plan_from_json: read `plan_json` back.
plan_json: a plan as the public document `trainplan/plan/v1`.
PlanDocument: a chosen layout, its estimate, the alternatives, and the proof.
Priced: a layout and what it costs.
Reserve: what the memory left to another tenant costs.
Rung: the longest sequence with some techniques that save memory.
SCHEMA: name of the document of a plan.
SearchOptions: what a search must respect besides the job.
Settings: what was searched of the settings that the job does not state.
Source: where one number of the machine comes from.
Spent: energy, carbon dioxide and money of a step and of the run.
spent_on: what a layout takes whose step lasts so long.
SplitTried: one split of the GPUs.
Target: an objective with the figure of the answer and its proof.
Tried: one size of the cluster and what is known of it.
TriedSettings: one combination of settings, and what is known of it.
Trusted: the rules of `--trusted`, and what they cost.
UnevenStages: what was found and proven where stages may hold any number of layers.
with_candidate: a plan document whose best layout is another one of its table.
with_later_keys: the layout of a plan with the keys that its version did not know yet.
Written: a plan document read back.
written: read a plan document.
written_step_time: seconds of a step of the best layout as the document says.
WrittenLayout: a layout as a document has it.
WrittenModel: a model as a document has it.
"""

from trainplan.planner.plan.apart import NO_EXPORT, Apart, SplitTried
from trainplan.planner.plan.changes_training import changes_training
from trainplan.planner.plan.document import (
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
from trainplan.planner.plan.layout_document import (
    Json,
    layout_from_json,
    layout_json,
    with_later_keys,
)
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.plan import (
    COUNTS,
    SCHEMA,
    Candidate,
    Certificate,
    Infeasible,
    OtherSchedule,
    Plan,
    Source,
    UnevenStages,
    chosen_from_json,
    model_json,
)
from trainplan.planner.plan.read_back import plan_from_json
from trainplan.planner.plan.settings import Settings, TriedSettings
from trainplan.planner.plan.spent import Spent, spent_on
from trainplan.planner.plan.target import Name, Reserve, Rung, Target, Tried, Trusted, finite
from trainplan.planner.plan.written import (
    Written,
    made_otherwise,
    with_candidate,
    written,
    written_step_time,
)
