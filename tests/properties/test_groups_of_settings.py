"""What a group of settings is bounded by holds for every member."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SMALL_MOE, random_rows
from tests.grids import examples
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layouts import legal_rows
from trainplan.costmodel.step import price
from trainplan.costmodel.step.node_bound import node_bound_seconds
from trainplan.planner.settings.combinations import combinations
from trainplan.planner.space.choices import rules_of_job
from trainplan.planner.tree.groups import Member, groups_of

ROUNDING = 1 + 1e-12
ROWS, PAIRS = 4000, 2
OPTIONS = (
    {},
    {"routing": "random"},
    {"moe_capacity_factor": 1.5, "moe_pad_to_capacity": True},
    {"dropout": True},
    {"cuda_graph": "full_iteration", "moe_capacity_factor": 1.5, "moe_pad_to_capacity": True},
)


@st.composite
def jobs(draw):
    """A few layers of experts on up to sixteen GPUs, of runtimes with settings to choose."""
    moe = SMALL_MOE.moe.model_copy(
        update={
            "num_experts": draw(st.sampled_from([4, 16, 64])),
            "num_experts_per_tok": draw(st.integers(1, 4)),
            "moe_intermediate_size": draw(st.sampled_from([256, 2048])),
            "first_k_dense_replace": draw(st.integers(0, 4)),
            "expert_bias": draw(st.booleans()),
        }
    )
    changed = {"moe": moe, **({} if draw(st.booleans()) else {"mla": None})}
    clusters = ["1x4:h100-sxm", "2x8:h100-sxm", "1x4:l40s", "2x4:gb200", "2x8:a100-sxm-80gb"]
    cluster = draw(st.sampled_from(clusters))
    return Job(
        model=SMALL_MOE.model_copy(update=changed),
        training=TrainingSpec(
            seq_length=draw(st.sampled_from([512, 4096])),
            global_batch_size=draw(st.sampled_from([16, 64])),
        ),
        cluster=parse_cluster(cluster),
        options=RuntimeOptions.model_validate(draw(st.sampled_from(OPTIONS))),
        runtime=draw(st.sampled_from(["megatron-lm", "megatron-bridge", "nemo"])),
    )


@examples(3, by_night=400)
@given(jobs(), st.sampled_from([*4 * ["safe"], "all"]), st.integers(0, 2**32 - 1))
def test_no_layout_is_bounded_higher_under_the_top_than_under_a_member(job, level, seed):
    random = np.random.default_rng(seed)
    plain = context_for(job)
    members = [
        Member(one, context_for(one.job), (*one.only, *rules_of_job(one.job)))
        for one in combinations(plain, level)
        if not one.covered
    ]
    pairs = [(group, one) for group in groups_of(members, plain) for one in group.members[1:]]
    for place in random.permutation(len(pairs))[:PAIRS].tolist():
        group, one = pairs[place]
        table = random_rows(one.job, ROWS, random)
        table = table.take(legal_rows(one.context.job, one.rules, table))
        if not len(table):
            continue
        both = [each.context for each in (group.members[0], one)]
        top, own = (price(context.with_table(table)) for context in both)
        assert (top.step_seconds <= own.step_seconds * ROUNDING).all()
        assert (top.memory.used <= own.memory.used * ROUNDING).all()
        assert (node_bound_seconds(top) <= node_bound_seconds(own) * ROUNDING).all()
        for rule in group.rules:
            assert not rule.broken(group.members[0].job, table).any()
