"""A search that tries no activations on the host says what they would gain."""

import pytest

from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.space.choices import parse_choice

SAYS = "activations stay on the GPUs: "


def note_of(job, *fix, **options):
    choices = tuple(parse_choice(one, excluded=False) for one in fix)
    plan = search(
        job, SearchOptions(**{"fix": choices, "search_options": "none", "slack": 0.0} | options)
    )
    return plan, [note for note in plan.notes if note.startswith(SAYS)]


@pytest.fixture(name="tight")
def few_gpus(make_job):
    return make_job("llama3.1-8b", "1x2:h100-sxm", 16, 8192)


def test_what_would_be_faster_is_named_with_no_more_than_the_search_gains(tight):
    plan, [note] = note_of(tight, slack=0.0)
    assert "with qkv_linear+core_attn+attn_proj on the host" in note
    wanted, notes = note_of(tight, "offload_modules=free", slack=0.0)
    assert not notes
    gain = float(note.partition("at least ")[2].partition(" %")[0]) / 100
    whole = 1 - wanted.best.estimate.step_time_s / plan.best.estimate.step_time_s
    assert 0.01 <= gain <= whole + 0.0005


@pytest.mark.parametrize(
    ("runtime", "fix", "options"),
    [
        ("torchtitan", (), {}),  # it offloads no modules
        ("megatron-lm", ("recompute=full",), {}),  # nothing is kept
        ("megatron-lm", ("offload_modules=none",), {}),  # the user said so
        ("megatron-lm", ("pp=1", "tp=1", "cp=1"), {"objective": "memory"}),
    ],
)
def test_there_is_no_note_where_there_is_no_choice(tight, runtime, fix, options):
    assert not note_of(tight.model_copy(update={"runtime": runtime}), *fix, **options)[1]


def test_a_gain_below_one_percent_has_no_note(make_job):
    assert not note_of(make_job("llama3.1-8b", "8x8:h100-sxm", 64, 4096))[1]
