"""What the charts of each report must show, from its document alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainplan.costmodel.base.units import GB, GIB

Drawn = tuple[str, str | None, str, list[float]]
"""A chart, a trace of it by name (None: the first), a key of the trace, its values."""


def _plan(document: dict[str, Any]) -> Iterator[Drawn]:
    ranks = document["best"]["estimate"]["memory"]["pipeline_ranks"]
    yield "memory-by-rank", "weights", "y", [one["weights_bytes"] / GIB for one in ranks]
    answer = document["best"]["estimate"]
    yield "speed-and-memory", "the answer", "x", [answer["step_time_s"]]


def _compare(document: dict[str, Any]) -> Iterator[Drawn]:
    first, second = (document[name]["estimate"] for name in ("first", "second"))
    steps = [one["step_time_s"] for one in (first, second)]
    seen = [
        one["difference_s"]
        for one in document["terms"]
        if abs(one["difference_s"]) >= 0.0005 * max(steps)
    ]
    rest = steps[1] - steps[0] - sum(seen)
    others = [rest] if abs(rest) >= 0.0005 * max(steps) else []
    yield "difference", None, "x", [steps[0], *seen, *others, steps[1]]
    weights = [one["memory"]["pipeline_ranks"][0]["weights_bytes"] / GIB for one in (first, second)]
    yield "memory-of-both", "weights", "x", weights


def _sweep(document: dict[str, Any]) -> Iterator[Drawn]:
    points = document["curves"][0]["points"]
    gpus = [float(one["num_gpus"]) for one in points]
    speeds = [one["tokens_per_s"] for one in points]
    yield "throughput", "best layout", "x", gpus
    yield "throughput", "best layout", "y", speeds
    ideal = [speeds[0] / gpus[0] * one for one in gpus]
    yield "throughput", "ideal: as the first for each GPU", "y", ideal
    yield "per-gpu", None, "y", [one / of for one, of in zip(speeds, gpus, strict=True)]
    yield "step", None, "y", [one["estimate"]["step_time_s"] for one in points]


def _pareto(document: dict[str, Any]) -> Iterator[Drawn]:
    values = [one["values"] for one in document["points"]]
    yield "front-of-choices", "8 GPUs", "x", [step for step, _ in values]
    yield "front-of-choices", "8 GPUs", "y", [used / GIB for _, used in values]


def _validate(document: dict[str, Any]) -> Iterator[Drawn]:
    rows = [one for one in document["rows"] if one["scored"]]
    for source in {one["source_group"] for one in rows}:
        some = [one for one in rows if one["source_group"] == source]
        measured = [one["measured_step_time_s"] for one in some]
        yield "predicted-against-measured", source, "x", measured
        predicted = [one["predicted_step_time_s"] for one in some]
        yield "predicted-against-measured", source, "y", predicted
    groups = [g for g in document["groups"] if (g["quantity"], g["by"]) == ("step_time", "gpu")]
    yield "error-by-gpu", None, "x", [one["median_fraction"] for one in groups]
    inside = [one["inside_fraction"] for one in document["overall"]["coverage"]]
    yield "coverage", None, "x", inside


def _tune(document: dict[str, Any]) -> Iterator[Drawn]:
    trials = document["tuned"]["trials"]
    steps = [one["outcome"]["step_time_s"] for one in trials]
    name = "measured, lowest to highest step"
    yield "trials-in-order", name, "y", [step for step in steps if step]
    yield "trials-in-order", None, "y", [one["expected"]["step_time_s"] for one in trials]
    yield "chance", None, "y", [one["probability_faster_remains"] for one in trials]
    factors = [one for one in document["tuned"]["scalars"] if one["name"] != "fixed_seconds"]
    yield "scalars", None, "x", [one["value"] for one in factors]


def _profile(document: dict[str, Any]) -> Iterator[Drawn]:
    products = [one for one in document["points"] if one["kind"] == "gemm"]
    yield (
        "products-by-size",
        "bf16",
        "x",
        [2.0 * one["m"] * one["n"] * one["k"] for one in products],
    )
    sums = [
        one
        for one in document["points"]
        if one["kind"] == "collective" and (one["operation"], one["ranks"]) == ("all_reduce", 8)
    ]
    sums.sort(key=lambda one: one["num_bytes"])
    seconds = [one["time"]["seconds"] for one in sums]
    yield "collective-all-reduce", "8 GPUs", "y", seconds
    first = [one["moved_bytes"] / one["time"]["seconds"] / GB for one in document["points"]
             if one["kind"] == "stream" and one["name"] == "permute"]  # fmt: skip
    yield "kernels", "permute", "y", sorted(first)


DRAWN: Mapping[str, Callable[[dict[str, Any]], Iterator[Drawn]]] = {
    "plan": _plan,
    "compare": _compare,
    "sweep": _sweep,
    "pareto": _pareto,
    "validate": _validate,
    "tune": _tune,
    "profile": _profile,
}
