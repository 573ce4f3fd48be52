"""How step time and memory shift with the experts that tokens choose."""

from collections.abc import Iterator

from trainplan.cli.words import gib, seconds_like
from trainplan.costmodel.routing import LoadShift

STEPS = {
    50: "half of the steps take at most",
    90: "nine of ten",
    99: "99 of 100",
    100: "the fullest",
}
ENOUGH = 100
"""Steps from which on the 99th percentile is known."""


def load_shift_lines(found: LoadShift | None, peak_bytes: float = 0.0) -> Iterator[str]:
    """The verdict on memory first, then seconds by step, then which ranks are fullest.

    `peak_bytes` is that of the estimate; 0: not shown.
    """
    if found is None:
        return
    last = found.decides
    of = "at the 99th percentile" if last.percentile == 99 else "in the fullest step"
    memory = f"memory {of} {gib(last.memory_bytes)} of {gib(found.capacity_bytes)} GiB"
    verdict = {
        True: "fits when load shifts",
        False: "runs out of memory when load shifts, which `plan search --fit-p99` rules out",
        None: "fits, and whether it does when load shifts is not known",
    }[found.fits]
    if not found.percentiles[0].fits:
        verdict = "does not fit in half of the steps"
    yield f"{memory}: {verdict} ({_basis(found)})"
    if last.memory_bytes < peak_bytes and gib(last.memory_bytes) != gib(peak_bytes):
        yield (
            f"the estimate's {gib(peak_bytes)} GiB bounds the mean step from above: it takes one "
            "rank as fullest in all layers"
        )
    step = found.percentiles[0].step_time_s
    times = [
        f"{STEPS[round(one.percentile)]} {seconds_like(one.step_time_s, step)}"
        for one in found.percentiles
    ]
    yield ", ".join(times)
    if found.fullest:
        ranks = "; ".join(
            f"expert rank {one.rank}{'' if one.layer is None else f' in layer {one.layer}'} "
            f"{one.load:.2f} times"
            for one in found.fullest
        )
        yield f"fullest in the mean, of the rows of a balanced rank: {ranks}"


def _basis(found: LoadShift) -> str:
    """What the percentiles are of."""
    name = f"routing={found.routing}"
    if found.steps >= ENOUGH:
        return f"{name}, {found.steps} steps"
    if found.steps:
        return f"{name}, {found.steps} steps; the 99th percentile needs {ENOUGH}"
    if found.fits is None:
        return f"{name} has no counts by step, so chance alone is counted"
    return f"{name} in every step, chance alone"
