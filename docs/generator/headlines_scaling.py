"""The headline of strong scaling: MegaScale on up to 12,288 GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headlines_figure import Figure, Headline, Runs, estimates

from trainplan.costmodel.documents.measured_run import MeasuredRun, RunOverlap

SIZES = {256: 768, 512: 768, 768: 768, 1024: 768, 3072: 6144, 6144: 6144, 8192: 6144, 12288: 6144}
"""GPUs, and sequences of the global batch."""
NOTHING = RunOverlap(grad_reduce=False, param_gather=False, tp_comm=False)
EVERYTHING = RunOverlap(grad_reduce=True, param_gather=True, tp_comm=True)
TOGGLES = {
    "overlap of tensor parallelism": ({"tp_comm": True}, 2.2),
    "overlap of data parallelism": ({"grad_reduce": True, "param_gather": True}, 1.5),
}
"""What Table 3 of MegaScale switches on, and the points of MFU it gains."""


def megascale(runs: Runs) -> Headline:
    """Megatron-LM and MegaScale, row by row."""
    plain = {size: _run(runs, "mlm", size, NOTHING) for size in SIZES}
    overlapped = {size: _run(runs, "ms", size, EVERYTHING) for size in SIZES}
    return Headline(
        "megascale",
        "MegaScale on 12288 GPUs",
        """\
Jiang et al., NSDI 2024, [arXiv:2402.15627](https://arxiv.org/abs/2402.15627), tables 2 and 3: GPT
175B with 128 heads and 64,000 tokens, A100 80 GB, `tp` 8, `pp` 8, six virtual stages. A micro batch
of one sequence, bf16, sequence parallelism, a distributed optimizer, FlashAttention and no
recomputation are assumed. *Megatron-LM*: without any overlap. *MegaScale* also changes the model
(attention in parallel with the MLP, sliding windows) and the optimizer's kernels, which is not
modelled: compared is the model of Megatron-LM with tensor and data parallel traffic overlapped with
compute. The gains of table 3 are on 256 GPUs with 768 sequences; that of pipeline messages (+2.5
points) has no option here; the share of useful time over weeks is among [failures and
saves](#failures-and-saves).""",
        (
            *_steps("Megatron-LM", plain, ""),
            *_steps("MegaScale", overlapped, WHY_NOT_MEGASCALE),
            _speedup(plain[12288], overlapped[12288]),
            *_toggles(runs),
        ),
    )


WHY_NOT_MEGASCALE = """\
The parallel block spares an all-reduce and a norm of each layer, and windows spare attention: the
published model is a cheaper one than that compared."""


def _run(runs: Runs, kind: str, size: int, overlap: RunOverlap) -> MeasuredRun:
    layout: Mapping[str, object] = {
        "vpp": 6,
        "micro_batch_size": 1,
        "sequence_parallel": True,
        "distributed_optimizer": True,
        "overlap": overlap,
    }
    name = f"megascale-{kind}-175b-{size}g-b{SIZES[size]}"
    return runs.changed(name, layout=layout, model={"vocab_size": 64_000})


def _steps(who: str, runs: Mapping[int, MeasuredRun], why: str) -> Iterator[Figure]:
    for (size, run), estimate in zip(runs.items(), estimates(list(runs.values())), strict=True):
        measured = run.measured.step_time_s
        assert measured
        what = f"{who}, {size} GPUs"
        yield Figure(what, measured, estimate.step_time_s, 0.10, why=why)


def _speedup(plain: MeasuredRun, overlapped: MeasuredRun) -> Figure:
    before, after = estimates([plain, overlapped])
    predicted = before.step_time_s / after.step_time_s
    what = "MegaScale over Megatron-LM, 12288 GPUs"
    return Figure(what, 1.34, predicted, 0.10, "times", why=WHY_NOT_MEGASCALE)


def _toggles(runs: Runs) -> Iterator[Figure]:
    """Each switched on alone."""
    rows = [
        _run(runs, "mlm", 256, NOTHING.model_copy(update=values)) for values, _ in TOGGLES.values()
    ]
    before, *after = estimates([_run(runs, "mlm", 256, NOTHING), *rows])
    for (what, (_, points)), estimate in zip(TOGGLES.items(), after, strict=True):
        yield Figure(what, points, 100 * (estimate.mfu - before.mfu), 0, "points", "sign")
