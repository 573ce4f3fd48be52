"""An option of experts that is stated as off has the price of none, to the bit."""

import numpy as np
import pytest

from tests.conftest import random_rows
from tests.grids import number
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.layouts import legal_rows
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.runtimes.options import option_without_price
from trainplan.costmodel.step import price
from trainplan.planner.space.choices import rules_of_job

OFF = {
    "moe_chunks": 1,
    "moe_dispatch_dtype": "bf16",
    "overlap_moe_a2a": False,
    "overlap_shared_experts": False,
    "delay_wgrad": False,
    "moe_router_padding": False,
    "routing": RoutingSpec.model_validate("balanced"),
    "expert_placement": "order",
}
RUNTIME_NAMES = ("megatron-lm", "megatron-bridge", "nemo", "megatron-dualpipe", "tutel", "fsmoe")
BASES = ({}, {"routing": RoutingSpec.model_validate("zipf:0.4")})


@pytest.mark.parametrize("base", BASES, ids=["balanced", "zipf"])
@pytest.mark.parametrize("runtime", RUNTIME_NAMES)
def test_off_is_the_price_of_none_to_the_bit(make_job, runtime, base):
    job = make_job("small-moe", "2x8:h100-sxm", 64).model_copy(update={"runtime": runtime})
    plain, rng = with_options(job, base), np.random.default_rng(11)
    table = random_rows(plain, number(4000, by_night=10_000), rng)
    table = table.take(legal_rows(plain, rules_of_job(plain), table))
    assert len(table)
    before = price(context_for(plain).with_table(table))
    own = RUNTIMES[runtime].experts
    values = {**OFF, "moe_dispatcher": own.dispatcher}
    if own.dispatcher != own.dispatcher_across:
        del values["moe_dispatcher"]
    for name in (one for one in values if one not in base):
        stated = with_options(job, {**base, name: values[name]})
        if option_without_price(stated, RUNTIMES[runtime]) is None:
            after = price(context_for(stated).with_table(table))
            assert (after.step_seconds == before.step_seconds).all(), name
            assert (after.memory.used == before.memory.used).all(), name


def with_options(job, values):
    return job.model_copy(update={"options": RuntimeOptions(**values)})
