"""What DeepSpeed's own ZeRO-3 sends and keeps under ZeRO++, on two nodes of two CPU processes.

Needs DeepSpeed, with torch: without one the tests are skipped.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.traffic.zero_plus_plus import engine_sent_bytes
from trainplan.planner.runtimes.deepspeed.write import engine_keys

pytestmark = pytest.mark.runtime
RANKS, NODE = 4, 2
GROUPS = {
    ("dp", "all_gather"): "all_gather_into_tensor 0,1,2,3",
    ("hpz", "all_gather"): "all_gather_into_tensor 0,1",
    ("dp", "reduce_scatter"): "reduce_scatter_tensor 0,1,2,3",
    ("dp in nodes", "all_to_all"): "all_to_all_single 0,1",
    ("dp of nodes", "all_to_all"): "all_to_all_single 0,2",
}
"""Group and operation of ours, and what rank 0 calls with which ranks."""
CASES = (
    (1, 2, {}),
    (2, 1, {}),
    (2, 3, {}),
    (1, 2, {"weight_bits": 8}),
    (2, 2, {"weight_bits": 8, "gradient_bits": 4}),
)


def counted(section, steps):
    program = Path(__file__).parent / "zero_plus_plus_bytes.py"
    run = ("torch.distributed.run", f"--nproc-per-node={RANKS}", "--standalone", str(program))
    words = [sys.executable, "-m", *run, json.dumps(section), str(steps), str(NODE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


@pytest.mark.parametrize(("hpz", "steps", "options"), CASES)
def test_bytes_of_a_step_are_those_of_the_formula(hpz, steps, options, make_job):
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed")
    job = make_job("small-dense", f"{RANKS // NODE}x{NODE}:h100-sxm", RANKS * steps)
    changed = {"runtime": "deepspeed", "options": RuntimeOptions(**options)}
    job, layout = job.model_copy(update=changed), Layout(dp=RANKS, zero_stage=3, hpz=hpz)
    on = context_of(job, machine_of(job.cluster, job.training.precision))
    keys = {str(key): value for key, value in engine_keys(job, layout, on.traits).items()}
    section = {
        key.partition(".")[2]: value
        for key, value in keys.items()
        if key.startswith(("zero_optimization.zero_hpz", "zero_optimization.zero_quantized"))
        and value is not None
    }
    found = counted(section, steps)
    expected = engine_sent_bytes(on, layout, found["params"])
    assert found["kept"] == (2 * found["params"] / hpz if hpz > 1 else 0)
    assert found["left"] == 0
    assert found["sent"] == {GROUPS[name]: count for name, count in expected.items()}
