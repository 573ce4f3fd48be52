"""Orders of passes, op by op, against those of torch.distributed.pipelining."""

import re

import numpy as np
import pytest

from tests.actions import actions_makespan
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.program.ops import Shape
from trainplan.costmodel.schedules import program_for
from trainplan.costmodel.timeline.clock import StageSeconds, run
from trainplan.planner.runtimes.torch_schedule_csv import schedule_csv

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

pytestmark = pytest.mark.oracle
SINGLE = {"gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B}
LOOPED = {
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "breadth-first": schedules.ScheduleLoopedBFS,
    "zb-h1": schedules.ScheduleInterleavedZeroBubble,
}
V_SHAPED = {
    "zb-v": schedules.ScheduleZBVZeroBubble,
    "dualpipe-v": schedules.ScheduleDualPipeV,
}
PASS = re.compile(r"\d+[FIWB]\d+")
PIPELINES = [2, 3, 4, 5, 6, 7, 8, 16]


@pytest.fixture(autouse=True)
def _without_messages(monkeypatch):
    """Orders are compared as they are before torch adds messages to them, which takes long."""
    runtime = schedules._PipelineScheduleRuntime
    monkeypatch.setattr(runtime, "_prepare_schedule_with_comms", lambda *_: None, raising=False)


class Stage:
    """What a schedule asks of a stage to lay out the order of all ranks."""

    is_first = is_last = has_backward = False
    submod = torch.nn.Identity()
    device = torch.device("cpu")
    group = None

    def __init__(self, pp, chunk, vpp):
        self.group_size, self.group_rank = pp, 0
        self.num_stages, self.stage_index = pp * vpp, chunk * pp
        self.stage_index_to_group_rank = {}


def torch_order(kind, pp, vpp, num_microbatches):
    """Ops of every rank as torch writes them."""
    stages = [Stage(pp, chunk, vpp) for chunk in range(vpp)]
    single = issubclass(kind, schedules.PipelineScheduleSingle)
    made = kind(stages[0] if single else stages, num_microbatches)
    return [
        [text for action in made.pipeline_order[rank] if action for text in written(action)]
        for rank in range(pp)
    ]


def written(action):
    """What is no pass is nothing."""
    return [str(action)] if action.sub_actions or PASS.fullmatch(str(action)) else []


def our_order(name, shape):
    return [row.split(",") for row in schedule_csv(program_for(name, shape)).splitlines()]


def from_zero(ops):
    """The ops with forward passes from micro batch 0: 1F1B's listing starts its last rank at 1."""
    forward = [op for op in ops if "F" in op]
    number = {op: re.sub(r"F.*", f"F{i}", op) for i, op in enumerate(forward)}
    return [number.get(op, op) for op in ops]


def sizes(pp):
    return {pp, 2 * pp - 1, 2 * pp, 3 * pp, 8 * pp}


@pytest.mark.parametrize("pp", PIPELINES)
@pytest.mark.parametrize("name", SINGLE)
def test_one_stage_a_rank_runs_in_the_order_of_torch(name, pp):
    for m in sizes(pp):
        ours, theirs = our_order(name, Shape(pp, 1, m)), torch_order(SINGLE[name], pp, 1, m)
        if name == "1f1b":
            theirs[-1] = from_zero(theirs[-1])
        assert ours == theirs, m


@pytest.mark.parametrize("pp", PIPELINES)
@pytest.mark.parametrize("name", LOOPED)
def test_looped_stages_run_in_the_order_of_torch(name, pp):
    for vpp in (2, 3, 4) if name != "zb-h1" else (1, 2, 3, 4):
        for m in sizes(pp):
            shape = Shape(pp, vpp, m)
            assert our_order(name, shape) == torch_order(LOOPED[name], pp, vpp, m), shape


@pytest.mark.parametrize("pp", PIPELINES)
@pytest.mark.parametrize("name", V_SHAPED)
def test_stages_on_a_v_run_in_the_order_of_torch(name, pp):
    for m in sizes(pp) - ({pp, 2 * pp - 1} if name == "dualpipe-v" else set()):
        assert our_order(name, Shape(pp, 2, m)) == torch_order(V_SHAPED[name], pp, 2, m), m


@pytest.mark.parametrize("pp", [2, 4, 5])
@pytest.mark.parametrize("name", LOOPED | V_SHAPED)
def test_steps_take_as_long_as_the_actions_of_torch(name, pp):
    kind, shape = (LOOPED | V_SHAPED)[name], Shape(pp, 2, 4 * pp)
    random = np.random.default_rng(pp)
    forward, backward, weight = random.integers(1, 9, (3, 1, 2 * pp)).astype(float)
    for p2p in (0.0, 3.0):
        seconds = StageSeconds(forward, backward + weight, weight)
        found = run(program_for(name, shape), seconds, p2p).makespan
        rows = torch_order(kind, *shape[:3])
        assert found == actions_makespan(rows, (forward[0], backward[0], weight[0]), p2p)


@pytest.mark.parametrize(
    ("name", "kind", "pp", "vpp", "m"),
    [
        ("interleaved", schedules.ScheduleInterleaved1F1B, 4, 2, 9),
        ("zb-h1", schedules.ScheduleInterleavedZeroBubble, 4, 2, 9),
        ("dualpipe-v", schedules.ScheduleDualPipeV, 4, 2, 7),
    ],
)
def test_torch_refuses_the_steps_we_refuse(name, kind, pp, vpp, m):
    with pytest.raises(ValueError, match="microbatches"):
        torch_order(kind, pp, vpp, m)
    with pytest.raises(SpecError, match="num_microbatches"):
        program_for(name, Shape(pp, vpp, m))
