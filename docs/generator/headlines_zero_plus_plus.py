"""The headline of ZeRO++: 18 B parameters on 384 V100, whose nodes have 100 to 800 Gb/s."""

from __future__ import annotations

from headlines_figure import Figure, Headline, Runs

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import ClusterSpec, NicSpec, NodeGroup
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic.zero_plus_plus import engine_sent_bytes

NODES, NODE, RAILS, SEQUENCE = 24, 16, 8, 2048
GBITS_OF_A_BYTE = 8
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
LAYOUT = Layout.model_validate({"dp": NODES * NODE, "zero_stage": 3, **FULL})
WHY_NOT = """\
The publication does not state its micro batch. With one sequence of 2,048 tokens the gather of the
first forward pass, half the bytes and the latency of rings of 384 ranks, outlasts the products of a
layer; with two sequences both differ by 2 %, and 100 Gb/s gain 1.6 times."""


def zero_plus_plus(runs: Runs) -> Headline:
    """Bytes, and what they are worth on a slow network."""
    slow = _seconds(100, on=False) / _seconds(100, on=True)
    alike = _seconds(200, on=True) / _seconds(800, on=False)
    return Headline(
        "zero-plus-plus",
        "ZeRO++ on 384 V100",
        """\
Wang et al., [arXiv:2306.10013](https://arxiv.org/abs/2306.10013), and the blog of DeepSpeed: bytes
that a node sends in a step of one micro batch, in those of all weights (M), and 18 B parameters on
24 nodes of 16 V100 with 100 to 800 Gb/s each, under DeepSpeed with `hpz` 16, weights in 8 bits and
gradients in 4, against plain ZeRO-3. One sequence of 2,048 tokens on each GPU, fp16, full
recomputation and 8 adapters a node are assumed.""",
        (
            Figure("bytes of ZeRO-3, of M", 3.0, _volume(on=False), 0.0, "times"),
            Figure("bytes of ZeRO++, of M", 0.75, _volume(on=True), 0.0, "times"),
            Figure("speed-up at 100 Gb/s, least", 2.0, slow, unit="times", test="at least"),
            Figure("speed-up at 100 Gb/s, most", 2.3, slow, unit="times", test="at most"),
            Figure(
                "200 Gb/s with it over 800 without, step", 1.0, alike, 0.05, "times", why=WHY_NOT
            ),
        ),
    )


def _job(gbits: float, *, on: bool) -> Job:
    nic = NicSpec(per_node=RAILS, gb_per_s=gbits / GBITS_OF_A_BYTE / RAILS)
    nodes = {"num_nodes": NODES, "gpus_per_node": NODE, "nvlink_domain": NODE, "nic": nic}
    group = NodeGroup.model_validate({"gpu": "v100-sxm-32gb", **nodes})
    options = RuntimeOptions(weight_bits=8, gradient_bits=4) if on else RuntimeOptions()
    sequences = NODES * NODE
    training = TrainingSpec(seq_length=SEQUENCE, global_batch_size=sequences, precision="fp16")
    return Job(
        model=preset("megatron-18.4b"),
        training=training,
        cluster=ClusterSpec(name="24 DGX-2", groups=(group,)),
        runtime="deepspeed",
        options=options,
    )


def _layout(*, on: bool) -> Layout:
    return LAYOUT.model_copy(update={"hpz": NODE}) if on else LAYOUT


def _seconds(gbits: float, *, on: bool) -> float:
    found = price(context_for(_job(gbits, on=on)).with_table(LayoutTable.of([_layout(on=on)])))
    return float(found.step_seconds[0])


def _volume(*, on: bool) -> float:
    """Of the groups that span nodes, all ranks of one node together."""
    job = _job(100, on=on)
    params = num_parameters(job.model)
    sent = engine_sent_bytes(context_for(job), _layout(on=on), params)
    shares = {"dp": 1, "dp of nodes": NODE}
    whole = sum(shares.get(group, 0) * count for (group, _), count in sent.items())
    return whole / (job.training.storage_bytes * params)
