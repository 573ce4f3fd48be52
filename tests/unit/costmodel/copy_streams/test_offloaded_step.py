"""A step of DeepSpeed and Megatron-LM whose bytes lie off the GPU."""

from dataclasses import replace

import numpy as np
import pytest

from tests.grids import number
from trainplan.costmodel.copy_streams import offloaded_step
from trainplan.costmodel.copy_streams.placement import (
    Offloaded,
    Place,
    Placement,
    Quantities,
    Speeds,
    deepspeed_offload_policy,
    fsdp2_offload_policy,
    megatron_offload_policy,
)
from trainplan.costmodel.copy_streams.transfer_volume import Lane, lane_seconds
from trainplan.costmodel.copy_streams.work import Work, binding, timeline

ROWS = 60


def step_work(*parts):
    return offloaded_step.step_work(Offloaded(*parts))


def step_loads(*parts):
    return offloaded_step.step_loads(Offloaded(*parts))


def floor_of_step(*parts):
    return offloaded_step.floor_of_step(Offloaded(*parts))


def seconds_of_step(*parts):
    return offloaded_step.seconds_of_step(Offloaded(*parts))


def update_load(*parts, pipelined):
    return offloaded_step.update_load(Offloaded(*parts), pipelined=pipelined)


POLICIES = {
    "zero-2": deepspeed_offload_policy(2),
    "zero-2 overlapped": deepspeed_offload_policy(2, overlap_comm=True),
    "zero-2 sums in fp32": deepspeed_offload_policy(2, overlap_comm=True, fp32_sums=True),
    "zero-3": replace(deepspeed_offload_policy(3), subgroups=4),
    "zero-3 pipelined": replace(
        deepspeed_offload_policy(3, pipelined=True), subgroups=7, prefetch=2
    ),
    "zero-3 not overlapped": deepspeed_offload_policy(3, overlap_comm=False),
    "fsdp2": fsdp2_offload_policy(),
    "checkpoints in step": replace(
        deepspeed_offload_policy(3), overlaps_checkpoints=False, keeps_last=False
    ),
    "megatron": megatron_offload_policy(overlap=False),
    "megatron overlapped": replace(megatron_offload_policy(overlap=True), subgroups=9),
}


def one(**changes):
    """One layer of 2 s forward and 4 s backward, 10 parameters, two micro batches."""
    column = lambda value: np.full((1, 1), float(value))  # noqa: E731
    usual = Quantities(
        micro_batches=np.array([2]),
        layers=column(1),
        forward=column(2),
        backward=column(4),
        weight_bytes=column(20),
        gradient_bytes=column(20),
        checkpoint_bytes=column(6),
        updated=np.array([10.0]),
        update_seconds=np.array([0.5]),
    )
    return replace(usual, **changes)


def random_rows(rng, rows=ROWS):
    kinds = (3, rows)
    layers = rng.integers(0, 3, kinds).astype(float)
    layers[1] += 1
    weight = rng.exponential(20.0, kinds)
    quantities = Quantities(
        micro_batches=rng.integers(1, 6, rows),
        layers=layers,
        forward=rng.exponential(1.0, kinds),
        backward=rng.exponential(2.0, kinds),
        weight_bytes=weight,
        gradient_bytes=weight,
        checkpoint_bytes=rng.exponential(5.0, kinds),
        updated=(layers * weight).sum(axis=0) / 2,
        update_seconds=rng.exponential(0.1, rows),
    )
    speeds = Speeds(*(rng.exponential(30.0, rows) for _ in range(5)))
    placement = Placement(
        optimizer=rng.choice([0.0, 0.4, 1.0], rows),
        optimizer_place=rng.choice([Place.HOST, Place.DRIVE], rows),
        parameters=rng.choice(list(Place), rows),
        checkpoints=rng.choice([0.0, 0.3, 1.0], rows),
        checkpoints_place=rng.choice([Place.HOST, Place.DRIVE], rows),
        stride=rng.choice([0, 2, 3], rows),
        delayed=rng.choice([True, False], rows),
    )
    return quantities, speeds, placement


def single_rows(quantities, speeds, placement):
    for index in range(quantities.rows):
        row = ([index], quantities.rows)
        yield quantities.take([index]), speeds.take(*row), placement.take(*row)


def each_row(quantities, speeds, placement, policy):
    for row in single_rows(quantities, speeds, placement):
        yield step_work(*row, policy)


def lanes_of_step(quantities, speeds, placement, policy):
    """Seconds (lane, row) by the closed form."""
    rows = single_rows(quantities, speeds, placement)
    return np.concatenate([lane_seconds(step_loads(*row, policy)) for row in rows], axis=1)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_closed_form_has_the_seconds_of_the_items_and_their_floor(policy):
    rows = random_rows(np.random.default_rng(1))
    works = list(each_row(*rows, policy))
    lanes = np.concatenate([work.lane_seconds for work in works], axis=1)
    floors = np.concatenate([work.floor for work in works])
    assert lanes_of_step(*rows, policy) == pytest.approx(lanes, rel=1e-12)
    assert floor_of_step(*rows, policy) == pytest.approx(floors, rel=1e-12)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_longest_path_of_a_step_is_no_shorter_than_its_floor(policy):
    rows = random_rows(np.random.default_rng(2))
    assert np.all(floor_of_step(*rows, policy) <= seconds_of_step(*rows, policy) * (1 + 1e-12))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_nothing_off_the_gpu_is_the_gpus_own_time(policy):
    quantities, speeds, _ = random_rows(np.random.default_rng(3))
    own = quantities.layers * (quantities.forward + quantities.backward)
    own = quantities.micro_batches * own.sum(axis=0) + quantities.update_seconds
    stays = Placement()
    assert seconds_of_step(quantities, speeds, stays, policy) == pytest.approx(own, rel=1e-12)
    assert floor_of_step(quantities, speeds, stays, policy) == pytest.approx(own, rel=1e-12)
    for work in each_row(quantities, speeds, stays, policy):
        assert work.exposed[0] == 0.0


def test_zero_offload_adds_the_update_and_what_of_the_gradients_outlasts_the_last_pass():
    policy = deepspeed_offload_policy(2, overlap_comm=True, fp32_sums=True)
    speeds = Speeds(h2d=10.0, d2h=40.0, cpu_params=5.0)
    # 2 x 6 s of passes; 40 B of gradients out in 1 s behind the only backward pass; 10 parameters
    # in 2 s; 20 B of weights back in 2 s
    found = seconds_of_step(one(), speeds, Placement(optimizer=1.0), policy)
    assert found == pytest.approx([12 + 1 + 2 + 2])
    assert floor_of_step(one(), speeds, Placement(optimizer=1.0), policy) == pytest.approx([16.0])


def test_sums_in_16_bits_of_several_micro_batches_leave_and_come_back():
    speeds, placement = Speeds(h2d=10.0, d2h=10.0, cpu_params=np.inf), Placement(optimizer=1.0)
    # first 6 + 2 out; last 6 + 2 back, then 2 + 4 out; 2 of weights; none of it if there is one
    found = seconds_of_step(one(), speeds, placement, deepspeed_offload_policy(2))
    assert found == pytest.approx([8 + 8 + 6 + 2])
    single = one(micro_batches=np.array([1]))
    assert seconds_of_step(single, speeds, placement, deepspeed_offload_policy(2)) == pytest.approx(
        [12.0]
    )


def test_stage_3_moves_the_sums_of_a_single_micro_batch_too():
    speeds, placement = Speeds(h2d=10.0, d2h=10.0, cpu_params=np.inf), Placement(optimizer=1.0)
    found = lanes_of_step(
        one(micro_batches=np.array([1])), speeds, placement, deepspeed_offload_policy(3)
    )
    assert found[Lane.D2H] == pytest.approx([(20 + 40) / 10])
    assert found[Lane.H2D] == pytest.approx([(20 + 20) / 10])


def test_weights_are_fetched_for_both_passes_ahead_of_the_pass_that_runs():
    policy = deepspeed_offload_policy(3)
    speeds = Speeds(h2d=20.0, d2h=np.inf)
    three = one(
        micro_batches=np.array([1]), layers=np.full((1, 1), 3.0), update_seconds=np.array([0.0])
    )
    # a fetch takes 1 s: the first is waited for, all others hide behind the pass before
    found = seconds_of_step(three, speeds, Placement(parameters=Place.HOST), policy)
    assert found == pytest.approx([1 + 3 * 6])
    none_ahead = seconds_of_step(
        three, speeds, Placement(parameters=Place.HOST), replace(policy, prefetch=0)
    )
    assert none_ahead == pytest.approx([6 * 1 + 3 * 6])


def test_weights_on_the_drive_are_read_before_they_are_copied_and_written_after_the_update():
    speeds = Speeds(h2d=20.0, d2h=np.inf, drive_read=10.0, drive_write=5.0)
    placement = Placement(optimizer=1.0, optimizer_place=Place.DRIVE, parameters=Place.DRIVE)
    lanes = lanes_of_step(one(), speeds, placement, deepspeed_offload_policy(3))
    assert lanes[Lane.DRIVE_READ] == pytest.approx([(2 * 2 * 20 + 16 * 10) / 10])
    assert lanes[Lane.DRIVE_WRITE] == pytest.approx([(4 * 10 + 12 * 10 + 2 * 10) / 5])


def test_a_delayed_update_costs_only_what_outlasts_the_passes():
    policy = deepspeed_offload_policy(2, overlap_comm=True, fp32_sums=True)
    placement = Placement(optimizer=1.0, delayed=True)
    for rate, step in ((5.0, 13.0), (0.5, 22.0)):
        speeds = Speeds(h2d=10.0, d2h=40.0, cpu_params=rate)
        found = seconds_of_step(one(), speeds, placement, policy)
        assert found == pytest.approx([step])


def test_megatron_runs_gradients_update_and_weights_in_a_chain_or_tensor_by_tensor():
    speeds, placement = Speeds(h2d=10.0, d2h=40.0, cpu_params=5.0), Placement(optimizer=1.0)
    chain = seconds_of_step(one(), speeds, placement, megatron_offload_policy(overlap=False))
    assert chain == pytest.approx([12 + 1 + 2 + 4])
    alongside = replace(megatron_offload_policy(overlap=True), subgroups=10)
    found = seconds_of_step(one(), speeds, placement, alongside)
    assert found == pytest.approx([12 + 0.1 + 0.2 + 4.0])


def test_the_share_that_stays_is_updated_beside_the_cpus():
    speeds = Speeds(h2d=np.inf, d2h=np.inf, cpu_params=5.0)
    placement = Placement(optimizer=0.5)
    slow = one(update_seconds=np.array([3.0]))
    policy = megatron_offload_policy(overlap=False)
    assert seconds_of_step(slow, speeds, placement, policy) == pytest.approx([12 + 1.5])
    assert seconds_of_step(one(), speeds, placement, policy) == pytest.approx([12 + 1.0])


def test_checkpoints_leave_and_come_back_beside_passes_but_those_of_the_last_layer():
    two = one(layers=np.full((1, 1), 2.0), micro_batches=np.array([1]))
    placement = Placement(checkpoints=0.5)
    for speed, step in ((3.0, 12.5), (0.5, 12.5 + 2)):
        # one layer's 3 B: out while 2 s forward run, back while 4 s backward run; 6 s each if slow
        speeds = Speeds(h2d=speed, d2h=speed)
        lanes = lanes_of_step(two, speeds, placement, deepspeed_offload_policy(3))
        assert lanes[[Lane.D2H, Lane.H2D]] == pytest.approx(np.full((2, 1), 3 / speed))
        found = seconds_of_step(two, speeds, placement, deepspeed_offload_policy(3))
        assert found == pytest.approx([max(step, 2 + 3 / speed + 3 / speed + 4 + 0.5)])


def test_checkpoints_that_are_copied_in_a_blocking_way_add_both_copies():
    two = one(layers=np.full((1, 1), 2.0), micro_batches=np.array([1]))
    blocking = replace(megatron_offload_policy(overlap=False), overlaps_checkpoints=False)
    found = seconds_of_step(two, Speeds(h2d=3.0, d2h=6.0), Placement(checkpoints=1.0), blocking)
    assert found == pytest.approx([2 * (6 + 2 + 1) + 0.5])


def test_checkpoints_on_the_drive_are_stored_before_they_are_loaded():
    two = one(layers=np.full((1, 1), 2.0), micro_batches=np.array([1]))
    placement = Placement(checkpoints=1.0, checkpoints_place=Place.DRIVE)
    speeds = Speeds(h2d=6.0, d2h=6.0, drive_read=0.6, drive_write=0.6)
    found = seconds_of_step(two, speeds, placement, deepspeed_offload_policy(3))
    assert found == pytest.approx([2 + 1 + 10 + 10 + 1 + 4 + 0.5])


def test_what_binds_and_what_its_double_speed_is_worth():
    speeds, placement = Speeds(h2d=10.0, d2h=40.0, cpu_params=0.5), Placement(optimizer=1.0)
    work = step_work(one(), speeds, placement, deepspeed_offload_policy(3))
    assert next(iter(binding(work))) is Lane.CPU
    assert work.saved_seconds(Lane.CPU, 2.0) == pytest.approx([10.0])
    faster = replace(speeds, cpu_params=1.0)
    again = step_work(one(), faster, placement, deepspeed_offload_policy(3))
    assert work.makespan - work.saved_seconds(Lane.CPU, 2.0) == pytest.approx(again.makespan)


SPEED_OF = {
    Lane.H2D: "h2d",
    Lane.D2H: "d2h",
    Lane.CPU: "cpu_params",
    Lane.DRIVE_READ: "drive_read",
    Lane.DRIVE_WRITE: "drive_write",
}


def test_on_many_machines_the_double_of_a_speed_is_worth_what_its_lane_states():
    rows = random_rows(np.random.default_rng(8), number(60, by_night=200))
    for lane, name in SPEED_OF.items():
        policy = POLICIES["zero-3 pipelined"]
        faster = replace(rows[1], **{name: 2 * getattr(rows[1], name)})
        seconds = seconds_of_step(rows[0], faster, rows[2], policy)
        for work, written in zip(each_row(*rows, policy), seconds, strict=True):
            assert work.makespan[0] - work.saved_seconds(lane)[0] == pytest.approx(
                written, rel=1e-12
            )


def test_what_moves_spares_no_more_than_the_gpus_update_and_what_does_not_adds_nothing():
    quantities, speeds, placement = random_rows(np.random.default_rng(9))
    for policy in POLICIES.values():
        stays = Placement(stride=placement.stride, delayed=placement.delayed)
        own = floor_of_step(quantities, speeds, stays, policy)
        added = floor_of_step(quantities, speeds, placement, policy) - own
        assert np.all(added >= -quantities.update_seconds * (1 + 1e-9))
        assert np.all(added[~placement.moves] == 0.0)


def test_an_update_is_cut_into_subgroups_of_the_size_stated():
    speeds, placement = Speeds(h2d=10.0, d2h=40.0, cpu_params=5.0), Placement(optimizer=1.0)
    for size, last_weights in ((10.0, 2.0), (5.0, 1.0), (1.0, 0.2)):
        policy = deepspeed_offload_policy(3, pipelined=True, subgroup_params=size)
        work = step_work(one(), speeds, placement, policy)
        update = work.parts[-1]
        assert Work((update,)).makespan == pytest.approx([2.0 + last_weights])


def test_every_item_of_a_step_can_be_drawn():
    speeds = Speeds(h2d=10.0, d2h=10.0, cpu_params=5.0)
    work = step_work(one(), speeds, Placement(optimizer=1.0), POLICIES["zero-3"])
    spans = timeline(work)
    names = [span.name for span in spans]
    assert names.count("forward 0") == names.count("sum back 0") == 2
    assert names.count("gradient 0") == names.count("Adam") == names.count("weights") == 1
    assert max(span.end for span in spans) == pytest.approx(work.makespan[0])


def test_copies_in_step_hold_up_the_next_pass_and_layers_that_keep_nothing_hold_up_none():
    """Embedding, layer, head, each 2 s forward and 4 s backward; 6 bytes at 2 a second each way.

    Forward 2, 2, 3 out, 2; backward 4, 3 in, 4, 4.
    """
    column = lambda *values: np.array(values, dtype=float)[:, None]  # noqa: E731
    quantities = one(
        micro_batches=np.array([1]),
        layers=column(1, 1, 1),
        forward=column(2, 2, 2),
        backward=column(4, 4, 4),
        weight_bytes=column(0, 0, 0),
        gradient_bytes=column(0, 0, 0),
        checkpoint_bytes=column(0, 6, 0),
        update_seconds=np.array([0.0]),
    )
    policy = replace(deepspeed_offload_policy(3), overlaps_checkpoints=False, keeps_last=False)
    placement = Placement(checkpoints=1.0)
    found = seconds_of_step(quantities, Speeds(2.0, 2.0), placement, policy)
    assert found[0] == pytest.approx(2 + 2 + 3 + 2 + 4 + 3 + 4 + 4)


def test_an_update_beside_itself_reads_and_writes_at_the_speed_of_both_ways():
    """16 B read and 12 written of each of 10 parameters, at 4 B/s beside each other, 10 apart."""
    speeds = Speeds(h2d=np.inf, d2h=np.inf, drive_read=10.0, drive_write=10.0, drive_both=4.0)
    placement = Placement(optimizer=1.0, optimizer_place=Place.DRIVE, parameters=Place.DEVICE)
    for pipelined, rate in ((True, 4.0), (False, 10.0)):
        load = update_load(
            one(), speeds, placement, deepspeed_offload_policy(3), pipelined=pipelined
        )
        seconds = load.total[:, 0]
        assert seconds[Lane.DRIVE_READ] == pytest.approx(160 / rate)
        assert seconds[Lane.DRIVE_WRITE] == pytest.approx(120 / rate)
