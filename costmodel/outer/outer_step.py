"""An outer step over slow links: what it sends, how long that takes, and what of it is waited for.

Each parameter crosses once: the ranks of an island send shares of it, and all nodes send at once.
The update itself is local and memory-bound, once in many steps, and not counted.
"""

from math import ceil

from trainplan.costmodel.base import (
    BYTES_BF16,
    BYTES_FP8,
    BYTES_FP32,
    GB,
    MICROSECOND,
)
from trainplan.costmodel.job import OuterSpec

BYTES = {
    "fp32": BYTES_FP32,
    **dict.fromkeys(("bf16", "fp16"), BYTES_BF16),
    **dict.fromkeys(("fp8", "int8"), BYTES_FP8),
}
"""Of an outer gradient on the wire; scales of 8-bit ones, one for a row, are left out."""
ENOUGH = 0.95
"""Share of the time that trains where the number of local steps is free. Source: assumed."""


def sent_bytes(num_parameters: float, outer: OuterSpec) -> float:
    """Bytes that an island sends in an outer step: 2 (M - 1) / M of the outer gradients.

    Source: ring all-reduce among M islands (Patarasuk and Yuan, 2009), of
    arXiv:2311.08105 algorithm 1, line 12.
    """
    assert outer.islands, "the islands are known once the job is parted"
    share = 2 * (outer.islands - 1) / outer.islands
    return share * num_parameters * BYTES[outer.dtype]


def fewer_bytes(outer: OuterSpec, steps: int) -> float:
    """Times fewer bytes than an all-reduce of fp32 gradients after each step.

    Source: arXiv:2311.08105, section 1 (once in 500 steps); Jaghouar et al., INTELLECT-1,
    arXiv:2412.01152, section 2.1 (100 steps and int8: 400 times).
    """
    return steps * BYTES_FP32 / BYTES[outer.dtype]


def sync_seconds(
    num_parameters: float, outer: OuterSpec, *, nodes: int, efficiency: float
) -> float:
    """Seconds in which all fragments cross, one after the other.

    Source: `sent_bytes` over the links of all nodes of an island, and 2 (M - 1) messages in a row
    of each fragment.
    """
    assert outer.islands, "the islands are known once the job is parted"
    assert outer.gb_per_s, "and the link between them"
    speed = nodes * outer.gb_per_s * GB * efficiency
    messages = 2 * (outer.islands - 1) * outer.fragments
    return sent_bytes(num_parameters, outer) / speed + messages * outer.latency_us * MICROSECOND


def hidden_steps(outer: OuterSpec, steps: int) -> int:
    """Local steps behind which the syncs of all fragments may hide, of `steps` of a round.

    Source: Douillard et al., Streaming DiLoCo, arXiv:2501.18512, section 2.2 (each fragment is
    overlapped with tau steps); Kale et al., Eager Updates, arXiv:2502.12996, and Sun et al., CO2,
    arXiv:2401.16265 (all steps until the next sync).
    """
    if outer.overlap == "eager":
        return steps
    return 0 if outer.overlap == "none" else outer.fragments * outer.overlap


def exposed_seconds(sync_s: float, step_s: float, outer: OuterSpec, steps: int) -> float:
    """Seconds of a round of local steps that wait for its syncs. Source: `hidden_steps`."""
    return max(0.0, sync_s - hidden_steps(outer, steps) * step_s)


def utilisation(sync_s: float, step_s: float, outer: OuterSpec, steps: int) -> float:
    """Share of the time in local steps, H T / (H T + exposed). Source: arXiv:2412.01152, 3.2."""
    local = steps * step_s
    return local / (local + exposed_seconds(sync_s, step_s, outer, steps))


def fewest_steps(sync_s: float, step_s: float, outer: OuterSpec, share: float = ENOUGH) -> int:
    """Fewest local steps between outer steps, so that at least this share of the time is local.

    Source: `utilisation` solved for H: what waits is at most (1 / share - 1) H T.
    """
    if outer.overlap == "eager":
        least = share * sync_s / step_s
    else:
        least = exposed_seconds(sync_s, step_s, outer, 1) / step_s * share / (1 - share)
    between = outer.overlap + 1 if isinstance(outer.overlap, int) else 1
    return outer.fragments * max(between, ceil(least / outer.fragments * (1 - 1e-12)))
