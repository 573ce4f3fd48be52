"""Whether a layout fits whose memory is an upper bound: yes, no, and where it is not known."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.planner.questions.test_load_shift import routing_of, under
from trainplan.cli.documents.check import CheckDocument
from trainplan.cli.documents.compared import CompareDocument, WhyNotDocument
from trainplan.cli.pages.infeasible import infeasible_line
from trainplan.cli.pages.parts.headline import chosen_lines, fit_line
from trainplan.cli.pages.plan import baseline_text, rule_texts
from trainplan.costmodel.base import GIB
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases.case import Case, with_memory
from trainplan.planner.comparisons.comparison import compare
from trainplan.planner.comparisons.verdict import why_not
from trainplan.planner.documents.document import plan_json
from trainplan.planner.documents.written_plan import written
from trainplan.planner.launch_checks.check import LaunchCheck
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.estimation import estimate as bounded
from trainplan.planner.questions.load_shift import estimate, load_shift
from trainplan.planner.runtimes.reading import Reading
from trainplan.planner.space import parse_choice
from trainplan.planner.work import Unlimited

LAYOUT = Layout(dp=8, ep=8, micro_batch_size=2)


def with_gib(job, size):
    return with_memory(Case(job, SearchOptions()), size / GIB).job


@pytest.fixture(scope="module", name="whole")
def whole_job(make_job):
    made = make_job("qwen3-30b-a3b", "1x8:h200-sxm", 64, 4096)
    return made.model_copy(
        update={"model": made.model.model_copy(update={"num_hidden_layers": 16})}
    )


def counted(job, steps):
    """Every layer has another full rank, so that none is full in all of them."""
    popularity = np.ones((steps, job.model.num_moe_layers, job.model.moe.num_experts))
    for layer in range(job.model.num_moe_layers):
        first = 16 * (layer % 8)
        popularity[:, layer, first : first + 16] = 3.0
    return under(job, routing_of(job, popularity))


@pytest.fixture(scope="module", name="on_memory")
def memory_of_a_share(whole):
    """The job on GPUs between the memory that decides (0) and its upper bound (1)."""

    def on(steps, share):
        job = counted(whole, steps)
        priced = bounded(job, LAYOUT)
        low = load_shift(job, LAYOUT, priced).decides.memory_bytes
        high = priced.memory.peak_reserved_bytes
        assert low < high
        return with_gib(job, low + share * (high - low))

    return on


@pytest.mark.parametrize(
    ("case", "fits", "says"),
    [
        ((100, 1.1, 0.0), True, "At the edge, fits ("),
        ((100, 0.5, 0.0), True, "Fits in 99 of 100 steps; by an upper bound"),
        ((20, 0.5, 0.0), None, "Not known whether it fits: by an upper bound"),
        ((1, 0.5, 0.0), None, "Not known whether it fits: by an upper bound"),
        ((100, -0.1, 0.0), False, "Does not fit"),
        ((20, -0.1, 0.0), False, "Does not fit"),
        ((100, 0.5, 0.5), False, "Does not fit"),
    ],
)
def test_a_bound_above_memory_decides_nothing(on_memory, case, fits, says):
    """Yes where 99 of 100 steps fit, no where the step that decides does not, else not known."""
    steps, share, margin = case
    job = on_memory(steps, share)
    priced = estimate(job, LAYOUT, memory_margin=margin)
    assert priced.memory.fits is fits
    assert fit_line(priced.memory, job.model).startswith(says)
    raw, blank = bounded(job, LAYOUT, memory_margin=margin), {"fits": None, "fit_chance": None}
    assert replace(priced.memory, **blank) == replace(raw.memory, **blank)
    assert priced.step_time_s == raw.step_time_s
    shown = baseline_text(job, LAYOUT, priced, priced)
    assert ("too much" in shown, "not known" in shown) == (fits is False, fits is None)


@pytest.mark.parametrize("routing", [None, "balanced", "load:1.2"])
def test_a_load_that_does_not_shift_has_the_verdict_of_its_memory(whole, routing):
    job = with_gib(under(whole, routing), 4 * GIB)
    assert estimate(job, LAYOUT) is bounded(job, LAYOUT)
    assert estimate(job, LAYOUT).memory.fits is False


def fixed(*more):
    names = ("ep=8", "tp=1", "pp=1", "cp=1", "zero_stage=1", "etp=1", "micro_batch_size=2")
    held = (*names, "offload.optimizer=0", *more)
    fix = tuple(parse_choice(text, excluded=False) for text in held)
    return SearchOptions(search_options="none", fix=fix, only_answer=True)


def test_why_not_names_the_bound_that_excluded_it(on_memory):
    job = on_memory(20, 0.5)
    plan = written(json.dumps(plan_json(search(job, fixed("recompute=full")))))
    found = why_not(Case(job, SearchOptions()), plan, LAYOUT, Unlimited())
    assert (found.verdict, found.remedies) == ("faster", ())
    says = "the search excludes it by an upper bound of memory, and not known whether it fits"
    assert says in WhyNotDocument.sentence(found)
    slower = replace(found, verdict="slower", lost_s=1.0)
    assert "(not known whether it fits: " in WhyNotDocument.sentence(slower)


@pytest.mark.parametrize(("share", "fits"), [(0.5, None), (-0.1, False)])
def test_a_search_names_what_an_upper_bound_excluded(on_memory, share, fits):
    job = on_memory(20, share)
    found = search(job, fixed("recompute=none"))
    assert isinstance(found, Infeasible)
    assert found.least_memory_fits is fits
    starts = "Nothing fits" if fits is False else "Not known what fits: every layout was excluded"
    assert infeasible_line(found).startswith(starts)
    assert "upper bound" in rule_texts(job, found.refused)["memory"]
    plan = search(job, fixed())
    line = next(iter(chosen_lines(job, plan.notes)))
    assert line.startswith(f"not known whether a faster layout fits: {plan.refused['memory']:,} ")


@pytest.mark.parametrize(
    ("steps", "share", "says"),
    [
        (100, 0.5, "It runs and fits: "),
        (20, 0.5, "Not known whether it fits: at most "),
        (20, -0.1, "It does not fit: "),
    ],
)
def test_a_launch_and_a_comparison_have_the_same_verdict(on_memory, steps, share, says):
    job = on_memory(steps, share)
    reading = Reading(job.runtime, "", job, LAYOUT, (), ())
    found = LaunchCheck(reading, estimate(job, LAYOUT), (), None, (), "")
    assert CheckDocument.sentence(found).startswith(says)
    case = Case(job, SearchOptions())
    page = CompareDocument.of(compare(case, LAYOUT, case, LAYOUT)).json()
    assert page["first"]["estimate"]["memory"]["fits"] is found.fits
