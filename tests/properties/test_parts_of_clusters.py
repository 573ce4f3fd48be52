"""No answer is worse than that of the same question on a part of the cluster."""

import numpy as np
import pytest

from tests.grids import number
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.hardware.cluster import BetweenGroups, ClusterSpec, NicSpec, NodeGroup
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.space import parse_choice

CLUSTERS = number(20, by_night=400)
GROUPS = ([1, 1, 1, 2], [1, 2, 2, 3])[number(0, by_night=1)]
"""Numbers of groups that are drawn: searches of three take seconds."""
GPUS = ("h100-sxm", "a100-sxm-80gb", "l40s")
PRICES = {"h100-sxm": 3.0, "a100-sxm-80gb": 1.3, "l40s": 0.9}
MOST_NODES = {1: 6, 2: 2, 3: 1}
"""Of a group, by how many there are."""
TOKENS = 10**9
HELD = ("tp=1", "vpp=1", "cp=1", "recompute=none", "zero_stage=1", "micro_batch_size=1")
ALONE = {
    "only_answer": True,
    "search_options": "none",
    "fix": tuple(parse_choice(text, excluded=False) for text in HELD),
}


def drawn(rng):
    """A cluster of one to three groups, their links fast or slow, and numbers of nodes in it."""
    count = int(rng.choice(GROUPS))
    most = MOST_NODES[count]
    nodes = rng.integers(1, most + 1, count)
    groups = []
    for i in range(count):
        gpu = str(rng.choice(GPUS))
        price = PRICES[gpu] * float(rng.uniform(0.5, 2))
        nic = NicSpec(per_node=1, gb_per_s=float(rng.choice([0.5, 25.0])))
        of = {"gpu": gpu, "num_nodes": int(nodes[i]), "gpus_per_node": int(rng.choice([1, 2]))}
        groups.append(NodeGroup(**of, nic=nic, price_per_gpu_hour=price))
    between = (
        BetweenGroups(gb_per_s=float(rng.choice([0.125, 10.0]))) if rng.random() < 0.5 else None
    )
    cluster = ClusterSpec(groups=tuple(groups), between_groups=between)
    part = rng.integers(0, nodes + 1)
    if not part.any():
        part[int(rng.integers(count))] = 1
    kept = tuple(
        group.model_copy(update={"num_nodes": int(own)})
        for group, own in zip(groups, part, strict=True)
        if own
    )
    return cluster, cluster.model_copy(update={"groups": kept})


def answered(job, options):
    """The plan; none where there is none, or none that is in time."""
    try:
        plan = search(job, options)
    except SpecError:
        return None
    return plan if isinstance(plan, Plan) else None


@pytest.mark.parametrize("objective", ["time", "gpus", "cost"])
def test_no_answer_is_worse_than_on_a_part(make_job, objective):
    rng = np.random.default_rng(len(objective))
    compared = fewer = 0
    for _ in range(CLUSTERS // 3 + 1):
        cluster, part = drawn(rng)
        batch = int(rng.choice([4, 6, 8, 12]))
        job = make_job("small-dense", "1x1:h100-sxm", batch, tokens=TOKENS)
        few = job.model.model_copy(update={"num_hidden_layers": 3})
        job = job.model_copy(update={"cluster": cluster, "model": few})
        on_part = job.model_copy(update={"cluster": part})
        chosen = {**ALONE, "objective": objective}
        if objective == "gpus":
            alone = answered(on_part, SearchOptions(**ALONE))
            steps = -(-TOKENS // job.training.tokens_per_step)
            days = alone.best.estimate.step_time_s * steps / 86_400 if alone else 1.0
            chosen["deadline_days"] = days * float(rng.uniform(1, 3))
        options = SearchOptions(**chosen)
        smaller = answered(on_part, options)
        larger = answered(job, options)
        if smaller is None:
            continue
        assert larger is not None, (cluster, part)
        own, other = (plan.certificate.objective for plan in (larger, smaller))
        assert own.value <= other.value * (1 + 1e-9), (cluster, part)
        assert own.lower_bound <= own.value
        assert all(one.bound >= own.lower_bound * (1 - 1e-9) for one in own.tried)
        compared += 1
        fewer += larger.job.cluster.num_gpus < cluster.num_gpus
    assert compared > CLUSTERS // 4
    assert fewer, "of some cluster a part is best"
