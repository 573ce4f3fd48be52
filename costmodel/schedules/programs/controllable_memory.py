"""V-Half and V-Min: half and a third of the memory of 1F1B, for a larger bubble.

Every micro batch repeats one building block, and how long a block lasts decides how many overlap:
the memory. At both ends of a step the pattern leaves gaps; ranks fill them with what is ready, as
far as the memory of the pattern allows. The order is the best of a few, timed with the relative
durations of the job; slots of equal passes are among them.
Source: Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362, sections 2, 3.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntMatrix
from trainplan.costmodel.program import (
    EQUAL,
    Pass,
    Program,
    RelativeSeconds,
    Shape,
    peak_activations,
    placed,
)
from trainplan.costmodel.schedules.patterns.justification import Line, justified
from trainplan.costmodel.schedules.patterns.v_filler import (
    FIRST_BACK,
    INTERVAL,
    TURNS,
    Blocks,
    Filler,
    Room,
    Rows,
    comes_to_its_end,
    program_of,
)
from trainplan.costmodel.schedules.schedule import Schedule, split_chunks_bound

LIGHT = RelativeSeconds(2, 2, 1, 0)
"""Passes with a W half as long: a pattern that suits many models better than equal ones.

Source: tried; see `Recipe`.
"""


class Recipe(NamedTuple):
    """One way to order the passes.

    Source of the recipes below: those that came out best of 144 for p from 2 to 16 and seven
    sets of durations; together within 0.5 % of the best of all.
    """

    gap: int
    """Slots that the way back starts later than the earliest it could."""
    down: Literal["most", "lasting", "rest", "pattern"]
    """Passes in flight on the way down: all but one of the limit; as long as they last in the
    block; what those on the way up leave. Or no limit, but the order of the blocks."""
    slots: RelativeSeconds | None = EQUAL
    """Durations the order is made for; null: the real ones."""
    patience: int = 0
    """As in `Filler`."""
    refilled: bool = False
    """W is placed anew for the real durations."""


@dataclass(frozen=True)
class Style:
    """One building block."""

    limit: Callable[[int], int]
    """p -> passes in flight on any rank at most."""
    blocks: Callable[[int, int], Blocks]
    """(p, gap) -> slots of F down, F up, B down and B up, for each rank."""
    recipes: tuple[Recipe, ...]


SHORT, SHORT_OF_MANY = 6, 4
"""Times p micro batches that choose the recipe of a longer step; of more ranks than `MOST_RANKS`.

Source: assumed; three times, or twice, what fills the pipeline.
"""
MOST_RANKS = 17
"""Ranks up to which every recipe is tried at its size: some tenths of a second. Source: measured.

A pipeline of more tries the best `BEST_OF_FEWER` of a shorter one, of 12 to 17 ranks: what is left
of its ranks by 6 is alike, so are the limits (`half_limit`, `third_limit`).
"""
BEST_OF_FEWER = 2
"""Source: measured at p = 20, 24, 32 and 45, five sets of durations: the order is within
0.8 % of the best of all recipes, in a third of the time."""


def half_limit(pp: int) -> int:
    """Half of the 2p passes of 1F1B, and a little. Source: Qi et al., section 3; counted."""
    return pp + 2 - pp % 2


def half_blocks(pp: int, gap: int) -> Blocks:
    """Slots of V-Half. Source: Qi et al., section 3; the gap is searched, see `Recipe`."""
    up, back, home = 3 * pp - 2, 3 * pp - 1 + gap, 6 * pp - 2 + gap
    return [(2 * i, up - i, back + 2 * i, home - i) for i in range(pp)]


def third_limit(pp: int) -> int:
    """A third of the 2p passes of 1F1B, and a little. Source: as `half_limit`."""
    return 2 * ((pp + 1) // 3) + 2


def third_blocks(pp: int, gap: int) -> Blocks:
    """Slots of V-Min. Source: as `half_blocks`."""
    return [(i, 2 * pp - 1 - i, 2 * pp + gap + i, 4 * pp - 1 + gap - i) for i in range(pp)]


HALF = Style(
    half_limit,
    half_blocks,
    (
        Recipe(0, "rest", LIGHT, refilled=True),
        Recipe(3, "rest", LIGHT, refilled=True),
        Recipe(4, "lasting", None, patience=2),
        Recipe(4, "lasting"),
        Recipe(0, "rest", None, patience=2),
        Recipe(4, "lasting", LIGHT),
        Recipe(0, "pattern", LIGHT, refilled=True),
        Recipe(1, "rest", LIGHT, refilled=True),
        Recipe(2, "lasting", LIGHT, refilled=True),
        Recipe(3, "lasting", None),
        Recipe(0, "most", LIGHT, refilled=True),
    ),
)
THIRD = Style(
    third_limit,
    third_blocks,
    (
        Recipe(0, "rest", LIGHT, refilled=True),
        Recipe(1, "rest", EQUAL, refilled=True),
        Recipe(3, "most", None, patience=2),
        Recipe(4, "lasting", LIGHT),
        Recipe(0, "rest", None, patience=2),
        Recipe(0, "pattern"),
        Recipe(1, "lasting", None),
        Recipe(1, "rest", LIGHT),
        Recipe(3, "lasting", LIGHT, refilled=True),
        Recipe(0, "lasting", None, patience=2),
        Recipe(1, "rest", None, patience=2),
        Recipe(0, "rest", LIGHT),
    ),
)


def _pattern(blocks: Blocks, num_microbatches: int) -> list[list[int]]:
    """Passes of each rank in the order of their slots."""
    slots = np.array(blocks)[:, None, :] + INTERVAL * np.arange(num_microbatches)[:, None]
    order = np.argsort(slots.reshape(len(blocks), -1), axis=1, kind="stable")
    rows: list[list[int]] = (order % slots.shape[-1]).tolist()
    return rows


def _room(recipe: Recipe, limit: int, blocks: Blocks) -> Room:
    """Passes in flight; in its block, a pass lasts up to its W, in the second slot after B."""
    lasting = {
        "most": [limit - 1 for _ in blocks],
        "lasting": [-((first - last - 2) // INTERVAL) for first, _, _, last in blocks],
        "rest": [limit + (first - last - 2) // INTERVAL for _, first, last, _ in blocks],
        "pattern": [limit for _ in blocks],
    }
    return Room(limit, lasting[recipe.down])


def _again(style: Style, shape: Shape, relative: RelativeSeconds, patience: int = 0) -> Filler:
    """A run that follows an order; only the memory limits it."""
    room = Room(style.limit(shape.pp), [style.limit(shape.pp)] * shape.pp)
    return Filler(shape, room, relative, patience)


@lru_cache(maxsize=64)
def _by_slots(style: Style, recipe: Recipe, shape: Shape, slots: RelativeSeconds) -> Filler:
    """Run of one recipe with the durations of its slots: the same for many real ones."""
    blocks, limit = style.blocks(shape.pp, recipe.gap), style.limit(shape.pp)
    first = Filler(shape, _room(recipe, limit, blocks), slots, recipe.patience)
    if recipe.down == "pattern":
        return first.follow(_pattern(blocks, shape.num_microbatches))
    return first.fill(blocks)


def filled(style: Style, recipe: Recipe, shape: Shape, relative: RelativeSeconds) -> Filler:
    """Run of one recipe, with the real durations in the end. It may not come to its end."""
    slots = recipe.slots or relative
    first = _by_slots(style, recipe, shape, slots)
    if not first.complete or slots == relative:
        return first
    if recipe.refilled:
        return _again(style, shape, relative, patience=1).follow(first.passes)
    return _again(style, shape, relative).follow(first.rows)


@lru_cache(maxsize=64)
def runs(style: Style, shape: Shape, relative: RelativeSeconds) -> list[tuple[Recipe, Filler]]:
    """Recipes that come to their end, the soonest first, and their runs.

    The order that is best for equal passes is among them, up to `MOST_RANKS`.
    """
    if shape.pp > MOST_RANKS:
        fewer = shape.pp % 6 + 12
        like = shape._replace(pp=fewer, num_microbatches=SHORT_OF_MANY * fewer)
        best = dict.fromkeys(
            [*(recipe for recipe, _ in runs(style, like, relative)), *style.recipes]
        )
        every = ((recipe, filled(style, recipe, shape, relative)) for recipe in best)
        complete = list(islice((pair for pair in every if pair[1].complete), BEST_OF_FEWER))
    else:
        tried = [(recipe, filled(style, recipe, shape, relative)) for recipe in style.recipes]
        if relative != EQUAL:
            recipe, equal = runs(style, shape, EQUAL)[0]
            tried.append((recipe, _again(style, shape, relative).follow(equal.rows)))
        complete = [pair for pair in tried if pair[1].complete]
    return sorted(complete, key=lambda pair: pair[1].makespan)


MOST_JUSTIFIED = 1_600
"""Ops of a step whose best orders are squeezed: some tenths of a second. Source: measured."""
BEST_JUSTIFIED = 4
"""Orders that are squeezed. Source: tried."""


def justified_program(style: Style, shape: Shape, relative: RelativeSeconds) -> Program:
    """The recipes' best order, or, in a step too short to tell longer ones from, it squeezed."""
    line = _line(style, shape, relative)
    first, *others = [run for _, run in runs(style, shape, relative)][:BEST_JUSTIFIED]
    ops = INTERVAL * shape.pp * shape.num_microbatches
    if ops > MOST_JUSTIFIED or shape.num_microbatches >= SHORT * shape.pp:
        return first.program()
    dense = (justified(line, _passes(run)) for run in (first, *others))
    tried = sorted(dense, key=lambda one: one.makespan)
    programs = (line.program(one.order) for one in tried if one.makespan < first.makespan)
    fitting = (one for one in programs if (peak_activations(one) <= line.limit).all())
    return next(fitting, first.program())


def _line(style: Style, shape: Shape, relative: RelativeSeconds) -> Line:
    stages, limit = placed("v", shape.pp, shape.vpp), style.limit(shape.pp)
    durations = [[float(seconds)] * stages.size for seconds in relative[:3]]
    return Line(stages.tolist(), shape.num_microbatches, durations, float(relative.p2p), limit)


def _passes(run: Filler) -> list[Pass]:
    """The ops of a run as they started; every kind walks the micro batches in turn."""
    stages = placed("v", run.shape.pp, run.shape.vpp).tolist()
    count: Counter[tuple[int, int]] = Counter()
    result = []
    for rank, number in run.sequence:
        turn = TURNS[number]
        result.append(Pass(turn.kind, stages[rank][turn.chunk], count[rank, number]))
        count[rank, number] += 1
    return result


def stretched(rows: Rows, pp: int, times: int) -> Rows | None:
    """The order with so many more steady periods of `pp` micro batches; None if it has none.

    A period lasts from one B up the V to that of `pp` micro batches later. It is steady where the
    next one is alike, on every rank.
    """
    turns = [[at for at, op in enumerate(row) if op == FIRST_BACK] for row in rows]
    for first in range(len(turns[0]) - 2 * pp - 1, 0, -1):
        cuts = [(one[first], one[first + pp], one[first + 2 * pp]) for one in turns]
        pairs = list(zip(rows, cuts, strict=True))
        whole = all(
            sorted(row[a:b]) == sorted([*range(len(TURNS))] * pp) for row, (a, b, _) in pairs
        )
        if whole and all(row[a:b] == row[b:c] for row, (a, b, c) in pairs):
            return [row[:b] + row[a:b] * times + row[b:] for row, (a, b, _) in pairs]
    return None


def program_of_style(style: Style, shape: Shape, relative: RelativeSeconds) -> Program:
    """Ops of every rank: the recipe that ends first. Long steps repeat what short ones settle on.

    Source: that of the module.
    """
    pp, m = shape.pp, shape.num_microbatches
    groups = SHORT if pp <= MOST_RANKS else SHORT_OF_MANY
    short = shape._replace(num_microbatches=min(m, groups * pp + m % pp))
    best = runs(style, short, relative)
    if short == shape:
        return justified_program(style, shape, relative)
    rows = stretched(best[0][1].rows, pp, (m - short.num_microbatches) // pp)
    if rows is not None and comes_to_its_end(rows, style.limit(pp)):
        return program_of(rows, shape)
    filled_runs = (filled(style, recipe, shape, relative) for recipe, _ in best)
    return next(run for run in filled_runs if run.complete).program()


def _schedule(style: Style) -> Schedule:
    """Schedule of one building block."""

    def program(shape: Shape, relative: RelativeSeconds) -> Program:
        return program_of_style(style, shape, relative)

    def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
        limit = style.limit(len(layers))
        most = min(num_microbatches, limit)
        rest = min(num_microbatches, limit - most)
        heavy = np.argmax(layers, axis=1)[:, None] == np.arange(2)
        return np.where(heavy, float(most), float(rest))

    return Schedule(
        program,
        held,
        split_chunks_bound,
        rounds_to_fill=2,
        placement="v",
        least_vpp=2,
        most_vpp=2,
        splits_backward=True,
        adapts=True,
        repeats=True,
    )


V_HALF = _schedule(HALF)
V_MIN = _schedule(THIRD)
