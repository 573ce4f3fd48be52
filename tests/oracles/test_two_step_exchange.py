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


@pytest.mark.parametrize(("node", "nodes"), [(2, 3), (4, 2)])
def test_two_steps_send_as_much_between_nodes_in_fewer_messages(node, nodes):
    program, ranks = Path(__file__).parent / "two_step_exchange.py", node * nodes
    run = ("torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone", str(program))
    words = [sys.executable, "-m", *run, str(node), "3"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    job = Job(
        model=preset("mixtral-8x7b"),
        training=TrainingSpec(seq_length=4096, global_batch_size=64),
        cluster=parse_cluster(f"{nodes}x{node}:h100-sxm"),
    )
    links = group(machine_for(job), np.array([ranks]), np.array([1]))
    leaving = float(1 - links.inside[0] / links.size[0])
    inside = float(bus_factor("alltoall", links.inside)[0])
    whole = float(bus_factor("alltoall", links.size)[0])
    for one in found:
        flat, steps, sent = one["flat"], one["steps"], one["bytes"]
        assert one["agree"]
        assert flat["others bytes"] == steps["others bytes"] == pytest.approx(leaving * sent)
        assert flat["node bytes"] == pytest.approx((whole - leaving) * sent)
        assert steps["node bytes"] == pytest.approx(inside * sent)
        assert flat["others messages"] == ranks - node
        assert steps["others messages"] == links.nodes[0] - 1
        assert one["copied"] == STRIDED_COPIES * sent
