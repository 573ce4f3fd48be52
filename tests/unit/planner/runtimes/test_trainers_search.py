"""A search for a trainer answers what the trainer writes."""

import pytest

from tests.runtimes.plans import LLAMA, Z1, Z3, plan
from trainplan.costmodel.architecture import Trained
from trainplan.costmodel.base import CatalogError, UnsupportedError
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions import search
from trainplan.planner.runtimes import TRAINERS

MIXED, WHOLE = "qwen3-30b-a3b", {"dp": 16, "ep": 8, **Z1}


def answer_of(job, name):
    return search(job, SearchOptions(trainer=name, only_answer=True, top=1))


@pytest.mark.parametrize("name", ["axolotl", "nemo-rl", "slime"])
def test_the_answer_is_written(name):
    job = plan("a", LLAMA, 1, {"dp": 8, **Z3}).job("megatron-lm")
    trainer = TRAINERS[name]
    answer = answer_of(trainer.chosen(job.model_copy(update={"reserve_bytes": 20 << 30})), name)
    assert isinstance(answer, Plan)
    assert trainer(answer.job, answer.best.layout).settings


def test_settings_without_a_word_are_not_searched():
    job = plan("a", MIXED, 2, WHOLE).job("megatron-lm")
    trainer = TRAINERS["nemo-rl"]
    overlapped = job.options.model_copy(update={"overlap_moe_a2a": True})
    assert trainer.writes(job)
    assert not trainer.writes(job.model_copy(update={"options": overlapped}))


def test_layouts_without_a_word_break_a_rule():
    job = plan("a", LLAMA, 1, {"dp": 8, **Z1}).job("megatron-lm")
    says = [rule.says for rule in TRAINERS["nemo-rl"].rules(job)]
    assert any("no word for vpp = 2" in one for one in says)
    assert not any("tp = " in one for one in says)


def test_degrees_that_fill_a_small_layout_break_a_rule_too():
    job = plan("a", LLAMA, 4, {"dp": 32, **Z3}).job("accelerate")
    says = [rule.says for rule in TRAINERS["llama-factory"].rules(job)]
    assert any("no word for tp = 2, 4, 8, 16" in one for one in says)


def test_a_value_that_switches_off_what_a_trainer_always_has_breaks_a_rule():
    job = plan("a", LLAMA, 1, {"dp": 8, **Z1}).job("megatron-lm")
    says = [rule.says for rule in TRAINERS["slime"].rules(job)]
    assert any("no word for zero_stage = 0" in one for one in says)


@pytest.mark.parametrize("name", ["verl", "slime", "nemo-rl"])
def test_the_least_that_an_engine_takes_is_kept_free(name):
    job = plan("a", LLAMA, 1, {"dp": 8, **Z1}).job("megatron-lm")
    trainer = TRAINERS[name]
    least = trainer.kept_free(job)
    assert least >= 2 * 2 * 8.03e9 / 8  # 16-bit weights on 8 GPUs are half of it
    under = trainer.runs(job)
    assert under.reserve_bytes == least
    answer = answer_of(job, name)
    notes = trainer(answer.job, answer.best.layout).notes
    assert any("that the estimate leaves free" in note for note in notes)
    assert (
        trainer.runs(job.model_copy(update={"reserve_bytes": 20 << 30})).reserve_bytes == 20 << 30
    )
    with pytest.raises(UnsupportedError, match="give --reserve 4GiB or more"):
        trainer.runs(job.model_copy(update={"reserve_bytes": 1 << 30}))


def test_a_trainer_that_only_tunes_reserves_no_memory_of_an_engine():
    job = plan("a", LLAMA, 1, {"dp": 8, **Z3}).job("accelerate")
    assert TRAINERS["axolotl"].runs(job).reserve_bytes == 0


def test_adapters_are_in_fp32_where_a_trainer_has_them_so():
    job = plan("a", LLAMA, 1, {"dp": 8, **Z3}).job("accelerate")
    trained = Trained(method="lora", rank=16, modules=("all",))
    job = job.model_copy(update={"model": job.model.model_copy(update={"trained": trained})})
    assert TRAINERS["trl"].runs(job).options.adapter_dtype == "fp32"


def test_a_job_that_no_file_can_state_is_refused_with_the_reason():
    job = plan("a", LLAMA, 1, {"dp": 8, **Z3}).job("torchtitan")
    with pytest.raises(UnsupportedError, match="axolotl trains plans of"):
        answer_of(job, "axolotl")


def test_adapters_that_a_trainer_adds_itself_are_searched_on_a_runtime_without_them():
    job = plan("a", LLAMA, 1, {"dp": 8, **Z1}).job("megatron-lm")
    trained = Trained(method="lora", rank=16, modules=("all",))
    job = job.model_copy(update={"model": job.model.model_copy(update={"trained": trained})})
    answer = answer_of(job.model_copy(update={"reserve_bytes": 20 << 30}), "verl")
    assert TRAINERS["verl"](answer.job, answer.best.layout).settings
    with pytest.raises(UnsupportedError, match="slime has no key for --train lora"):
        answer_of(job, "slime")


def test_an_unknown_trainer_is_refused_with_the_nearest_name(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", 64)
    with pytest.raises(CatalogError, match="unknown trainer 'ms-swfit': did you mean 'ms-swift'"):
        search(job, SearchOptions(trainer="ms-swfit"))
