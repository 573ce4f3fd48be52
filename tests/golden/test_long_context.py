"""The longest sequences that ArcticTraining's recipes train, beside those that fit here.

Source: snowflakedb/ArcticTraining projects/sequence-parallelism, run-h100-*.yml; Bekman et al.,
Arctic Long Sequence Training, arXiv:2506.13996. Their lengths are round and below the true limit.
Theirs run norms, loss and activations of Liger; the ladder is priced with those of transformers,
and with Liger's own below.
"""

import pytest

from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.costmodel.catalog.entries import HostSpec
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.limits import limit_of
from trainplan.planner.goals.longest import ladder, longest
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

TOLERANCE = 0.15
LOSS = "tiled loss"
PARALLEL = "sequence, tensor and pipeline parallelism"
MLP = "tiled MLPs"
CHECKPOINTS = "checkpoints in host memory"
ALL = "optimizer and weights off the GPU"
ALONE = "sharded data parallelism alone"


@pytest.fixture(name="rungs")
def _rungs(make_job):
    """Longest sequences and their limits, by technique."""

    def make(cluster, *fixed):
        job = long_job(make_job, cluster, 16, None)
        options = SearchOptions(objective="context", fix=held(fixed))
        _, found = ladder(SearchContext.of(job, options, NOTHING, Unlimited()))
        return {rung.adds: (rung.tokens, rung.limit) for rung in found}

    return make


@pytest.fixture(name="longest_of_all")
def _longest_of_all(make_job):
    """The last rung alone: the longest sequence with every technique, and its limit."""

    def make(cluster, liger=None, **choices):
        job = long_job(make_job, cluster, 16, liger)
        options = SearchOptions(objective="context", **choices)
        found = longest(SearchContext.of(job, options, NOTHING, Unlimited()))
        return {ALL: (found.tokens, limit_of(found.context, found.found, found.too_long))}

    return make


def held(texts):
    return tuple(parse_choice(text, excluded=False) for text in texts)


def long_job(make_job, cluster, seq_length, liger, model="llama3.1-8b"):
    job = make_job(model, cluster, 1, seq_length)
    update = {"runtime": "deepspeed", "options": RuntimeOptions(liger=liger)}
    return job.model_copy(update=update)


def check(found, published, limit="GPU memory"):
    for name, tokens in published.items():
        assert found[name][0] == pytest.approx(tokens, rel=TOLERANCE), name
        assert found[name][1] == limit


def test_the_ladder_of_llama_8b_on_eight_h100(rungs):
    """The optimizer is on the host in all recipes; that of all techniques keeps weights on GPUs."""
    published = {
        ALONE: 32_000,
        LOSS: 160_000,
        PARALLEL: 1_100_000,
        MLP: 1_200_000,
        CHECKPOINTS: 3_700_000,
    }
    check(rungs("1x8:h100-sxm", "offload=1", "offload.parameters=none"), published)


def test_checkpoints_in_host_memory_without_tiled_mlps(longest_of_all):
    found = longest_of_all(
        "1x8:h100-sxm",
        fix=held(["offload=1", "offload.parameters=none"]),
        exclude=(parse_choice("tiled_mlp=true", excluded=True),),
    )
    check(found, {ALL: 2_400_000})


@pytest.mark.parametrize(("cluster", "tokens"), [("1x1:h100-sxm", 500_000), ("4x8:h100-sxm", 15e6)])
def test_one_gpu_and_four_nodes_train_as_long_sequences_for_each_gpu(
    longest_of_all, cluster, tokens
):
    check(longest_of_all(cluster), {ALL: tokens})


@pytest.mark.parametrize(
    ("cluster", "tokens"),
    [("1x1:h100-sxm", 500_000), ("1x8:h100-sxm", 3_700_000), ("4x8:h100-sxm", 15_000_000)],
)
def test_kernels_of_old_liger_stop_before_memory_does(longest_of_all, cluster, tokens):
    """On one GPU 555,000 tokens end in an illegal memory access."""
    check(longest_of_all(cluster, liger="0.5"), {ALL: tokens}, "kernel index")


FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
LIGER = {"tiled_loss": True}
AWAY = {**LIGER, "checkpoints": 1.0}


@pytest.mark.parametrize(
    ("seq_length", "gigabytes", "options"),
    [
        (65_000, 137.36, {}),
        (300_000, 134.96, LIGER),
        (650_000, 126.81, AWAY),
        (1_200_000, 136.15, {**AWAY, "tiled_mlp": True}),
    ],
)
def test_memory_of_one_h200(make_job, seq_length, gigabytes, options):
    """Source: run-h200-sp1-llama-8b-*.yml, lengths with the GB beside them."""
    layout = dict(options)
    states = {"optimizer": 1.0, "parameters": "cpu", "checkpoints": layout.pop("checkpoints", 0.0)}
    offload = OffloadSpec.model_validate(states)
    job = long_job(make_job, "1x1:h200-sxm", seq_length, "0.6" if options else None)
    found = estimate(job, Layout(**FULL, **layout, zero_stage=3, offload=offload))
    assert found.memory.peak_reserved_bytes / 1e9 == pytest.approx(gigabytes, rel=0.06)


@pytest.mark.parametrize(("terabytes", "fits"), [(1.5, False), (1.9, True)])
def test_llama_70b_at_4m_tokens_fills_the_host_memory_of_four_nodes(make_job, terabytes, fits):
    """At the brink of host memory: 1,311 GB of checkpoints, 357 GB of states and gradients, most of
    them page-locked, and 141 GB of weights that a checkpoint gathers, on a node of 1.9 TB.

    Source: run-h100-sp32-llama-70b.yml; 2 x 8192 x 80 bytes a token; of 2.2e9 parameters a rank 12
    bytes each, gradients of 4 in 2 x 2^32 + 2^30 bytes and of 2 in 2^33.
    """
    job = long_job(make_job, "4x8:h100-sxm", 4_000_000, "0.6", "llama3-70b")
    host = HostSpec(memory_gib=terabytes * 1e12 / 2**30)
    group = job.cluster.groups[0].model_copy(update={"host": host})
    cluster = job.cluster.model_copy(update={"groups": (group,)})
    offload = OffloadSpec(optimizer=1.0, checkpoints=1.0)
    layout = Layout(**FULL, **LIGER, tiled_mlp=True, cp=32, zero_stage=3, offload=offload)
    found = estimate(job.model_copy(update={"cluster": cluster}), layout).memory
    assert found.host.host_bytes / 1e9 == pytest.approx(1311 + 357 + 141, rel=0.02)
    assert found.fits == fits
    assert found.peak_reserved_bytes < found.capacity_bytes
