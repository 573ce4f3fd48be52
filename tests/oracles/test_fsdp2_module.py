"""Exported modules of plain PyTorch train as their decoder does whole in one process."""

import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from trainplan.costmodel.architecture.model import ModelSpec, RopeScaling
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.runtimes import EXPORTERS

torch = pytest.importorskip(
    "torch", "2.13", reason="running a module needs torch: run `make oracles`"
)

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
    "zero2": (TINY, {"dp": 2, "zero_stage": 2}),
    "zero3": (TIED, {"dp": 2, "zero_stage": 3, **BLOCK}),
    "tensor": (TINY, {"tp": 2, "zero_stage": 1, "micro_batch_size": 2}),
    "sequence": (TIED, {"tp": 2, "zero_stage": 3, "sequence_parallel": True, **BLOCK}),
    "zero1": (TINY, {"dp": 2, "zero_stage": 1}),
}
OWN = """\
import torch


def tokens(replica, replicas):
    print(f"replica {replica} of {replicas}", flush=True)
    while True:
        yield torch.full((1, 33), replica)
"""
STEP = re.compile(r"(step|whole) \d+: loss ([\d.]+), gradient norm ([\d.]+),")


def module_text(model, layout):
    """Of two ranks and four sequences a step."""
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=32, global_batch_size=4, precision="fp32"),
        cluster=parse_cluster("1x2:h100-sxm"),
        runtime="fsdp2",
    )
    return EXPORTERS["fsdp2"](job, Layout(**layout)).files[0].text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Holds all modules, and data of one's own."""
    made = tmp_path_factory.mktemp("modules")
    for name, (model, layout) in CASES.items():
        (made / f"{name}.py").write_text(module_text(model, layout), encoding="utf-8")
    (made / "own.py").write_text(OWN, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def stated(folder):
    """What every module says of its steps, and what its decoder says whole; and on own data."""
    done = subprocess.run(
        [sys.executable, DRIVE, *CASES],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    blocks = re.split(r"^module (\w+)$", done.stdout, flags=re.M)[1:]
    return dict(zip(blocks[::2], blocks[1::2], strict=True))


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_one_process(name, stated):
    figures = {kind: [] for kind in ("step", "whole")}
    for kind, *numbers in STEP.findall(stated[name]):
        figures[kind] += map(float, numbers)
    assert len(figures["step"]) == 4
    assert figures["step"] == pytest.approx(figures["whole"], rel=1e-4)


def test_a_module_trains_on_data_of_ones_own(stated):
    own = stated["own"]
    assert all(f"replica {rank} of 2" in own for rank in (0, 1))  # lines of ranks may mix
    losses = [float(loss) for _, loss, _ in STEP.findall(own)]
    assert losses[1] < losses[0]


def test_long_wavelengths_are_stretched(folder):
    """Source: arXiv:2407.21783, section 3.4.1; meta-llama llama-models, apply_scaling."""
    scaling, length = STRETCHED, STRETCHED.original_max_position_embeddings
    expected = []
    for pair in range(TINY.head_dim // 2):
        rate = TINY.rope_theta ** (-2 * pair / TINY.head_dim)
        turns = length * rate / (2 * math.pi)
        if turns < scaling.low_freq_factor:
            rate /= scaling.factor
        elif turns < scaling.high_freq_factor:
            share = (turns - scaling.low_freq_factor) / (
                scaling.high_freq_factor - scaling.low_freq_factor
            )
            rate *= share + (1 - share) / scaling.factor
        expected.append(rate)
    assert expected[0] not in (1.0, 1 / scaling.factor)
    assert expected[-1] == pytest.approx(TINY.rope_theta**-0.75 / scaling.factor)
    table = runpy.run_path(str(folder / "zero3.py"))["rotation"](torch.device("cpu"))
    assert table[1, 1, : len(expected)].tolist() == pytest.approx([math.sin(r) for r in expected])
