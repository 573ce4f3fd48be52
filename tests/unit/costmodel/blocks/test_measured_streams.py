"""Kernels with a speed of their own: what sorts rows by expert, and the fused loss."""

import json
from pathlib import Path

import pytest

from tests.plugged import importers
from trainplan.costmodel.blocks.embedding_and_head import LOSS_PASSES
from trainplan.costmodel.calibration.machine import Measured
from trainplan.costmodel.catalog.entries import gpu
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.profiles.profile import (
    CollectivePoint,
    Origin,
    Profile,
    StreamPoint,
    Timing,
)
from trainplan.planner.questions import estimate
from trainplan.profiler.fit.points import fitted
from trainplan.profiler.importers import ImportRequest, import_profile

SIMUMAX = Path(__file__).parents[3] / "replay" / "simumax_b200.json"
EXPERTS = Layout(dp=8, ep=8, zero_stage=1)
SIZES = (2**26, 2**28, 2**30)


def stream(name, bytes_per_second, sizes=SIZES):
    return [
        StreamPoint(name=name, moved_bytes=n, time=Timing(seconds=n / bytes_per_second))
        for n in sizes
    ]


def profile(*points):
    bare = Profile(
        gpu="h100-sxm", gpus_per_node=8, origins=(Origin(source="a test"),), points=points
    )
    return fitted(bare, gpu("h100-sxm"))


def terms(job, *points):
    return estimate(job, EXPERTS, Measured(profile(*points))).terms


@pytest.fixture
def moe(make_job):
    return make_job("small-moe", "1x8:h100-sxm")


@pytest.fixture
def dense(make_job):
    return make_job("small-dense", "1x8:h100-sxm")


def seconds_more(job, name):
    """What kernels of that name at half the speed add to a step."""
    fast, slow = (terms(job, *stream(name, speed)).elementwise for speed in (2e12, 1e12))
    return slow - fast


def test_a_slower_permutation_costs_mixtures_of_experts_alone(moe, dense):
    assert seconds_more(moe, "permute") > 0
    plain = estimate(dense, Layout(dp=8), Measured(profile()))
    assert estimate(dense, Layout(dp=8), Measured(profile(*stream("permute", 1e10)))) == plain


def test_of_both_passes_of_the_permutation_the_slower_counts(moe):
    both = [*stream("permute", 2e12), *stream("permute_backward", 1e12)]
    assert terms(moe, *both) == terms(moe, *stream("permute", 1e12))


def test_a_measured_permutation_takes_the_bytes_it_moves_in_both_passes(moe):
    model, length = moe.model, moe.training.seq_length
    top_k, layers = model.moe.num_experts_per_tok, model.num_moe_layers
    layers += model.num_nextn_predict_layers
    assert model.moe.num_experts > EXPERTS.ep  # received rows are sorted by expert
    rows = length * top_k * 2 * model.hidden_size
    batches = moe.training.global_batch_size // EXPERTS.dp
    moved = 2 * layers * batches * (6 + 2 / top_k) * rows
    assert seconds_more(moe, "permute") == pytest.approx(moved / 1e12 - moved / 2e12)


def test_the_largest_measured_size_sets_the_speed(moe):
    small = stream("permute", 1e9, sizes=(2**20,))
    assert terms(moe, *small, *stream("permute", 1e12)) == terms(moe, *stream("permute", 1e12))


def test_a_measured_loss_costs_its_passes_over_the_logits(dense):
    model, training = dense.model, dense.training
    logits = training.seq_length * model.vocab_size * 2
    batches = training.global_batch_size // EXPERTS.dp
    moved = LOSS_PASSES * logits * batches
    layout = Layout(dp=8)
    fast, slow = (
        estimate(dense, layout, Measured(profile(*stream("loss", speed)))).terms.elementwise
        for speed in (2e12, 1e12)
    )
    assert slow - fast == pytest.approx(moved / 1e12 - moved / 2e12, rel=0.05)  # padded vocabulary


def test_kernels_with_a_speed_of_their_own_say_nothing_of_others():
    ordinary = stream("norm", 2e12)
    odd = [*stream("permute", 1e11), *stream("loss", 1e11)]
    assert profile(*ordinary, *odd).constants == profile(*ordinary).constants
    assert "elementwise_efficiency" in profile(*ordinary).constants


def test_an_exchange_among_experts_starts_twice():
    points = [
        CollectivePoint(
            operation="alltoall",
            ranks=ranks,
            per_node=ranks,
            num_bytes=size,
            time=Timing(seconds=start + size / 4e11),
        )
        for ranks, start in ((4, 10e-6), (8, 20e-6))
        for size in (2**16, 2**20, 2**24, 2**28)
    ]
    assert profile(*points).constants["alltoall_alpha"].value == pytest.approx(40e-6, rel=0.02)


def test_simumax_kernels_are_known_by_our_names_and_counts():
    text = SIMUMAX.read_text()
    with importers():
        found = import_profile("simumax", {SIMUMAX.name: text}, ImportRequest("b200")).points
    streams = [point for point in found if isinstance(point, StreamPoint)]
    assert {one.name for one in streams} >= {"permute", "permute_backward", "loss"}
    largest = max((one for one in streams if one.name == "loss"), key=lambda one: one.moved_bytes)
    kernel = json.loads(text)["accelerator"]["bandwidth"]["ce_fusion"]
    speed = kernel["gbps"] * 2**30 * kernel["efficient_factor"]
    theirs = largest.moved_bytes * 4 / LOSS_PASSES
    assert largest.time.seconds == pytest.approx(theirs / speed + kernel["latency_us"] * 1e-6)
