"""What the ranks of a layout saw, beside one process and beside the cost model."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainplan.costmodel.job import Job
from trainplan.planner.verification.expected import Expected

ROUNDING = 2.0**-24
"""Relative error of one sum or product. Source: derived; IEEE 754 binary32
keeps 24 bits of a number and rounds to the nearest."""
SPREAD = 8.0
"""Standard deviations of a random walk that are allowed. Source: derived; of 10^15 walks one is
wider, and a factor that is wrong moves a loss by far more."""
SAVED = 0.005
"""Relative difference of saved bytes that is let pass: scalars of losses are in no
formula. Source: derived; a tensor that is kept once more is some per cent of a layer."""


class SentBytes(Protocol):
    """Bytes of one operation of one group, as a rank counted them."""

    @property
    def group(self) -> str:
        """Name of the group."""

    @property
    def operation(self) -> str:
        """Name of the operation."""

    @property
    def bytes(self) -> int:
        """Of the whole buffers."""


class Report(Protocol):
    """What one rank saw."""

    @property
    def losses(self) -> tuple[float, ...]:
        """Of each step, where the last stage is."""

    @property
    def grad_norms(self) -> tuple[float, ...]:
        """Of each step."""

    @property
    def num_parameters(self) -> int | None:
        """Weights of the rank."""

    @property
    def sent(self) -> Sequence[SentBytes]:
        """Bytes of a step."""

    @property
    def saved_bytes(self) -> int | None:
        """Activations kept at the peak."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One layout beside one process, and beside what the cost model counts."""

    loss_difference: float
    """Largest relative one of all steps, as the next."""
    grad_norm_difference: float
    tolerance: float
    """Of both: what sums in another order may differ."""
    wrong_parameters: tuple[str, ...]
    """Ranks whose number of weights is not the one counted, a line each."""
    wrong_sent: tuple[str, ...]
    """Groups and operations whose bytes are not those counted."""
    wrong_saved: tuple[str, ...]
    """Ranks that keep other bytes than the memory model says."""
    saved_difference: float | None
    """Largest relative one of all ranks; null: they do not count them."""

    @property
    def equal(self) -> bool:
        """Is all as it should be?"""
        close = max(self.loss_difference, self.grad_norm_difference) <= self.tolerance
        return close and not (self.wrong_parameters or self.wrong_sent or self.wrong_saved)


def compared(
    job: Job, alone: Sequence[Report], ranks: Sequence[Report], expected: Expected
) -> Compared:
    """Compare a layout with one process that took the same steps."""
    kept = _kept(ranks, expected)
    off = [_relative(found, own) for found, own in zip(kept, expected.saved_bytes, strict=False)]
    return Compared(
        loss_difference=largest(_losses(alone), _losses(ranks)),
        grad_norm_difference=max(largest(alone[0].grad_norms, rank.grad_norms) for rank in ranks),
        tolerance=tolerance(job, len(alone[0].grad_norms)),
        wrong_parameters=tuple(_wrong_parameters(ranks, expected)),
        wrong_sent=tuple(_wrong_sent(ranks, expected)),
        wrong_saved=tuple(
            f"rank {rank} keeps {kept[rank]:,.0f} bytes, the memory model has {own:,.0f}"
            for rank, own in enumerate(expected.saved_bytes)
            if kept and off[rank] > SAVED
        ),
        saved_difference=max(off) if kept else None,
    )


def _kept(ranks: Sequence[Report], expected: Expected) -> list[float]:
    """Saved bytes of each rank; those that share experts take the mean, for tokens choose.

    None where ranks do not count them.
    """
    found = [float(rank.saved_bytes) for rank in ranks if rank.saved_bytes is not None]
    if len(found) < len(ranks):
        return []
    each = expected.share_experts
    for first in range(0, len(found), each):
        found[first : first + each] = [sum(found[first : first + each]) / each] * each
    return found


def tolerance(job: Job, steps: int) -> float:
    """Relative difference of losses and gradient norms that the order of sums explains.

    Rounding errors of a chain of n sums walk at random: sqrt(n) roundings wide. The longest chain
    of a step goes through the inner dimensions of all products, forward once and backward twice,
    through the vocabulary and over the tokens of the batch; every step starts from the weights that
    the one before has left.

    Source: derived; Higham, Accuracy and Stability of Numerical Algorithms, section 2.8.
    """
    model, training = job.model, job.training
    layer = 6 * model.hidden_size + model.intermediate_size
    layer += 2 * training.seq_length + model.head_dim
    chain = 3 * model.num_hidden_layers * layer + model.vocab_size + training.tokens_per_step
    return SPREAD * ROUNDING * math.sqrt(chain) * steps


def _losses(ranks: Iterable[Report]) -> tuple[float, ...]:
    return next(rank.losses for rank in ranks if rank.losses)


def largest(own: Sequence[float], other: Sequence[float]) -> float:
    """Largest relative difference."""
    return max(_relative(b, a) for a, b in zip(own, other, strict=True))


def _relative(value: float, reference: float) -> float:
    return abs(value - reference) / abs(reference) if reference else float(value != 0)


def _wrong_parameters(ranks: Sequence[Report], expected: Expected) -> Iterable[str]:
    for number, (rank, own) in enumerate(zip(ranks, expected.parameters, strict=True)):
        if rank.num_parameters != own:
            yield f"rank {number} has {rank.num_parameters:,} parameters, {own:,} are counted"


def _wrong_sent(ranks: Sequence[Report], expected: Expected) -> Iterable[str]:
    """Of every rank; exchanges of experts of all ranks together, for tokens choose freely."""
    for number, (rank, own) in enumerate(zip(ranks, expected.sent, strict=True)):
        seen = {(one.group, one.operation): one.bytes for one in rank.sent}
        for key in sorted({*seen, *own} - ROUTED):
            if seen.get(key, 0) != own.get(key, 0):
                yield f"rank {number}: " + _sent_words(key, seen.get(key, 0), own.get(key, 0))
    for key in sorted(ROUTED):
        total = sum(one.bytes for rank in ranks for one in rank.sent if _key(one) == key)
        counted = sum(own.get(key, 0) for own in expected.sent)
        if total != counted:
            yield "all ranks: " + _sent_words(key, total, counted)


ROUTED = frozenset({("ep", "all_to_all"), ("etp", "all_gather"), ("etp", "reduce_scatter")})
"""Rows of tokens go to the experts they choose."""


def _key(one: SentBytes) -> tuple[str, str]:
    return one.group, one.operation


def _sent_words(key: tuple[str, str], seen: int, own: int) -> str:
    group, operation = key
    return f"{operation} over {group} of {seen:,} bytes, {own:,} are counted"
