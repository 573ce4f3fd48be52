"""Formulas of published methods against items, brute force and hand-computed cases."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from trainplan.costmodel.copy_streams.method_steps import best_stride, update_seconds
from trainplan.costmodel.copy_streams.methods import METHODS, SUBGROUPS_POLICY
from trainplan.costmodel.copy_streams.offloaded_step import serial_added_seconds, step_work
from trainplan.costmodel.copy_streams.placement import (
    Offloaded,
    Place,
    Placement,
    Quantities,
    Speeds,
    megatron_offload_policy,
)
from trainplan.costmodel.copy_streams.transfer_volume import Lane

SPEEDS = Speeds(h2d=20e9, d2h=20e9, drive_read=6e9, drive_write=4e9, cpu_params=1e9)


def model(*, layers=8, params=1e8, forward=0.05, micro_batches=1, update=0.1, kept=1e8):
    column = lambda value: np.full((1, 1), float(value))  # noqa: E731
    return Quantities(
        micro_batches=np.array([micro_batches]),
        layers=column(layers),
        forward=column(forward),
        backward=column(2 * forward),
        weight_bytes=column(2 * params),
        gradient_bytes=column(2 * params),
        checkpoint_bytes=column(kept),
        updated=np.array([layers * params]),
        update_seconds=np.array([update]),
    )


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_prices_a_step_between_its_floor_and_all_lanes_in_series(method):
    work = method.work(model(), SPEEDS, Placement())
    assert work.floor <= work.makespan * (1 + 1e-12)
    assert work.makespan <= work.lane_seconds.sum(axis=0) * (1 + 1e-12)
    assert work.lane_seconds[Lane.GPU, 0] >= 8 * 3 * 0.05 - 1e-9
    assert "arXiv:" in method.source or "DeepSpeed" in method.source


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("lane", ["h2d", "d2h", "drive_read", "drive_write", "cpu_params"])
def test_no_method_is_slower_where_a_lane_is_faster(method, lane):
    usual = method.work(model(), SPEEDS, Placement()).makespan
    faster = replace(SPEEDS, **{lane: 3 * getattr(SPEEDS, lane)})
    assert method.work(model(), faster, Placement()).makespan <= usual * (1 + 1e-12)


def exposed_seconds(speeds, updated, passes, backward, *, delayed):
    """Ren et al., arXiv:2101.06840: copies out hide behind the backward passes, the rest does not.

    But all of the update, if delayed, behind all passes.
    """
    update = updated / speeds.cpu_params + 2.0 * updated / speeds.h2d
    if delayed:
        return np.maximum(0.0, update - passes)
    return np.maximum(0.0, 2.0 * updated / speeds.d2h - backward) + update


def test_zero_offload_is_its_closed_form_but_for_gradients_behind_the_last_layer():
    for delayed, link in product((False, True), (20e9, 1e9)):
        speeds = replace(SPEEDS, d2h=link)
        job = model(update=0.0)
        passes, backward = np.array([8 * 0.15]), np.array([8 * 0.1])
        added = exposed_seconds(speeds, job.updated, passes, backward, delayed=delayed)
        work = METHODS["zero-offload"].work(job, speeds, Placement(delayed=delayed))
        one_layer = 0.2e9 / link
        longest = passes + added
        if delayed:
            longest = np.maximum(longest, 8 * 0.05 + 0.1 + 8 * one_layer)
        assert longest - 1e-9 <= work.makespan <= longest + max(one_layer, 0.1) + 1e-9


def test_gradients_update_and_weights_in_series_are_the_chain_of_megatron():
    moved = np.array([8e8])
    added = serial_added_seconds(moved, 8 / 20e9, 1 / 1e9, 0.1 / 8e8)
    work = step_work(
        Offloaded(model(), SPEEDS, Placement(optimizer=1.0), megatron_offload_policy(overlap=False))
    )
    on_gpu = 8 * 0.15 + 0.1
    assert work.makespan == pytest.approx(on_gpu + added, rel=1e-12)


def random_updates(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        params = rng.uniform(5e8, 3e9)
        link, back = 10 ** rng.uniform(10, 11, 2)
        speeds = Speeds(h2d=link, d2h=back, cpu_params=10 ** rng.uniform(8.3, 9.3))
        yield model(layers=1, params=params, update=params / 10 ** rng.uniform(10, 11)), speeds


def test_every_kth_subgroup_on_the_gpu_ends_no_later_than_any_other_stride():
    for job, speeds in random_updates(15, 5):
        step = Offloaded(job, speeds, Placement(), SUBGROUPS_POLICY)
        seconds = partial(update_seconds, step)
        assert seconds(best_stride(step)) <= min(map(seconds, range(2, 32)))


def test_fuyou_updates_beside_the_backward_pass_what_zero_infinity_updates_behind_it():
    job = model(layers=16, micro_batches=1, forward=0.4)
    alongside = METHODS["fuyou"].work(job, SPEEDS, Placement())
    behind = METHODS["zero-infinity"].work(job, SPEEDS, Placement())
    assert alongside.lane_seconds[Lane.CPU] == pytest.approx(behind.lane_seconds[Lane.CPU])
    # 1.6e9 parameters: 12 + 2 + 2 bytes are read at 6 GB/s, 12 + 2 written at 4 GB/s
    assert alongside.lane_seconds[Lane.DRIVE_READ] == pytest.approx([16 * 1.6e9 / 6e9])
    assert alongside.lane_seconds[Lane.DRIVE_WRITE] == pytest.approx([14 * 1.6e9 / 4e9])
    passes = 16 * 3 * 0.4
    assert alongside.makespan < passes + 2.0 < behind.makespan


def test_fuyou_updates_once_whatever_the_micro_batches():
    work = METHODS["fuyou"].work(model(micro_batches=4), SPEEDS, Placement())
    assert work.lane_seconds[Lane.CPU] == pytest.approx([8e8 / 1e9])
    assert work.lane_seconds[Lane.GPU] == pytest.approx([4 * 8 * 0.15])


def test_harmony_fetches_weights_once_a_pass_whatever_the_micro_batches():
    for count in (1, 5):
        work = METHODS["harmony"].work(model(micro_batches=count), SPEEDS, Placement())
        weights = 8 * 2e8
        assert work.lane_seconds[Lane.H2D] == pytest.approx([2 * weights / 20e9])
        assert work.lane_seconds[Lane.GPU] == pytest.approx([count * 8 * 0.15])


STATES = {
    "zero-offload": {Place.DEVICE: 2, Place.HOST: 2 + 4 + 8},
    "deep-optimizer-states": {Place.DEVICE: 2, Place.HOST: 4 + 4 + 8},
    "zero-infinity": {Place.DRIVE: 2 + 2 + 4 + 4 + 8},
    "fuyou": {Place.DRIVE: 2 + 4 + 8},
    "protrain": {Place.HOST: 2 + 2 + 4 + 8},
    "patrickstar": {Place.HOST: 2 + 4 + 8},
    "harmony": {Place.HOST: 4 + 4 + 8},
    "se-moe": {Place.DEVICE: 2 + 2, Place.DRIVE: 4 + 8},
}
"""Bytes a parameter: weights, gradients and moments, in the order of `Method.keeps`.

Source: `Method.source` of each.
"""


@pytest.mark.parametrize("name", STATES)
def test_bytes_of_states_are_those_of_the_publications(name):
    method = METHODS[name]
    kept = {place: method.bytes_per_parameter(place) for place in Place}
    assert {place: size for place, size in kept.items() if size} == STATES[name]


def test_what_no_living_runtime_has_is_named():
    assert sorted(name for name, method in METHODS.items() if method.runtime is None) == [
        "deep-optimizer-states",
        "fuyou",
        "harmony",
        "patrickstar",
        "protrain",
        "se-moe",
        "ssdtrain",
        "zero-offload-delayed",
    ]


def test_experts_are_fetched_while_the_layer_before_runs():
    # 0.1 s of fetch hide behind passes of 0.2 and 0.4 s, all but the first
    work = METHODS["se-moe"].work(
        model(forward=0.2, update=0.0), replace(SPEEDS, h2d=2e9, drive_read=np.inf), Placement()
    )
    assert work.makespan == pytest.approx([0.1 + 8 * 0.6])
