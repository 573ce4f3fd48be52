"""A real step whose weights and states lie on a drive: what it computes, moves and is priced at."""

import os
from dataclasses import replace

import pytest

from tests.e2e.test_bench import CPU, DENSE, OnceClock, points, wanted
from trainplan.costmodel.copy_streams.transfer_volume import Lane
from trainplan.profiler.bench.offload.program import Sizes, program, run, threads_of

torch = pytest.importorskip("torch", reason="the step needs torch")
from trainplan.profiler.bench.offload.step import LEARNING_RATE, _layer  # noqa: E402
from trainplan.profiler.bench.offloaded_step import _alone, open_step  # noqa: E402

SIZES = Sizes(layers=3, width=64, tokens=8, weight_bytes=4)
SORTS = ("read", "forward", "backward", "read_states", "adam", "write")
GPU_SIZES = Sizes(layers=3, width=64, tokens=8, weight_bytes=2, on_gpu=True)


@pytest.fixture
def step(tmp_path):
    with open_step(SIZES, wanted(DENSE, scratch=str(tmp_path)), CPU) as made:
        yield made


def steps_in_memory(x, weights, count):
    """The same model, all of it in memory, as torch trains it."""
    leaves = [[one.clone().requires_grad_() for one in pair] for pair in weights]
    adam = torch.optim.AdamW([one for pair in leaves for one in pair], lr=LEARNING_RATE, fused=True)
    for _ in range(count):
        y = x
        for first, second in leaves:
            y = _layer(y, first, second)
        adam.zero_grad()
        (0.5 * y.square().mean()).backward()
        adam.step()
    return [[one.detach() for one in pair] for pair in leaves]


def test_streamed_from_the_drive_it_trains_as_in_memory(step):
    def on_drive():
        found = []
        for visit in range(SIZES.layers):
            step.read(visit)
            found.append([one.clone() for one in step._matrices(visit)])
        return found

    before = on_drive()
    work = program(SIZES, {})
    with threads_of(work, lambda: None) as threads:
        for _ in range(3):
            step.begin()
            run(work, step.calls(), threads)
    expected = steps_in_memory(step.inputs[0], before, 3)
    for mine, theirs, old in zip(on_drive(), expected, before, strict=True):
        for a, b, c in zip(mine, theirs, old, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
            assert not torch.equal(a, c)


def test_it_moves_the_bytes_that_formulas_say(tmp_path):
    """Of each parameter 4 bytes for both passes, 12 of states for the update, both written back."""
    (point,) = points("offloaded_step", wanted(DENSE, scratch=str(tmp_path)))
    params = point.layers * 2 * point.width**2
    assert point.read_bytes == params * (4 + 4 + 12)
    assert point.written_bytes == params * (12 + 4)
    assert not list(tmp_path.iterdir())
    assert not points("offloaded_step", wanted(DENSE))


def test_its_point_has_the_largest_lane_and_the_longest_path(tmp_path):
    (point,) = points("offloaded_step", wanted(DENSE, scratch=str(tmp_path)))
    assert set(point.lane_seconds) == {"CPU", "drive read", "drive write"}
    assert point.floor_seconds == pytest.approx(max(point.lane_seconds.values()))
    assert point.floor_seconds <= point.path_seconds <= sum(point.lane_seconds.values())


def test_states_are_read_beside_writes_and_the_longer_of_both_takes_the_time_of_both(step):
    found = _alone(step, OnceClock())  # the first call takes 1 ms, every one 1 ms more
    assert list(found) == list(SORTS)
    assert [1e3 * found[sort] for sort in SORTS] == pytest.approx([1, 2, 3, 4, 5, 7])


def seconds(**changed):
    return {**dict.fromkeys(SORTS, 0.0), **changed}


def test_a_read_is_hidden_behind_the_pass_before_it_all_but_the_first():
    """Three layers, passes of 2 s, reads of 1 s: the first read, then six passes."""
    work = program(SIZES, seconds(read=1.0, forward=2.0, backward=2.0))
    assert work.makespan[0] == pytest.approx(1 + 6 * 2)
    slow = program(SIZES, seconds(read=3.0, forward=2.0, backward=2.0))
    assert slow.makespan[0] == pytest.approx(6 * 3 + 2)


def test_updates_stream_through_drive_and_processor():
    """Reads of 1, updates of 1, writes of 1 s, three layers: five turns of three lanes."""
    work = program(SIZES, seconds(read_states=1.0, adam=1.0, write=1.0))
    assert work.makespan[0] == pytest.approx(5)
    slow = program(SIZES, seconds(read_states=1.0, adam=1.0, write=4.0))
    assert slow.makespan[0] == pytest.approx(1 + 1 + 3 * 4)
    assert slow.floor[0] == pytest.approx(12)


def test_no_more_than_two_layers_are_read_ahead():
    """Two buffers of weights, three of states: the next read waits for the first to be used."""
    larger = replace(SIZES, layers=4)
    after = {item.name: set(item.after) for item in program(larger, {}).parts[0].items}
    assert after["read 1"] == set()
    assert after["read 2"] == {"forward 0"}
    assert after["read 6"] == {"backward 4"}
    assert after["read_states 2"] == set()
    assert after["read_states 3"] == {"write 0"}
    assert after["adam 0"] == {"read_states 0", "backward 4"}


def test_on_a_gpu_copies_are_lanes_of_their_own():
    work = program(GPU_SIZES, {"copy_in": 1.0, "copy_out": 2.0, "forward": 3.0, "adam": 5.0})
    total = dict(zip(Lane, work.lane_seconds[:, 0], strict=True))
    assert total[Lane.H2D] == 6
    assert total[Lane.D2H] == 6
    assert total[Lane.GPU] == 9
    assert total[Lane.CPU] == 15
    after = {item.name: set(item.after) for item in work.parts[0].items}
    assert after["copy_in 2"] == {"read 2", "forward 0"}
    assert after["read 2"] == {"copy_in 0"}
    assert after["backward 5"] == {"copy_in 5", "copy_out 3"}
    assert after["adam 0"] == {"read_states 0", "copy_out 3"}


def test_what_fails_on_a_lane_is_raised_and_leaves_no_file(tmp_path):
    def full(*_):
        raise OSError("no space left")

    work = program(SIZES, {})
    with (
        pytest.raises(OSError, match="no space left"),
        open_step(SIZES, wanted(DENSE, scratch=str(tmp_path)), CPU) as step,
        threads_of(work, lambda: None) as threads,
    ):
        run(work, {**step.calls(), "adam": full}, threads)
    assert not list(tmp_path.iterdir())


def test_a_short_read_is_no_read(step, monkeypatch):
    monkeypatch.setattr(os, "preadv", lambda *_: 7)
    with pytest.raises(OSError, match="gave 7 of"):
        step.read(0)


def test_it_is_run_by_a_clock_that_repeats(tmp_path):
    class Twice(OnceClock):
        def time(self, call, *, on_host=False):
            call()
            return super().time(call, on_host=on_host)

    (task,) = tasks_of(tmp_path)
    (point,) = task.measure(Twice())
    assert point.read_bytes == point.layers * 2 * point.width**2 * 20


def tasks_of(folder):
    from trainplan.profiler.bench.items import ITEMS  # noqa: PLC0415 (after torch was found)

    return ITEMS["offloaded_step"].tasks(wanted(DENSE, scratch=str(folder)), CPU)
