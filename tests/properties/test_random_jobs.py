"""Random small jobs: the search against brute force, and what bounds rest on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fractions import with_every_fraction
from tests.grids import EXACT, examples
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import Space, parse_choice, rules_of_job
from trainplan.planner.space.grid import RuleFilter, memory_policies, nodes, skeletons

pytestmark = pytest.mark.usefixtures("quarters")


ROUTINGS = [
    RuntimeOptions.model_validate(one)
    for one in (
        {},
        {"routing": "random"},
        {"routing": "zipf:1.5"},
        {"routing": "random", "moe_capacity_factor": 1.1},
        {"moe_capacity_factor": 1.5, "moe_pad_to_capacity": True},
    )
]
ROUNDING = 1 + 1e-9
HIDDEN_MORE = 1.01
"""A step may be so much longer than one that recomputes more and hides more traffic by it."""


@st.composite
def jobs(draw):
    """A few layers, some of them experts, on four or eight GPUs."""
    layers, heads = draw(st.integers(1, 6)), 16
    hidden = draw(st.sampled_from([1024, 4096]))
    moe = None
    if draw(st.booleans()):
        moe = MoeSpec(
            num_experts=draw(st.sampled_from([4, 8])),
            num_experts_per_tok=2,
            moe_intermediate_size=draw(st.sampled_from([1024, 4096])),
            first_k_dense_replace=draw(st.integers(0, layers)),
        )
    model = ModelSpec(
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=draw(st.sampled_from([1024, 4 * hidden])),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        vocab_size=draw(st.sampled_from([32_000, 256_000])),
        max_position_embeddings=8192,
        moe=moe,
    )
    training = TrainingSpec(
        seq_length=draw(st.sampled_from([512, 2048])),
        global_batch_size=draw(st.sampled_from([4, 8, 16])),
    )
    cluster = parse_cluster(
        draw(st.sampled_from(["1x4:h100-sxm", "1x4:l40s", "2x2:a100-sxm-80gb"]))
    )
    options = draw(st.sampled_from(ROUTINGS)) if moe else RuntimeOptions()
    return Job(model=model, training=training, cluster=cluster, options=options)


def all_layouts(job):
    """Every legal layout, and the number of its skeleton."""
    space, rules = Space(context_for(job)), rules_of_job(job)
    rule_filter = RuleFilter(job, rules)
    below = skeletons(space, rule_filter, nodes(space, rule_filter).table).table
    table, owner = memory_policies(space, below)
    whole = with_every_fraction(space.traits, table)
    legal = np.ones(len(whole), dtype=bool)
    for rule in rules:
        legal &= ~rule.broken(job, whole)
    return below, whole.take(legal), np.tile(owner, len(whole) // len(table))[legal]


@examples(5, by_night=50)
@given(jobs(), st.sampled_from([0.02, 0.3, 0.9]))
def test_the_search_agrees_with_brute_force(job, share):
    machine = machine_of(job.cluster, "bf16")
    _, table, _ = all_layouts(job)
    priced = price(Candidates(job, machine, traits_of(job), table))
    usable = 1 - SearchOptions().margin(job)
    gib = float(np.quantile(priced.memory.used, share)) * (1 + 1e-9) / usable / 2**30
    group = job.cluster.groups[0].model_copy(update={"memory_gib": gib})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    machine = machine_of(job.cluster, "bf16")
    even = parse_choice("stages=even", excluded=False)
    best = search(
        job, SearchOptions(**EXACT, top=1, fix=(even,), search_options="none")
    ).best.estimate.step_time_s
    fits = priced.memory.used <= machine.memory_bytes * (1 - SearchOptions().margin(job))
    rivals = np.flatnonzero(fits & (priced.step_seconds <= best * ROUNDING))
    rivals = rivals[np.argsort(priced.step_seconds[rivals])][:2000]
    fastest = step_seconds(Candidates(job, machine, traits_of(job), table.take(rivals))).min()
    assert best == pytest.approx(fastest, rel=1e-9)


@examples(8, by_night=50)
@given(jobs(), st.integers(0, 2**32 - 1))
def test_recomputation_and_offload_only_add_time(job, seed):
    """To the bound of every layout, and to the step of those whose replicas have nothing to tell.

    Longer passes hide more of the traffic of gradients, and a rank that waited anyway ends no
    later: such a step can be shorter by that, never by as much as a hundredth here.
    """
    machine, random = machine_of(job.cluster, "bf16"), np.random.default_rng(seed)
    below, table, owner = all_layouts(job)
    some = random.choice(len(table), min(len(table), 400), replace=False)
    layouts, plain = table.take(some), below.take(owner[some])
    experts = layouts.tp * layouts.cp * layouts.dp // (layouts.ep * layouts.etp)
    silent = (layouts.cp * layouts.dp == 1) & ((experts == 1) | (job.model.moe is None))
    for seconds, less in ((price_seconds, ROUNDING), (step_seconds, HIDDEN_MORE)):
        added = seconds(Candidates(job, machine, traits_of(job), layouts))
        base = seconds(Candidates(job, machine, traits_of(job), plain))
        may_be = added * np.where(silent, ROUNDING, less)
        assert (base <= may_be).all(), layouts.row(int(np.argmax(base / may_be)))


def price_seconds(candidates):
    """The bound of every row."""
    return price(candidates).step_seconds
