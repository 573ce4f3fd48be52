"""Exported files start: a few steps on two processes of a CPU, with the losses of one process.

Needs what each runtime needs, of torchtitan, Megatron-LM and Megatron-Bridge checkouts; a runtime
that is not installed is skipped.
"""

import os
import sys

import pytest

from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.launchers.on_cpu import CPU_STARTS
from trainplan.planner.verification.exported import exported_runs, start_exported
from trainplan.profiler.train.scripts import ScriptRuns, lacking

pytestmark = pytest.mark.runtime
SECONDS = 900.0
"""DeepSpeed compiles its optimizer when it is first used."""
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
CUT = {"tp": 2, "sequence_parallel": True}
WAVE = {"pp": 2, "vpp": 2, "schedule": "interleaved"}
CASES = {
    "megatron-lm": (FULL | CUT | {"dp": 2, "zero_stage": 1}, {"dp": 2, "zero_stage": 0},
                    {"pp": 2, "zero_stage": 0}, WAVE),
    "megatron-bridge": (CUT | {"dp": 2, "zero_stage": 1}, WAVE),
    "fsdp2": ({"dp": 2, "zero_stage": 0}, {"dp": 2, "zero_stage": 1}, {"dp": 2, "zero_stage": 2},
              CUT | FULL | {"dp": 2, "zero_stage": 3}),
    "torchtitan": ({"dp": 2, "zero_stage": 0}, {"dp": 2, "zero_stage": 2},
                   CUT | WAVE | {"dp": 2, "zero_stage": 1}, {"cp": 2, "dp": 2, "zero_stage": 3},
                   {"pp": 2, "zero_stage": 0, "schedule": "zb-h1"}),
    "deepspeed": ({"dp": 2, "zero_stage": 0}, {"dp": 2, "zero_stage": 1},
                  {"dp": 2, "zero_stage": 2}, FULL | {"tp": 2, "dp": 2, "zero_stage": 1},
                  {"dp": 2, "zero_stage": 3}),
    "accelerate": ({"dp": 2, "zero_stage": 2}, FULL | {"dp": 2, "zero_stage": 3}),
    "transformers": ({"dp": 2, "zero_stage": 0}, FULL | {"tp": 2, "dp": 2, "zero_stage": 3}),
}  # fmt: skip
STARTED = [
    pytest.param(runtime, layout, id=f"{runtime}: {layout}")
    for runtime, layouts in CASES.items()
    for layout in layouts
]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    """Checkouts import as if they were installed, or are where their launches look for them."""
    if "MEGATRON_LM_PATH" in os.environ:
        monkeypatch.setenv("MEGATRON_PATH", os.environ["MEGATRON_LM_PATH"])
    below = {"TORCHTITAN_PATH": "", "MEGATRON_BRIDGE_PATH": "/src", "MEGATRON_LM_PATH": ""}
    found = [os.environ[one] + inner for one, inner in below.items() if one in os.environ]
    monkeypatch.setattr(sys, "path", [*found, *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((*found, os.environ.get("PYTHONPATH", ""))))


@pytest.mark.parametrize(("runtime", "layout"), STARTED)
def test_losses_of_two_processes_are_those_of_one(runtime, layout, make_job):
    layout = Layout(**layout)
    job = make_job("llama3-8b", f"1x{layout.world_size}:h100-sxm")
    runs = exported_runs(job.model_copy(update={"runtime": runtime}), layout, 3, lacking)
    if runs.reference is None:
        pytest.skip(runs.not_started[0])
    assert runs.not_started == ()
    found = list(start_exported(runs, ScriptRuns(SECONDS)))
    assert len(found) == len(runs.others)
    assert [one.failure for one in found if one.failure] == []
    assert all(one.equal for one in found), [one.found for one in found]


def test_every_runtime_that_starts_here_is_tried():
    assert set(CASES) == set(CPU_STARTS)
