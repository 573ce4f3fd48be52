"""What the supervisor makes of heartbeats, and the parts of a run that need no processes."""

from itertools import combinations

import pytest

from trainplan.profiler.bench.inputs.groups import Shape, shapes
from trainplan.profiler.bench.links import pairings
from trainplan.profiler.host.machine import this_host
from trainplan.profiler.host.nvml import Driver
from trainplan.profiler.task import Place
from trainplan.profiler.watch.heartbeat import Beat
from trainplan.profiler.watch.watch import Watch, died, hung

TWO_NODES = Place(device="cpu", rank=0, world_size=8, local_rank=0, local_world_size=4)
TORCHRUN = """
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
"""


def beat(rank, phase="measuring", **more):
    named = {"item": "gemm", "key": "m=1", "host": "a", "pid": 100 + rank}
    return Beat(rank=rank, phase=phase, **{**named, **more})


class Folder:
    """Heartbeats and a clock that a test sets."""

    def __init__(self, tmp_path):
        self.path, self.seconds = tmp_path, 0.0
        self.watch = Watch(tmp_path, 60.0, now=lambda: self.seconds)

    def at(self, seconds, *beats):
        self.seconds = seconds
        for told in beats:
            (self.path / f"rank-{told.rank}.json").write_text(told.model_dump_json())
        self.watch.look()
        return self.watch


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_a_task_is_overdue_after_its_time_and_not_before(folder):
    assert not folder.at(0, beat(0, step=3)).overdue()
    assert not folder.at(59, beat(0, step=3, number=9)).overdue()
    assert not folder.at(61, beat(0, step=4)).overdue()
    assert folder.at(122, beat(0, step=4, number=10)).overdue()


def test_processes_that_start_have_more_time(folder):
    folder.at(0, beat(0, phase="starting"))
    assert not folder.at(200).overdue()
    assert folder.at(301).overdue()


def test_of_ranks_that_wait_and_one_that_measures_this_one_hangs(folder):
    folder.at(0, beat(0, phase="waiting"), beat(1))
    watch = folder.at(61, beat(0, phase="waiting", number=5), beat(1, number=5))
    assert hung(watch).startswith("item gemm, task m=1: rank 1 on a hangs")


def test_a_rank_whose_heart_stands_still_is_named_first(folder):
    folder.at(0, beat(0), beat(1))
    watch = folder.at(61, beat(0, number=100))
    assert hung(watch).startswith("item gemm, task m=1: rank 1 on a stands still")


def test_a_rank_that_failed_is_named_before_those_left_in_the_call(folder):
    folder.at(0, beat(0), beat(1, phase="failed", detail="out of memory"))
    watch = folder.at(61, beat(0, number=5), beat(1, phase="failed", detail="out of memory"))
    assert "rank 1 on a" in hung(watch)


def test_ranks_that_all_wait_point_to_another_node(folder):
    folder.at(0, beat(0, phase="waiting"))
    assert "another node" in hung(folder.at(61, beat(0, phase="waiting", number=5)))


def test_the_rank_that_a_signal_killed_is_named_and_not_those_told_to_end():
    text = died((beat(0, ended="signal"), beat(1), beat(2, ended="alone")), TORCHRUN)
    assert text.startswith("item gemm, task m=1: rank 1 on a died by signal 9; ")


def test_an_error_before_the_first_beat_is_shown():
    assert "ModuleNotFoundError: No module named 'x'" in died(
        (), "Traceback\nModuleNotFoundError: No module named 'x'\n"
    )


def test_progress_is_that_of_the_first_rank(folder):
    assert folder.at(0, beat(0)).progress is None
    progress = folder.at(1, beat(0, done=2, total=5)).progress
    assert (progress.done, progress.total, progress.item) == (2, 5, "gemm")


@pytest.mark.parametrize("count", [2, 3, 5, 6, 8, 9])
def test_all_pairs_meet_exactly_once(count):
    rounds = list(pairings(count, all_pairs=True))
    pairs = [pair for pairing in rounds for pair in pairing]
    assert sorted(pairs) == list(combinations(range(count), 2))
    for pairing in rounds:
        ranks = [rank for pair in pairing for rank in pair]
        assert len(set(ranks)) == len(ranks)


def test_random_rounds_are_the_same_on_every_rank_and_disjoint():
    rounds = list(pairings(33, all_pairs=False))
    assert len(rounds) == 5
    assert rounds == list(pairings(33, all_pairs=False))
    for pairing in rounds:
        assert len({rank for pair in pairing for rank in pair}) == 32


def test_groups_of_a_shape_are_all_ranks_once():
    found = list(shapes(TWO_NODES))
    assert found == [Shape(2, 2), Shape(4, 4), Shape(8, 4), Shape(2, 1, stride=4)]
    for shape in found:
        ranks = [rank for members in shape.members(TWO_NODES) for rank in members]
        assert sorted(ranks) == list(range(8))
    assert Shape(2, 1, stride=4).members(TWO_NODES)[1] == (1, 5)


def test_a_host_is_described_from_what_the_system_tells(tmp_path):
    nic = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    node = tmp_path / "sys/devices/system/node/node0"
    for folder in (nic, node, tmp_path / "proc"):
        folder.mkdir(parents=True)
    (nic / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (node / "cpulist").write_text("0-31\n")
    (node / "meminfo").write_text("Node 0 MemTotal:  1048576 kB\n")
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name : Some CPU\n")
    host = this_host(TWO_NODES, tmp_path)
    assert host.cpu == "Some CPU"
    assert host.nics == ("mlx5_0 400 Gb/s",)
    assert host.topology == ("NUMA node 0: cores 0-31, 1 GiB",)
    assert host.num_gpus == 4


def test_a_system_that_tells_nothing_is_described_all_the_same(tmp_path):
    host = this_host(TWO_NODES, tmp_path)
    assert (host.nics, host.topology, host.clocks) == ((), (), ())


class SilentNvml:
    """A driver that answers one question and refuses all others."""

    class NVMLError(Exception):
        pass

    def __getattr__(self, name):
        def refuse(*arguments):
            raise self.NVMLError(name)

        return refuse

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device):  # noqa: N802 (NVIDIA's name)
        return 0x04 | 0x40


def test_what_a_driver_does_not_tell_is_left_out():
    driver = Driver(SilentNvml())
    assert driver.version() is None
    assert driver.devices() == ()
    assert driver.clocks(0) == "slowed down by hardware because of heat"
    assert driver.num_links(0) == 0
    assert driver.path(0, 1) is None
