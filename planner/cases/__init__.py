"""The question of a search, and the same with one thing of it changed.

A case is a job, its options and what was measured of its machine; `feasibility` finds which changes
let something fit.

Case: a job, its options and what was measured of its machine.
feasible: is there a layout that fits?
LIGHTER: states that take less memory than the usual ones, as remedies.
Relaxations: sets of changes, each change as a sentence.
relaxations: the smallest sets of changes that make the job feasible, each tried by a search.
replaced: a spec with other values of some fields, checked as a new one.
with_added_memory: more usable memory on every GPU, GiB.
with_all_settings: settings that the job does not state are searched, those of stored precision
    too.
with_batch: sequences per optimizer step.
with_choice: one more field held to a value, or with a value left out.
with_domain: scale-up domains of more GPUs.
with_failures: other values of what the cluster states of failures and saves.
with_gpu: GPUs of another kind in as many nodes.
with_gpus: as many GPUs in all, in nodes of the same kind.
with_memory: usable memory of every GPU, GiB.
with_memory_by: usable memory of every GPU times a factor.
with_nic: scale-out bandwidth times a factor, measured or of the datasheet.
with_precision: another number format of the matrix products.
with_sequence: tokens per sequence.
with_setting: a setting of the runtime, as `--option` takes it, added to those of the job.
with_usual_chance: what is offered has the chance to fit that a search takes, at least.
without_choice: a field let go.
without_margin: all of the device memory may be used.
without_reserve: no memory is left to another tenant.
"""

from trainplan.planner.cases.case import (
    LIGHTER,
    Case,
    replaced,
    with_added_memory,
    with_all_settings,
    with_batch,
    with_choice,
    with_domain,
    with_failures,
    with_gpu,
    with_gpus,
    with_memory,
    with_memory_by,
    with_nic,
    with_precision,
    with_sequence,
    with_setting,
    with_usual_chance,
    without_choice,
    without_margin,
    without_reserve,
)
from trainplan.planner.cases.feasibility import Relaxations, feasible, relaxations
