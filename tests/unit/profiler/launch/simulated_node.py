"""A node of eight GPUs on a clock of its own: the real lists of tasks, costs like theirs."""

import math
import random
import re
from functools import cache, cached_property

from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.profiles.profile import Host, Software, StreamPoint, Timing
from trainplan.profiler.bench.items import ITEMS
from trainplan.profiler.fit.reference_step import error_shares
from trainplan.profiler.host.clock import DeviceClock
from trainplan.profiler.host.probe import SpeedProbe
from trainplan.profiler.journal.file import JournalFile
from trainplan.profiler.journal.records import (
    Header,
    line_of,
    read_journal,
)
from trainplan.profiler.launch import outcome
from trainplan.profiler.launch.costs import Ahead, Costs, size_of
from trainplan.profiler.launch.loop import RunLoop
from trainplan.profiler.launch.requests import request_for
from trainplan.profiler.launch.scheduler import Budget, Scheduler
from trainplan.profiler.task import Item, MeasurementTask, Place

PLACE = Place("cuda", 0, 8, 0, 8)
START_SECONDS, END_SECONDS = 22.0, 2.0
"""Eight processes import torch and connect; they part, and the profile is written."""
COMMUNICATOR_SECONDS = 1.5
OUTLIERS, OUTLIER_FACTOR = 0.02, 8.0


@cache
def shares():
    return error_shares("h100-sxm", preset("llama3-8b"), 4096, "bf16", (1, 8))


class Time:
    """What everybody looks at."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


class Ranks:
    """Eight that say the same."""

    place = PLACE

    def gather(self, text):
        return (text,) * PLACE.world_size

    def from_first(self, text):
        return text


class Heartbeat:
    class beat:  # noqa: N801
        host = "node"

    def report_phase(self, phase, **changes):
        self.shown = changes


class Journal(JournalFile):
    """In memory."""

    def __init__(self):
        self.lines = []

    def whole_lines(self):
        return "".join(self.lines)

    def append(self, record):
        self.lines.append(line_of(record))


def seconds_of(item, key, chance):
    """What a task takes: its repeats, its buffers, now and then somebody else."""
    size = size_of(key)
    usual = {"layer": 2.5, "attention": 1.1, "head": 1.6, "embedding": 1.0, "overlap": 2.2}
    usual |= {"power": 2.6, "cpu_adam": 3.0, "links": 1.3, "copies": 0.8}
    base = usual.get(item, 0.35)
    if item == "gemm":
        base = 0.28 + 7 * 2 * size / 6e14
    if item in ("collectives", "p2p"):
        base = 0.25 + 7 * size / 2e11
    slow = OUTLIER_FACTOR if chance.random() < OUTLIERS else 1.0
    return base * slow * math.exp(chance.gauss(0, 0.2))


class Node:
    """A run on it; `noisy` is the part of the tasks whose first time is disturbed."""

    def __init__(self, monkeypatch, seed=0, noisy=0.05, only=tuple(ITEMS)):
        self.time, self.chance, self.noisy = Time(), random.Random(seed), noisy
        self.journal, self.stop_in, self.probe_seconds = Journal(), None, 0.0
        self.request = request_for(preset("llama3-8b"), "cuda", 8, quick=False)
        self.groups, self.measured, self.slow = set(), [], {}
        monkeypatch.setattr(outcome, "monotonic", self.time)
        self.items = {
            name: Item(name, item.what, self.tasks_of(item), item.seconds, item.goes_first)
            for name, item in ITEMS.items()
            if name in only
        }

    @cached_property
    def num_tasks(self):
        """Of the whole list."""
        return sum(1 for item in self.items.values() for _ in item.tasks(self.request, PLACE))

    def tasks_of(self, item):
        def tasks(request, place):
            for real in item.tasks(request, place):
                yield MeasurementTask(real.key, self.measure(item.name, real.key), real.together)

        return tasks

    def measure(self, item, key):
        def measured(clock):
            self.measured.append((item, key))
            if self.stop_in == len(self.measured):
                raise KeyboardInterrupt
            self.time.seconds += self.slow.get(key) or seconds_of(item, key, self.chance)
            group = re.search(r"ranks=\S+ per_node=\S+ stride=\S+", key)
            if group and group[0] not in self.groups:
                self.groups.add(group[0])
                self.time.seconds += COMMUNICATOR_SECONDS
            odd = self.chance.random() < self.noisy
            half, flags = (0.2, ("noisy",)) if odd else (0.01, ())
            time = Timing(seconds=1e-3, repeats=25, half_width_fraction=half, flags=flags)
            yield StreamPoint(name="copy", moved_bytes=1, time=time)

        return measured

    def product(self):
        """A canary's clock."""
        self.time.seconds += 0.25
        self.probe_seconds += 0.25
        return Timing(seconds=0.01, repeats=25, half_width_fraction=0.002)

    def run(self, budget_seconds=None):
        """Seconds of the run, from the typed command to the written profile."""
        begin = self.time.seconds
        self.time.seconds += START_SECONDS
        self.probe_seconds, node = 0.0, self

        class Clock(DeviceClock):
            def time(self, call):
                return node.product()

        clock = Clock(PLACE, self.request.quick)
        asking = self.time.seconds
        loop = RunLoop(
            Ranks(),
            clock,
            Heartbeat(),
            SpeedProbe(PLACE, "node", clock, int),
            self.journal,
            self.time,
        )
        loop.open(
            Header(
                created="2026-01-01T00:00:00+00:00",
                request=self.request,
                software=Software(torch="2.13.0", backend="nccl"),
                hosts=(Host(name="node", num_gpus=8),),
            )
        )
        loop.plan(self.request, tuple(self.items.values()))
        wanted = self.time.seconds - asking
        scheduler = Scheduler(
            tasks=[Ahead(n, step.name, self.items[step.item]) for n, step in enumerate(loop.steps)],
            content=loop.content,
            error_shares=shares,
            now=self.time,
            costs=Costs(),
            budget=budget_seconds and Budget(budget_seconds, begin + budget_seconds),
            probe_seconds=wanted,
        )
        loop.run(scheduler)
        self.time.seconds += END_SECONDS
        return self.time.seconds - begin

    @property
    def content(self):
        return read_journal(self.journal.whole_lines())
