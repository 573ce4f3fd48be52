"""What the whole run takes, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainplan.cli.words import DOT, tokens
from trainplan.costmodel.base import SECONDS_PER_HOUR, long_unit
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.step import Estimate, run_steps


class RunWords(NamedTuple):
    """Of a run of known length."""

    tokens: str
    length: str
    """With its unit, such as days."""
    interval: str
    gpu_hours: str
    money: str
    """Empty: a group of the cluster has no price."""


def run_words(job: Job, estimate: Estimate) -> RunWords | None:
    """Nothing where the job names no number of tokens."""
    steps = run_steps(job)
    if steps is None or job.training.tokens is None:
        return None
    total, interval = steps * estimate.step_time_s, estimate.uncertainty
    size, unit = long_unit(total)
    low, high = (
        _count(steps * bound / size)
        for bound in (interval.step_time_low_s, interval.step_time_high_s)
    )
    hours = total / SECONDS_PER_HOUR
    gpu_hours = hours * job.cluster.num_gpus
    return RunWords(
        tokens=f"{tokens(job.training.tokens)} tokens",
        length=f"{_count(total / size)} {unit}",
        interval=f"{low} to {high}",
        gpu_hours=f"{gpu_hours:,.0f}" if gpu_hours >= 10 else f"{gpu_hours:.2g}",
        money=_money(job.cluster, hours),
    )


def run_lines(job: Job, estimate: Estimate) -> Iterator[str]:
    """The same in a line."""
    if words := run_words(job, estimate):
        yield DOT.join(
            (
                f"{words.tokens} in {words.length} ({words.interval})",
                f"{words.gpu_hours} GPU-hours",
                words.money or "no price_per_gpu_hour given",
            )
        )


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _money(cluster: ClusterSpec, hours: float) -> str:
    prices = [(group.num_gpus, group.price_per_gpu_hour) for group in cluster.groups]
    if any(price is None for _, price in prices):
        return ""
    return f"{sum(n * (price or 0.0) for n, price in prices) * hours:,.0f} {cluster.currency}"
