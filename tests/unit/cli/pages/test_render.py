"""What is printed: short, aligned, never wider than 100 columns, never cut."""

import io
import re

import pytest
from rich.console import Console

from trainplan.cli.pages.infeasible import infeasible_page
from trainplan.cli.pages.parts.alternatives import (
    legend,
    near_tie_text,
    rivals_lines,
    ties_lines,
)
from trainplan.cli.pages.parts.breakdown import MOST_ROWS, memory_table, terms_table
from trainplan.cli.pages.parts.objective import objective_lines
from trainplan.cli.pages.plan import certificate_text
from trainplan.cli.words import (
    gib,
    parameters,
    percent,
    plural,
    seconds,
    seconds_like,
    small_percent,
    stages_sentence,
    tokens,
)
from trainplan.costmodel.base.units import GIB, long_unit
from trainplan.costmodel.layout.layout import Layout, StageSpec, stage_specs
from trainplan.costmodel.step.results import Memory, RankMemory
from trainplan.planner.plan.plan import Infeasible, Plan, UnevenStages
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346 s"),
        (123.45, "123.5 s"),
        (16.601, "16.60 s"),
        (0.5123, "0.512 s"),
        (0.01742, "17.42 ms"),
        (0.0, "0.00 ms"),
    ],
)
def test_seconds_have_about_four_digits(value: float, text: str):
    assert seconds(value) == text


def test_parts_have_the_digits_of_their_whole():
    assert seconds_like(0.05, 16.6) == "0.05 s"
    assert seconds_like(0.0005, 0.0174) == "0.50 ms"


def test_seconds_that_round_to_nothing_have_no_sign():
    assert seconds_like(-4e-16, 2.67) == "0.00 s"
    assert seconds_like(-4e-16, 0.0174) == "0.00 ms"
    assert seconds_like(-0.05, 16.6) == "-0.05 s"


@pytest.mark.parametrize(
    ("value", "stated"),
    [(9e4, (86_400, "days")), (7200.0, (3600, "hours")), (90.0, (60, "minutes")), (9.0, (1, "s"))],
)
def test_a_run_is_stated_in_a_unit_that_shows_it(value: float, stated: tuple[int, str]):
    assert long_unit(value) == stated


def test_counts_are_short():
    assert parameters(70_553_706_496) == "70.6 B"
    assert parameters(768) == "768"
    assert tokens(15 * 10**12) == "15 T"
    assert plural(1, "layout") == "1 layout"
    assert plural(1200, "layout") == "1,200 layouts"
    assert gib(1.5 * GIB) == "1.5"


def ranks(*weights: float) -> Memory:
    rows = tuple(RankMemory(i, w * GIB, 0, 0, 0, 0, 0) for i, w in enumerate(weights))
    return Memory(0, 0, 80 * GIB, fits=True, pipeline_ranks=rows)


def names(memory: Memory) -> list[str]:
    return [row[0].text for row in memory_table(memory).rows]


def test_ranks_that_look_alike_share_a_row():
    assert names(ranks(9, 8, 8, 8, 9)) == ["0", "1-3", "4"]


def test_many_unlike_ranks_are_shortened_but_the_fullest_stays():
    weights = [float(i) for i in range(64)]
    weights[40] = 79.0
    shown = names(ranks(*weights))
    assert len(shown) <= MOST_ROWS
    assert shown == ["0", "1", "2", "...", "40", "...", "61", "62", "63"]


@pytest.fixture(scope="module")
def small(make_job) -> Plan:
    """The answer of a small job."""
    plan = search(make_job("gpt2", "1x8:h100-sxm", 8, 1024), SearchOptions(top=2))
    assert isinstance(plan, Plan)
    return plan


def certified(plan: Plan, **changes: object) -> str:
    """The lines of the certificate of a plan with even stages, changed."""
    changes = {"uneven_stages": None, **changes}
    certificate = plan.certificate.model_copy(update=changes)
    return certificate_text(plan.model_copy(update={"certificate": certificate}))


def test_a_whole_search_excludes_the_others(small):
    text = certified(small)
    assert "a bound or a rule excludes the others" in text
    assert "time limit" not in text


def test_a_table_cut_by_the_time_limit_is_reported(small):
    text = certified(small, alternatives_complete=False)
    assert text.startswith("Proved fastest")
    assert "the time limit struck, so the table may miss alternatives" in text
    assert "excludes" not in text


def test_an_unproved_answer_states_its_gap_and_bound(small):
    changes = {"optimal": False, "lower_bound_s": 0.125, "gap_fraction": 0.25}
    text = certified(small, alternatives_complete=False, **changes)
    assert text.startswith("Not proved fastest")
    assert "the time limit struck, so the table may miss alternatives" in text
    assert "none is faster than 0.125 s, gap 25.0 %" in text
    assert "excludes" not in text


def with_uneven_stages(
    plan: Plan, *, even_s: float, gap: float, any_split: float | None = 1.0
) -> str:
    """The lines of a certificate whose best even layout takes so long, relative to the answer."""
    step = plan.best.estimate.step_time_s
    proof = UnevenStages(
        even_step_time_s=even_s * step,
        even_lower_bound_s=even_s * step,
        lower_bound_s=(1 - gap) * step,
        any_split_lower_bound_s=any_split and any_split * step,
        judged=7,
    )
    changes = {"uneven_stages": proof, "optimal": gap == 0, "gap_fraction": gap}
    return certificate_text(
        plan.model_copy(update={"certificate": plan.certificate.model_copy(update=changes)})
    )


def test_a_certificate_tells_even_stages_from_uneven_ones(small):
    proved = with_uneven_stages(small, even_s=1.0, gap=0.0)
    assert proved.startswith("Proved fastest of")
    assert "all splits of their layers into stages, gap 0 %." in proved
    assert "uneven stages save 20.0 %" in with_uneven_stages(small, even_s=1.25, gap=0.0)
    left = with_uneven_stages(small, even_s=1.0, gap=0.031)
    assert "with even stages, within 3.1 % of any with uneven ones" in left
    assert "time limit" not in left
    assert with_uneven_stages(small, even_s=1.25, gap=0.031).startswith("Uneven stages save")


def test_a_page_names_the_time_limit_that_ended_the_proof(small):
    changes = {"optimal": False, "gap_fraction": 0.25, "time_limit_struck": True}
    text = certified(small, alternatives_complete=False, **changes)
    assert "the time limit struck: `--time-limit none` goes on to the proof" in text
    assert text.endswith("; the table may miss alternatives.")


def test_a_certificate_counts_the_combinations_it_covers(small):
    assert "layouts (4 combinations of settings each) under" in certified(small)
    assert "combinations" not in certified(small, settings=None)


@pytest.mark.parametrize(
    ("any_split", "beyond"),
    [(None, ", gap 0 %."), (0.987654, " (any other split is at most 1.3 % faster), gap 0 %.")],
)
def test_a_certificate_names_the_splits_it_covers(small, any_split, beyond):
    text = with_uneven_stages(small, even_s=1.0, gap=0.0, any_split=any_split)
    words = " ".join(text.split())
    assert f"all splits whose virtual stages of a rank differ by one layer at most{beyond}" in words


@pytest.mark.parametrize(
    ("changes", "all_tried", "expected"),
    [
        ((), True, "No change we know makes it fit"),
        ((), False, "Changes not tried: time limit."),
        (("use 16 GPUs",), False, "Other changes not tried: time limit"),
    ],
)
def test_changes_that_were_not_tried_are_no_changes_that_do_not_help(
    make_job, changes: tuple[str, ...], expected: str, *, all_tried: bool
):
    result = Infeasible(
        job=make_job("gpt2", "1x8:h100-sxm", 8, 1024),
        refused={},
        space_size=1,
        least_memory_bytes=None,
        least_memory_layout=None,
        capacity_bytes=1.0,
        changes=changes,
        relaxations=tuple((change,) for change in changes),
    )
    page = io.StringIO()
    for part in infeasible_page(result, all_tried=all_tried):
        Console(file=page, width=100).print(part)
    assert expected in page.getvalue()
    assert ("time limit" in page.getvalue()) != all_tried


def with_ties(plan: Plan, *measured: bool) -> Plan:
    """The plan with so many rows beside it, all near-ties."""
    best = plan.candidates[0]
    ties = (
        best.model_copy(update={"rank": rank, "near_tie": True, "inside_measured": inside})
        for rank, inside in enumerate(measured, 2)
    )
    return plan.model_copy(update={"candidates": (best, *ties)})


def test_near_ties_are_explained_above_the_table_in_a_line(small):
    stated = [list(ties_lines(with_ties(small, *measured))) for measured in ((), (True,))]
    says = "The answer first, then by time. ~ is a tie with it: the model cannot rank the two "
    assert stated == [[], [f"{says}({near_tie_text()})."]]


def test_uneven_stages_are_told_in_words():
    assert stages_sentence(stage_specs([0, *[1] * 28, 2, 2, 0])) == (
        "Layers of the 32 virtual stages, in pipeline order: 0, 28 x 1, 2 x 2, 0."
    )
    again = (StageSpec(layers=13, recompute_num_layers=4), StageSpec(layers=12))
    assert stages_sentence(again).endswith("in pipeline order: 13 (4 recomputed), 12.")


def test_small_terms_share_a_row_that_keeps_the_sum(make_job):
    job = make_job("llama3-8b", "2x8:h100-sxm", 128, 8192)
    priced = estimate(job, Layout(pp=2, vpp=4, dp=8, schedule="interleaved"))
    few, whole = (terms_table(priced, few=few).rows for few in (True, False))
    small = [row for row in whole if float(row[2].text.split()[0]) < 1]  # percent
    assert len(small) > 1
    assert few[-1][0].text == f"{len(small)} smaller ones, each below 1 %"
    assert len(few) == len(whole) - len(small) + 1
    shares = [sum(float(row[2].text.split()[0]) for row in rows) for rows in (few, whole)]
    assert shares[0] == pytest.approx(shares[1], abs=0.1 * len(whole))


def test_a_legend_explains_short_names_alone(small):
    lines = [
        list(legend(with_modules(small, modules))) for modules in (("mlp",), ("layernorm", "mlp"))
    ]
    assert lines == [[], ["recompute: norm = layernorm"]]


def with_modules(plan: Plan, modules: tuple[str, ...]) -> Plan:
    layout = plan.best.layout.model_copy(update={"recompute_modules": modules})
    only = plan.candidates[0].model_copy(update={"layout": layout, "near_tie": False})
    return plan.model_copy(update={"candidates": (only,)})


def test_a_share_that_the_digits_do_not_show_is_bounded():
    assert [small_percent(one) for one in (0.0, 0.0004, 0.0006)] == [
        "0.0 %",
        "less than 0.1 %",
        "0.1 %",
    ]
    assert [percent(one, up=True) for one in (0.0, 0.009, 0.0091)] == ["0.0 %", "0.9 %", "1.0 %"]


@pytest.fixture(scope="module")
def cheapest(make_job) -> Plan:
    """The cheapest run of a small job."""
    job = make_job("gpt2", "1x8:h100-sxm", 8, 1024, tokens=10**12)
    group = job.cluster.groups[0].model_copy(update={"price_per_gpu_hour": 2.0})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    plan = search(job, SearchOptions(top=2, objective="cost", slack=0.0))
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("above", [0.0, 0.0002, 0.0091])
@pytest.mark.parametrize("gap", [0.0, 0.2])
def test_what_is_proved_is_of_the_figure_that_it_stands_behind(cheapest, above, gap):
    """The answer may cost more than the cheapest: then how much more is what is proved."""
    target = cheapest.certificate.objective
    figure = target.value * (1 + above)
    changes = {"of_answer": figure if above else None, "lower_bound": (1 - gap) * target.value}
    changed = {"objective": target.model_copy(update=changes)}
    certificate = cheapest.certificate.model_copy(update=changed)
    (line,) = objective_lines(cheapest.model_copy(update={"certificate": certificate}))
    assert line.startswith(f"{figure:,.0f} USD for the whole run on 8 GPUs")
    within = re.search(r", within ([\d.]+) % of the cheapest; ", line)
    assert bool(within) == bool(above)
    if within:
        assert float(within[1]) / 100 == pytest.approx(above, abs=1e-3)
        assert float(within[1]) / 100 >= above
    assert line.endswith("; proved") == (gap == 0)
    assert f"{1 - (1 - gap) / (1 + above):.1%}".replace("%", " %") in line or gap == 0


@pytest.mark.parametrize("model", ["llama3-8b", "llama3-70b"])
def test_a_layout_with_free_memory_is_faster_or_slower_than_the_answer(make_job, model):
    job = make_job(model, "8x8:h100-sxm", 128, 8192)
    plan = search(job, SearchOptions(slack=0.0, tries_uneven=0, memory_margin=0.0))
    assert plan.roomy
    roomy = plan.roomy.estimate.step_time_s
    for one in (one for one in plan.candidates if not one.is_roomy):
        (line,) = rivals_lines(plan.model_copy(update={"best": one}))
        pace = "slower" if one.estimate.step_time_s <= roomy else "faster"
        assert line.partition(": row")[0].split()[-1] == pace
        assert "-" not in line.partition(": row")[0]
