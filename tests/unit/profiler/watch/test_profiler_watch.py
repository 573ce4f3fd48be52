"""What the supervisor makes of heartbeats, and the parts of a run that need no processes."""

import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from functools import partial
from itertools import combinations
from unittest.mock import Mock

import pytest

from trainplan.profiler.bench.links import pairings
from trainplan.profiler.host.machine import this_host
from trainplan.profiler.host.nvml import Driver
from trainplan.profiler.task import Place
from trainplan.profiler.watch import heartbeat
from trainplan.profiler.watch.awake import Awake
from trainplan.profiler.watch.heartbeat import Beat
from trainplan.profiler.watch.processes import (
    MainThread,
    die_with_parent,
    main_thread,
    memory_kills,
)
from trainplan.profiler.watch.watch import Limits, Watch, died, hung

TWO_NODES = Place(device="cpu", rank=0, world_size=8, local_rank=0, local_world_size=4)
LIMITS = Limits(timeout_seconds=60.0, start_seconds=300.0)


def beat(rank, phase="measuring", **more):
    named = {"item": "gemm", "key": "m=1", "host": "a", "pid": 100 + rank}
    return Beat(rank=rank, phase=phase, **{**named, **more})


class Folder:
    """Beats, processes and a clock that a test sets."""

    def __init__(self, tmp_path, num_nodes=1, memory_kills=0):
        self.path, self.seconds, self.kills = tmp_path, 0.0, memory_kills
        self.threads = {rank: MainThread(stopped=False, work=(0,)) for rank in (0, 1)}
        self.watch = Watch(
            tmp_path,
            "a",
            {0: 100, 1: 101},
            LIMITS,
            num_nodes,
            now=lambda: self.seconds,
            thread_of=lambda pid: self.threads[pid - 100],
            killed_for_memory=lambda: self.kills,
        )

    def at(self, seconds, *beats, codes=(), work=None):
        """What is seen at that time; `work` of all main threads, by default other than before."""
        self.seconds = seconds
        for rank, thread in self.threads.items():
            self.threads[rank] = replace(thread, work=(seconds if work is None else work,))
        for stated in beats:
            (self.path / f"rank-{stated.rank}.json").write_text(stated.model_dump_json())
        self.watch.look(dict(codes))
        return self.watch

    def printed(self, rank, text):
        (self.path / f"output-{rank}.txt").write_text(text)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_a_task_is_overdue_after_its_time_and_not_before(folder):
    other = beat(1, phase="finished")
    assert not folder.at(0, beat(0, step=3), other).overdue()
    assert not folder.at(59, beat(0, step=3, number=9)).overdue()
    assert not folder.at(61, beat(0, step=4)).overdue()
    assert folder.at(122, beat(0, step=4, number=10)).overdue()


def test_a_task_that_goes_on_is_never_overdue_however_long_it_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "Thread", Mock())
    own = heartbeat.Heartbeat(tmp_path, 0, os.getppid())
    own.report_phase("measuring", item="layer", key="s=1")
    folder = Folder(tmp_path)
    for seconds in range(0, 600, 50):
        own.go_on()
        assert not folder.at(seconds, own.beat, beat(1, phase="finished")).overdue()
    assert folder.at(650, own.beat).overdue()


def test_a_rank_that_loads_its_libraries_has_more_time_as_long_as_it_works(folder):
    for seconds in (0, 50, 100, 150, 200, 250, 299):
        assert not folder.at(seconds).overdue()
    watch = folder.at(301)
    assert watch.overdue()
    assert re.search(r"at the start: rank 0 on a .* 300 s \(--start-timeout\)", hung(watch).text)


def test_a_rank_that_does_nothing_while_it_starts_has_the_time_of_a_task(folder):
    folder.at(0)
    folder.at(1, beat(0, phase="meeting", item=""), work=7)
    beating = beat(0, phase="meeting", item="", number=9)
    assert not folder.at(60, beating, beat(1, phase="starting", number=5), work=7).overdue()
    watch = folder.at(62, beat(1, phase="starting", number=6, item=""), work=7)
    assert watch.overdue()
    assert re.match(r"at the start: rank 1 on a .* 60 s \(--timeout\)", hung(watch).text)


def test_a_rank_that_is_stopped_is_named_first_and_its_task_forgiven(folder):
    folder.at(0, beat(0, phase="failed"), beat(1))
    folder.threads[1] = replace(folder.threads[1], stopped=True)
    fault = hung(folder.at(61, beat(0, phase="failed", number=9)))
    assert fault.text.startswith("item gemm, task m=1: rank 1 on a is stopped by a signal")
    assert not fault.of_task


def test_a_rank_that_is_stopped_while_it_meets_the_others_is_overdue_as_any(folder):
    folder.at(0, beat(0, phase="meeting"), beat(1, phase="meeting"), work=7)
    assert folder.at(61, beat(0, phase="meeting", number=9), work=7).overdue()


def test_of_ranks_that_wait_and_one_that_measures_this_one_hangs(folder):
    folder.at(0, beat(0, phase="waiting"), beat(1))
    watch = folder.at(61, beat(0, phase="waiting", number=5), beat(1, number=5))
    assert hung(watch).text.startswith("item gemm, task m=1: rank 1 on a hangs")
    assert hung(watch).of_task


def test_a_rank_whose_heart_stands_still_is_named_first(folder):
    folder.at(0, beat(0), beat(1), work=7)
    watch = folder.at(61, beat(0, number=100), work=7)
    assert hung(watch).text.startswith("item gemm, task m=1: rank 1 on a is stuck")


def test_a_rank_that_failed_is_named_before_those_left_in_the_call(folder):
    folder.at(0, beat(0), beat(1, phase="failed", detail="out of memory"))
    watch = folder.at(61, beat(0, number=5), beat(1, phase="failed", detail="out of memory"))
    assert "rank 1 on a failed (out of memory)" in hung(watch).text


def test_ranks_that_all_wait_point_to_another_node_whose_watcher_speaks_first(tmp_path):
    folder = Folder(tmp_path, num_nodes=2)
    folder.at(0, beat(0, phase="waiting"), beat(1, phase="waiting"))
    later = [beat(rank, phase="waiting", number=5) for rank in (0, 1)]
    assert not folder.at(60.5, *later).overdue()
    watch = folder.at(62, *later)
    assert watch.overdue()
    assert "ranks 0 to 1 on a wait for another node" in hung(watch).text


@pytest.mark.parametrize(
    ("code", "kills", "words"),
    [
        (-9, 0, "was killed by SIGKILL (by somebody: memory did not run out)"),
        (-9, 1, "was killed by SIGKILL (the system ran out of memory)"),
        (-9, None, "was killed by SIGKILL (by the system where memory ran out, else by somebody)"),
        (-11, 0, "was killed by SIGSEGV;"),
        (-40, 0, "was killed by signal 40;"),
        (7, 0, "died with exit code 7;"),
    ],
)
def test_a_rank_that_died_is_named_at_once_with_what_ended_it(folder, code, kills, words):
    folder.at(0, beat(0), beat(1))
    folder.kills = kills
    fault = died(folder.at(1, beat(0, ended="alone"), codes={0: 1, 1: code}))
    assert fault.text.startswith(f"item gemm, task m=1: rank 1 on a {words}")
    assert fault.of_task


def test_a_rank_that_dies_before_its_first_beat_is_named_too(folder):
    fault = died(folder.at(1, codes={1: -9}))
    assert fault.text.startswith("at the start: rank 1 on a was killed by SIGKILL")
    assert not fault.of_task


def test_nobody_blames_a_task_for_a_signal_from_outside(folder):
    assert not died(folder.at(1, beat(0), beat(1), codes={1: -15})).of_task


def test_an_error_is_told_once_others_had_the_time_to_be_the_reason(folder):
    folder.printed(1, "[rank1]: Traceback\n[rank1]: ModuleNotFoundError: No module named 'x'\n")
    assert died(folder.at(1, codes={1: 1})) is None
    fault = died(folder.at(2.5, codes={1: 1}))
    assert "rank 1 on a died: ModuleNotFoundError: No module named 'x'" in fault.text
    blamed = died(folder.at(2.6, codes={0: -9, 1: 1}))
    assert "rank 0 on a was killed by SIGKILL" in blamed.text


def test_a_rank_that_aborts_may_do_so_because_of_another_and_is_named_where_none_is(folder):
    both = beat(0, ended="alone"), beat(1)
    assert died(folder.at(1, *both, codes={0: 1, 1: -6})) is None
    fault = died(folder.at(2.5, codes={0: 1, 1: -6}))
    assert fault.text.startswith("item gemm, task m=1: rank 1 on a was killed by SIGABRT;")


@pytest.mark.parametrize(
    ("num_nodes", "whom"), [(1, "each other"), (2, "another node, see its output")]
)
def test_ranks_that_were_all_left_alone_blame_none_of_them(tmp_path, num_nodes, whom):
    folder = Folder(tmp_path, num_nodes=num_nodes)
    folder.printed(0, "RuntimeError: Connection closed by peer [::1]:1\n")
    both = [beat(rank, ended="alone") for rank in (0, 1)]
    assert died(folder.at(1, *both, codes={0: 1, 1: 1})) is None
    fault = died(folder.at(2.5, codes={0: 1, 1: 1}))
    assert fault.text.startswith(f"ranks 0 to 1 on a lost {whom}")
    assert "Connection closed by peer" in fault.text


def test_a_run_is_over_when_all_are_done_and_those_that_do_not_leave_are_not_waited_for(folder):
    done = [beat(rank, phase="finished") for rank in (0, 1)]
    assert not folder.at(0, done[0], codes={0: 0}).over()
    assert not folder.at(1, done[1], codes={0: 0}).over()
    assert folder.at(1, codes={0: 0, 1: -11}).over()
    assert died(folder.watch) is None
    assert folder.at(7, codes={0: 0}).over()


def test_ranks_that_cannot_reach_each_other_at_the_start_are_told_of_their_interfaces(tmp_path):
    folder = Folder(tmp_path, num_nodes=2)
    both = [beat(rank, phase="meeting", ended="alone") for rank in (0, 1)]
    folder.at(1, *both, codes={0: 1, 1: 1})
    assert "GLOO_SOCKET_IFNAME" in died(folder.at(2.5, codes={0: 1, 1: 1})).text


def test_time_in_which_the_watcher_itself_was_held_makes_nobody_late():
    seconds = [0.0]
    awake = Awake(lambda: seconds[-1])
    begin = awake()
    for at in (1.0, 2.5, 602.5, 603.0):
        seconds.append(at)
        last = awake()
    assert last - begin == 3.0


def test_a_process_that_waits_does_no_work_and_one_that_is_stopped_is_known():
    with subprocess.Popen(["sleep", "60"]) as process:
        time.sleep(0.2)
        first = main_thread(process.pid)
        time.sleep(0.2)
        assert main_thread(process.pid) == first
        assert not first.stopped
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert main_thread(process.pid).stopped
        process.kill()
    assert main_thread(process.pid) is None


def test_a_process_whose_parent_ended_before_it_was_watched_ends_itself():
    of_another = partial(die_with_parent, signal.SIGKILL, os.getppid())
    with subprocess.Popen(["sleep", "60"], preexec_fn=of_another) as process:  # noqa: PLW1509
        assert process.wait(10) == -signal.SIGKILL


def test_processes_that_the_system_killed_for_memory_are_counted(tmp_path):
    (tmp_path / "vmstat").write_text("oom_kill_disable 7\noom_kill 4\n")
    assert memory_kills(tmp_path / "vmstat") == 4
    assert memory_kills(tmp_path / "absent") is None


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


def test_a_host_is_described_from_what_the_system_tells(tmp_path):
    nic = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    node = tmp_path / "sys/devices/system/node/node0"
    for folder in (nic, node, tmp_path / "proc"):
        folder.mkdir(parents=True)
    (nic / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (node / "cpulist").write_text("0-31\n")
    (node / "meminfo").write_text("Node 0 MemTotal:  1048576 kB\n")
    stated = "processor : 0\nmodel name : Some CPU\nflags : fpu avx512_bf16 sse amx_bf16\n"
    (tmp_path / "proc/cpuinfo").write_text(stated)
    host = this_host(TWO_NODES, tmp_path)
    assert host.cpu == "Some CPU"
    assert host.bf16_units == ("amx_bf16", "avx512_bf16")
    assert host.nics == ("mlx5_0 400 Gb/s",)
    assert host.topology == ("NUMA node 0: cores 0-31, 1 GiB",)
    assert host.num_gpus == 4


def test_a_system_that_tells_nothing_is_described_all_the_same(tmp_path):
    host = this_host(TWO_NODES, tmp_path)
    assert (host.nics, host.topology, host.clocks, host.bf16_units) == ((), (), (), ())


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
