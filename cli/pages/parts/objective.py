"""The objective of a plan: its value, its proof, and the sizes of the cluster it was tried on."""

from collections.abc import Iterator, Mapping

from trainplan.cli.blocks import Cell, Part, Table, headed, number, table
from trainplan.cli.words import gib, percent, plural, seconds
from trainplan.costmodel.base import long_unit
from trainplan.costmodel.run_costs import JOULES_PER_KWH, run_steps, stretch_of
from trainplan.costmodel.runtimes import runtime
from trainplan.planner.comparisons import Proof
from trainplan.planner.plan import Plan, Target, Tried

SHOWN_SIZES = 6
"""Of those tried, the best; `certificate.objective.tried` of the plan document has all."""
FEW_JOULES = 1e5
"""Less is written in kJ."""
WORDS: Mapping[str, str] = {
    "time": "fastest",
    "memory": "least in memory",
    "cost": "cheapest",
    "energy": "least in energy",
    "gpus": "fastest on the fewest GPUs",
    "context": "fastest at this length",
}
"""What the answer is, in a sentence."""


def amount(value: float, unit: str) -> str:
    """A figure with its unit."""
    if unit == "s":
        return seconds(value)
    if unit == "bytes":
        return f"{gib(value)} GiB"
    if unit == "J":
        return _energy(value)
    if unit in ("GPUs", "tokens"):
        return f"{value:,.0f} {unit}"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _energy(joules: float) -> str:
    if joules < FEW_JOULES:
        return f"{joules / 1000:.3g} kJ"
    kwh = joules / JOULES_PER_KWH
    return f"{kwh / 1000:,.1f} MWh" if kwh >= 1000 else f"{kwh:.3g} kWh"


def proof_words(proof: Proof | None) -> str:
    """What a search proved of its answer, in a few words."""
    if proof is None or not (proof.optimal or 0 < proof.gap_fraction < 1):
        return "not known"
    like = " among those like published runs" if proof.like_published else ""
    of_it = f"{WORDS[proof.objective]} of its search{like}"
    if not proof.optimal:
        return f"within {percent(proof.gap_fraction, up=True)} of the {of_it}"
    slack = proof.slack_fraction
    return f"simplest within {percent(slack)} of the {of_it}" if slack else of_it


def objective_lines(plan: Plan) -> Iterator[str]:
    """The value of the objective and how sure it is; of the step time, what fewer GPUs give."""
    target = plan.certificate.objective
    if target.name == "time":
        yield from _fewer_gpus(plan, target)
        return
    even = " with even stages" if only_even(plan) else ""
    proof = f"; {_proof(target)}{even}{islands_text(plan)}"
    over = "the whole run" if target.per == "run" else "one step"
    size = plural(plan.job.num_gpus, "GPU")
    if target.name == "memory":
        free = gib(plan.best.estimate.memory.capacity_bytes - target.value)
        limit = seconds(target.step_time_limit_s or 0.0)
        yield f"{free} GiB free, the most of all layouts that step in {limit} or less{proof}"
    elif target.name == "context":
        yield (
            f"{target.value:,.0f} tokens is the longest sequence that trains; a longer one is "
            f"stopped by: {target.limit}"
        )
    elif target.name == "gpus":
        one = plan.job.num_gpus == 1
        fewest = f"{size} {'is' if one else 'are'} the fewest{_of_those_tried(target)}"
        if target.step_time_limit_s is None:
            yield f"{fewest} on which the job fits, in whole nodes{proof}"
            return
        run = (run_steps(plan.job) or 0) * plan.best.estimate.step_time_s * stretch_of(plan.job)
        unit, name = long_unit(run)
        ends = "that ends" if one else "that end"
        yield f"{fewest} {ends} the run in time: in {run / unit:.1f} {name}{proof}"
    else:
        value = target.answer_value
        least, above = _of_those_tried(target), value / target.value - 1 if target.value else 0.0
        if above > 0:
            least = f", within {percent(above, up=True)} of the {WORDS[target.name]}{least}"
        elif least:
            least = f", the least{least}"
        yield f"{amount(value, target.unit)} for {over} on {size}{least}{proof}"


def islands_text(plan: Plan) -> str:
    """Over which numbers of islands a proof is; nothing where there are none."""
    outer, own = plan.outer_step, plan.job.islands
    free = {one.islands for one in outer.tried} - {own} if outer and not outer.held else set()
    if not free:
        return f" with {own} islands, other numbers not tried" if own > 1 else ""
    counts = ", ".join(f"{one}" for one in sorted(free - {1}))
    names = [f"{counts} islands"] * bool(counts) + ["no outer steps"] * (1 in free)
    mine = f"{own} islands" if own > 1 else "no outer steps"
    return f" with {mine}, and over {' and '.join(names)} with even stages"


def _of_those_tried(target: Target) -> str:
    """What is proved of parts of the cluster, where some were not tried; else nothing."""
    return "" if target.tried_all else f" of the {len(target.tried)} sizes tried"


def _fewer_gpus(plan: Plan, target: Target) -> Iterator[str]:
    """Is a part of the cluster faster than all of it, or as fast?"""
    if not target.tried:
        return
    whole = max(target.tried, key=lambda one: one.num_gpus)
    own, limit = plan.job.cluster.num_gpus, target.value * (1 + target.slack_fraction)
    close = [one for one in target.tried if one.value is not None and one.value <= limit]
    fewest = min(close, key=lambda one: (one.num_gpus, one.value), default=whole)
    batch, count = plan.job.training.global_batch_size, whole.num_gpus
    why = f"; {batch:,} sequences do not divide by {count:,}" if batch % count else ""
    passing = stretch_of(plan.job)
    known = f"{seconds(target.value * passing)}{' a step with failures' if passing > 1 else ''}"
    if own < count:
        rest = _on_all(whole, target.value, passing)
        yield f"{own:,} of the {count:,} GPUs are faster: {known}, {rest}{why}"
    if fewest.num_gpus < own and fewest.value is not None:
        few = f"{fewest.num_gpus:,} of the {count:,} GPUs are as fast: "
        few += seconds(fewest.value * passing)
        yield f"{few} against {known}{why if own == count else ''}"


def _on_all(whole: Tried, best_s: float, passing: float) -> str:
    """What is known of all GPUs, where some are the answer; `passing` seconds pass for one."""
    every = f"all {whole.num_gpus:,}"
    if whole.value is not None:
        return f"{every} take {seconds(whole.value * passing)}"
    if whole.lower_bound is None:
        return f"no layout on {every} is legal{', fits and ends' if passing > 1 else ' and fits'}"
    proved = "no layout" if whole.lower_bound >= best_s else "no layout that was found"
    return f"{proved} on {every} is as fast"


def only_even(plan: Plan) -> bool:
    """Nothing is proved of uneven stages for the objective, though the runtime takes them."""
    other = plan.certificate.objective.name in ("memory", "energy")
    return other and runtime(plan.job.runtime).pipeline.splits_freely


def _proof(target: Target) -> str:
    if target.gap_fraction <= 0:
        return "proved"
    if target.lower_bound <= 0:
        return "not proved: how far down it may go is not known"
    bound = amount(target.lower_bound, target.unit)
    less = percent(1 - target.lower_bound / target.answer_value)
    return f"not proved: it may go down to {bound}, {less} less"


def sizes_part(plan: Plan) -> Iterator[Part]:
    """The best sizes of the cluster that were tried; nothing where only one was."""
    target = plan.certificate.objective
    if len(target.tried) > 1 and target.name != "time":
        many = len(target.tried)
        which = f"the best {SHOWN_SIZES}" if many > SHOWN_SIZES else "the best first"
        head = f"Sizes tried: {many}, {which}"
        yield headed(head, sizes_table(target, SHOWN_SIZES))


def sizes_table(target: Target, most: int | None = None) -> Table:
    """Sizes of the cluster with the objective of each, the best first."""
    best = sorted(target.tried, key=lambda one: (one.bound, one.num_gpus))[:most]
    rows = ((one.num_gpus, one.cluster, _of_size(one, target.unit)) for one in best)
    caption = "Parts of the cluster that were tried, the best first"
    return table(caption, (number("GPUs"), "nodes", "objective"), rows)


def ladder_part(plan: Plan) -> Iterator[Part]:
    """How long sequences may be with ever more techniques; nothing for other objectives."""
    if plan.certificate.objective.ladder:
        found = ladder_table(plan.certificate.objective)
        yield headed(found.caption, found)


def ladder_table(target: Target) -> Table:
    """Techniques with the length that each makes possible."""
    caption = "Longest sequence that trains, each technique added to those before"
    rows = (
        (f"+ {one.adds}" if place else one.adds, one.tokens, one.global_batch_size, one.limit)
        for place, one in enumerate(target.ladder)
    )
    columns = ("technique", number("tokens"), number("sequences a step"), "stopped by")
    return table(caption, columns, rows)


def _of_size(one: Tried, unit: str) -> Cell:
    """The objective of a size, or what bounds it."""
    if one.value is not None:
        return Cell(amount(one.value, unit), one.value)
    if one.lower_bound is None:
        return Cell("no layout is an answer")
    return Cell(f"at least {amount(one.lower_bound, unit)}", one.lower_bound)


def settings_text(plan: Plan) -> str:
    """The settings of the answer and how sure they are; empty where none was varied."""
    settings = plan.certificate.settings
    if settings is None:
        return ""
    chosen = " ".join(settings.chosen) or "the runtime's defaults"
    if not settings.combinations:
        return f"Settings of the fastest layout with even stages: {chosen}."
    count = plural(len(settings.combinations), "combination")
    return f"Of {count} of settings, chosen: {chosen}{_left_out(plan)}."


def _left_out(plan: Plan) -> str:
    """Settings the runtime has for the job that were not varied."""
    settings, job = plan.certificate.settings, plan.job
    if settings is None or settings.level != "safe":
        return ""
    others = [one for one in runtime(job.runtime).settings if one.level == "all"]
    free = (one.name for one in others if getattr(job.options, one.name) is None)
    names = ", ".join(dict.fromkeys(free))
    return f"; not searched (`--search-options all`): {names}" if names else ""
