"""`plan verify` of a plan of torch's own parallelism, with ranks that see what is counted."""

import json

import pytest

from tests.e2e.command import TINY, plan, with_value
from trainplan.cli.commands import verify
from trainplan.planner.verification.by_megatron import Combination
from trainplan.planner.verification.by_torch import torch_expected
from trainplan.profiler.train.request import RankReport, Sent


class Stated:
    """Ranks that see what the cost model counts, and of one degree a byte more."""

    def __init__(self, trainer):
        self.trainer = trainer

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def run(self, request, nproc, deadline_seconds):
        counted = torch_expected(Combination(request.job, request.layout))
        more = request.trainer != "torch" or request.layout.cp > 1
        return [
            RankReport(
                rank=rank,
                losses=(1.0,) * request.steps,
                grad_norms=(1.0,) * request.steps,
                num_parameters=counted.parameters[rank],
                sent=tuple(
                    Sent(group=group, operation=operation, calls=1, bytes=count + more)
                    for (group, operation), count in counted.sent[rank].items()
                ),
                saved_bytes=round(counted.saved_bytes[rank]),
            )
            for rank in range(nproc)
        ]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    job = with_value(with_value(TINY, "--model", "llama3.2-1b"), "--cluster", "1x8:h100-sxm")
    fixed = (
        "--fix",
        "cp=2",
        "--fix",
        "tp=2",
        "--fix",
        "sequence_parallel=true",
        "--fix",
        "zero_stage=3",
        "--fix",
        "recompute=none",
    )
    found = plan("search", *job, "--runtime", "torchtitan", *fixed, "--top", "1", "--output", path)
    assert found.code == 0, found
    return path


def test_a_plan_of_torchtitan_is_trained_by_torch_and_every_byte_counts(plan_file, monkeypatch):
    monkeypatch.setattr(verify, "Trainers", Stated)
    found = plan("verify", plan_file, "--nproc", "2", "--json")
    assert found.code == verify.UNEQUAL == 3  # no bug, no bad input
    ended = json.loads(found.out.splitlines()[-1])
    assert {one["name"]: one["equal"] for one in ended["combinations"]} == {
        "tp 2 SP": True,
        "cp 2 · ZeRO-3": False,
        "dp 2 · ZeRO-3": True,
    }
    assert not ended["equal"]
