"""When nothing fits, the answer is what would."""

import pytest

from planner.answer import SearchOptions, search
from planner.constraints import parse_choice


def test_a_model_too_large_names_the_smallest_cluster_that_holds_it(make_job):
    answer = search(make_job("llama3-70b", "1x2:h100-sxm", 64, 8192))
    assert not hasattr(answer, "best")
    assert answer.least_memory_bytes > answer.capacity_bytes
    growth = next(change for change in answer.changes if "GPUs" in change)
    factor = int(growth.split("(")[1].split()[0])
    assert hasattr(search(make_job("llama3-70b", f"{factor}x2:h100-sxm", 64, 8192)), "best")
    assert not hasattr(
        search(make_job("llama3-70b", f"{factor // 2}x2:h100-sxm", 64, 8192)), "best"
    )


@pytest.mark.parametrize("text", ["tp=3", "recompute=none"])
def test_a_choice_that_leaves_nothing_is_named_as_the_one_to_drop(make_job, text):
    job = make_job("llama3-8b", "1x1:h100-sxm", 16, 8192)
    answer = search(job, SearchOptions(fix=(parse_choice(text, excluded=False),)))
    assert not hasattr(answer, "best")
    assert f"drop --fix {text}" in answer.changes


def test_a_batch_no_layout_divides_gets_the_next_that_one_does(make_job):
    answer = search(make_job("gpt2", "1x8:h100-sxm", 7, 1024))
    if hasattr(answer, "best"):
        assert answer.best.layout.dp in (1, 7)
    else:
        assert any("--global-batch-size 8" in change for change in answer.changes)
