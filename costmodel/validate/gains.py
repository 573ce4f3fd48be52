"""What a setting gains: measured and priced changes of runs that differ in it alone."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainplan.costmodel.documents import MeasuredRun, RunTwin
from trainplan.costmodel.validate.predict import Prediction
from trainplan.costmodel.validate.steps import has_comparable_step, measured_step_seconds

NOTHING, NEAR_NOTHING, LEAST = 0.01, 0.03, 0.002
"""Shares of a step. A measured change below the first has no sign, and a priced one below the
second agrees with it; a priced one below the third has no sign. Source: assumed; single runs of a
layout repeat within 1 %."""
CLOSE = 0.08
"""Difference of a measured and a priced change up to which the size of a gain is right."""


@dataclass(frozen=True, slots=True)
class Gain:
    """One setting that was changed, as a share of the step time of the base: negative is a gain."""

    name: str
    id: str
    """Of the changed run."""
    kind: str
    source_group: str
    measured_fraction: float
    priced_fraction: float

    @property
    def sign_right(self) -> bool:
        """Is it priced as a gain where it is one, and as a loss where it is one?"""
        if abs(self.measured_fraction) < NOTHING:
            return abs(self.priced_fraction) < NEAR_NOTHING
        same = self.measured_fraction * self.priced_fraction > 0
        return same and abs(self.priced_fraction) >= LEAST

    @property
    def size_right(self) -> bool:
        """Is the priced change within `CLOSE` of the measured one?"""
        return abs(self.measured_fraction - self.priced_fraction) <= CLOSE


@dataclass(frozen=True, slots=True)
class GainErrors:
    """How often gains are right."""

    kind: str
    n: int
    signs_right: int
    sizes_right: int
    mean_miss_fraction: float
    """Of the absolute difference of measured and priced change."""


@dataclass(frozen=True, slots=True)
class Gains:
    """All pairs of twins."""

    pairs: tuple[Gain, ...]
    overall: GainErrors
    kinds: tuple[GainErrors, ...]


def gains(predictions: Sequence[Prediction]) -> Gains | None:
    """Every changed run with the base of its twins; null: there are no such pairs."""
    pairs = tuple(_pairs(predictions))
    if not pairs:
        return None
    kinds = sorted({pair.kind for pair in pairs})
    by_kind = [_errors(kind, [one for one in pairs if one.kind == kind]) for kind in kinds]
    return Gains(pairs, _errors("all", pairs), tuple(by_kind))


def _pairs(predictions: Sequence[Prediction]) -> Iterator[Gain]:
    steps = {id(one.run): one.step_time_s for one in predictions}
    for pair in twins(one.run for one in predictions):
        base, other = steps[id(pair.base)], steps[id(pair.other)]
        if base and other:
            of_token = _num_tokens(pair.base) / _num_tokens(pair.other)
            measured, priced = pair.step_ratio * of_token, other / base * of_token
            run = pair.other
            yield Gain(pair.name, run.id, pair.kind, run.source_group, measured - 1, priced - 1)


@dataclass(frozen=True, slots=True)
class Twins:
    """Two measured runs that differ in one setting."""

    name: str
    kind: str
    base: MeasuredRun
    other: MeasuredRun
    step_ratio: float
    """Measured step time of the other over that of the base."""


def twins(runs: Iterable[MeasuredRun]) -> Iterator[Twins]:
    """Every changed run with the base of its twins, where both were measured the same way."""
    marked = [(run, twin) for run in runs for twin in run.twins]
    bases = {twin.name: run for run, twin in marked if twin.base}
    for run, twin in marked:
        base = None if twin.base else bases.get(twin.name)
        if base is not None and base is not run and (ratio := _step_ratio(base, run, twin)):
            yield Twins(twin.name, twin.kind, base, run, ratio)


def _step_ratio(base: MeasuredRun, run: MeasuredRun, twin: RunTwin) -> float | None:
    if twin.relative_step:
        return twin.relative_step * _num_tokens(run) / _num_tokens(base)
    first, second = measured_step_seconds(base), measured_step_seconds(run)
    comparable = all(has_comparable_step(one, everything=True) for one in (base, run))
    return second / first if comparable and first and second else None


def _num_tokens(run: MeasuredRun) -> int:
    return (run.training.global_batch_size or 1) * (run.training.seq_length or 1)


def _errors(kind: str, pairs: Sequence[Gain]) -> GainErrors:
    return GainErrors(
        kind,
        len(pairs),
        sum(pair.sign_right for pair in pairs),
        sum(pair.size_right for pair in pairs),
        sum(abs(pair.measured_fraction - pair.priced_fraction) for pair in pairs) / len(pairs),
    )
