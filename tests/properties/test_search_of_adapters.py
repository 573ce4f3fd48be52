"""Searches of jobs that train adapters, or not all layers: brute force finds nothing better."""

import pytest

from tests.properties.test_search_is_exact import all_priced, assert_best_of_all
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import price
from trainplan.planner.questions.best_plan import SearchOptions, search

pytestmark = pytest.mark.usefixtures("quarters")
LORA = Trained(method="lora", rank=8, modules=("all",))
FROZEN = Trained(method="frozen", layers=(0, 1))
INNER = Trained(method="frozen", layers=(1, 2))


def wanted(make_job, name, runtime, trained):
    job = make_job(name, "1x4:h100-sxm" if name == "small-moe" else "1x2:h100-sxm", 8)
    model = ModelSpec.model_validate(job.model.model_dump() | {"trained": trained.model_dump()})
    return job.model_copy(update={"model": model, "runtime": runtime})


@pytest.mark.grid
@pytest.mark.parametrize("memory_gib", [80, 1.9, 1.3])
@pytest.mark.parametrize(
    "case",
    [
        ("small-dense", "megatron-bridge", LORA),
        ("small-moe", "megatron-bridge", LORA),
        ("small-moe", "megatron-lm", LORA),
        ("small-dense", "accelerate", LORA),
        ("small-dense", "deepspeed", LORA),
        ("small-dense", "accelerate", Trained(method="qlora", rank=8, modules=("all",))),
        ("small-dense", "accelerate", FROZEN),
        ("small-dense", "deepspeed", FROZEN),
        ("small-dense", "deepspeed", INNER),
    ],
    ids=lambda case: f"{case[0]}-{case[1]}-{case[2].method}",
)
def test_the_search_finds_what_brute_force_finds(make_job, case, memory_gib):
    name, runtime, trained = case
    assert_best_of_all(wanted(make_job, name, runtime, trained), memory_gib)


@pytest.mark.parametrize("name", ["small-dense", "small-moe"])
def test_no_layout_is_faster_or_smaller_with_every_weight_trained(make_job, name):
    """Of the same layouts; adapters of few weights cost less than the gradients of all."""
    few = Trained(method="lora", rank=8, modules=("o",))
    job = wanted(make_job, name, "megatron-bridge", few)
    table, adapted = all_priced(job)
    whole = job.model_copy(update={"model": job.model.model_copy(update={"trained": None})})
    full = price(context_of(whole, machine_of(whole.cluster, "bf16")).with_table(table))
    assert (adapted.memory.used <= full.memory.used).all()
    assert (adapted.traffic <= full.traffic).all()


def test_uneven_stages_of_adapters_are_proved(make_job):
    plan = search(wanted(make_job, "small-dense", "megatron-bridge", LORA), SearchOptions(top=3))
    assert plan.certificate.optimal
    assert plan.certificate.lower_bound_s <= plan.best.estimate.step_time_s
