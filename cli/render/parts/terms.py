"""Where the step goes, term by term."""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table

from trainplan.cli.render.parts.grid import Words, bar, grid
from trainplan.cli.render.parts.text import percent, seconds_like
from trainplan.costmodel.step import Estimate

LABELS = {
    "gemm": "matrix products",
    "attention": "attention",
    "elementwise": "norms, activations and other elementwise work",
    "host": "waiting for kernel launches",
    "tp_comm": "tensor-parallel communication",
    "cp_comm": "context-parallel communication",
    "ep_comm": "expert all-to-all",
    "fsdp_comm": "gathering and reducing sharded weights",
    "recompute": "recomputation",
    "bubble": "pipeline bubble",
    "p2p": "messages between pipeline stages",
    "dp_comm": "data-parallel communication",
    "optimizer": "optimizer step",
    "offload": "optimizer and activation offload",
    "overhead": "stragglers, data loading and other overhead",
}
"""Words for the fields of `costmodel.step.simulate.Terms`."""
WORK = ("gemm", "attention", "elementwise")
"""What every layout has to do."""
SMALLEST_SHARE = 0.0005
BAR_WIDTH = 24


def terms_table(estimate: Estimate) -> Table:
    """Exposed seconds by term, largest first; they sum to the step time."""
    step = estimate.step_time_s
    terms = sorted(asdict(estimate.terms).items(), key=lambda item: -item[1])
    shown = [(name, value) for name, value in terms if abs(value) >= SMALLEST_SHARE * step]
    largest = max(value for _, value in shown)
    columns = (Words("Where the step goes"), "time", "share", Words(""))
    return grid(
        columns,
        (
            (
                LABELS[name],
                seconds_like(value, step),
                percent(value / step),
                bar(value / largest, BAR_WIDTH),
            )
            for name, value in shown
        ),
    )


def largest_cost(estimate: Estimate) -> str:
    """What takes most of the step besides the work itself."""
    costs = {name: value for name, value in asdict(estimate.terms).items() if name not in WORK}
    name = max(costs, key=lambda key: costs[key])
    return f"{LABELS[name]}, {percent(costs[name] / estimate.step_time_s)} of the step"
