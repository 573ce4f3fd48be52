"""The headline of who shards what: FSDP on up to 512 A100, groups by state on Frontier."""

from __future__ import annotations

from collections.abc import Iterator

from headlines_figure import Figure, Headline, Runs

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, ShardSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step import price

NODE, SEQUENCE = 8, 2048
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
WHY_NOT = """\
Collectives of MI250X are assumed: the network has 12.5 GB/s a GCD, and a node one speed where
pairs of GCDs have more. With these plain ZeRO-3 takes 1.1 times the step of ZeRO++, so there is
little to gain. Between nodes the groups send gradients and weights in 16 bits once a step, which is
more bytes than gradients in 4 bits of the one micro batch that is assumed."""


def sharding(runs: Runs) -> Headline:
    """Scaling, and one method over another."""
    return Headline(
        "sharding",
        "Who shards what",
        """\
Zhao et al., PyTorch FSDP, [arXiv:2304.11277](https://arxiv.org/abs/2304.11277), abstract:
near-linear scaling, taken as nine tenths of the throughput of a GPU or more; GPT 175B on 128 and
512 A100 80 GB, one sequence of 2,048 tokens on each, full recomputation. Xu et al.,
[arXiv:2501.04266](https://arxiv.org/abs/2501.04266), abstract: 20 B on 384 GCDs of Frontier,
weights sharded over a pair of GCDs, gradients over a node, the optimizer over all, 1.71 times as
fast as ZeRO++ and with a scaling of 0.94, here from 64 GCDs on; GPT-NeoX-20B, fp16, one sequence of
2,048 tokens on each GCD in one micro batch and full recomputation are assumed.""",
        tuple(_figures()),
    )


def _figures() -> Iterator[Figure]:
    fsdp = [_seconds("fsdp2", "gpt3-175b", f"{nodes}x8:a100-sxm-80gb", {}) for nodes in (16, 64)]
    scaling = fsdp[0] / fsdp[1]
    yield Figure("FSDP, 128 to 512 GPUs", 0.9, scaling, unit="times", test="at least")
    few, many = (
        _seconds("zero-topo", NEOX, _frontier(nodes), _by_level(nodes)) for nodes in (8, 48)
    )
    bits = RuntimeOptions(weight_bits=8, gradient_bits=4)
    other = _seconds("deepspeed", NEOX, _frontier(48), {"hpz": NODE}, bits)
    yield Figure(
        "groups by level over ZeRO++, 384 GCDs", 1.71, other / many, 0.15, "times", why=WHY_NOT
    )
    yield Figure("groups by level, 64 to 384 GCDs", 0.94, few / many, 0.15, "times")


NEOX = "gpt-neox-20b"


def _frontier(nodes: int) -> str:
    return f"{nodes}x{NODE}:mi250x"


def _by_level(nodes: int) -> dict[str, object]:
    """A module of two GCDs, a node, all."""
    return {"shard": ShardSpec(weights=2, gradients=NODE, optimizer=NODE * nodes)}


def _seconds(
    runtime: str,
    model: str,
    cluster: str,
    sharded: dict[str, object],
    options: RuntimeOptions | None = None,
) -> float:
    """Of a step with one sequence on each GPU."""
    ranks = parse_cluster(cluster).num_gpus
    precision = "fp16" if model == NEOX else "bf16"
    job = Job(
        model=preset(model),
        training=TrainingSpec(seq_length=SEQUENCE, global_batch_size=ranks, precision=precision),
        cluster=parse_cluster(cluster),
        runtime=runtime,
        options=options or RuntimeOptions(),
    )
    layout = Layout.model_validate({"dp": ranks, "zero_stage": 3, **FULL, **sharded})
    return float(price(context_for(job).with_table(LayoutTable.of([layout]))).step_seconds[0])
