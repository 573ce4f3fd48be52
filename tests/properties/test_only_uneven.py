"""`--exclude stages=even` against all layouts with all splits but the even ones."""

import numpy as np
import pytest

from tests.budgets import Steps
from tests.properties.every_split import chunks_alike, every_layout_and_split
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.goals.after_even import OnlyUneven
from trainplan.planner.goals.uneven import all_splits
from trainplan.planner.space import parse_choice
from trainplan.planner.space.choices import rules_of_grid, rules_of_job
from trainplan.planner.stages.contexts import SplitContext

pytestmark = pytest.mark.usefixtures("quarters")

CASES = {
    "dense": ("small-dense", 4, "1x4:l4", "megatron-lm", ("pp=2", "cp=1")),
    "seeing": ("small-seeing", 5, "1x4:h100-sxm", "megatron-lm", ("pp=2", "cp=1", "tp=1")),
    "interleaved": ("small-dense", 6, "1x4:h100-sxm", "megatron-lm", ("pp=2", "vpp=3", "tp=1")),
    "moe": ("small-moe", 5, "1x4:l4", "torchtitan", ("pp=2", "micro_batch_size=1", "ep=2", "tp=1")),
}
SHARES = (0.1, 1.0)
"""Of all layouts and splits, those that need no more memory than there is."""


def is_even(stages):
    counts = tuple(stage.layers for stage in stages)
    return counts == layers_per_stage(sum(counts), len(counts))


@pytest.mark.parametrize("case", CASES)
def test_the_best_split_that_is_not_even_is_found(make_job, case):
    name, layers, cluster, runtime, fixed = CASES[case]
    job = make_job(name, cluster, 8).model_copy(update={"runtime": runtime})
    shape = {"num_hidden_layers": layers}
    if runtime == "torchtitan":  # which does not pipeline predictions
        shape["num_nextn_predict_layers"] = 0
    job = job.model_copy(update={"model": job.model.model_copy(update=shape)})
    machine, traits = machine_of(job.cluster, job.training.precision), traits_of(job)
    choices = [parse_choice(text, excluded=False) for text in fixed]
    even = parse_choice("stages=even", excluded=True)
    rules = [*rules_of_grid([*choices, even]), *rules_of_job(job)]
    table = every_layout_and_split(job, rules)
    table = table.take(~np.array([is_even(stages) for stages in table.stages]))
    used = price(Candidates(job, machine, traits, table), merged=False).memory.used
    seconds, alike = step_seconds(Candidates(job, machine, traits, table)), chunks_alike(job, table)
    for share in SHARES:
        memory = float(np.quantile(used, share, method="lower"))
        of = SplitContext(job, machine, traits, memory)
        found = all_splits(OnlyUneven(of, rules, np.inf, Steps()), Steps())
        best = seconds[used <= memory].min()
        assert found.any_split_lower_bound_s <= best * (1 + 1e-9)
        assert best <= found.step_time_s * (1 + 1e-9)
        assert found.step_time_s <= seconds[(used <= memory) & alike].min() * (1 + 1e-9)
        assert found.lower_bound_s == found.step_time_s
        assert not is_even(found.table.stages[0])
