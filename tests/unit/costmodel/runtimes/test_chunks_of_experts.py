"""Dispatch, experts and combine in chunks of the tokens: a method that no runtime of ours has."""

import pytest

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner import estimate
from trainplan.planner.questions.best_plan import no_files

LAYOUT = Layout(dp=32, ep=32, micro_batch_size=8)


@pytest.fixture(name="priced")
def _priced(make_job):
    def price(runtime, layout=LAYOUT, cluster="4x8:h100-sxm", **options):
        job = make_job("deepseek-v2-lite", cluster, 512, 4096)
        stated = {"options": RuntimeOptions(**options), "runtime": runtime}
        return estimate(job.model_copy(update=stated), layout)

    return price


def test_one_chunk_is_the_price_without_chunks_to_the_bit(priced):
    for name in ("megatron-lm", "tutel"):
        plain = priced(name)
        assert priced(name, moe_chunks=1) == plain
    assert priced("fsmoe").step_time_s == plain.step_time_s


def test_chunks_hide_an_exchange_until_their_starts_and_small_products_cost_more(priced):
    """Over slow nodes two chunks gain; in one node, where little is sent, eight lose."""
    steps = {chunks: priced("tutel", moe_chunks=chunks) for chunks in (1, 2, 4, 8)}
    exchange = {chunks: one.terms.ep_comm for chunks, one in steps.items()}
    assert exchange[2] < exchange[1]
    assert steps[2].step_time_s < steps[1].step_time_s
    assert steps[8].terms.gemm > steps[2].terms.gemm > steps[1].terms.gemm
    inside = LAYOUT.model_copy(update={"ep": 8, "micro_batch_size": 1})
    one, eight = (priced("tutel", inside, moe_chunks=chunks).step_time_s for chunks in (1, 8))
    assert eight > one


def test_a_lane_for_gathers_is_no_slower_and_means_nothing_without_them(priced):
    tensor = LAYOUT.model_copy(
        update={"tp": 2, "dp": 16, "ep": 8, "etp": 2, "sequence_parallel": True}
    )
    one, other = (priced(name, tensor, moe_chunks=4).step_time_s for name in ("tutel", "fsmoe"))
    assert other < one
    same = [priced(name, moe_chunks=4).step_time_s for name in ("tutel", "fsmoe")]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    "runtime", [name for name, one in RUNTIMES.items() if name not in ("tutel", "fsmoe")]
)
def test_a_runtime_without_chunks_refuses_them_by_name(make_job, runtime):
    job = make_job("small-moe", "2x8:h100-sxm", 64, 4096)
    job = job.model_copy(update={"runtime": runtime, "options": RuntimeOptions(moe_chunks=2)})
    with pytest.raises(SpecError, match=r"moe_chunks=2: .* is not priced with it"):
        estimate(job, Layout(dp=16, ep=8))


def test_nothing_is_written_for_it():
    assert "a method that no runtime has (experts of some chunks" in no_files("tutel")
