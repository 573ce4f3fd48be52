"""The headline of zero-bubble schedules: bubble and memory of the family, and its measured gain."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from headlines_figure import Figure, Headline, Runs, estimates

from trainplan.costmodel.program.ops import RelativeSeconds, Shape
from trainplan.costmodel.schedules import program_for
from trainplan.costmodel.timeline.clock import StageSeconds, Timeline, run

PP, MICROBATCHES = 8, 24
BUBBLES = {"zb-h1": 100 / 3, "zb-2p": 0.0, "zb-v": 0.0, "v-half": 50.0, "v-min": 200 / 3}
"""Per cent of the bubble of 1F1B. Source: sail-sg/zero-bubble-pipeline-parallelism, README.md."""
MEMORY = {"zb-h1": 100.0, "zb-2p": 200.0, "zb-v": 100.0, "v-half": 50.0, "v-min": 100 / 3}
"""Per cent of the activations of 1F1B. Source: as `BUBBLES`."""
ROUNDED = """\
The published share holds for many ranks: on 8 a repeated block rounds up to whole passes, and the
generator of the publication holds as many."""
SETTINGS = [f"6.2b-8g-m{m}" for m in (24, 32, 64)] + [f"14.6b-16g-m{m}" for m in (48, 64, 128)]


def zero_bubble(runs: Runs) -> Headline:
    """Bubbles and activations in slots, and gains on GPUs."""
    return Headline(
        "zero-bubble",
        "Zero bubble schedules",
        """\
Qi et al., ICLR 2024, [arXiv:2401.10241](https://arxiv.org/abs/2401.10241), and NeurIPS 2024,
[arXiv:2405.15362](https://arxiv.org/abs/2405.15362). *Bubble* and *activations*: of 8 ranks and 24
micro batches, all passes of equal length, in per cent of those of 1F1B; the bubble of a rank lies
between its first and its last pass, the activations are those of the fullest rank. *Faster*: 1F1B's
time over the schedule's. *Gain*: the same on 8 and 16 A100, measured (table 4).""",
        (*_bubbles(), *_activations(), *_faster(), *_gains(runs)),
    )


def _timeline(name: str) -> Timeline:
    """The schedule with one unit of time for each pass through a rank."""
    vpp = 2 if name in ("zb-v", "v-half", "v-min") else 1
    relative = RelativeSeconds(16, 16, 16, 0)
    program = program_for(name, Shape(PP, vpp, MICROBATCHES), relative)
    one = np.full((1, PP * vpp), 1 / vpp)
    return run(program, StageSeconds(one, 2 * one, one))


def _bubble(name: str) -> float:
    """Time units the longest span of a rank has beyond its work."""
    return _timeline(name).max_stage_span - 3 * MICROBATCHES


def _bubbles() -> Iterator[Figure]:
    whole = _bubble("1f1b")
    for name, published in BUBBLES.items():
        share = round(100 * _bubble(name) / whole, 9)
        yield Figure(f"bubble of {name}", round(published, 9), share, unit="%", test="at most")


def _activations() -> Iterator[Figure]:
    for name, published in MEMORY.items():
        timeline = _timeline(name)
        vpp = timeline.program.num_stages // PP
        share = round(100 * float(timeline.peak_activations.max()) / (vpp * PP), 9)
        why = ROUNDED if name.startswith("v-") else ""
        what = f"activations of {name}"
        yield Figure(what, round(published, 9), share, unit="%", test="at most", why=why)


def _faster() -> Iterator[Figure]:
    plain = _timeline("1f1b")
    together = plain.makespan / _timeline("zb-h1").makespan
    yield Figure("zb-h1 faster", 1.177, together, 0.001, "times")
    apart = plain.max_stage_span / _timeline("zb-2p").max_stage_span
    yield Figure("zb-2p faster, rank by rank", 1.292, apart, 0.001, "times")


def _gains(runs: Runs) -> Iterator[Figure]:
    for setting in SETTINGS:
        both = [runs[f"zb-t4-{setting}-{name}"] for name in ("1f1b", "zb-1p", "zb-2p")]
        plain, *others = zip(both, estimates(both), strict=True)
        for run_, estimate in others:
            measured = [one.measured.step_time_s for one in (plain[0], run_)]
            assert measured[0]
            assert measured[1]
            published = measured[0] / measured[1]
            predicted = plain[1].step_time_s / estimate.step_time_s
            what = f"gain of {run_.layout.schedule}, {setting}"
            yield Figure(what, published, predicted, 0.05, "times")
