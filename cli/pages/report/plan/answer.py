"""The first screen: the main numbers of the answer, and how sure it is."""

from collections.abc import Iterator

from trainplan.cli.blocks import Fact, Facts, Paragraph, Section
from trainplan.cli.pages.parts.alternatives import rivals_lines
from trainplan.cli.pages.parts.evidence import (
    evidence_lines,
    interval_lines,
    not_taken_lines,
    price_lines,
)
from trainplan.cli.pages.parts.headline import (
    chance_words,
    goodput_lines,
    job_line,
    refusals,
    run_lines,
    run_words,
    spent_lines,
)
from trainplan.cli.pages.parts.islands import island_lines
from trainplan.cli.pages.parts.load_shift import load_shift_lines
from trainplan.cli.pages.parts.objective import WORDS, objective_lines
from trainplan.cli.pages.parts.placement import (
    disaggregated_text,
    group_lines,
    placement_text,
    proof_text,
    unified_text,
)
from trainplan.cli.pages.plan import certificate_text
from trainplan.cli.words import gib, percent, seconds, seconds_like
from trainplan.costmodel.step import Memory
from trainplan.planner.plan import Plan

MODELLED = (
    "Seconds and bytes are modelled, by formulas fitted to measured runs; about {share} of 100 "
    "runs of sources that no fit had are in this interval of the step."
)


def certainty(plan: Plan) -> Iterator[Paragraph | Facts]:
    """What is proved, what is only modelled, what is doubtful."""
    for line in refusals(plan.job, plan.notes):
        yield Paragraph(line, "bad")
    yield Facts((_proved(plan), _modelled(plan)), wide=True)
    for line in (*rivals_lines(plan), *not_taken_lines(plan), *objective_lines(plan)):
        yield Paragraph(line)
    if plan.evidence is not None:
        *nearest, _ = evidence_lines(plan.evidence)
        yield from map(Paragraph, (*nearest, *price_lines(plan)))
    unit = plan.certificate.objective.unit
    yield from map(Paragraph, island_lines(plan.outer_step, unit))
    if plan.apart:
        stated = (disaggregated_text(plan.apart), unified_text(plan.apart), proof_text(plan.apart))
        yield from (Paragraph(text) for text in stated)


def _proved(plan: Plan) -> Fact:
    """What holds of the cost model, whether or not that is right."""
    proof = plan.certificate
    best, gap = WORDS[proof.objective.name], proof.gap_fraction
    row = f"row {plan.fastest.rank}: " if plan.fastest is not plan.best else ""
    close = f"within {percent(gap, up=True)} of the {best}" if gap < 1 else "gap not known"
    value = f"{row}{best if proof.optimal else close}"
    text = _joined(certificate_text(plan))
    return Fact("proved under the cost model", value, text, "good" if proof.optimal else "doubtful")


def _modelled(plan: Plan) -> Fact:
    """How far the cost model is off, and where it leaves what was measured."""
    best, evidence = plan.best.estimate, plan.evidence
    interval = best.uncertainty
    ends = interval.step_time_low_s, interval.step_time_high_s
    value = " to ".join(f"{(end / best.step_time_s - 1) * 100:+.1f} %" for end in ends)
    beyond = "Measured runs like it: not looked up."
    if evidence is not None:
        *_, beyond = evidence_lines(evidence)
    parts = (MODELLED.format(share=round(interval.level * 100)), beyond)
    note = " ".join((*parts, *interval_lines(plan.job, interval)))
    inside = evidence is not None and evidence.inside
    return Fact(
        "the cost model itself, on held-out runs", value, note, "good" if inside else "doubtful"
    )


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
                f"of {gib(memory.capacity_bytes)} GiB; {_chance(memory)}",
                "bad" if memory.fits is False else "doubtful" if memory.is_doubtful else "plain",
            ),
            *_run_facts(plan),
        )
    )


def _chance(memory: Memory) -> str:
    """How likely it fits."""
    chance = chance_words(memory)
    return f"fits in {chance} runs" if chance else "chance to fit not known"


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
    """The question, what the whole run takes, and where its parts run."""
    lines = [
        *job_line(plan.job).splitlines(),
        *run_lines(plan.job, plan.best.estimate),
        *goodput_lines(plan.job),
        *spent_lines(plan.job, plan.spent),
        *load_shift_lines(plan.load_shift, plan.best.estimate.memory.peak_reserved_bytes),
        *group_lines(plan.job, plan.best.layout),
    ]
    if plan.placement:
        lines.append(_joined(placement_text(plan, plan.placement)))
    return Section("job", "The job", tuple(Paragraph(text) for text in lines))
