"""Nothing fits: which is the smallest set of changes that would help?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from trainplan.costmodel.base import GIB, PlanError
from trainplan.costmodel.layouts import Rule
from trainplan.planner.cases.case import (
    LIGHTER,
    Case,
    Lighter,
    with_batch,
    with_gpus,
    with_sequence,
    with_setting,
    without_choice,
    without_host_reserve,
    without_margin,
    without_reserve,
    without_trust,
)
from trainplan.planner.evidence import OPTION
from trainplan.planner.goals import UntilFeasible
from trainplan.planner.space import Choice, Space, legality_rules, values_outside_grid
from trainplan.planner.tree import Search, SearchLimits
from trainplan.planner.work import Budget

Relaxations = tuple[tuple[str, ...], ...]
"""Sets of changes, each change as a sentence."""

LARGEST_GROWTH = 64
"""Clusters up to this many times the size are tried."""
LARGEST_SET = 3
MOST_TRIALS = 100
"""Searches for sets of two and three: a user would not wait for more."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One way to need less."""

    kind: str
    """Of one kind only the smallest that helps is printed, and a set has one of each at most."""
    text: Callable[[Case], str]
    """What to do, of the changed question."""
    apply: Callable[[Case], Case]


def relaxations(case: Case, budget: Budget) -> Relaxations:
    """The smallest sets of changes that make the job feasible, each tried by a search.

    Single changes first; pairs only if none of them helps, triples only if no pair does. Those
    not tried before the budget is spent are left out.
    """
    changes = list(_changes(case))
    for size in range(1, LARGEST_SET + 1):
        found = tuple(_helping(case, changes, size, budget))
        if found:
            return found
    return ()


def _helping(
    case: Case, changes: Sequence[_Change], size: int, budget: Budget
) -> Iterator[tuple[str, ...]]:
    """Sets of one size that help."""
    reported: set[tuple[str, ...]] = set()
    trials = 0
    for chosen in combinations(changes, size):
        kinds = tuple(change.kind for change in chosen)
        if len(set(kinds)) < size or kinds in reported:
            continue
        trials += 1
        if budget.spent() or (size > 1 and trials > MOST_TRIALS):
            return
        changed = _applied(case, chosen)
        if changed and feasible(changed, budget):
            reported.add(kinds)
            yield tuple(change.text(changed) for change in chosen)


def _applied(case: Case, chosen: Sequence[_Change]) -> Case | None:
    """The question after all changes of a set; none if one of them changes nothing."""
    for change in chosen:
        try:
            changed = change.apply(case)
        except PlanError:
            return None
        if changed == case:
            return None
        case = changed
    return case


def _changes(case: Case) -> Iterator[_Change]:
    """From the cheapest to the most expensive; the batch comes last because it follows the GPUs."""
    for number, choice in enumerate(case.options.choices):
        yield _drop(f"choice {number}", choice)
    if case.options.trusted:
        yield _Change("trusted", lambda _: f"drop {OPTION}", without_trust)
    for name, text in case.job.options.arguments().items():
        if name not in case.job.options.ROUTED:  # tokens choose as they do
            yield _unset(name, text)
    yield _Change("margin", lambda _: "use --memory-margin 0 (no safety margin)", without_margin)
    if case.job.reserve_host_bytes:
        host = f"drop --reserve-host {case.job.reserve_host_bytes / GIB:.4g}GiB"
        yield _Change("reserve-host", lambda _: host, without_host_reserve)
    if case.job.reserve_bytes:
        reserve = f"drop --reserve {case.job.reserve_bytes / GIB:.4g}GiB"
        yield _Change("reserve", lambda _: reserve, without_reserve)
    fused = "use Liger's kernels, whose loss keeps no logits: --option liger=0.6"
    yield _Change("liger", lambda _: fused, lambda now: with_setting(now, "liger", "0.6"))
    yield from map(_states, LIGHTER)
    yield _Change(
        "sequence",
        lambda now: f"halve the sequence: --seq-length {now.job.training.seq_length}",
        lambda question: with_sequence(question, question.job.training.seq_length // 2),
    )
    factor = 2
    while factor <= LARGEST_GROWTH:
        yield _growth(factor)
        factor *= 2
    yield _Change(
        "batch",
        lambda now: (
            f"use --global-batch-size {now.job.training.global_batch_size}, a multiple of the "
            f"{now.job.cluster.num_gpus} GPUs"
        ),
        _with_divisible_batch,
    )


def _drop(kind: str, choice: Choice) -> _Change:
    name = choice.rule().name
    return _Change(
        kind, lambda _: f"drop {name}", lambda question: without_choice(question, choice)
    )


def _unset(name: str, text: str) -> _Change:
    reported = f"drop --option {text}"
    return _Change(name, lambda _: reported, lambda question: with_setting(question, name, None))


def _states(one: Lighter) -> _Change:
    return _Change(one.field, lambda _: f"{one.words}: {one.option}", one.applied)


def _growth(factor: int) -> _Change:
    return _Change(
        "gpus",
        lambda now: f"use {now.job.cluster.num_gpus} GPUs ({factor} times as many)",
        lambda question: with_gpus(question, question.job.cluster.num_gpus * factor),
    )


def _with_divisible_batch(case: Case) -> Case:
    """Next multiple of the world size: then every data parallelism divides the batch."""
    world = case.job.cluster.num_gpus
    return with_batch(case, -(-case.job.training.global_batch_size // world) * world)


ANY = 1e30
"""Seconds that every step is shorter than: what fits is wanted, not why all others do not."""


def feasible(case: Case, budget: Budget) -> bool:
    """Is there a layout that fits? An impossible question has none."""
    options = case.options
    try:
        on = case.context
    except PlanError:
        return False
    if values_outside_grid(Space(on), options.choices):
        return False
    rules: list[Rule] = [*options.rules_of_grid(on), *legality_rules(on.traits)]
    limits = SearchLimits(on.machine.memory_bytes * (1 - options.margin(on.job)), top=1)
    search = Search(on, rules, limits)
    return search.run(UntilFeasible(search, budget), ANY).finalists is not None
