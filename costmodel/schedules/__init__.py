"""Pipeline schedules by name: each one's program, the activations it holds, and its lower bound.

`registry` has them by name, `programs` by kin, `patterns` what several share, `schedule` the class
and the lower bounds. To add one: write its module, add one line to `SCHEDULES`.

BACKWARD: kind of op: gradient of the input.
causal_shares: share of a pass that each chunk of a causal sequence takes.
earliest_ends: seconds before which no rank can have finished its passes.
FORWARD: kind of op: forward pass.
group_runs: does a step run in groups of a size?
group_size: micro batches that pass through one virtual stage in a row.
grouped: name of a schedule in the groups that a run states.
held_passes: passes in flight on each rank of a schedule, (rank, chunk).
justified: an order squeezed against time and along it until it ends no sooner.
KINDS: FORWARD, BACKWARD and WEIGHT as numbers.
Line: stages, durations, messages and memory of a pipeline with split backward passes.
ONE_BARRIER: 1F1B with the output layer on all ranks, one barrier.
OPS: forward, backward and weight as `Op`.
Order: ops of each rank in issue order.
program: ops of every rank under a named schedule, by its sizes.
program_for: ops of every rank under a named schedule, by its shape.
RankSeconds: seconds of a micro batch's passes on each class of ranks, and of its way there.
SCHEDULES: every schedule by name.
ShapeRule: where a schedule does not run, and what to change.
split_backward: a program with its weight gradients behind all else.
torch_class: class of torch.distributed.pipelining that runs a layout's schedule.
TORCH_CLASSES: class of torch.distributed.pipelining by schedule.
TWO_BARRIERS: 1F1B with the output layer on all ranks, two barriers.
WEIGHT: kind of op: gradient of the weights.
Work: seconds, ranks and micro batches of the rows that a schedule bounds.
"""

from trainplan.costmodel.schedules.groups import group_size, grouped
from trainplan.costmodel.schedules.patterns.justification import (
    BACKWARD,
    FORWARD,
    KINDS,
    OPS,
    WEIGHT,
    Line,
    Order,
    justified,
)
from trainplan.costmodel.schedules.programs.one_forward_one_backward import (
    causal_shares,
    group_runs,
)
from trainplan.costmodel.schedules.programs.split_backward import split_backward
from trainplan.costmodel.schedules.programs.vocabulary_parallel import ONE_BARRIER, TWO_BARRIERS
from trainplan.costmodel.schedules.registry import SCHEDULES, held_passes, program, program_for
from trainplan.costmodel.schedules.schedule import RankSeconds, ShapeRule, Work, earliest_ends
from trainplan.costmodel.schedules.torch_classes import TORCH_CLASSES, torch_class
