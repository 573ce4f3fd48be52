"""Cores that a container or a job scheduler keeps from this process are not counted."""

import os

import pytest

from trainplan.profiler.host.machine import busy_cores, usable_cores
from trainplan.profiler.host.probe import cpu_contention
from trainplan.profiler.launch.launch import default_nproc
from trainplan.profiler.task import Place

restricts = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="this system keeps no cores from a process"
)


@restricts
def test_only_cores_left_to_this_process_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 8})
    assert usable_cores() == 3


@restricts
def test_one_core_is_measured_by_one_process(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert default_nproc(gpus=0) == 1
    assert default_nproc(gpus=4) == 4


def stat(tmp_path, *cores):
    """A system whose cores have these ticks: user, nice, system, idle, waiting, 3 more, guest."""
    (tmp_path / "proc").mkdir(exist_ok=True)
    lines = ["cpu  1 1 1 1 1 1 1 1 1 1", *(f"cpu{number} {ticks}" for number, ticks in cores)]
    (tmp_path / "proc/stat").write_text("\n".join([*lines, "ctxt 12"]))


@restricts
def test_cores_are_busy_for_the_share_of_time_that_is_not_idle(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2})
    stat(tmp_path, (0, "9 0 0 90 0 0 0 0 0"), (1, "5 0 5 80 10 0 0 0 5"), (2, "0 0 0 9 0 0 0 0 0"))

    def later(seconds):
        after = (
            (0, "99 0 0 90 0 0 0 0 0"),
            (1, "20 0 15 100 35 0 0 30 20"),
            (2, "0 0 0 59 0 0 0 0 0"),
        )
        stat(tmp_path, *after)

    monkeypatch.setattr("trainplan.profiler.host.machine.sleep", later)
    assert busy_cores(0.5, tmp_path) == pytest.approx((15 + 10 + 30) / (55 + 20 + 25))


def test_a_system_that_does_not_count_says_nothing(tmp_path):
    assert busy_cores(0.0, tmp_path) is None


@pytest.mark.parametrize(
    ("device", "ranks", "used", "stated"),
    [
        ("cpu", 1, 0.1, False),
        ("cpu", 1, 1.5, True),
        ("cuda", 4, 3.9, False),
        ("cuda", 4, 5.0, True),
        ("cpu", 1, None, False),
    ],
)
def test_others_are_told_where_they_leave_less_than_is_measured(device, ranks, used, stated):
    place = Place(device=device, rank=0, world_size=ranks, local_rank=0, local_world_size=ranks)
    sentence = cpu_contention(used, 8, place, "node3")
    assert bool(sentence) == stated
    assert not stated or f"{used} of 8 cores of node3" in sentence
