"""What is exported is taken by the runtime's own code, at the commit it is written for."""

from functools import cache

import pytest

from tests.runtimes.plans import PLANS
from tests.runtimes.verdicts import SAVE_LOCALLY, verdicts
from trainplan.planner.runtimes.trial_steps import SHORT_RUNS

pytestmark = pytest.mark.runtime

CASES = [
    pytest.param(runtime, plan, id=f"{runtime}: {plan.name}")
    for runtime, plans in PLANS.items()
    for plan in plans
]


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """Verdicts of a runtime on its plans, by their names."""
    return cache(lambda runtime: verdicts(runtime, tmp_path_factory.mktemp("plans")))


def planned(plan):
    """What a runtime should understand of a layout, as far as it says."""
    layout, batch, model = plan.layout, plan.training["global_batch_size"], plan.spec()
    degrees = ("tp", "pp", "vpp", "cp", "dp", "dp_replicate", "ep", "gtp", "egtp", "zero_stage")
    names = (*degrees, "hpz", "sequence_parallel", "micro_batch_size", "recompute", "tiled_mlp")
    return {name: getattr(layout, name) for name in names} | {
        "offload": layout.offload.optimizer,
        "tier": layout.offload.tier if layout.offload.optimizer else "none",
        "parameters": layout.offload.parameters or "none",
        "checkpoints": layout.offload.checkpoints,
        "micro_batches": batch // (layout.micro_batch_size * layout.dp),
        "hidden_size": model.hidden_size,
        "experts": model.moe.num_experts if model.moe else 0,
        **{name: plan.options.get(name) for name in ("weight_bits", "gradient_bits", "bucket_mb")},
        "shares": plan.options.get("overlap_shared_experts", False),
        "predictions": model.num_nextn_predict_layers,
        "outer": plan.outer and (plan.outer.islands, plan.outer.every, plan.outer.fragments),
    }


@pytest.mark.parametrize(("runtime", "plan"), CASES)
def test_the_runtime_takes_the_plan_and_understands_its_layout(runtime, plan, of):
    verdict = of(runtime)[plan.name]
    assert verdict["refusal"] is None
    understood, intended = dict(verdict["understood"]), planned(plan)
    understood.pop("operations", None)
    intended["outer"] = intended["outer"] and list(intended["outer"])
    assert understood == {name: intended[name] for name in understood}


@pytest.mark.parametrize("runtime", PLANS)
def test_a_launch_that_lacks_a_rank_is_refused(runtime, of):
    assert of(runtime)["lacks a rank"]["refusal"]


@pytest.mark.parametrize("runtime", PLANS)
def test_a_production_launch_is_taken_with_the_same_layout(runtime, of):
    verdict = of(runtime)["operations"]
    assert verdict["refusal"] is None
    plain = of(runtime)[PLANS[runtime][0].name]["understood"]
    assert verdict["understood"] | {"operations": None} == plain | {"operations": None}


@pytest.mark.parametrize("runtime", ["megatron-lm", "megatron-bridge", "torchtitan"])
def test_what_operations_set_is_what_the_runtime_then_does(runtime, of):
    """Megatron-LM switches asynchronous saves off where their worker is not asked for."""
    stated = of(runtime)["operations"]["understood"]["operations"]
    assert stated["save_interval"] == 180
    assert stated["async_save"]
    if runtime != "torchtitan":
        assert stated["exit_minutes"] == 100
        assert stated["exit_signal"] == "SIGUSR1"
        assert stated["wandb_project"] == "project"


@pytest.mark.parametrize("runtime", SAVE_LOCALLY)
def test_local_saves_are_what_the_runtime_then_does(runtime, of):
    verdict = of(runtime)["local saves"]
    assert verdict["refusal"] is None
    stated = verdict["understood"]["operations"]
    assert stated["save_interval"] % stated["local_save_interval"] == 0
    assert stated["async_save"]
    assert stated["copies"] == 2


@pytest.mark.parametrize("runtime", [one for one in PLANS if one in SHORT_RUNS])
def test_a_trial_of_the_first_plan_is_taken_with_the_same_layout(runtime, of):
    verdict = of(runtime)["a trial"]
    assert verdict["refusal"] is None
    plain = of(runtime)[PLANS[runtime][0].name]["understood"]
    assert verdict["understood"] | {"operations": None} == plain | {"operations": None}


@pytest.mark.parametrize("runtime", PLANS)
def test_there_are_twenty_plans_or_more_unlike_one_another(runtime):
    plans = PLANS[runtime]
    assert len({plan.name for plan in plans}) == len(plans) >= 20
