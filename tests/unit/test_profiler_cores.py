"""Cores that a container or a job scheduler keeps from this process are not counted."""

import os

import pytest

from profiler.cores import usable_cores
from profiler.launch import default_nproc

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
