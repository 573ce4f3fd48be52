"""Launches of Megatron-LM that its own code has judged: the same verdict, for the same cause."""

import json
from pathlib import Path

import pytest

from tests.launches import launch
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_lm.write import COMMIT

HEAD, *CASES = map(
    json.loads, Path(__file__).with_name("megatron_launches.jsonl").read_text("utf-8").splitlines()
)
GPUS = {8: "a100-sxm-80gb", 9: "h100-sxm", 10: "b200"}


@pytest.fixture(scope="module")
def readings():
    return {case["name"]: read(case) for case in CASES}


def read(case):
    world, gpu = case["world_size"], GPUS[case.get("architecture", 9)]
    nodes, gpus = (world // 8, 8) if world % 8 == 0 else (1, world)
    cluster = parse_cluster(f"{nodes}x{gpus}:{gpu}")
    return MEGATRON_LM.read(
        launch(case["flags"], case.get("environment")), Request(cluster=cluster, strict=True)
    )


def test_they_were_judged_by_the_release_that_is_written_for():
    assert HEAD["commit"] == COMMIT
    assert len([case for case in CASES if "cause" in case or case["verdict"] == "legal"]) >= 70


def test_the_verdict_is_the_runtimes(readings):
    """Measured: 159 of 159."""
    wrong = [c["name"] for c in CASES if readings[c["name"]].legal != (c["verdict"] == "legal")]
    assert len(wrong) <= len(CASES) * 2 // 70, wrong


def test_the_first_cause_is_the_runtimes(readings):
    """Measured: 62 of 62."""
    illegal = [case for case in CASES if "cause" in case]
    wrong = [c["name"] for c in illegal if first_cause(readings[c["name"]]) != c["cause"]]
    assert len(wrong) <= len(illegal) // 10, wrong


def first_cause(reading):
    return next((one.cause for one in reading.problems if one.verdict == "illegal"), None)


def test_every_legal_launch_is_a_job_and_a_layout(readings):
    legal = [readings[case["name"]] for case in CASES if case["verdict"] == "legal"]
    assert all(reading.job and reading.layout for reading in legal)
    assert all(r.layout.world_size == r.job.cluster.num_gpus for r in legal)
