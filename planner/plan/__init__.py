"""The answer: a layout with its evidence, and what a search must respect with the job.

`plan` holds candidates, certificate and sources; `target` what a plan is best by.

Apart: GPUs of a tower and of a decoder, and the step they make.
Candidate: one layout of the table of alternatives.
Certificate: what was searched and how far from the best the answer can be at most.
changes_training: what of a job trains other weights from the same data.
FREE: of the memory of a GPU, what a careful user keeps.
finite: the number as JSON has it.
Infeasible: the answer where nothing fits, with reasons and changes that help.
Name: objectives of a search.
NotTaken: the best layout without the rules of evidence, which breaks some.
NO_EXPORT: the note of a plan with a tower on GPUs of its own.
OtherSchedule: the chosen layout under a schedule that the runtime does not execute.
OuterStep: rounds of local steps of islands, and the sync that ends each.
Plan: a chosen layout, its estimate, the alternatives, and the proof.
Reserve: what the memory left to another tenant costs.
Rung: the longest sequence with some techniques that save memory.
SearchOptions: what a search must respect with the job.
Settings: what was searched of the settings that the job does not state.
Source: where one number of the machine comes from.
Spent: energy, carbon dioxide and money of a step and of the run.
SplitTried: one split of the GPUs.
Target: an objective with the figure of the answer and its proof.
Tried: one size of the cluster and what is known of it.
TriedSettings: one combination of settings, and what is known of it.
Trusted: the rules of evidence that the answer keeps, and what they cost.
UnevenStages: what was found and proven where stages may hold any number of layers.
"""

from trainplan.planner.plan.apart import NO_EXPORT, Apart, SplitTried
from trainplan.planner.plan.changes_training import changes_training
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.outer_step import OuterStep
from trainplan.planner.plan.plan import (
    FREE,
    Candidate,
    Certificate,
    Infeasible,
    OtherSchedule,
    Plan,
    Source,
    UnevenStages,
)
from trainplan.planner.plan.settings import Settings, TriedSettings
from trainplan.planner.plan.spent import Spent
from trainplan.planner.plan.target import (
    Name,
    NotTaken,
    Reserve,
    Rung,
    Target,
    Tried,
    Trusted,
    finite,
)
