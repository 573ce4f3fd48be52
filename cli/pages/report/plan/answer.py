"""The first screen: what stands out of the answer in numbers, and how sure it is."""

from collections.abc import Iterator

from trainplan.cli.blocks import Fact, Facts, Paragraph, Section
from trainplan.cli.pages.parts.alternatives import rivals_lines
from trainplan.cli.pages.parts.evidence import not_taken_lines, plan_evidence_lines
from trainplan.cli.pages.parts.headline import (
    goodput_lines,
    job_line,
    refusals,
    run_lines,
    run_words,
    spent_lines,
)
from trainplan.cli.pages.parts.islands import island_lines
from trainplan.cli.pages.parts.load_shift import load_shift_lines
from trainplan.cli.pages.parts.objective import objective_lines
from trainplan.cli.pages.parts.placement import (
    disaggregated_text,
    group_lines,
    placement_text,
    proof_text,
    unified_text,
)
from trainplan.cli.pages.plan import certificate_text
from trainplan.cli.words import gib, percent, seconds, seconds_like
from trainplan.planner.plan import Plan

ONLY_MODELLED = (
    "Only modelled: all seconds and bytes, by formulas fitted to measured runs; of published runs "
    "of a source that no fit had seen about {share} of 100 lie in the interval of the step."
)


def certainty(plan: Plan) -> Iterator[Paragraph]:
    """What is proved, what is only modelled, what is doubtful."""
    for line in refusals(plan.job, plan.notes):
        yield Paragraph(line, "bad")
    for line in (*rivals_lines(plan), *not_taken_lines(plan), *objective_lines(plan)):
        yield Paragraph(line)
    proved = plan.certificate.optimal
    yield Paragraph(_joined(certificate_text(plan)), "good" if proved else "doubtful")
    yield Paragraph(ONLY_MODELLED.format(share=round(plan.best.estimate.uncertainty.level * 100)))
    inside = plan.evidence is not None and plan.evidence.inside
    for line in plan_evidence_lines(plan):
        yield Paragraph(_joined(line), "plain" if inside else "doubtful")
    unit = plan.certificate.objective.unit
    yield from map(Paragraph, island_lines(plan.outer_step, unit))
    if plan.apart:
        stated = (disaggregated_text(plan.apart), unified_text(plan.apart), proof_text(plan.apart))
        yield from (Paragraph(text) for text in stated)


def _joined(text: str) -> str:
    """A text of the terminal on one line."""
    return " ".join(text.split("\n"))


def facts(plan: Plan) -> Facts:
    """Step, speed, memory; of the whole run its length."""
    best = plan.best.estimate
    step, memory, interval = best.step_time_s, best.memory, best.uncertainty
    low = seconds_like(interval.step_time_low_s, step).split()[0]
    high = seconds_like(interval.step_time_high_s, step)
    peak, flop = plan.job.training.precision, f"{best.tflops_per_gpu:,.0f} TFLOP/s/GPU"
    return Facts(
        (
            *_whole_fact(plan),
            Fact(
                "step of the decoder" if plan.apart else "step",
                seconds(step),
                f"{percent(interval.level, 0)}: {low} to {high}",
            ),
            Fact("tokens/s/GPU", f"{best.tokens_per_s_per_gpu:,.0f}"),
            Fact("MFU", percent(best.mfu), f"of the {peak} peak: {flop}"),
            Fact(
                "memory of the fullest GPU",
                f"{gib(memory.peak_reserved_bytes)} GiB",
                f"of {gib(memory.capacity_bytes)} GiB",
                "plain" if memory.fits else "bad",
            ),
            *_run_facts(plan),
        )
    )


def _whole_fact(plan: Plan) -> Iterator[Fact]:
    """Of a tower on GPUs of its own, the step of both."""
    apart = plan.apart
    if apart:
        both = f"on {apart.decoder_gpus} + {apart.tower_gpus} GPUs"
        yield Fact("step of decoder and tower", seconds(apart.step_time_s), both)


def _run_facts(plan: Plan) -> Iterator[Fact]:
    """Length, GPU-hours and money; nothing where the job names no number of tokens."""
    if run := run_words(plan.job, plan.best.estimate):
        yield Fact(run.tokens, run.length, run.interval)
        yield Fact(f"GPU-hours{run.spare}", run.gpu_hours)
        if run.money:
            yield Fact("money", run.money)


def job_section(plan: Plan) -> Section:
    """What was asked, what the whole run takes, and where its parts run."""
    lines = [
        *job_line(plan.job).splitlines(),
        *run_lines(plan.job, plan.best.estimate),
        *goodput_lines(plan.job),
        *spent_lines(plan.job, plan.spent),
        *load_shift_lines(plan.load_shift),
        *group_lines(plan.job, plan.best.layout),
    ]
    if plan.placement:
        lines.append(_joined(placement_text(plan, plan.placement)))
    return Section("job", "The job", tuple(Paragraph(text) for text in lines))
