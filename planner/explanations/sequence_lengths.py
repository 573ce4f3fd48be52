"""What unequal lengths of sequences cost a layout, and what other ways to run them would buy."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.axes import divisors
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.blocks import packed_rows, waits
from trainplan.costmodel.calibration import Measured, context_for
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.job import Job, LengthSpec, Packing, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.lengths import Lengths, lengths_of, padding_fraction, real_tokens_per_step
from trainplan.planner.cases import replaced
from trainplan.planner.questions import estimate


@dataclass(frozen=True, slots=True)
class Degree:
    """Sequences that need one degree of context parallelism."""

    degree: int
    """Ranks over which such a sequence is cut, so that none holds more tokens than now."""
    longest: int
    """Tokens."""
    sequences_fraction: float
    tokens_fraction: float


@dataclass(frozen=True, slots=True)
class DynamicContext:
    """Every sequence on as many context ranks as it needs, rows of equal work."""

    tokens_per_rank: int
    step_time_s: float | None
    """For the sequences of a step; null where a degree breaks a rule."""
    refused: str
    """Why the runtime does not run it with this layout; empty: it does."""


@dataclass(frozen=True, slots=True)
class SequenceLengths:
    """A layout's rows, who waits for whom, and what else could be done."""

    padding_fraction: float
    attention_wait: float
    """Attention seconds of the ranks that all wait for, over those of a mean row."""
    balanced_step_time_s: float | None
    """With rows packed to equal work, the same tokens; null where they are."""
    degrees: tuple[Degree, ...]
    dynamic: DynamicContext | None
    """Null without context parallelism."""


def sequence_lengths(job: Job, layout: Layout, measured: Measured) -> SequenceLengths | None:
    """What lengths cost; none where all sequences have one length."""
    training = job.training
    if training.lengths is None:
        return None
    context = context_for(job, measured)
    packed = packed_rows(context) is not None
    wait = float(waits(context.with_table(LayoutTable.of([layout])))[0]) if packed else 1.0
    balanced = None
    if training.packing != "balanced":
        balanced = _same_tokens(job, _packed(job, "balanced"), layout, measured)
    buckets = _buckets(lengths_of(training.lengths, training.seq_length), job, layout)
    return SequenceLengths(
        padding_fraction(training),
        wait,
        balanced,
        tuple(degree for degree, _ in buckets),
        _dynamic(context, layout, measured, buckets) if layout.cp > 1 else None,
    )


def _packed(job: Job, packing: Packing) -> Job:
    return replaced(job, training=replaced(job.training, packing=packing))


def _same_tokens(job: Job, other: Job, layout: Layout, measured: Measured) -> float:
    """Seconds that a job with other rows takes for the tokens of a step of the first."""
    tokens = real_tokens_per_step(job.training) / real_tokens_per_step(other.training)
    return estimate(other, layout, measured).step_time_s * tokens


def _buckets(lengths: Lengths, job: Job, layout: Layout) -> tuple[tuple[Degree, LengthSpec], ...]:
    """Lengths by the context ranks they need: a rank holds no more of one than it does now.

    Source: Megatron-LM @d98e8a64 `pipeline_parallel/hybrid_cp_schedule.py`, gpus_needed: tokens
    over `max_seqlen_per_dp_cp_rank`, rounded up to a degree that there is.
    """
    degrees = np.array(divisors(layout.cp))
    per_rank = job.training.seq_length // layout.cp
    needed = degrees[np.searchsorted(degrees, np.ceil(lengths.tokens / per_rank))]
    found = []
    for degree in degrees.tolist():
        tokens, share = lengths.tokens[needed == degree], lengths.share[needed == degree]
        if share.sum() > 0:
            counts = dict.fromkeys(tokens.astype(int).tolist(), 0.0)
            for length, part in zip(tokens.astype(int).tolist(), share.tolist(), strict=True):
                counts[length] += part
            held = float(tokens @ share) / lengths.mean
            one = Degree(degree, max(counts), float(share.sum()), held)
            found.append((one, LengthSpec(counts=tuple(counts.items()))))
    return tuple(found)


def _dynamic(
    on: Context, layout: Layout, measured: Measured, buckets: tuple[tuple[Degree, LengthSpec], ...]
) -> DynamicContext:
    """Each degree's sequences in a layout of that degree, one kind after the other.

    Source: derived: ranks are never idle where work is balanced, so the seconds of a step are the
    sum over the degrees of their tokens times seconds a token, all ranks at that degree.
    """
    job = on.job
    tokens, total = real_tokens_per_step(job.training), 0.0
    try:
        for degree, lengths in buckets:
            fewer = layout.cp // degree.degree
            training = _rows_of_degree(job, layout, degree.degree, lengths)
            wide = replaced(layout, cp=degree.degree, dp=layout.dp * fewer)
            step = estimate(replaced(job, training=training), wide, measured).step_time_s
            total += step * degree.tokens_fraction * tokens / real_tokens_per_step(training)
    except SpecError:
        return DynamicContext(job.training.seq_length // layout.cp, None, _refused(on, layout))
    return DynamicContext(job.training.seq_length // layout.cp, total, _refused(on, layout))


def _rows_of_degree(job: Job, layout: Layout, degree: int, lengths: LengthSpec) -> TrainingSpec:
    """Rows of the sequences that need so many ranks: packed on one, each by itself on several.

    Source: sequences one by one take sum l^2 of attention over sum l tokens, as those of one length
    E[l^2] / E[l]; it is rounded up to what ranks cut evenly.
    """
    held = job.training.seq_length // layout.cp * degree
    batch = job.training.global_batch_size * (layout.cp // degree)
    if degree == 1:
        rows: dict[str, object] = {"lengths": lengths, "packing": "balanced", "seq_length": held}
    else:
        whole = lengths_of(lengths, held)
        cut = 2 * degree * layout.tp
        one = -(-whole.of_tokens(whole.tokens) // cut) * cut
        rows = {"lengths": None, "packing": "none", "seq_length": min(held, int(one))}
    return replaced(job.training, global_batch_size=batch, **rows)


def _refused(on: Context, layout: Layout) -> str:
    """Why the runtime does not run it with this layout.

    Source: Megatron-LM @d98e8a64 megatron/training/arguments.py:1444-1449 and
    megatron/core/transformer/multi_latent_attention.py:687.
    """
    job = on.job
    if not on.traits.communication.context_by_sequence:
        return f"{job.runtime} has one degree for all"
    if layout.pp > 1:
        return "Megatron-LM runs it with pp = 1 only"
    if layout.zero_stage > 1:
        return "Megatron-LM does not run it with Megatron-FSDP (zero_stage 2 and 3)"
    if job.model.mla:
        return "Megatron-LM does not run it with latent attention"
    graphs = job.options.cuda_graph not in (None, "none")
    return "Megatron-LM does not run it with CUDA graphs" if graphs else ""
