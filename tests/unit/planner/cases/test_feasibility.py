"""When nothing fits, the answer is what would."""

import pytest

from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.planner.cases.case import Case
from trainplan.planner.cases.feasibility import relaxations
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited


def test_a_model_too_large_names_the_smallest_cluster_that_holds_it(make_job):
    answer = search(make_job("llama3-70b", "1x2:h100-sxm", 64, 8192))
    assert not hasattr(answer, "best")
    assert answer.least_memory_bytes > answer.capacity_bytes
    growth = next(change for change in answer.changes if "GPUs" in change)
    factor = int(growth.split("(")[1].split()[0])
    alone = SearchOptions(only_answer=True, search_options="none")
    for nodes, holds in ((factor, True), (factor // 2, False)):
        found = search(make_job("llama3-70b", f"{nodes}x2:h100-sxm", 64, 8192), alone)
        assert hasattr(found, "best") == holds


@pytest.mark.parametrize("text", ["tp=3", "recompute=none"])
def test_a_choice_that_leaves_nothing_is_named_as_the_one_to_drop(make_job, text):
    job = make_job("llama3-8b", "1x1:h100-sxm", 16, 8192)
    answer = search(job, SearchOptions(fix=(parse_choice(text, excluded=False),)))
    assert not hasattr(answer, "best")
    assert f"drop --fix {text}" in answer.changes


def test_a_setting_that_leaves_nothing_is_named_as_one_to_drop(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 32, 2048)
    options = RuntimeOptions(moment_dtype="bf16", overlap_grad_reduce=True)
    fix = (parse_choice("zero_stage=0", excluded=False),)
    answer = search(job.model_copy(update={"options": options}), SearchOptions(fix=fix))
    assert answer.changes == ("drop --fix zero_stage=0", "drop --option moment_dtype=bf16")


def test_a_batch_no_layout_divides_gets_the_next_that_one_does(make_job):
    answer = search(make_job("gpt2", "1x8:h100-sxm", 7, 1024), SearchOptions(search_options="none"))
    if hasattr(answer, "best"):
        assert answer.best.layout.dp in (1, 7)
    else:
        assert any("--global-batch-size 8" in change for change in answer.changes)


def test_single_changes_are_sets_of_one(make_job):
    answer = search(make_job("llama3-70b", "1x2:h100-sxm", 64, 8192))
    assert answer.relaxations == tuple((change,) for change in answer.changes)
    assert answer.changes


def test_two_choices_that_each_leave_nothing_are_dropped_together(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 32, 2048)
    fix = tuple(parse_choice(text, excluded=False) for text in ("tp=3", "cp=3"))
    answer = search(job, SearchOptions(fix=fix))
    assert answer.changes == ()
    assert answer.relaxations == (("drop --fix tp=3", "drop --fix cp=3"),)


def test_three_choices_are_dropped_only_if_no_two_suffice(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 32, 2048)
    fix = tuple(parse_choice(text, excluded=False) for text in ("tp=3", "cp=3", "pp=5"))
    answer = search(job, SearchOptions(fix=fix))
    assert [len(one) for one in answer.relaxations] == [3]


def test_the_smallest_sets_are_of_one_size_and_name_every_change_once(make_job):
    job = make_job("llama3-70b", "1x2:h100-sxm", 63, 8192)
    fix = (parse_choice("dp=2", excluded=False), parse_choice("recompute=none", excluded=False))
    case = Case(job, SearchOptions(fix=fix))
    found = relaxations(case, Unlimited())
    assert found
    assert len({len(one) for one in found}) == 1
    assert len(found[0]) > 1
    assert all(len(set(one)) == len(one) for one in found)
