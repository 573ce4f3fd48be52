"""The headline of islands with outer steps: bytes, the share of the time that trains, and SWARM."""

from __future__ import annotations

from collections.abc import Iterator

from headlines_figure import Figure, Headline, Runs

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import ClusterSpec, NicSpec, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.outer.islands import island_job
from trainplan.costmodel.outer.outer_step import exposed_seconds, fewer_bytes, utilisation
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step import explicit
from trainplan.costmodel.step.estimate import message_seconds_of, price

LOCAL_S, STEPS = 38 * 60 / 100, 100
"""Of INTELLECT-1: 38 minutes of 100 local steps."""
SYNCS = {"Canada, USA and Europe": (469, 82.9), "USA and Europe": (382, 85.6), "USA": (103, 95.7)}
"""Seconds of its all-reduce, and per cent of the time in local steps."""
PLAIN = OuterSpec(islands=8, every=STEPS, gb_per_s=1.0)
INT8, EAGER = (PLAIN.model_copy(update=one) for one in ({"dtype": "int8"}, {"overlap": "eager"}))
ENOUGH_STEPS = 21
"""Local steps behind which 469 s hide: 469 / 22.8, rounded up."""


def islands(runs: Runs) -> Headline:
    """Figures of five publications."""
    return Headline(
        "islands",
        "Islands and outer steps",
        """\
DiLoCo, [arXiv:2311.08105](https://arxiv.org/abs/2311.08105): 500 times fewer bytes with a sync
each 500 steps. INTELLECT-1, [arXiv:2412.01152](https://arxiv.org/abs/2412.01152): 400 times with
100 steps and int8, and the share of the time in local steps, of 38 minutes between syncs of 103 to
469 s, which are the publication's. CO2, [arXiv:2401.16265](https://arxiv.org/abs/2401.16265): 128
A100 with 80 Gb/s a node lose almost nothing; here a 7 B model on islands of one node, 48
local steps, each of 32 sequences of 2,048 tokens, which are assumed. Eager updates,
[arXiv:2502.12996](https://arxiv.org/abs/2502.12996): nothing is exposed from enough local steps
on. SWARM, [arXiv:2301.11913](https://arxiv.org/abs/2301.11913): twice as wide a layer over twice
as many tokens has eight times the work and four times the bytes, so their ratio doubles.""",
        tuple(_figures()),
    )


def _figures() -> Iterator[Figure]:
    yield Figure("DiLoCo, fewer bytes", 500.0, fewer_bytes(PLAIN, 500), unit="times")
    yield Figure("INTELLECT-1, fewer bytes", 400.0, fewer_bytes(INT8, STEPS), unit="times")
    for where, (sync_s, share) in SYNCS.items():
        found = round(100 * utilisation(sync_s, LOCAL_S, PLAIN, STEPS), 1)
        yield Figure(f"INTELLECT-1, {where}", share, found, unit="%")
    waits = exposed_seconds(469, LOCAL_S, EAGER, ENOUGH_STEPS)
    yield Figure("eager updates, exposed seconds", 0.001, waits, test="at most")
    yield Figure("CO2, share in local steps", 95.0, 100 * _co2(), unit="%", test="at least")
    yield Figure("SWARM, work over bytes of a layer", 2.0, _square_cube(), 0.15, "times")


def _co2() -> float:
    """Of eager syncs in 16 bits among 16 nodes."""
    whole = Job(
        model=preset("llama2-7b"),
        training=TrainingSpec(seq_length=2048, global_batch_size=16 * 32),
        cluster=_joined(parse_cluster("16x8:a100-sxm-80gb"), 10.0),
        runtime="torchtitan",
        outer=OuterSpec(islands=16, every=48, dtype="bf16", overlap="eager"),
    )
    on = context_for(island_job(whole))
    (found,) = explicit(on.with_table(LayoutTable.of([Layout(dp=8, zero_stage=3)])))
    return 1 - found.terms.outer_comm / found.step_time_s


def _square_cube() -> float:
    """Growth of the work over that of the seconds of a message of a pipeline over 1 Gb/s."""
    small, large = (_work_over_message(scale) for scale in (1, 2))
    return large / small


def _work_over_message(scale: int) -> float:
    """Of one layer, products and attention, with all its sizes and its tokens scaled."""
    model = preset("gpt3-6.7b")
    sizes = {
        "hidden_size": scale * model.hidden_size,
        "intermediate_size": scale * model.intermediate_size,
        "num_attention_heads": scale * model.num_attention_heads,
        "num_key_value_heads": scale * model.num_key_value_heads,
        "max_position_embeddings": scale * model.max_position_embeddings,
    }
    job = Job(
        model=model.model_copy(update=sizes),
        training=TrainingSpec(seq_length=2048 * scale, global_batch_size=8),
        cluster=_joined(parse_cluster("2x1:h100-sxm"), 0.125),
    )
    rows = context_for(job).with_table(LayoutTable.of([Layout(pp=2)]))
    layer = price(rows).blocks.layers[0].forward
    return float((layer.gemm + layer.attention)[0] / message_seconds_of(rows)[0])


def _joined(cluster: ClusterSpec, gb_per_s: float) -> ClusterSpec:
    """The cluster with one adapter a node."""
    nic = NicSpec(per_node=1, gb_per_s=gb_per_s)
    groups = tuple(group.model_copy(update={"nic": nic}) for group in cluster.groups)
    return cluster.model_copy(update={"groups": groups})
