"""Rows of the fullest expert rank: by hand, against draws, and what may never happen."""

import math
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.routing import check_routing, load
from trainplan.costmodel.routing.choices import choice_probabilities, distinct_destinations
from trainplan.costmodel.step import price

MODEL = preset("qwen3-30b-a3b").model_copy(update={"num_hidden_layers": 4})


def job_of(experts=16, top_k=2, routing="random", precision="bf16", mean=None, **options):
    moe = MoeSpec(
        num_experts=experts,
        num_experts_per_tok=top_k,
        mean_experts_per_tok=mean,
        moe_intermediate_size=768,
    )
    return Job(
        model=MODEL.model_copy(update={"moe": moe}),
        training=TrainingSpec(seq_length=1024, global_batch_size=64, precision=precision),
        cluster=parse_cluster("2x8:b200"),
        options=RuntimeOptions.model_validate({"routing": routing, **options}),
    )


def counted(*layers, experts=4, top_k=1):
    routing = RoutingSpec(kind="measured", tokens_per_expert=layers, source="counts.csv")
    job = job_of(experts, top_k)
    return job.model_copy(update={"options": RuntimeOptions(routing=routing)})


def fullest(job, ep, tokens, **more):
    return load(job, ep=ep, etp=1, tokens=float(tokens), **more).fullest


def chosen(rng, tokens, experts, top_k, of=None):
    """Experts that tokens choose, all alike and each once; beyond `experts` they do nothing."""
    places = rng.random((tokens, of or experts))
    return np.argpartition(places, top_k - 1, axis=1)[:, :top_k]


def drawn(job, ep, tokens, draws, seed=5):
    """Mean of the fullest rank's rows over those of balanced tokens, and its standard error."""
    moe, rng = job.model.moe, np.random.default_rng(seed)
    of = round(moe.num_experts * moe.num_experts_per_tok / moe.rows_per_token)
    found = []
    for _ in range(draws):
        experts = chosen(rng, tokens * ep, moe.num_experts, moe.num_experts_per_tok, of).ravel()
        rows = np.bincount(experts, minlength=of)[: moe.num_experts]
        found.append(rows.reshape(ep, -1).sum(axis=1).max())
    balanced = tokens * moe.rows_per_token
    return np.mean(found) / balanced, np.std(found) / balanced / math.sqrt(draws)


def test_two_ranks_of_one_choice_are_a_coin_that_is_thrown():
    """The fuller of two has N / 2 + E|X - N / 2| rows; de Moivre: N C(N, N / 2) / 2 ** (N + 1)."""
    tokens = 50
    thrown = 2 * tokens
    fuller = thrown / 2 + thrown * comb(thrown, thrown // 2) / 2 ** (thrown + 1)
    found = fullest(job_of(experts=4, top_k=1), 2, tokens)
    assert found == pytest.approx(fuller / tokens, rel=1e-3)


@pytest.mark.parametrize(
    ("experts", "top_k", "ep", "tokens"),
    [(16, 2, 8, 16), (64, 6, 8, 8), (64, 6, 64, 16), (256, 8, 64, 4), (32, 4, 2, 8), (8, 7, 8, 32)],
)
def test_random_tokens_fill_the_fullest_rank_as_draws_say(experts, top_k, ep, tokens):
    job = job_of(experts, top_k)
    mean, error = drawn(job, ep, tokens, 1500)
    assert fullest(job, ep, tokens) == pytest.approx(mean, abs=4 * error + 0.003 * mean)


def test_of_tokens_that_choose_some_experts_without_work_the_others_have_rows():
    """Four of sixteen, eight of which compute: two rows a token on average."""
    job = job_of(experts=8, top_k=4, mean=2.0)
    mean, error = drawn(job, 4, 32, 3000)
    assert fullest(job, 4, 32) == pytest.approx(mean, abs=4 * error)


def test_popularity_falls_as_a_power_and_neighbours_share_a_rank():
    """1, 1/2, 1/3, 1/4 of 25/12: the first two have 18 of 25 rows, 1.44 times their half."""
    (shares,) = choice_probabilities(RoutingSpec.model_validate("zipf:1"), job_of(4, 1).model.moe)
    assert shares == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])
    assert fullest(job_of(4, 1, "zipf:1"), 2, 10**8) == pytest.approx(1.44, rel=1e-6)
    assert fullest(job_of(4, 1, "zipf:1"), 4, 10**8) == pytest.approx(1.92, rel=1e-6)


def test_no_expert_is_chosen_twice_by_a_token():
    """Two of 1, 1/4, 1/9, 1/16: the first always, the others share one in their proportion."""
    (shares,) = choice_probabilities(RoutingSpec.model_validate("zipf:2"), job_of(4, 2).model.moe)
    rest = 1 / 4 + 1 / 9 + 1 / 16
    assert shares == pytest.approx([1.0, 0.25 / rest, 1 / 9 / rest, 1 / 16 / rest])


def test_counted_tokens_are_a_popularity():
    assert fullest(counted((6.0, 2.0, 1.0, 1.0)), 2, 10**8) == pytest.approx(1.6, rel=1e-6)
    assert fullest(counted((6, 2, 1, 1), (1, 1, 2, 6)), 2, 10**8) == pytest.approx(1.6, rel=1e-6)
    both = fullest(counted((6, 2, 1, 1), (5, 5, 5, 5)), 2, 10**8)
    assert both == pytest.approx((1.6 + 1.0) / 2, rel=1e-3), "layers follow one another"


def test_counts_of_replicas_are_added_up():
    twice = counted((6, 2, 1, 1, 4, 4, 1, 1))
    assert fullest(twice, 2, 10**8) == pytest.approx(1.6, rel=1e-6)


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        (((1, 2, 3),), "a layer has 3 counts, the model 4 experts"),
        (((9, 1, 0, 0),), "expert 0 has 90% of the rows, but a token goes to 2 different experts"),
        (((1, 1, 1, 1),) * 3, "3 layers of counts, the model has 4 of experts"),
    ],
)
def test_counts_that_no_router_makes_are_refused(layers, says):
    with pytest.raises(SpecError, match=says):
        check_routing(counted(*layers, top_k=2))


def test_padding_to_a_capacity_gives_every_expert_as_much_whatever_tokens_choose():
    """10 tokens, 2 of 4 experts: 5 rows each, 7 with a factor of 1.25: 28 for 20."""
    for routing in ("balanced", "random", "zipf:1"):
        job = job_of(4, 2, routing, moe_capacity_factor=1.25, moe_pad_to_capacity=True)
        found = load(job, ep=2, etp=1, tokens=10.0)
        assert found.fullest == found.fullest_node == pytest.approx(1.4)
        kept = 20 * (1 - found.dropped_fraction)
        assert found.padded_fraction == pytest.approx(1 - kept / 28)
    balanced = load(
        job_of(4, 2, "balanced", moe_capacity_factor=1.25, moe_pad_to_capacity=True),
        ep=2,
        etp=1,
        tokens=10.0,
    )
    assert balanced.dropped_fraction == 0
    assert balanced.padded_fraction == pytest.approx(8 / 28)


def test_a_capacity_below_what_comes_drops_the_rest():
    found = load(job_of(4, 2, "balanced", moe_capacity_factor=0.8), ep=2, etp=1, tokens=10.0)
    assert found.fullest == pytest.approx(0.8)
    assert found.dropped_fraction == pytest.approx(0.2)
    assert found.padded_fraction == 0


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.3])
def test_dropped_rows_and_the_fullest_rank_are_as_draws_say(factor):
    """Of each rank an expert takes no more than its capacity."""
    experts, top_k, ep, tokens = 16, 2, 4, 64
    job, rng = job_of(experts, top_k, moe_capacity_factor=factor), np.random.default_rng(3)
    capacity = math.ceil(tokens * top_k / experts * factor)
    maxima, kept = [], []
    for _ in range(3000):
        rows = np.zeros(experts)
        for _rank in range(ep):
            sent = np.bincount(chosen(rng, tokens, experts, top_k).ravel(), minlength=experts)
            rows += np.minimum(sent, capacity)
        maxima.append(rows.reshape(ep, -1).sum(axis=1).max())
        kept.append(rows.sum())
    found = load(job, ep=ep, etp=1, tokens=float(tokens))
    assert found.fullest == pytest.approx(np.mean(maxima) / (tokens * top_k), rel=0.006)
    dropped = 1 - np.mean(kept) / (tokens * top_k * ep)
    assert found.dropped_fraction == pytest.approx(dropped, abs=0.002)


def test_a_padding_router_rounds_up_what_each_rank_sends_to_each_expert():
    """5 rows of 4 experts become 32 of each under mxfp8, 16 under fp8, 128 under nvfp4."""
    for precision, multiple in (("fp8", 16), ("mxfp8", 32), ("nvfp4", 128)):
        job = job_of(4, 2, "balanced", precision, moe_router_padding=True)
        found = load(job, ep=2, etp=1, tokens=10.0)
        assert found.fullest == pytest.approx(multiple / 5)
        assert found.padded_fraction == pytest.approx(1 - 5 / multiple)
        assert found.dropped_fraction == 0


def test_rounding_random_counts_adds_half_a_multiple():
    """Counts of hundreds are spread evenly over the remainders: 15.5 rows more of each 32."""
    job = job_of(4, 2, "random", "mxfp8", moe_router_padding=True)
    found = load(job, ep=1, etp=1, tokens=4000.0)
    assert found.fullest == pytest.approx(1 + 15.5 / 2000, rel=1e-5)


def test_one_rank_has_all_rows_whatever_tokens_choose():
    for routing in ("random", "zipf:0.7", "zipf:3"):
        assert fullest(job_of(routing=routing), 1, 37) == 1.0
    assert fullest(job_of(experts=8, top_k=8), 8, 37) == 1.0, "every token goes to every expert"


@settings(max_examples=60, deadline=None)
@given(
    experts=st.sampled_from([8, 16, 64]),
    top_k=st.integers(1, 8),
    splits=st.integers(1, 6),
    tokens=st.integers(1, 5000),
    alpha=st.floats(0, 3),
)
def test_the_fullest_rank_is_no_emptier_than_the_mean(experts, top_k, splits, tokens, alpha):
    ep = min(2**splits, experts)
    job = job_of(experts, top_k, f"zipf:{alpha:.4f}")
    found = load(job, ep=ep, etp=1, tokens=float(tokens), nodes=ep // 2)
    assert found.fullest >= found.fullest_node * (1 - 1e-9)
    assert found.fullest_node >= 1 - 1e-9
    assert found.fullest <= ep * min(1.0, experts / ep / top_k) + 1e-9 + 3 * ep / tokens
    assert found.dropped_fraction == found.padded_fraction == 0


@pytest.mark.parametrize("tokens", [64, 4096])
def test_imbalance_grows_with_the_exponent_the_ranks_and_fewer_tokens(tokens):
    by_alpha = [fullest(job_of(64, 4, f"zipf:{a}"), 8, tokens) for a in (0, 0.1, 0.3, 0.7, 1.5, 3)]
    assert by_alpha == sorted(by_alpha)
    assert by_alpha[0] == fullest(job_of(64, 4, "random"), 8, tokens)
    by_ranks = [fullest(job_of(64, 4), ep, tokens) for ep in (1, 2, 4, 8, 16, 32, 64)]
    assert by_ranks == sorted(by_ranks)
    assert fullest(job_of(64, 4), 8, 2 * tokens) < fullest(job_of(64, 4), 8, tokens)


def test_tokens_of_tensor_ranks_are_drawn_together():
    """Experts cut over two ranks see the tokens of both."""
    both = load(job_of(), ep=8, etp=2, tokens=64.0).fullest
    assert both == pytest.approx(fullest(job_of(), 8, 128), rel=1e-9)


def test_a_fuller_place_gets_more_tokens_but_each_once():
    found = distinct_destinations(np.array([4.0]), 2, np.array([1.5]))
    assert found[0] == pytest.approx(4 * (1 - (1 - 1.5 / 4) ** 2))
    assert distinct_destinations(np.array([4.0]), 2, np.array([5.0]))[0] == 4.0


KEYS = LayoutTable.of([Layout(dp=16, ep=ep, micro_batch_size=2) for ep in (1, 4, 8, 16)])


def moe_block(job):
    return blocks(context_of(job, machine_for(job)).with_table(KEYS)).layers[-1]


def test_balanced_tokens_have_todays_price_to_the_bit():
    plain = job_of().model_copy(update={"options": RuntimeOptions()})
    stated = job_of(routing="balanced")
    one, other = (price(context_of(j, machine_for(j)).with_table(KEYS)) for j in (plain, stated))
    assert (one.step_seconds == other.step_seconds).all()
    assert (one.memory.used == other.memory.used).all()


def test_rows_of_the_fullest_rank_are_kept_exchanged_and_computed():
    """What grows with the rows of experts grows in proportion; one rank pays nothing."""
    jobs = [job_of(routing=name) for name in ("balanced", "zipf:0.3", "zipf:1")]
    low, middle, high = (moe_block(one) for one in jobs)
    loads = [np.array([fullest(j, ep, 2048) for ep in (1, 4, 8, 16)]) for j in jobs]
    share = (loads[1] - loads[0])[1:] / (loads[2] - loads[0])[1:]

    def rises(of):
        assert of(low)[0] == of(middle)[0] == of(high)[0]
        assert (of(high) > of(low))[1:].all()
        return (of(middle) - of(low))[1:] / (of(high) - of(low))[1:]

    assert rises(lambda block: block.saved_bytes) == pytest.approx(share, rel=1e-9)
    assert rises(lambda block: block.forward.ep_comm)[:2] == pytest.approx(share[:2], rel=1e-9)
    assert (rises(lambda block: block.forward.gemm) > 0).all()
    added = (middle.saved_bytes - low.saved_bytes)[1:] / (loads[1] - 1)[1:]
    rows, element = 2048 * 2, 2
    kept = rows * element * (MODEL.hidden_size + 3 * 768)
    assert added == pytest.approx(kept, rel=1e-9)


def test_known_sizes_leave_the_host_nothing_to_wait_for():
    dropless = moe_block(job_of(routing="balanced"))
    padded = job_of(routing="balanced", moe_capacity_factor=1.0, moe_pad_to_capacity=True)
    assert (moe_block(padded).forward.host < dropless.forward.host).all()


def test_jobs_that_differ_in_other_options_share_their_loads():
    """A search tries many settings, and counts of many layers take long to add up."""
    job = job_of(routing=RoutingSpec.model_validate("zipf:0.3"))
    first = load(job, ep=8, etp=1, tokens=777)
    options = job.options.model_copy(update={"moe_dispatcher": "deepep", "overlap_moe_a2a": True})
    assert load(job.model_copy(update={"options": options}), ep=8, etp=1, tokens=777) is first
