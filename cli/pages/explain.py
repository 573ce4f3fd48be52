"""An explained plan, as text and as JSON."""

from collections.abc import Iterator, Sequence
from math import isfinite

from rich.console import RenderableType
from rich.text import Text

from trainplan.cli.blocks import Columns, Part, number, stacked, table
from trainplan.cli.documents import ExplainDocument
from trainplan.cli.pages.parts.breakdown import idle_lines, largest_cost, memory_table, terms_table
from trainplan.cli.pages.parts.differences import change_text, gain
from trainplan.cli.pages.parts.headline import estimate_line, job_line
from trainplan.cli.pages.parts.lanes import lanes_part
from trainplan.cli.pages.parts.load_shift import load_shift_lines
from trainplan.cli.words import (
    NEVER,
    gib,
    layout_line,
    like,
    no_plan_text,
    parameters,
    percent,
    plural,
    seconds,
    seconds_like,
)
from trainplan.costmodel.job import Job
from trainplan.planner.explanations import (
    Bought,
    DynamicContext,
    ExpertPlacement,
    Explanation,
    LargestModel,
    RelaxedRule,
    Robustness,
    SequenceLengths,
    ShadowPrice,
)
from trainplan.planner.questions import Imbalance

SURE = 5e-4
"""A placement that another is better than by less is the best: it is shown as 0.0 %."""


def lengths_part(found: SequenceLengths, step: float) -> RenderableType:
    """Context ranks that lengths need, then what each other way to run them takes."""
    shares = (number(head, percent) for head in ("sequences", "tokens"))
    rows = (
        (str(one.degree), one.longest, one.sequences_fraction, one.tokens_fraction)
        for one in found.degrees
    )
    needed = table("", ("Context ranks needed", number("longest"), *shares), rows)
    return stacked(needed, " ".join(_sentences(found, step)))


def _sentences(found: SequenceLengths, step: float) -> Iterator[str]:
    yield f"{percent(found.padding_fraction)} of a row is padding."
    if found.attention_wait > 1:
        yield (
            f"Attention takes {found.attention_wait:.2f} times as long as in a mean row: ranks "
            "wait for the heaviest."
        )
    if found.balanced_step_time_s is not None:
        yield (
            "Rows equal in attention work (--packing balanced) take "
            f"{_compared(found.balanced_step_time_s, step)}."
        )
    if found.dynamic and found.dynamic.step_time_s is not None:
        yield _dynamic(found.dynamic, found.dynamic.step_time_s, step)


def _dynamic(found: DynamicContext, seconds: float, step: float) -> str:
    flags = f"--hybrid-context-parallel --max-seqlen-per-dp-cp-rank {found.tokens_per_rank}"
    written = found.refused or f"Megatron-LM: {flags} --calculate-per-token-loss"
    return (
        "Each sequence on the context ranks it needs (dynamic context parallelism) would take "
        f"{_compared(seconds, step)}; {written}."
    )


def _compared(seconds: float, step: float) -> str:
    return f"{seconds_like(seconds, step)} for the same tokens, {step / seconds:.2f} times as fast"


SHOWN_RIVALS = 6
SHOWN_BOUGHT = 5
SHOWN_BEYOND = 4
SLACK_SHOWN = 0.0005
"""Less is 0.0 %."""
EXTRAPOLATED = " (extrapolated)"
"""Behind what no published run is like."""
UNKNOWN = 1.0
"""A price of which no more is known than that the step may be half as long: nothing is."""


def explain_page(found: Explanation) -> Iterator[Part]:
    """The verdict first, then the step, the memory, the prices and the rivals."""
    text = Text(ExplainDocument.sentence(found), style="bold green")
    text.append("\n" + layout_line(found.layout, found.job.model), style="not bold default")
    text.append("\n" + estimate_line(found.estimate, found.job), style="not bold default")
    yield text
    yield job_line(found.job)
    if found.ranking:
        untried = sum(one.status == "untried" for one in found.shadow_prices)
        yield ranking_line(found.ranking, untried)
    cost = f"Largest cost after the work itself: {largest_cost(found.estimate)}."
    yield stacked(terms_table(found.estimate), *idle_lines(found.estimate), cost)
    yield stacked("Memory of each pipeline rank, GiB", memory_table(found.estimate.memory))
    yield memory_line(found)
    yield from lanes_part(found.estimate)
    if found.largest_model:
        yield largest_line(found.job, found.largest_model)
    if found.imbalance:
        yield imbalance_line(found.imbalance)
    yield from load_shift_lines(found.load_shift, found.estimate.memory.peak_reserved_bytes)
    if found.placement:
        yield " ".join(placement_sentences(found.placement))
    if found.lengths:
        yield lengths_part(found.lengths, found.estimate.step_time_s)
    yield from found.notes
    yield from _prices(found)
    yield from _rules(found)
    yield from _rivals(found)


def ranking_line(ranking: Sequence[Bought], untried: int = 0) -> str:
    """What buys most, in days of the run where its length is known, and how much is not known."""
    shown = "; ".join(map(_bought, ranking[:SHOWN_BOUGHT]))
    more = len(ranking) - SHOWN_BOUGHT
    rest = [f"{more} more below"] * (more > 0)
    rest += [f"{untried} not searched anew: time limit"] * (untried > 0)
    return f"What buys most: {'; '.join([shown, *rest])}."


def _bought(one: Bought) -> str:
    otherwise = " (changes the training)" if one.changes_training else ""
    otherwise += " (in the plan)" * one.in_plan + EXTRAPOLATED * bool(one.beyond)
    if one.saved_days is None or one.of_days is None:
        return f"{one.text}{otherwise} {percent(one.gain_fraction)}"
    return f"{one.text}{otherwise} {_days(one.saved_days)} days of {_days(one.of_days)}"


def _days(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def memory_line(found: Explanation) -> str:
    """How near the limit the fullest rank is, and whether that costs time."""
    memory = found.memory
    line = (
        f"Pipeline rank {memory.rank.rank} is fullest: {gib(memory.headroom_bytes)} GiB of the "
        f"{gib(memory.usable_bytes)} that the margin of {percent(found.memory_margin, 0)} leaves "
        "are free"
    )
    price = found.memory_price
    if price is None or found.memory_binds is None:
        return line + "."
    return f"{line}; {price.text} {'would buy time' if found.memory_binds else 'buy no time'}."


def largest_line(job: Job, found: LargestModel) -> str:
    """How much deeper the model could be."""
    size = f"{plural(found.num_hidden_layers, 'layer')}, {parameters(found.num_parameters)}"
    if found.too_many_layers is None:
        return f"Of this shape {size} and more train here."
    extra = found.num_hidden_layers - job.model.num_hidden_layers
    what = f"up to {size}, train" if extra else f"no more than its {size}, trains"
    return f"Of this shape {what} here: of {found.too_many_layers} layers nothing fits."


def imbalance_line(found: Imbalance) -> str:
    """What unequal experts cost."""
    full = (
        f"the fullest of {found.ranks} expert ranks computes {found.fullest_rank:.3f} times the "
        "rows of balanced experts"
    )
    if found.cost_fraction == 0:
        return f"Imbalance of experts (routing={found.routing}) costs nothing: {full}."
    cost = f"{seconds(found.seconds)}, {percent(found.cost_fraction)} of a balanced step"
    return f"Imbalance of experts (routing={found.routing}) costs {cost}: {full}."


def placement_sentences(found: ExpertPlacement) -> Iterator[str]:
    """Where experts should lie, how sure that is, and what copies would do."""
    name = "best" if found.aim == "mean" else "worst_step"
    gap, step = found.gap_fraction, "" if found.aim == "mean" else " in the fullest step"
    sure = f"another is better by {percent(gap)} at most" if gap >= SURE else "none is better"
    yield (
        f"Experts by their rows (expert_placement={name}): the fullest of {found.ranks} ranks has "
        f"{found.fullest:.3f} times the mean{step}, in the order of numbers {found.in_order:.3f}; "
        f"{sure}."
    )
    if found.later is None or found.later_in_order is None:
        yield "Whether it holds for later steps is not known: one count of all steps was read."
    else:
        yield (
            f"Made by the first half of the steps it has {found.later:.3f} in the others{step}, "
            f"the order of numbers {found.later_in_order:.3f}."
        )
    if copies := found.copies:
        yield (
            f"With one redundant copy on every rank (more are not priced): {copies.fullest:.3f}, "
            f"{seconds(copies.step_time_s)} a step ({seconds(copies.gradients_s)} at most for "
            f"gradients of copies), {gib(copies.peak_reserved_bytes)} GiB. Whether a runtime "
            "trains with copies: Megatron-LM has none; others were not read."
        )


def _prices(found: Explanation) -> Iterator[Part]:
    """What more of everything would buy, in tokens per second."""
    gains = map(number, ("same layout", "searched anew", "per GPU"))
    days = [number("days saved")] if found.job.training.tokens else []
    columns: Columns = ("What would it buy?", *gains, *days, "with")
    rows = (_price_row(price, found) for price in found.shadow_prices)
    yield stacked(
        table("", columns, rows),
        f"Gains are in tokens/s of the whole job{_with_failures(found.job)}, each the best with "
        "even stages or better: uneven ones are tried; >= where that is not proved; NAME=VALUE are "
        "settings for `--option`.",
        *_unlike(found.shadow_prices),
        *slack_lines(found.slack_fraction),
    )


def slack_lines(fraction: float) -> Iterator[str]:
    """What the ranking and the first line leave out of the table's gains."""
    if fraction > SLACK_SHOWN:
        yield (
            f"The plan takes {percent(fraction)} longer than the fastest layout known (its slack): "
            "the first line and what buys most count what is searched anew from that one."
        )


def _unlike(prices: Sequence[ShadowPrice]) -> Iterator[str]:
    """Which limits of published runs the prices break that are extrapolated."""
    beyond = dict.fromkeys(text for one in prices for text in one.beyond)
    if beyond:
        more = f"; and {len(beyond) - SHOWN_BEYOND} more" if len(beyond) > SHOWN_BEYOND else ""
        yield f"Extrapolated: {'; '.join([*beyond][:SHOWN_BEYOND])}{more}."


def _with_failures(job: Job) -> str:
    return ", failures and saves included" if job.cluster.failures else ""


def _price_row(price: ShadowPrice, found: Explanation) -> tuple[str, ...]:
    new, kept = price.replanned, price.kept
    saved = new.saved_days if new else None
    return (
        price.text
        + " (changes the training)" * bool(price.changes_training)
        + EXTRAPOLATED * bool(price.beyond),
        gain(kept.throughput_gain_fraction) if kept else NEVER,
        _searched(price),
        gain(new.per_gpu_gain_fraction) if new else NEVER,
        *([NEVER if saved is None else f"{saved:.2g}"] if found.job.training.tokens else []),
        _reason(price) if new is None else change_text(new.layout, found.layout, found.job.model),
    )


def _searched(price: ShadowPrice) -> str:
    if price.replanned is None:
        return NEVER
    sign = ">= " if price.status == "found" else ""
    return sign + gain(price.replanned.throughput_gain_fraction)


def _reason(price: ShadowPrice) -> str:
    text = no_plan_text(price.status, price.reason)
    return f"untried: {text}" if price.status == "untried" else text


def _rules(found: Explanation) -> Iterator[Part]:
    """What the runtime's rule on recomputation costs."""
    rule = found.recompute_rule
    if rule is None:
        return
    same, free = rule.same_split, rule.any_split
    if same.proved and same.layout is None and free is None:
        yield "The same recomputation on every stage costs nothing."
        return
    costs = map(number, ("step", "it costs"))
    columns: Columns = ("What does the runtime's rule cost?", *costs, "without it")
    rows = [_rule_row("the same recomputation on every stage", same, found)]
    if free is not None:
        rows.append(_rule_row("the same, and layers split as they are", free, found))
    yield stacked(
        table("", columns, rows),
        f"A price and no answer: {found.job.runtime} has no option for it.",
    )


def _rule_row(text: str, relaxed: RelaxedRule, found: Explanation) -> tuple[str, ...]:
    step = seconds_like(relaxed.step_time_s, relaxed.plan_step_time_s)
    layout = relaxed.layout
    if layout is None:
        return text, NEVER, _cost(relaxed), ""
    return text, step, _cost(relaxed), change_text(layout, found.layout, found.job.model)


def _cost(relaxed: RelaxedRule) -> str:
    """In percent of a step without the rule; a range where the proof is open."""
    least, most = percent(relaxed.cost_fraction), relaxed.most_cost_fraction
    if relaxed.proved:
        return least
    if not isfinite(most):
        return f">= {least}"
    if relaxed.layout is None and most > UNKNOWN:
        return "untried: time limit"
    return f"<= {percent(most)}" if relaxed.layout is None else f"{least} to {percent(most)}"


def _rivals(found: Explanation) -> Iterator[Part]:
    """How sure the choice is."""
    robust = found.robustness
    if len(robust.rivals) < 2:
        return
    step = robust.rivals[0].step_time_s
    seconds_of_it = (number(head, like(step)) for head in ("step", "90 % below"))
    columns: Columns = ("How sure is the choice?", *seconds_of_it, number("faster than it"), "")
    rows = (
        (
            "the choice"
            if place == 0
            else change_text(rival.layout, found.layout, found.job.model),
            rival.step_time_s,
            rival.step_time_p90_s,
            percent(rival.probability_faster, 0) if place else "",
            "~" if rival.near_tie else "",
        )
        for place, rival in enumerate(robust.rivals[:SHOWN_RIVALS])
    )
    yield stacked(table("", columns, rows), robust_line(robust))


def robust_line(robust: Robustness) -> str:
    """Does the choice change if the estimates are off?"""
    place = robust.rivals[0].rank_by_p90
    first = (
        "Ranked by the 90th percentile of the step time the choice stays first"
        if place == 1
        else f"Ranked by the 90th percentile of the step time the choice is number {place}"
    )
    second = robust.runner_up
    chance = percent(second.probability_faster, 0) if second else NEVER
    ties = plural(robust.near_ties, "near-tie")
    return f"{first}; {ties} (~); the runner-up is faster in {chance} of cases."
