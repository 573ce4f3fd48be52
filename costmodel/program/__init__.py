"""What each rank of a pipeline does, in order: the common form of every schedule.

`ops` are the nouns, `dependencies` what every op waits for, `held_activations` how many passes are
in flight along a program.

checked: a program in which every micro batch passes every stage both ways; refuses others.
EQUAL: relative seconds in which all passes are equal and messages instant.
held_along: passes in flight on each rank when it holds most layers, (rank, chunk).
held_by: `held_along` of a schedule whose order ignores durations.
held_moments: passes in flight at every moment at which a rank may be fullest.
LARGEST_PROGRAM: ops of the largest program that is still built.
LETTERS: the letter of each kind of op in tables and drawings.
most_held: most passes of every chunk that are ever in flight, (rank, chunk).
NOTHING: index of no input.
Op: kinds of op: forward, backward, weight, whole, shares of the output layer, copies.
op_text: one op as torch's pipeline runtime writes it, such as `3F7`.
Pass: one op of one rank: kind, virtual stage, micro batch.
peak_activation_bytes: most bytes of activations each rank ever holds.
peak_activations: most activations each rank ever holds, of one micro batch through one stage.
placed: virtual stages of each rank's chunks, (rank, chunk).
Placement: loop or V: which virtual stages share a rank.
Program: ops of every rank in issue order.
program_of: a program from the ops of each rank.
RelativeSeconds: durations of a stage's passes and of a message in a common unit.
Shape: ranks, virtual stages, micro batches and limits that a program depends on.
sources: index of the inputs of every op, (input, row, position).
Waves: ops in an order in which they can run, by waves that run at the same time.
waves_of: the waves of a program; refuses one that waits in a circle.
with_copies: a program with activations of some stages copied to the host and back.
"""

from trainplan.costmodel.program.dependencies import (
    LETTERS,
    NOTHING,
    Waves,
    checked,
    op_text,
    sources,
    waves_of,
)
from trainplan.costmodel.program.held_activations import (
    held_along,
    held_by,
    held_moments,
    most_held,
    peak_activation_bytes,
    peak_activations,
    with_copies,
)
from trainplan.costmodel.program.ops import (
    EQUAL,
    LARGEST_PROGRAM,
    Op,
    Pass,
    Placement,
    Program,
    RelativeSeconds,
    Shape,
    placed,
    program_of,
)
