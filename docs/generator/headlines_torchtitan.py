"""The headline of torchtitan: tokens/s and memory of its tables."""

from __future__ import annotations

from collections.abc import Mapping

from headlines_figure import Figure, Headline, Runs, estimates

from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.validate.predict import peak_memory_gib

SMALL = {
    "8B, 8 GPUs": "8b-8g-fsdp",
    "8B, 8 GPUs, compiled": "8b-8g-fsdp-compile",
    "8B, 8 GPUs, float8": "8b-8g-fsdp-compile-float8",
    "8B, 128 GPUs": "8b-128g-fsdp",
    "8B, 128 GPUs, compiled": "8b-128g-fsdp-compile",
    "8B, 128 GPUs, float8": "8b-128g-fsdp-compile-float8",
    "8B, `cp` 1": "8b-8g-cp1",
    "8B, `cp` 2": "8b-8g-cp2",
}
LARGE = {
    "405B, 1F1B": ("405b-512g-1f1b", 1, 4),
    "405B, interleaved": ("405b-512g-interleaved", 2, 4),
    "405B, `cp` 1": ("405b-512g-4d-cp1", 1, 1),
    "405B, `cp` 4": ("405b-512g-4d-cp4", 1, 1),
    "405B, `cp` 8": ("405b-512g-4d-cp8", 1, 1),
}
"""Run, virtual stages, micro batch.

Source: torchtitan@9dec370a `pipelining_utils.py`, the commit the page names: by default as many
micro batches as pipeline ranks (build_pipeline_schedule) of the local batch the page states, 32 or
8 sequences, and two virtual stages where there are several (generate_split_points).
"""

SPAN = """\
Doubling the span of attention adds too much: its kernel is taken too slow at this length and the
rest of the step too fast, which cancel at `cp` 1."""
SEQUENCES = """\
The micro batch and the virtual stages are assumed. Micro batches of as many tokens but of one
sequence (`cp` 1) are 7 % off in time and 4 % in memory; what four sequences need beyond that, in
torch's kernels that overlap tensor parallelism, is not known."""
FAR = """\
The model is 7 to 8 % fast with one and with four ranks of a context too; eight of them lie on eight
nodes, and what is missing of their exchange is not known."""
CHUNKS = """\
Reserved memory grows with the ranks that share a context. The keys and values they gather, 2 GiB
with eight, need less than the MLP of the layer does later, so the model counts none of it."""

TIME_WHY: Mapping[str, str] = {
    "8B, `cp` 2": SPAN,
    "405B, 1F1B": SEQUENCES,
    "405B, interleaved": SEQUENCES,
    "405B, `cp` 8": FAR,
}
MEMORY_WHY: Mapping[str, str] = {
    "405B, 1F1B": SEQUENCES,
    "405B, interleaved": SEQUENCES,
    "405B, `cp` 8": CHUNKS,
}
ABLATIONS = (
    ("8B, 8 GPUs", "8B, 8 GPUs, compiled"),
    ("8B, 8 GPUs, compiled", "8B, 8 GPUs, float8"),
    ("8B, 128 GPUs", "8B, 128 GPUs, compiled"),
    ("8B, 128 GPUs, compiled", "8B, 128 GPUs, float8"),
    ("8B, 128 GPUs", "8B, 128 GPUs, float8"),
    ("8B, `cp` 1", "8B, `cp` 2"),
    ("405B, 1F1B", "405B, interleaved"),
    ("405B, `cp` 1", "405B, `cp` 4"),
    ("405B, `cp` 4", "405B, `cp` 8"),
)
SPARED = (
    ("8B, 8 GPUs", "8B, 8 GPUs, compiled"),
    ("8B, 8 GPUs", "8B, 128 GPUs"),
    ("405B, 1F1B", "405B, interleaved"),
)


def torchtitan(runs: Runs) -> Headline:
    """Throughput, memory and what each feature is worth."""
    chosen = {what: runs[f"tt-{name}"] for what, name in SMALL.items()}
    for what, (name, vpp, micro_batch) in LARGE.items():
        layout = {"vpp": vpp, "micro_batch_size": micro_batch}
        chosen[what] = runs.changed(f"tt-{name}", layout=layout)
    speed, memory = _throughput(chosen), _memory(chosen)
    return Headline(
        "torchtitan",
        "Throughput and memory of torchtitan",
        """\
pytorch/torchtitan, `benchmarks/llama3_h100_202412_torchtitan.md`, those rows of its tables that are
in the data of this project: Llama 3.1 on H100 with 96 GB, tokens/s of one GPU and the memory its
fullest rank reserved. For 405B the micro batch and the virtual stages are not stated: assumed are
torchtitan's defaults, two virtual stages where interleaved and as many micro batches as pipeline
ranks. *Gain*: tokens/s of the second over the first; *spared*: memory of the first less that of
the second.""",
        (
            *speed.values(),
            *memory.values(),
            *(_gain(speed[one], speed[other]) for one, other in ABLATIONS),
            *(_spared(memory[one], memory[other]) for one, other in SPARED),
        ),
    )


def _throughput(runs: Mapping[str, MeasuredRun]) -> dict[str, Figure]:
    found = {}
    for (what, run), estimate in zip(runs.items(), estimates(list(runs.values())), strict=True):
        measured = run.measured.tokens_per_s_per_gpu
        assert measured
        predicted, why = estimate.tokens_per_s_per_gpu, TIME_WHY.get(what, "")
        found[what] = Figure(what, measured, predicted, 0.12, "tokens/s", why=why)
    return found


def _memory(runs: Mapping[str, MeasuredRun]) -> dict[str, Figure]:
    found = {}
    for (what, run), estimate in zip(runs.items(), estimates(list(runs.values())), strict=True):
        measured = run.measured.peak_memory_gib
        assert measured
        predicted = peak_memory_gib(estimate, "reserved", "max")
        why = MEMORY_WHY.get(what, "")
        found[what] = Figure(f"{what}, memory", measured, predicted, 0.06, "GiB", why=why)
    return found


def _gain(one: Figure, other: Figure) -> Figure:
    published, predicted = (
        100 * (getattr(other, name) / getattr(one, name) - 1) for name in ("published", "predicted")
    )
    return Figure(f"gain: {one.what} -> {other.what}", published, predicted, 0, "%", "sign")


def _spared(one: Figure, other: Figure) -> Figure:
    what = f"spared: {one.what} -> {other.what}".replace(", memory", "")
    published, predicted = one.published - other.published, one.predicted - other.predicted
    return Figure(what, published, predicted, 0, "GiB", "sign")
