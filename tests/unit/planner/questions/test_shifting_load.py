"""A search whose answer fits when load shifts: yes, no, and where it is not known."""

import numpy as np
import pytest

from trainplan.cli.pages.parts.headline import chosen_lines
from trainplan.cli.pages.parts.load_shift import load_shift_lines
from trainplan.costmodel.base import GIB
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases.case import Case, with_memory
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions import islands, search
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.questions.load_shift import load_shift
from trainplan.planner.questions.unequal_experts import imbalance_notes
from trainplan.planner.space import parse_choice
from trainplan.planner.work import Unlimited

HELD = ("ep=8", "tp=1", "pp=1", "cp=1", "zero_stage=1", "offload.optimizer=0", "etp=1")
LAYOUT = Layout(dp=8, ep=8, zero_stage=1)


def options(*fix, **more):
    held = tuple(parse_choice(text, excluded=False) for text in (*HELD, *fix))
    return SearchOptions(search_options="none", fix=held, slack=0.0, **more)


def counted(job, hot, steps=20):
    """Steps whose experts are alike, but in one of them some have `hot` times the rows."""
    popularity = np.ones((steps, 1, job.model.moe.num_experts))
    popularity[7, :, :16] = hot
    each = tuple(tuple(tuple(map(float, one)) for one in step) for step in popularity)
    total = tuple(map(tuple, popularity.sum(axis=0).tolist()))
    routing = RoutingSpec(kind="measured", tokens_per_expert=total, steps=each, source="c.csv")
    return under(job, routing)


def under(job, routing):
    options = RuntimeOptions.model_validate({"routing": routing})
    return job.model_copy(update={"options": options})


@pytest.fixture(scope="module", name="job")
def whole_job(make_job):
    """A quarter of the layers, on GPUs with a quarter of the memory."""
    made = make_job("qwen3-30b-a3b", "1x8:h200-sxm", 64, 4096)
    model = made.model.model_copy(update={"num_hidden_layers": 12})
    return with_memory(Case(made.model_copy(update={"model": model}), SearchOptions()), 38).job


def test_an_answer_that_fits_when_load_shifts_is_the_one_without_the_flag(job):
    even = counted(job, 1.0)
    plain, held = (search(even, options(fit_p99=one)) for one in (False, True))
    assert held == plain
    assert plain.load_shift.fits is None


def test_the_answer_is_near_the_fastest_layout_that_fits_when_load_shifts(job):
    """Against all layouts of a small grid, priced one by one."""
    shifting = counted(job, 5.0)
    plain, held = (
        search(shifting, options("micro_batch_size=1", fit_p99=one, only_answer=True))
        for one in (False, True)
    )
    before, after = (
        load_shift(shifting, one.best.layout, one.best.estimate) for one in (plain, held)
    )
    assert (before.fits, after.fits) == (False, None)
    assert after.lacks_bytes <= 0 < before.lacks_bytes
    full = {"recompute": "full", "recompute_method": "block"}
    policies = [{}, *({**full, "recompute_num_layers": n} for n in range(1, 13))]
    fast = []
    for policy in policies:
        layout = Layout(dp=8, ep=8, zero_stage=1, **policy)
        priced = estimate(shifting, layout)
        if load_shift(shifting, layout, priced).fits is not False:
            fast.append(priced.step_time_s)
    assert held.best.estimate.step_time_s <= 1.01 * min(fast)
    assert held.memory_margin > plain.memory_margin
    line, _ = chosen_lines(held.job, held.notes)
    lacks = f"lacks {before.lacks_bytes / GIB:.3g} GiB"
    assert line.startswith("not known whether a faster layout that leaves less than ")
    assert lacks in line
    assert f"none takes less than {plain.certificate.lower_bound_s:.4g} s" in line


class Over(Unlimited):
    """Spent once the first search has answered."""

    over = False

    def spent(self):
        return self.over


@pytest.mark.parametrize("over", [False, True])
def test_a_refusal_distinguishes_no_fit_from_no_time(job, monkeypatch, over):
    budget, whole = Over(), islands.search

    def searched(*args):
        found = whole(*args)
        budget.over = over
        return found

    monkeypatch.setattr(islands, "search", searched)
    narrow = options("recompute=none", "micro_batch_size=1", fit_p99=True, only_answer=True)
    says = "the time limit struck" if over else "in limits of memory by 1 %"
    with pytest.raises(SpecError, match=f"--fit-p99: no layout .*{says}.*without it takes") as one:
        search(counted(job, 30.0), narrow, budget)
    assert "\n" not in str(one.value)


@pytest.mark.parametrize(
    ("routing", "says"),
    [
        (None, "routing=balanced is one load for all steps"),
        ("load:1.2", "routing=load:1.2 is one load for all steps"),
    ],
)
def test_a_load_that_is_not_known_to_shift_is_refused(job, routing, says):
    with pytest.raises(SpecError, match=f"--fit-p99: {says}.*routing=FILE"):
        search(under(job, routing), options(fit_p99=True))


def test_what_has_no_experts_is_refused(make_job):
    with pytest.raises(SpecError, match="has no experts"):
        search(make_job("llama3-8b", "1x8:h100-sxm"), SearchOptions(fit_p99=True))


def test_a_stated_load_does_not_say_whether_memory_holds(job):
    notes = list(imbalance_notes(under(job, "load:1.2"), LAYOUT))
    (line,) = chosen_lines(job, notes)
    assert line.startswith("not known whether memory holds when load shifts: routing=load:1.2 is")
    assert not chosen_lines(job, list(imbalance_notes(under(job, "random"), LAYOUT)))


def test_the_larger_of_two_figures_of_memory_is_called_a_bound(job):
    stated = under(job, "random")
    found = load_shift(stated, LAYOUT, estimate(stated, LAYOUT))
    peak = found.decides.memory_bytes
    more = list(load_shift_lines(found, peak + GIB))[1]
    assert more.startswith(
        f"the estimate's {peak / GIB + 1:.1f} GiB bounds the mean step from above"
    )
    assert not any("bounds" in one for one in load_shift_lines(found, peak - GIB))
