"""Exported modules of plain PyTorch train as their decoder does whole in one process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainplan.costmodel.spec import Job, Layout, ModelSpec, TrainingSpec
from trainplan.costmodel.spec.cluster import parse_cluster
from trainplan.costmodel.spec.model import RopeScaling
from trainplan.planner.exporters import EXPORTERS

pytest.importorskip("torch", "2.13", reason="running a module needs torch: run `make oracles`")

pytestmark = pytest.mark.oracle
DRIVE = Path(__file__).with_name("fsdp2_drive.py")
TINY = ModelSpec(
    num_hidden_layers=2,
    hidden_size=32,
    intermediate_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=64,
    max_position_embeddings=64,
)
STRETCHED = RopeScaling(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
TIED = TINY.model_copy(update={"tie_word_embeddings": True, "rope_scaling": STRETCHED})
BLOCK = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 1}
CASES = {
    "replicas": (TINY, {"dp": 2, "zero_stage": 0}),
    "zero1": (TINY, {"dp": 2, "zero_stage": 1}),
    "zero2": (TINY, {"dp": 2, "zero_stage": 2, "micro_batch_size": 2}),
    "zero3": (TIED, {"dp": 2, "zero_stage": 3, **BLOCK}),
    "tensor": (TINY, {"tp": 2, "zero_stage": 1}),
    "sequence": (TIED, {"tp": 2, "zero_stage": 3, "sequence_parallel": True, **BLOCK}),
}
STEP = re.compile(r"(step|whole) \d+: loss ([\d.]+), gradient norm ([\d.]+),")


def module_text(model, layout):
    """Of two ranks and eight sequences a step."""
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=32, global_batch_size=8, precision="fp32"),
        cluster=parse_cluster("1x2:h100-sxm"),
        runtime="fsdp2",
    )
    return EXPORTERS["fsdp2"](job, Layout(**layout)).files[0].text


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What every module says of its steps, and what its decoder says whole."""
    folder = tmp_path_factory.mktemp("modules")
    for name, (model, layout) in CASES.items():
        (folder / f"{name}.py").write_text(module_text(model, layout), encoding="utf-8")
    start = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    done = subprocess.run(
        [*start, DRIVE, *CASES],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    blocks = re.split(r"^module (\w+)$", done.stdout, flags=re.M)[1:]
    return dict(zip(blocks[::2], map(STEP.findall, blocks[1::2]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_one_process(name, told):
    figures = {kind: [] for kind in ("step", "whole")}
    for kind, *numbers in told[name]:
        figures[kind] += map(float, numbers)
    assert len(figures["step"]) == 4
    assert figures["step"] == pytest.approx(figures["whole"], rel=1e-4)
