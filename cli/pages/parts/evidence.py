"""What supports an answer next to its proof: published runs near it, and where it leaves them.

The proof is about the cost model; nothing here is proved.
"""

from collections.abc import Iterator
from dataclasses import astuple

from trainplan.cli.pages.parts.objective import amount
from trainplan.cli.words import gib, layout_line, plural, small_percent
from trainplan.costmodel import catalog
from trainplan.costmodel.catalog import evidence_of
from trainplan.costmodel.hardware import NodeGroup
from trainplan.costmodel.job import Job
from trainplan.costmodel.uncertainty import BY_EVIDENCE, UNMEASURED, UNVALIDATED, Interval
from trainplan.planner.evidence import OPTION, Evidence, NearRun, was_published
from trainplan.planner.plan import Plan, Reserve, Trusted

KINDS = {
    "graphs": "CUDA graphs",
    "mixture_of_experts": "mixture of experts",
    "fsdp": "FSDP",
    "launch_bound": "launch-bound",
    "dense": "dense",
}
"""Words for `costmodel.uncertainty.Kind`."""
PARTS = ("matrix products", "attention", "collectives")
"""Words for the fields of `costmodel.catalog.evidence.Evidence`."""

NOT_MEASURED = {"stand_in": "are taken from a similar GPU", "assumed": "are assumed"}
"""Words for regimes in which numbers of the GPU are not measured on it."""


def interval_lines(job: Job, interval: Interval, *, verbose: bool = True) -> Iterator[str]:
    """Whose errors gave its ends; nothing of a plan whose release knew other regimes.

    A short page states it where numbers of the GPU are not measured on it, or no run was published
    under the runtime or over its library.
    """
    if interval.regime == UNVALIDATED and verbose:
        yield (
            "Interval: as of sources that no fit saw: no measured step was held against this "
            "profile; `plan calibrate --profile` does."
        )
    known = catalog.intervals().regimes.get(interval.regime)
    rests = interval.regime.partition(" ")[0]
    unheard = rests in UNMEASURED and not was_published(job.runtime)
    if known is None or not (verbose or rests in NOT_MEASURED or unheard):
        return
    if rests in UNMEASURED:
        gpus = " and ".join(sorted({group.gpu for group in job.cluster.groups}))
        why = "; ".join(_rests_on(job, rests)) or "it is as of sources that no fit saw"
        which = f"of this kind is on {gpus} in {job.training.precision}"
        yield f"Interval: no scored run {'is' if unheard else which} under {job.runtime}; {why}."
    elif interval.regime.startswith("calibrated"):
        yield "Interval: as far as published runs are off after one step of their family."
    else:
        gpu, precision, runtime, kind = interval.regime.split()
        bits = "16 bits" if precision == "bf16" else precision
        runs = f"{plural(known.runs, 'scored run')} of {plural(known.sources, 'source')}"
        yield f"Interval: of {runs} like it ({gpu}, {bits}, {runtime}, {KINDS[kind]})."


def _rests_on(job: Job, regime: str) -> Iterator[str]:
    """Which numbers of the least known GPUs are not measured on them."""
    groups = job.cluster.groups
    for group in (one for place, one in enumerate(groups) if one not in groups[:place]):
        if group.device is not None:
            yield f"what is known of {group.gpu} is its datasheet"
        else:
            yield from _of_catalog(group, job, regime)


def _of_catalog(group: NodeGroup, job: Job, regime: str) -> Iterator[str]:
    kinds = astuple(evidence_of(group.gpu, job.training.precision))
    parts = [part for part, kind in zip(PARTS, kinds, strict=True) if BY_EVIDENCE[kind] == regime]
    if parts and regime in NOT_MEASURED:
        yield f"{' and '.join(parts)} of {group.gpu} {NOT_MEASURED[regime]}"


MOST_LISTED = 4
"""Axes beyond what was measured; `evidence.beyond` of the document has all."""


def evidence_lines(evidence: Evidence, *, verbose: bool = True) -> Iterator[str]:
    """The nearest published runs with their errors, and where the layout leaves them."""
    if evidence.nearest:
        first, *others = evidence.nearest[: None if verbose else 1]
        then = "".join(f"; {_machine(run)} ({_off(run)})" for run in others)
        yield (
            f"Nearest of {plural(evidence.num_runs, 'run')}: {_machine(first)}, "
            f"{first.layout} ({_off(first)}){then}."
        )
    texts = [one.text for one in evidence.beyond]
    more = len(texts) - MOST_LISTED
    if texts:
        rest = f"; {plural(more, 'more axis') if more == 1 else f'{more} more axes'}"
        yield f"Out of distribution: {'; '.join(texts[:MOST_LISTED])}{rest * (more > 0)}."
    else:
        yield "In distribution: each axis, for such a runtime, GPU and model."


def _machine(run: NearRun) -> str:
    batch = f", batch {run.global_batch_size:,} x {run.seq_length:,}" if run.seq_length else ""
    return f"{run.model} on {run.num_gpus} {run.gpu}, {run.precision}{batch}"


def _off(run: NearRun) -> str:
    return f"estimate {run.error_fraction * 100:+.1f} %, distance {run.distance:.1f}"


def plan_evidence_lines(plan: Plan, *, verbose: bool = True) -> Iterator[str]:
    """Those of the answer, and what `--trusted` costs."""
    if plan.evidence is None:
        return
    yield from evidence_lines(plan.evidence, verbose=verbose)
    yield from interval_lines(plan.job, plan.best.estimate.uncertainty, verbose=verbose)
    yield from price_lines(plan)


def not_taken_lines(plan: Plan) -> Iterator[str]:
    """The layout priced least, where no published run is like it and the answer is another."""
    trusted, target = plan.certificate.trusted, plan.certificate.objective
    best = trusted.not_taken if trusted else None
    if trusted is None or best is None or trusted.cost_fraction <= 0:
        return
    settings = f" ({' '.join(best.settings)})" if best.settings else ""
    less = small_percent(trusted.cost_fraction / (1 + trusted.cost_fraction))
    more = len(best.beyond) - MOST_LISTED
    rest = f"; and {more} more" if more > 0 else ""
    count = best.layout.world_size
    where = "" if count == plan.job.cluster.num_gpus else f" on {plural(count, 'GPU')}"
    named = f"{layout_line(best.layout, plan.job.model)}{settings}{where}"
    yield (
        f"Priced {less} less, but not the answer, as no published run is like it: {named}: "
        f"{amount(trusted.value_without, target.unit)}, extrapolated: "
        f"{'; '.join(best.beyond[:MOST_LISTED])}{rest}. `--slack 0` takes it."
    )


def price_lines(plan: Plan) -> Iterator[str]:
    """The prices of `--trusted` and `--reserve`, as searches without them found them."""
    trusted, reserve = plan.certificate.trusted, plan.certificate.reserve
    if trusted is not None and trusted.not_taken is None:
        yield _price_line(plan, OPTION, trusted)
    if reserve is not None:
        sizes = {"": reserve.reserve_bytes, "-host": reserve.reserve_host_bytes}
        written = " ".join(f"--reserve{of} {gib(size)}GiB" for of, size in sizes.items() if size)
        yield _price_line(plan, written, reserve)


def _price_line(plan: Plan, option: str, price: Trusted | Reserve) -> str:
    """What an option costs, as the second search found it."""
    unit = plan.certificate.objective.unit
    if price.lower_bound_without is None:
        return f"{option}: its price is not known, no time was left to search without it."
    without = amount(price.value_without, unit)
    proved = price.lower_bound_without >= price.value_without
    bound = amount(price.lower_bound_without, unit)
    sure = "proved" if proved else f"not proved: it may go down to {bound}"
    if price.cost_fraction > 0:
        much = small_percent(price.cost_fraction)
        both = "" if proved and plan.certificate.optimal else " as far as both were searched"
        costs = f"costs {much}{both}: a second search without it gives"
        return f"{option} {costs} {without} ({sure})."
    return f"{option} costs nothing: a second search without it gives no better ({sure})."
