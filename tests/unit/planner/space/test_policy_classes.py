"""Classes of recomputation that are asked together say what each says alone."""

import numpy as np
import pytest

from trainplan.costmodel.calibration.machine import context_for
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.rules import rule
from trainplan.costmodel.layouts.table import FULL, SELECTIVE, LayoutTable
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.planner.space import Space
from trainplan.planner.tree import class_extremes, classes_with_policies

SKELETONS = LayoutTable.of(
    [
        Layout(tp=tp, pp=pp, dp=8 // (tp * pp), zero_stage=zero, sequence_parallel=tp > 1)
        for tp in (1, 2)
        for pp in (1, 2)
        for zero in (0, 1)
    ]
)


@rule("recompute tp", "two tensor ranks recompute no whole layers", "a test")
def none_whole_on_two_tensor_ranks(job, table):
    return (table.recompute == FULL) & (table.tp == 2)


@rule("recompute zero_stage recompute_num_layers", "a test", "a test")
def some_recomputed_without_shards(job, table):
    few = (table.recompute_num_layers < 2) & (table.recompute == FULL)
    return (table.zero_stage == 0) & (few | (table.recompute == SELECTIVE))


@rule("offload_optimizer tp recompute", "a test", "a test")
def of_another_policy(job, table):
    return np.ones(len(table), dtype=bool)


OWN = (none_whole_on_two_tensor_ranks, some_recomputed_without_shards)


@pytest.mark.parametrize("runtime", ["megatron-lm", "torchtitan", "megatron-deepspeed"])
@pytest.mark.parametrize("rules", [(), OWN[:1], OWN[1:], OWN], ids=["own", "tp", "zero", "both"])
def test_asking_classes_together_is_asking_each_alone(make_job, runtime, rules):
    job = make_job("small-dense", "1x8:h100-sxm", 64).model_copy(update={"runtime": runtime})
    space = Space(context_for(job))
    every = (*traits_of(job).rules, *rules)
    classes = class_extremes(space, SKELETONS)[1]

    def held(rows, rules=every):
        return classes_with_policies(
            space, rows, rules, lambda table: np.ones(len(table), dtype=bool)
        ).tolist()

    together = held(classes)
    assert together == [held(classes.take(np.array([i])))[0] for i in range(len(classes))]
    assert any(together)
    assert held(classes, (*every, of_another_policy)) == together
    if none_whole_on_two_tensor_ranks in rules:
        whole = (classes.recompute == FULL) & (classes.tp == 2)
        assert not np.array(together)[whole].any()


def test_a_class_of_which_nothing_is_allowed_is_none(make_job):
    space = Space(context_for(make_job("small-dense", "1x8:h100-sxm", 64)))
    classes = class_extremes(space, SKELETONS)[1]
    found = classes_with_policies(space, classes, (), lambda table: table.recompute != FULL)
    assert found.tolist() == (classes.recompute != FULL).tolist()
