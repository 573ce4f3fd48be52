"""A plan as the page `plan search` prints."""

from collections.abc import Iterable, Iterator, Mapping

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from trainplan.cli.blocks import Part, Table, headed, number, section, stacked, table
from trainplan.cli.pages.parts.alternatives import (
    alternatives_table,
    legend,
    rivals_lines,
    ties_lines,
)
from trainplan.cli.pages.parts.breakdown import idle_lines, largest_cost, memory_table, terms_table
from trainplan.cli.pages.parts.evidence import not_taken_lines, plan_evidence_lines
from trainplan.cli.pages.parts.headline import (
    UPPER_BOUND,
    chance_text,
    chosen_lines,
    headline,
    job_line,
    refusals,
    tightest_text,
)
from trainplan.cli.pages.parts.islands import island_lines
from trainplan.cli.pages.parts.lanes import lanes_part
from trainplan.cli.pages.parts.load_shift import load_shift_lines
from trainplan.cli.pages.parts.objective import (
    WORDS,
    amount,
    islands_text,
    ladder_part,
    objective_lines,
    only_even,
    settings_text,
    sizes_part,
)
from trainplan.cli.pages.parts.placement import disaggregated_part, groups_part, placement_text
from trainplan.cli.words import (
    gib,
    layout_line,
    percent,
    plural,
    seconds,
    seconds_like,
    small_percent,
    stages_sentence,
)
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.timeline import EQUALS
from trainplan.planner.evidence import published_rules, trusted_rules
from trainplan.planner.plan import Certificate, Plan, UnevenStages
from trainplan.planner.runtimes import launch_rules
from trainplan.planner.settings import ELSEWHERE
from trainplan.planner.space import DRIVE_SPACE, HOST_MEMORY, MEMORY, ranks_straddle, rules_of_job

ASKS_A_NUMBER = ("gpus", "context")
"""Objectives whose answer is a number: it comes before the layout."""
SHOWN_RULES = 5
STRUCK = "the time limit struck: `--time-limit none` goes on to the proof"
UNBOUNDED = "not known by how much, as this part of the cluster was searched in part"
YOUR_CHOICE = "your choice"
SHOWN_OTHERS = 2
"""Other schedules; `other_schedules` of the plan document has all."""


def plan_page(plan: Plan, *, verbose: bool) -> Iterator[Part]:
    """The answer first, then why, then the alternatives; `verbose` has what few need."""
    best = plan.best
    cannot = refusals(plan.job, plan.notes)
    stated = tuple(objective_lines(plan))
    first = plan.certificate.objective.name in ASKS_A_NUMBER
    before, after = (stated, ()) if first else ((), stated)
    unit = plan.certificate.objective.unit
    chosen = (*island_lines(plan.outer_step, unit), *chosen_lines(plan.job, plan.notes))
    first_lines = (
        *chosen,
        *load_shift_lines(plan.load_shift, best.estimate.memory.peak_reserved_bytes),
    )
    alongside = {"before": before, "cannot": cannot}
    yield headline(
        plan.job, best.layout, best.estimate, *after, *first_lines, spent=plan.spent, **alongside
    )
    if plan.apart:
        yield from disaggregated_part(plan.apart)
    settings = settings_text(plan) if verbose else ""
    lines = (*([settings] if settings else ()), *plan_evidence_lines(plan, verbose=verbose))
    stages = best.layout.stages
    order = [stages_sentence(stages)] if stages else []
    rivals = (*rivals_lines(plan), *not_taken_lines(plan))
    proof = certificate_text(plan)
    known = job_line(plan.job, plan.assumed)
    yield stacked(*map(Text, (*rivals, *order, known, proof, *lines)))
    yield from ladder_part(plan)
    yield from groups_part(plan.job, best.layout)
    if plan.placement:
        yield Text(placement_text(plan, plan.placement))
    limits = (*idle_lines(best.estimate), binding_text(plan))
    yield stacked(terms_table(best.estimate, few=not verbose), *map(Text, limits))
    yield stacked(*ties_lines(plan), alternatives_table(plan), *legend(plan))
    yield from sizes_part(plan)
    if verbose:
        yield from others_part(plan)
        yield stacked("Memory of each pipeline rank, GiB", memory_table(best.estimate.memory))
    yield from lanes_part(best.estimate)
    if verbose:
        yield from refused_part(plan.job, plan.refused, plan.certificate.space_size)
    if others := tuple(note for note in plan.notes if note not in (*cannot, *chosen)):
        yield notes_part(others)


def certificate_text(plan: Plan) -> str:
    """How sure we are that nothing is better."""
    proof, over = plan.certificate, islands_text(plan)
    best = WORDS[proof.objective.name]
    took = f" in {proof.search_seconds:.1f} s" if proof.search_seconds is not None else ""
    work = f"{proof.priced:,} were priced and {proof.evaluated:,} simulated{took}"
    gap, space = _gap(proof), _space(proof) + _kind_of_stages(plan) + over
    if proof.uneven_stages:
        sure = _uneven_text(plan, proof.uneven_stages)
    elif proof.optimal:
        sure = f"Proved {best} of {space} under the cost model, {gap}."
    else:
        known = f"{_none_below(proof)}, {gap}" if proof.gap_fraction < 1 else UNBOUNDED
        sure = f"Not proved {best} of {space}: {known}."
    if plan.fastest is not plan.best:
        sure = f"Row {plan.fastest.rank}: {sure[0].lower()}{sure[1:]}"
    return f"{sure}\n{'; '.join((work, *_ends(proof)))}."


def _ends(proof: Certificate) -> Iterator[str]:
    """Why the search ended, and what goes on."""
    if proof.time_limit_struck:
        yield STRUCK
    if not proof.alternatives_complete:
        why = "" if proof.time_limit_struck else "the time limit struck, so "
        yield f"{why}the table may miss alternatives"
    elif proof.optimal:
        yield "a bound or a rule excludes the others"


def _space(proof: Certificate) -> str:
    """How much was searched."""
    layouts, settings = plural(proof.space_size, "layout"), proof.settings
    many, target = len(settings.combinations) if settings else 0, proof.objective
    sizes = "" if target.tried_all or target.name == "time" else f" on {len(target.tried)} sizes"
    held = proof.trusted is not None and proof.trusted.not_taken is not None
    like = "those like published runs among " if held else ""
    combined = f" ({many} combinations of settings each)" if many else ""
    return f"{like}{layouts}{combined}{sizes}"


def _uneven_text(plan: Plan, uneven: UnevenStages) -> str:
    """What is proven of even stages, and of uneven ones."""
    proof, step = plan.certificate, plan.fastest.estimate.step_time_s
    best, space, over = WORDS[proof.objective.name], _space(proof), islands_text(plan)
    gain = 1 - step / uneven.even_step_time_s
    saves = f"uneven stages save {small_percent(gain)} of the best with even ones"
    if proof.optimal and gain >= 0:
        text = f"Proved {best} of {space} and {_splits_text(step, uneven)}{over}, gap 0 %"
        return f"{text}; {saves}." if gain > 0 else f"{text}."
    if step > uneven.even_step_time_s:
        return _only_uneven_text(proof, uneven.even_step_time_s / step, over)
    within = f"within {percent(proof.gap_fraction, up=True)} of"
    if gain > 0:
        return f"{saves.capitalize()}; {within} the best of {space}, stages of any kind{over}."
    if uneven.even_lower_bound_s >= step and proof.objective.name == "time":
        any_kind = f"{within} any with uneven ones"
        return f"Proved fastest of {space} with even stages, {any_kind}{over}."
    return f"Not proved {best} of {space}{over}: {within} the best."


def _splits_text(step_s: float, uneven: UnevenStages) -> str:
    """Which splits a proof covers, and what is known of the others."""
    bound = uneven.any_split_lower_bound_s
    if bound is not None and bound * EQUALS >= step_s:
        return "all splits of their layers into stages"
    alike = "all splits whose virtual stages of a rank differ by one layer at most"
    if bound is None:
        return alike
    left = percent(1 - bound / step_s, up=True)
    return f"{alike} (any other split is at most {left} faster)"


def _only_uneven_text(proof: Certificate, even: float, over: str) -> str:
    """Even stages were excluded; `even` is the share of the step that they take."""
    sure = "Proved" if proof.optimal else "Not proved"
    gap = _gap(proof)
    takes = f"even ones take {percent(1 - even)} less"
    return f"{sure} fastest of all layouts with uneven stages{over}, {gap}; {takes}."


def _kind_of_stages(plan: Plan) -> str:
    """Which stages were searched, where the certificate has no part on uneven ones."""
    uneven = plan.best.layout.stages and len(plan.job.cluster.groups) == 1
    if uneven and plan.certificate.objective.name == "time":
        return " with uneven stages (no even ones fit)"
    tried = " (some uneven ones were tried)" if plan.certificate.objective.name == "memory" else ""
    return f" with even stages{tried}" if only_even(plan) else ""


def _gap(proof: Certificate) -> str:
    """Rounded up: no more than that is left."""
    return f"gap {percent(proof.gap_fraction, 1 if proof.gap_fraction else 0, up=True)}"


def _none_below(proof: Certificate) -> str:
    target = proof.objective
    if target.name == "time":
        return f"none is faster than {seconds(proof.lower_bound_s)}"
    return f"none is below {amount(target.lower_bound, target.unit)}"


def binding_text(plan: Plan) -> str:
    """What limits the answer."""
    memory = plan.best.estimate.memory
    usable = memory.capacity_bytes * (1 - plan.memory_margin)
    return (
        f"Largest cost after the work itself: {largest_cost(plan.best.estimate)}.\n"
        f"Memory: {gib(memory.peak_reserved_bytes)} of {gib(usable)} GiB, margin "
        f"{percent(plan.memory_margin)}, fits{chance_text(memory)}; {tightest_text(memory)}."
    )


def refused_part(job: Job, refused: Mapping[str, int], space: int) -> Iterator[Part]:
    """Which rules refused most layouts, and what to do about them."""
    if not refused:
        return
    head = f"Refused: {sum(refused.values()):,} of {plural(space, 'layout')}"
    yield headed(head, refused_table(job, refused, SHOWN_RULES))


def refused_table(job: Job, refused: Mapping[str, int], most: int | None = None) -> Table:
    """Rules with how many layouts each refused; those after the first `most` share a row."""
    says = rule_texts(job, refused)
    rows = [(count, name, says.get(name, YOUR_CHOICE)) for name, count in refused.items()]
    more = rows[most:] if most else []
    if more:
        other = (sum(count for count, *_ in more), plural(len(more), "other rule"), "")
        rows = [*rows[:most], other]
    return table("Layouts refused", (number("refused"), "rule", "why"), rows)


def rule_texts(job: Job, refused: Iterable[str]) -> Mapping[str, str]:
    """Texts of rules of a search, by name; a choice of the user has no text."""
    rules = [*rules_of_job(job), *launch_rules(job), ranks_straddle()]
    bound = f", by {UPPER_BOUND}" if job.rows_shift else ""
    rules += [*trusted_rules(job), *published_rules(job), *published_rules(job, generation=True)]
    return {
        **{rule.name: rule.says for rule in rules},
        ELSEWHERE: "searched under settings that are no slower",
        MEMORY: f"does not fit in memory{bound}: more tp, pp, cp, recompute, offload or GPUs",
        HOST_MEMORY: (
            "fits on the GPUs, not in the memory of their host: more host.memory_gib, drives or "
            "nodes"
        ),
        DRIVE_SPACE: ("fits on the GPUs, not on the drives: more or larger host.drives, or nodes"),
    }


def others_part(plan: Plan) -> Iterator[Part]:
    """What schedules of other runtimes would give for the same degrees: the two fastest."""
    if not plan.other_schedules:
        return
    step = plan.best.estimate.step_time_s
    runtime = plan.job.runtime
    timed = ((o, o.step_time_s) for o in plan.other_schedules if o.step_time_s is not None)
    faster = [(other, time) for other, time in timed if time < step][:SHOWN_OTHERS]
    if not faster:
        yield Text(f"No schedule that {runtime} lacks would make this layout faster and fit.")
        return
    lines = [
        f"  {other.schedule} with vpp {other.vpp}: {seconds_like(time, step)} a step, "
        f"{percent(1 - time / step)} less; {gib(other.peak_reserved_bytes)} GiB; "
        f"on {', '.join(other.executed_by)}"
        for other, time in faster
    ]
    yield headed(f"This layout under schedules {runtime} lacks", *lines)


def notes_part(notes: tuple[str, ...]) -> RenderableType:
    """Assumptions and warnings."""
    items = (Padding(Text(f"- {note}"), (0, 0, 0, 2)) for note in notes)
    return headed("Good to know", *items)


def baseline_text(job: Job, layout: Layout, estimate: Estimate, best: Estimate) -> str:
    """How the answer compares with the user's own layout."""
    name = layout_line(layout, job.model)
    own, answer = estimate.step_time_s, best.step_time_s
    if own >= answer:
        verdict = f"the answer is {own / answer:.2f} times as fast, {seconds(own - answer)} less"
    else:
        verdict = f"it is {seconds(answer - own)} faster than the answer"
    memory = estimate.memory
    needs = f"{gib(memory.peak_reserved_bytes)} GiB"
    fits = {
        True: "",
        False: f"; it needs {needs}: too much",
        None: f"; not known whether it fits: {needs} by {UPPER_BOUND}",
    }[memory.fits]
    return f"Baseline: {name}\n  {seconds(own)} a step: {verdict}{fits}."


def next_part(command: str) -> RenderableType:
    """What to type next."""
    return section("Next", command)
