"""What a host and its drives do to a step: never worse when faster, worth what the page says."""

from dataclasses import replace

import numpy as np
import pytest

from tests.grids import number
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.hardware.cluster import DriveSpec, HostSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import explicit
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space.choices import broken_rules

MACHINES = number(30, by_night=200)
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def with_host(job, host, **group):
    one = job.cluster.groups[0].model_copy(update={"host": host, **group})
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (one,)})})


def random_host(random):
    """Speeds over three decades: any lane may be the slowest."""
    drives = DriveSpec(
        count=int(random.integers(1, 9)),
        tb=1,
        read_gb_per_s=float(10 ** random.uniform(-1, 2)),
        write_gb_per_s=float(10 ** random.uniform(-1, 2)),
    )
    return HostSpec(adam_params_per_s=float(10 ** random.uniform(7, 10)), drives=drives)


def random_layout(random):
    """A layout of two GPUs that keeps something off them."""
    share = float(random.choice([0.0, 0.25, 1.0]))
    tier = str(random.choice(["cpu", "nvme"])) if share == 1 else "cpu"
    parameters = random.choice([None, "cpu", "nvme"])
    checkpoints = float(random.choice([0, 1]))
    if share == 0 and parameters is None:
        checkpoints = 1.0
    moved = OffloadSpec(optimizer=share, tier=tier, parameters=parameters, checkpoints=checkpoints)
    policy = FULL if checkpoints else {}
    return Layout(
        dp=2, zero_stage=3, micro_batch_size=int(random.choice([1, 4])), **policy, offload=moved
    )


@pytest.fixture(name="job")
def _job(make_job):
    return make_job("small-dense", "1x2:h100-sxm", 16).model_copy(update={"runtime": "deepspeed"})


def step_of(job, layout):
    """Its estimate on the machine of the job's cluster."""
    candidates = context_of(job, machine_of(job.cluster, "bf16"))
    [found] = explicit(candidates.with_table(LayoutTable.of([layout])))
    return found


def faster(host, lane):
    """A host one of whose lanes is twice as fast."""
    drives = host.drives
    if lane == "CPU":
        return host.model_copy(update={"adam_params_per_s": 2 * host.adam_params_per_s})
    name = {"drive read": "read_gb_per_s", "drive write": "write_gb_per_s"}[lane]
    speed = {name: 2 * getattr(drives, name)}
    return host.model_copy(update={"drives": drives.model_copy(update=speed)})


@pytest.mark.parametrize("seed", range(4))
def test_twice_the_speed_of_a_lane_is_worth_what_the_page_says(job, seed):
    random = np.random.default_rng(seed)
    stated = 0
    for _ in range(MACHINES // 4):
        host, layout = random_host(random), random_layout(random)
        mine = with_host(job, host)
        assert not broken_rules(mine, LayoutTable.of([layout]))[0]
        found = step_of(mine, layout)
        assert found.lower_bound_s <= found.step_time_s * (1 + 1e-12)
        for use in found.lanes:
            if use.lane not in ("CPU", "drive read", "drive write"):
                continue
            then = step_of(with_host(job, faster(host, use.lane)), layout)
            saved = found.step_time_s - then.step_time_s
            assert saved == pytest.approx(use.saved_if_twice_as_fast_s, rel=1e-6, abs=1e-9)
            assert saved >= -1e-12
            stated += saved > 0
    assert stated > MACHINES // 8


def test_the_lane_that_binds_most_is_the_first(job):
    slow = HostSpec(adam_params_per_s=1e6)
    layout = Layout(dp=2, zero_stage=3, offload=OffloadSpec(optimizer=1))
    found = step_of(with_host(job, slow), layout)
    assert found.lanes[0].lane == "CPU"
    assert found.lanes[0].binding_s == pytest.approx(found.step_time_s, rel=0.05)


@pytest.mark.parametrize("memory_gib", [1.0, 1.4, 2.5])
def test_more_of_a_host_never_makes_the_best_plan_worse(job, memory_gib):
    drive = DriveSpec(count=1, tb=1e-3, read_gb_per_s=1, write_gb_per_s=1)
    hosts = [
        HostSpec(memory_gib=0.5, drives=drive),
        HostSpec(memory_gib=8, drives=drive),
        HostSpec(memory_gib=8, drives=drive.model_copy(update={"tb": 4})),
        HostSpec(
            memory_gib=8,
            drives=DriveSpec(count=1, tb=4, read_gb_per_s=9, write_gb_per_s=9),
            adam_params_per_s=1e10,
        ),
        HostSpec(
            memory_gib=64,
            adam_params_per_s=1e11,
            drives=DriveSpec(count=4, tb=4, read_gb_per_s=9, write_gb_per_s=9),
        ),
    ]
    times = []
    for host in hosts:
        mine = with_host(job, host, memory_gib=memory_gib)
        plan = search(mine, SearchOptions(only_answer=True))
        times.append(np.inf if isinstance(plan, Infeasible) else plan.best.estimate.step_time_s)
    assert times == sorted(times, reverse=True)


def test_with_nothing_off_the_gpu_a_host_changes_no_price(job):
    table = LayoutTable.of([Layout(dp=2, zero_stage=stage) for stage in (1, 2, 3)])
    host = HostSpec(memory_gib=1, adam_params_per_s=1, drives=DriveSpec(tb=1))
    both = [
        price(context_of(one, machine_of(one.cluster, "bf16")).with_table(table))
        for one in (job, with_host(job, host))
    ]
    assert (both[0].step_seconds == both[1].step_seconds).all()
    assert (both[0].memory.used == both[1].memory.used).all()
    assert not both[0].offload.any()
    stripped = replace(both[0].traits, offloading=type(both[0].traits.offloading)())
    bare = price(replace(context_of(job, both[0].machine), traits=stripped).with_table(table))
    assert (bare.step_seconds == both[0].step_seconds).all()
    assert (bare.memory.used == both[0].memory.used).all()
