"""What is run of a plan and what is counted of it, by the parallelism that its runtime has."""

from dataclasses import replace

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import runtime
from trainplan.planner.verification import by_megatron as of_megatron
from trainplan.planner.verification.by_megatron import Combination, Combinations, Refuse
from trainplan.planner.verification.by_torch import torch_combinations, torch_expected
from trainplan.planner.verification.expected import Expected, expected


def of_torch(job: Job) -> bool:
    """Is the parallelism of its runtime torch's own? Others follow Megatron's."""
    return runtime(job.runtime).on_torch


def combinations(job: Job, layout: Layout, nproc: int, refuse: Refuse) -> Combinations:
    """What a plan uses, on so many processes.

    Raises:
        SpecError: The trainer cannot run the model at all.
    """
    if of_torch(job):
        return torch_combinations(job, layout, nproc, refuse)
    found = of_megatron.combinations(job, layout, nproc, refuse)
    if runtime(job.runtime).on_megatron_core:
        return found
    stands_in = f"{job.runtime}: megatron-core runs in place of its own code"
    return replace(found, not_run=(*found.not_run, stands_in))


def counted(one: Combination) -> Expected:
    """What the cost model counts of each rank.

    Source: `torch_expected` and `expected`.
    """
    return (torch_expected if of_torch(one.job) else expected)(one)
