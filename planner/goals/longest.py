"""The longest sequence that trains, what stops it, and what each technique adds.

Length by length a search ends at its first answer. Lengths are multiples of twice the GPUs, which
every degree of context and tensor parallelism takes; a layout that holds one holds shorter ones, so
doubling and halving find the longest, to less than a hundredth.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.axes import AXIS_OF_COLUMN, Least, Tried
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Flag
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.spec import LARGEST_SIZE
from trainplan.planner.goals.cluster_sizes import longest_step
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.limits import TIME_LIMIT, limit_of
from trainplan.planner.plan import Rung
from trainplan.planner.space import Choice
from trainplan.planner.tree import SearchResult

CLOSE = 1 / 128
"""Of a length: the next one tried is no longer than that."""
FIRST = 8192
"""Tokens tried first, about."""


@dataclass(frozen=True, slots=True)
class Technique:
    """Something that makes longer sequences fit, by the columns of a layout that show it."""

    name: str
    columns: tuple[str, ...]


TECHNIQUES = (
    Technique("tiled loss", ("tiled_loss",)),
    Technique("sequence, tensor and pipeline parallelism", ("cp", "tp", "pp")),
    Technique("tiled MLPs", ("tiled_mlp",)),
    Technique("checkpoints in host memory", ("offload_checkpoints",)),
    Technique("optimizer and weights off the GPU", ("offload_optimizer", "offload_parameters")),
)
"""In the order of ALST, arXiv:2506.13996, which has the optimizer on the host throughout."""
NOTHING = "sharded data parallelism alone"


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest sequence under some techniques."""

    context: SearchContext
    """Of the job with that length."""
    found: SearchResult | None
    """A search that has an answer of it; null: no length trains."""
    too_long: int
    """The shortest length tried that does not train."""

    @property
    def tokens(self) -> int:
        """The length; 0 where none trains."""
        return self.context.job.training.seq_length if self.found else 0


def ladder(context: SearchContext) -> tuple[Longest, tuple[Rung, ...]]:
    """The longest sequence with all techniques, and with ever more of them.

    Raises:
        SpecError: Sequences of given lengths are stated.
    """
    if context.job.training.lengths is not None:
        raise SpecError(
            "--objective context finds the length of a sequence: leave out --lengths, or give "
            "another objective"
        )
    best, rungs = None, []
    for name, held in steps(context):
        held_off = tuple(map(_held_off, held))
        request = _own_sequences(context.job) if "cp" in held else context.job
        one = replace(context.with_job(request), only=(*context.only, *held_off))
        batch = request.training.global_batch_size
        same = best is not None and best.context.job.training.global_batch_size == batch
        if context.budget.spent() and held:  # the last step, with nothing off, is what was asked
            tokens = best.tokens if best and same else 0
            rungs.append(Rung(adds=name, tokens=tokens, limit=TIME_LIMIT, global_batch_size=batch))
            continue
        best = longest(one, best if same else None)
        limit = limit_of(best.context, best.found, best.too_long)
        rungs.append(Rung(adds=name, tokens=best.tokens, limit=limit, global_batch_size=batch))
    assert best is not None
    return best, tuple(rungs)


def steps(context: SearchContext) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every step of the ladder with the columns that are still off."""
    fixed = {choice.field for choice in context.options.choices if _settles(choice)}
    free = [
        (one.name, tuple(c for c in one.columns if c not in fixed and _is_tried(context, c)))
        for one in TECHNIQUES
    ]
    free = [(name, columns) for name, columns in free if columns]
    names = (NOTHING, *(name for name, _ in free))
    for step, name in enumerate(names):
        yield name, tuple(column for _, columns in free[step:] for column in columns)


def _settles(choice: Choice) -> bool:
    """Is only one value of its column left?"""
    flag = isinstance(AXIS_OF_COLUMN[choice.field].codec, Flag)
    return not choice.excluded or flag


def _is_tried(on: Context, column: str) -> bool:
    """Does a search have any value of it but off?"""
    axis = AXIS_OF_COLUMN[column]
    if isinstance(axis.search, Least):
        return axis.search.step(on.traits) is not None
    return isinstance(axis.search, Tried) and len(axis.search.values(on.job, on.traits)) > 1


def _held_off(column: str) -> Rule:
    axis = AXIS_OF_COLUMN[column]
    off = axis.number(axis.off)

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A step of the ladder goes without."""
        return np.asarray(getattr(table, column) != off)

    return Rule(
        name=f"without_{column}",
        columns=frozenset({column}),
        broken=broken,
        says=f"a step of the ladder without {axis.name}",
        source="the ladder of --objective context",
    )


def _own_sequences(job: Job) -> Job:
    """The job where no two GPUs share a sequence, which needs one for each."""
    gpus = job.cluster.num_gpus
    batch = -(-job.training.global_batch_size // gpus) * gpus
    return _with(job, global_batch_size=batch)


def _with(job: Job, **training: int) -> Job:
    return job.model_copy(update={"training": job.training.model_copy(update=training)})


def longest(context: SearchContext, known: Longest | None = None) -> Longest:
    """The longest sequence of a job; `known` has fewer layouts and is where it begins.

    Steps of short sequences may be too many for a deadline, so lengths are then tried downwards
    from the longest that fits.
    """
    job = context.job
    begin = _length(job, max(job.training.seq_length, FIRST))
    nothing = Longest(_of_length(context, _length(job, 0)), None, LARGEST_SIZE + 1)
    if known is not None and known.found is not None:
        longer = _of_length(context, known.tokens)
        nothing = replace(known, context=longer, too_long=LARGEST_SIZE + 1)
        begin = _length(job, known.tokens * (1 + CLOSE) + _length(job, 0))
    most = _halved(nothing, begin, in_time=False)
    if most.found is None or np.isinf(longest_step(context)):
        return most
    if _answer(most.context, in_time=True):
        return most
    slow = replace(most, found=None, too_long=most.tokens)
    return _halved(slow, _length(job, most.tokens / 2), in_time=True)


def _of_length(context: SearchContext, tokens: int) -> SearchContext:
    return context.with_job(_with(context.job, seq_length=tokens))


def _length(job: Job, tokens: float) -> int:
    """The longest length tried that is no longer; the shortest one where none is."""
    unit = 2 * job.cluster.num_gpus
    return max(unit, min(int(tokens), LARGEST_SIZE) // unit * unit)


def _answer(context: SearchContext, *, in_time: bool) -> SearchResult | None:
    cutoff = np.nextafter(longest_step(context), np.inf) if in_time else np.inf
    found = context.any(context.search(), cutoff)
    return found if found.finalists is not None and found.value < cutoff else None


def _halved(known: Longest, tried: int, *, in_time: bool) -> Longest:
    """From what is known to lengths that are close: doubled, then halfway between both ends.

    Once the time is over, one more length at most is tried, where none is known that trains.
    """
    budget = known.context.budget
    while tried not in (known.tokens, known.too_long):
        if known.found and budget.spent():
            break
        context = _of_length(known.context, tried)
        if found := _answer(context, in_time=in_time):
            known = Longest(context, found, known.too_long)
        else:
            known = replace(known, too_long=tried)
        if budget.spent():
            break
        if known.too_long - known.tokens <= CLOSE * known.tokens:
            break
        unbounded = known.too_long > LARGEST_SIZE
        middle = 2 * known.tokens if unbounded else (known.tokens + known.too_long) / 2
        tried = _length(known.context.job, middle)
    return known
