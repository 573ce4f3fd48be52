"""Every bound of the search against what it bounds."""

import numpy as np
import pytest

from tests.fractions import every_fraction
from tests.grids import number
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes import runtime
from trainplan.costmodel.step import price
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.space import Space, rules_of_job
from trainplan.planner.space.grid import RuleFilter, memory_policies, nodes, skeletons

pytestmark = pytest.mark.usefixtures("quarters")

JOBS = [
    ("llama3-8b", "2x8:h100-sxm", 64, 4096),
    ("llama3.1-405b", "32x8:h100-sxm", 64, 4096),
    ("deepseek-v3", "64x8:h100-sxm", 512, 4096),
    ("small-moe", "2x4:a100-sxm-40gb", 24, 2048),
    ("gpt3-175b", "16x8:a100-sxm-80gb", 96, 2048),
]


@pytest.mark.parametrize(
    "case",
    [
        *((*job, "megatron-lm") for job in JOBS),
        ("llama3-8b", "2x8:h100-sxm", 64, 4096, "torchtitan"),
        ("deepseek-v3", "4x8:h100-sxm", 64, 4096, "torchtitan"),
        ("small-moe", "2x4:a100-sxm-40gb", 24, 2048, "megatron-zero-bubble"),
        ("llama3-8b", "1x8:h100-sxm", 8, 1 << 17, "deepspeed"),
    ],
)
def test_node_skeleton_layout_and_simulation_bound_each_other(make_job, case):
    model, cluster, batch, sequence, name = case
    job = make_job(model, cluster, batch, sequence).model_copy(update={"runtime": name})
    machine, traits = machine_of(job.cluster, "bf16"), runtime(name)
    space, rule_filter = Space(context_for(job)), RuleFilter(job, rules_of_job(job))
    random = np.random.default_rng(7)
    roots = nodes(space, rule_filter).table
    for node in random.choice(len(roots), number(10, by_night=40)):
        root = roots.take(np.array([node]))
        node_bound = node_bound_seconds(Candidates(job, machine, traits, root))[0]
        below = skeletons(space, rule_filter, root).table
        if not len(below):
            continue
        skeleton = below.take(random.choice(len(below), 1))
        lean = price(Candidates(job, machine, traits, skeleton))
        assert node_bound <= lean.step_seconds[0] * (1 + 1e-12)
        layouts, _ = memory_policies(space, skeleton)
        some = layouts.take(random.choice(len(layouts), 6))
        some = some.replaced(
            offload_optimizer=random.choice(every_fraction(space.traits), 6)
            * (some.zero_stage == 1)
        )
        priced = price(Candidates(job, machine, traits, some))
        assert (lean.step_seconds[0] <= priced.step_seconds * (1 + 1e-12)).all()
        assert (
            lean.memory.least_used((skeleton.zero_stage == 1) * 1.0)[0]
            <= priced.memory.used * (1 + 1e-12)
        ).all()
        simulated = step_seconds(Candidates(job, machine, traits, some))
        assert (priced.step_seconds <= simulated * (1 + 1e-9)).all()
