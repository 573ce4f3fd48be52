"""Bytes and messages of an exchange in one step and in two: gloo against the formula."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainplan.costmodel.blocks.feed_forward.exchange import STRIDED_COPIES
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.comm import bus_factor, group
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.presets.presets import preset

pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
pytestmark = pytest.mark.oracle


RANKS, NODES = 6, (2, 3)
"""Processes, and how many of them are a node."""


@pytest.fixture(scope="module", name="sent")
def _sent():
    """By ranks of a node, what each rank sent in both ways."""
    program = Path(__file__).parent / "two_step_exchange.py"
    words = [sys.executable, str(program), str(RANKS), "3", *map(str, NODES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = (line for line in done.stdout.splitlines() if line.startswith("["))
    return dict(zip(NODES, map(json.loads, lines), strict=True))


@pytest.mark.parametrize("node", NODES)
def test_two_steps_send_as_much_between_nodes_in_fewer_messages(node, sent):
    nodes = RANKS // node
    job = Job(
        model=preset("mixtral-8x7b"),
        training=TrainingSpec(seq_length=4096, global_batch_size=64),
        cluster=parse_cluster(f"{nodes}x{node}:h100-sxm"),
    )
    links = group(machine_for(job), np.array([RANKS]), np.array([1]))
    leaving = float(1 - links.inside[0] / links.size[0])
    inside = float(bus_factor("alltoall", links.inside)[0])
    whole = float(bus_factor("alltoall", links.size)[0])
    assert len(sent[node]) == RANKS
    for one in sent[node]:
        flat, steps, size = one["flat"], one["steps"], one["bytes"]
        assert one["agree"]
        assert flat["others bytes"] == steps["others bytes"] == pytest.approx(leaving * size)
        assert flat["node bytes"] == pytest.approx((whole - leaving) * size)
        assert steps["node bytes"] == pytest.approx(inside * size)
        assert flat["others messages"] == RANKS - node
        assert steps["others messages"] == links.nodes[0] - 1
        assert one["copied"] == STRIDED_COPIES * size
