"""States that take less are offered where they make a job fit, by the option that asks for them."""

import pytest

from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases import Case
from trainplan.planner.comparisons import remedies
from trainplan.planner.launch_checks.cures import cures
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions import search
from trainplan.planner.work.budget import Unlimited

WHOLE = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
SHARDED = Layout(dp=8, zero_stage=3, **WHOLE)


@pytest.fixture
def large(make_job):
    def job(runtime, cluster="1x8:a100-sxm-80gb", tokens=8192, **training):
        made = make_job("qwen3-32b", cluster, 16, tokens, **training)
        return made.model_copy(update={"runtime": runtime})

    return job


def options(job, layout=SHARDED):
    case = Case(job, SearchOptions(search_options="none", only_written=False))
    return [one.option for one in remedies(case, layout, Unlimited())]


@pytest.mark.parametrize(
    ("runtime", "cluster", "training", "offered"),
    [
        ("accelerate", "1x8:a100-sxm-40gb", {}, False),  # 32 GiB of states, and the rest
        ("accelerate", "1x8:a100-sxm-80gb", {}, True),
        ("accelerate", "1x8:a100-sxm-80gb", {"state_precision": "bf16"}, False),  # has them
        ("megatron-lm", "1x8:a100-sxm-80gb", {}, False),  # which has none
    ],
)
def test_states_in_bf16_are_a_remedy_where_they_suffice(large, runtime, cluster, training, offered):
    found = options(large(runtime, cluster, **training))
    assert ("--state-precision bf16 (changes the training)" in found) == offered


LORA, QLORA = (f"--train {way}:rank=16 (changes the training)" for way in ("lora", "qlora"))
ADAM_8BIT = "--optimizer adamw8bit"


@pytest.mark.parametrize(
    ("runtime", "cluster", "training", "offered"),
    [
        ("accelerate", "1x8:a100-sxm-80gb", {}, [ADAM_8BIT, LORA]),  # the first that helps
        ("accelerate", "1x4:a100-sxm-40gb", {}, [LORA]),  # 65 GB of weights over 4, no moments
        ("accelerate", "1x1:a100-sxm-80gb", {}, [LORA]),
        ("accelerate", "1x1:a100-sxm-40gb", {}, [QLORA]),
        ("accelerate", "1x4:a100-sxm-40gb", {"optimizer": "adamw8bit"}, [LORA]),
        ("fsdp2", "1x4:a100-sxm-40gb", {}, []),  # trains all weights
    ],
)
def test_fewer_moments_and_adapters_are_remedies_too(large, runtime, cluster, training, offered):
    layout = Layout(dp=int(cluster[2]), zero_stage=3, **WHOLE)
    found = options(large(runtime, cluster, 2048, **training), layout)
    assert [one for one in found if one in (ADAM_8BIT, LORA, QLORA)] == offered


def test_a_search_without_an_answer_offers_them(large):
    answer = search(
        large("accelerate", "1x4:a100-sxm-80gb", 2048), SearchOptions(search_options="none")
    )
    assert answer.changes[:3] == (
        "keep states in bf16: --state-precision bf16 (changes the training)",
        "train adapters alone: --train lora:rank=16 (changes the training)",
        "use 8 GPUs (2 times as many)",
    )


def test_adapters_of_4_bit_weights_are_offered_where_16_bits_do_not_fit(large):
    answer = search(
        large("accelerate", "1x1:a100-sxm-40gb", 2048), SearchOptions(search_options="none")
    )
    offered = [change for change in answer.changes if "--train" in change]
    assert offered == [f"train adapters alone, over 4-bit weights: {QLORA}"]


def test_a_launch_is_cured_by_them_in_one_edit(large):
    case = Case(large("accelerate"), SearchOptions(search_options="none"))
    found = [one for one in cures(case, SHARDED).found if "options.state_precision" in one.units]
    assert [one.units for one in found] == [("options.state_precision",)]
    assert found[0].run.job.training.state_precision == "bf16"


def test_kernels_of_liger_are_offered_where_logits_are_too_large(make_job):
    job = make_job("llama3-8b", "1x1:rtx4090", 4, 8192)  # logits: 14.7 GB beside 16 GB of weights
    adapters = Trained(method="lora", rank=16, modules=("all",))
    model = job.model.model_copy(update={"trained": adapters})
    changed = job.model_copy(update={"runtime": "accelerate", "model": model})
    answer = search(changed, SearchOptions(search_options="none"))
    assert any("liger=0.6" in change for change in answer.changes)
    assert not any("--optimizer" in change for change in answer.changes)  # a few MB


def test_an_offer_has_the_chance_to_fit_that_a_search_takes(make_job):
    job = make_job("llama2-7b", "1x1:a100-sxm-40gb", 4, 2048).model_copy(
        update={"runtime": "deepspeed"}
    )
    case = Case(job, SearchOptions(memory_margin=0.0, search_options="none"))
    offers = remedies(case, Layout(zero_stage=1, **WHOLE), Unlimited())
    assert any(one.candidate.layout.offload.optimizer > 0 for one in offers)  # as much as must
    for one in offers:
        assert one.candidate.estimate.memory.fit_chance >= 0.8


def test_adapters_of_attention_are_offered_where_experts_take_none(make_job):
    job = make_job("mixtral-8x7b", "1x4:a100-sxm-80gb", 16, 2048)
    answer = search(
        job.model_copy(update={"runtime": "accelerate"}), SearchOptions(search_options="none")
    )
    option = "--train lora:rank=16,modules=attention (changes the training)"
    assert f"train adapters of attention alone: {option}" in answer.changes
