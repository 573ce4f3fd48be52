"""What is run of a plan and what is counted of it, by the parallelism that its runtime has."""

from __future__ import annotations

from trainplan.costmodel.runtimes import runtime
from trainplan.costmodel.runtimes.fsdp import shards_with_fsdp2
from trainplan.costmodel.spec import Job, Layout
from trainplan.planner.questions.verify import combinations as of_megatron
from trainplan.planner.questions.verify.by_torch import torch_combinations, torch_expected
from trainplan.planner.questions.verify.combinations import Combination, Combinations, Refuse
from trainplan.planner.questions.verify.expected import Expected, expected


def combinations(job: Job, layout: Layout, nproc: int, refuse: Refuse) -> Combinations:
    """What a plan uses, on so many processes.

    Raises:
        SpecError: The trainer cannot run the model at all.
    """
    if shards_with_fsdp2(runtime(job.runtime)):
        return torch_combinations(job, layout, nproc, refuse)
    return of_megatron.combinations(job, layout, nproc, refuse)


def counted(one: Combination) -> Expected:
    """What the cost model counts of each rank.

    Source: `torch_expected` and `expected`.
    """
    return (torch_expected if shards_with_fsdp2(runtime(one.job.runtime)) else expected)(one)
