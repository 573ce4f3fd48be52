"""Reports of answers that are no plan: what they say where there is little, and what they count."""

import json
from copy import deepcopy

import pytest

from tests.browser.documents import Documents
from trainplan.cli.blocks.blocks import Chart, Folded, Table
from trainplan.cli.blocks.html import html
from trainplan.cli.pages.figures import log_axis, short
from trainplan.cli.pages.report.registry import Request, page_of
from trainplan.costmodel.base.errors import SpecError


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return Documents(tmp_path_factory.mktemp("documents"))


def page(document):
    text = json.dumps(document)
    found = page_of(Request("plan.json", text, json.loads(text)))
    assert html(found).startswith("<!doctype html>")
    return found


def blocks(found, kind):
    """All blocks of a kind, those behind a line too."""

    def inner(some):
        for block in some:
            if isinstance(block, Folded):
                yield from inner(block.blocks)
            elif isinstance(block, kind):
                yield block

    return [block for section in found.sections for block in inner(section.blocks)]


def chart(found, name):
    return next(one for one in blocks(found, Chart) if one.name == name)


def test_a_sweep_without_any_plan_says_so(documents):
    document = deepcopy(documents.of("sweep"))
    nothing = dict.fromkeys(
        ("layout", "estimate", "tokens_per_s", "efficiency", "marginal_efficiency")
    )
    for point in document["curves"][0]["points"]:
        point |= {**nothing, "status": "memory", "knee": False}
    found = page(document)
    assert [one.tone for one in found.certainty] == ["doubtful"]
    assert chart(found, "step").says == "No point has a plan."
    assert "memory: nothing fits" in [row[-1].text for row in blocks(found, Table)[0].rows]


def test_money_of_a_sweep_is_that_of_a_billion_tokens(documents):
    document = deepcopy(documents.of("sweep"))
    document["cluster"]["groups"][0]["price_per_gpu_hour"] = 3.6
    point = document["curves"][0]["points"][0]
    money = chart(page(document), "money").figure["data"][0]["y"][0]
    assert money == pytest.approx(point["num_gpus"] * 0.001 * 1e9 / point["tokens_per_s"])
    document["cluster"]["groups"][0]["price_per_gpu_hour"] = None
    assert "money" not in [one.name for one in blocks(page(document), Chart)]


def test_no_choices_leave_no_chart(documents):
    document = {**documents.of("pareto"), "points": [], "complete": False}
    found = page(document)
    assert found.answer.startswith("0 layouts")
    assert found.certainty[0].tone == "doubtful"
    assert found.sections == ()


def test_the_table_of_choices_repeats_no_objective(documents):
    heads = [column.name for column in blocks(page(documents.of("pareto")), Table)[0].columns]
    assert heads == ["time", "memory", "GPUs", "MFU", "layout"]


def test_a_single_choice_is_no_chart_but_a_row(documents):
    document = documents.of("pareto")
    found = page({**document, "points": document["points"][:1]})
    assert blocks(found, Chart) == []
    assert len(blocks(found, Table)[0].rows) == 1
    assert "no point with even stages is missing" in found.certainty[0].text


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ((80_000, 900_000), ["10k", "20k", "50k", "100k", "200k", "500k", "1M", "2M", "5M"]),
        ((3e-5, 2.0), ["10µ", "100µ", "1m", "10m", "100m", "1", "10"]),
        ((0.0,), None),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_written_out(values, ticks):
    axis = log_axis(values)
    assert axis["type"] == "log"
    assert axis.get("ticktext") == ticks


def test_a_number_is_shortened_with_the_prefix_of_its_unit():
    assert [short(x, "B") for x in (1, 1e3, 16e6, 2e9)] == ["1 B", "1 kB", "16 MB", "2 GB"]


def test_many_choices_are_spread_and_the_rest_is_folded(documents):
    points = documents.of("pareto")["points"] * 5
    found = page({**documents.of("pareto"), "points": points})
    tables = [one for one in blocks(found, Table) if one.columns[-1].name == "layout"]
    assert [len(one.rows) for one in tables] == [20, len(points)]
    assert tables[0].rows[-1] == tables[1].rows[-1]


def test_a_tuning_run_that_measured_nothing_says_so(documents):
    document = deepcopy(documents.of("tune"))
    tuned = document["tuned"]
    tuned["best"] = None
    for one in tuned["trials"]:
        one["outcome"] |= {"ending": "out_of_memory", "step_time_s": None}
        one |= {"expected": None, "probability_faster_remains": None}
    found = page(document)
    count = len(tuned["trials"])
    assert found.answer == f"No trial of {count} was measured."
    names = [trace["name"] for trace in chart(found, "trials-in-order").figure["data"]]
    assert "out of memory" in names
    assert "chance" not in [one.name for one in blocks(found, Chart)]


def test_nothing_that_could_be_compared_leaves_what_was_skipped(documents):
    document = deepcopy(documents.of("validate"))
    overall = document["overall"]
    overall["coverage"], document["groups"], document["rows"] = [], [], []
    nothing = dict.fromkeys(
        ("mean_of_source_medians_fraction", "bias_fraction", "median_fraction", "mean_fraction")
    )
    overall["step_time"] |= {**nothing, "num_priced": 0}
    found = page(document)
    assert found.answer == "No step time could be compared."
    assert blocks(found, Chart) == []


def test_the_worst_runs_are_those_off_by_the_largest_factor(documents):
    rows = [one for one in documents.of("validate")["rows"] if one["scored"]]
    ratios = {one["id"]: 1 + one["step_time_error_fraction"] for one in rows}
    off = {name: max(ratio, 1 / ratio) for name, ratio in ratios.items()}
    worst = next(
        one for one in blocks(page(documents.of("validate")), Table) if "most off" in one.caption
    )
    assert off[worst.rows[0][0].text] == max(off.values())


def test_links_of_a_profile_are_medians_of_both_ways_in_the_order_of_the_nodes(documents):
    trace = chart(page(documents.of("profile")), "links-of-nodes").figure["data"][0]
    assert trace["x"] == trace["y"] == ["node-1", "node-2", "node-10"]
    assert trace["z"][0] == [None, pytest.approx(42.0), pytest.approx(20.0)]
    assert trace["z"][2] == [pytest.approx(20.0), pytest.approx(41.0), None]
    assert [row.index("?") for row in trace["text"] if "?" in row] == [2, 0]


def test_timings_to_doubt_are_marked_in_the_chart_and_listed(documents):
    found = page(documents.of("profile"))
    points = chart(found, "products-by-size").figure["data"][0]
    assert points["marker"]["symbol"].count("circle-x-open") == 1
    listed = next(one for one in blocks(found, Table) if "most spread" in one.caption)
    assert [row[-1].text for row in listed.rows] == ["noisy", "noisy"]
    assert found.certainty[0].text.startswith("2 of ")


def test_a_product_in_fp8_says_how_it_accumulates_and_scales(documents):
    document = documents.of("profile")
    first = next(one for one in document["points"] if one["kind"] == "gemm")
    fast = {**first, "precision": "fp8", "fast_accumulation": True, "recipe": "rowwise"}
    found = page({**document, "points": [*document["points"], fast]})
    plain, *_, narrow = chart(found, "products-by-size").figure["data"]
    assert narrow["text"][-1].endswith(" fp8, fast accumulation, rowwise")
    assert plain["text"][0].endswith(f" {first['precision']}")


def test_the_curve_of_a_collective_is_the_fitted_one(documents):
    document = documents.of("profile")
    fit = document["fitted"]["collectives"]["all_reduce_8"]
    traces = chart(page(document), "collective-all-reduce").figure["data"]
    line = next(one for one in traces if one["name"] == "8 GPUs, fitted")
    size, took = line["x"][-1], line["y"][-1]
    wire = 2 * 7 / 8 * size / (fit["bus_gb_per_s"] * 1e9)
    assert took == pytest.approx(fit["alpha_us"] * 1e-6 + wire, rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "field"),
    [("compare", "terms"), ("sweep", "curves"), ("pareto", "points"), ("validate", "rows")],
)
def test_a_field_that_is_missing_is_named(documents, kind, field):
    document = {name: one for name, one in documents.of(kind).items() if name != field}
    with pytest.raises(SpecError, match=f"{field}: is missing"):
        page(document)


def test_two_plans_have_waterfalls_on_one_axis_and_what_each_proves(documents):
    document = deepcopy(documents.of("compare"))
    found = page(document)
    first, second = (chart(found, f"step-{name}") for name in ("first", "second"))
    assert first.half and second.half
    ranges = [one.figure["layout"]["xaxis"]["range"] for one in (first, second)]
    assert ranges[0] == pytest.approx(ranges[1])
    for one, side in ((first, "first"), (second, "second")):
        *_, (_, whole, _) = one.numbers.rows
        assert whole.value == document[side]["estimate"]["step_time_s"]
        memory = chart(found, f"memory-{side}").numbers.rows
        assert len(memory) == len(document[side]["estimate"]["memory"]["pipeline_ranks"])
    claims = [fact.value for fact in found.certainty[0].facts]
    held = "simplest within 1.0 % of the fastest of its search among those like published runs"
    assert claims[:2] == [held] * 2
    proof = {**document["first"]["proof"], "like_published": False}
    for change, words in (
        ({"slack_fraction": 0.0}, "fastest of its search"),
        ({"optimal": False, "gap_fraction": 0.031}, "within 3.1 % of the fastest of its search"),
        ({"optimal": False, "gap_fraction": 0.0}, "not known"),
        ({}, "simplest within 1.0 % of the fastest of its search"),
    ):
        document["first"]["proof"] = {**proof, **change}
        assert page(document).certainty[0].facts[0].value == words
    del document["first"]["proof"], document["second"]["proof"]
    assert [one.value for one in page(document).certainty[0].facts[:2]] == ["not known"] * 2


def test_plans_that_differ_in_their_runtime_are_named_by_it_and_bars_have_values(documents):
    document = deepcopy(documents.of("compare"))
    assert [fact.name for fact in page(document).facts.facts][:2] == [
        "step of the first",
        "step of the second",
    ]
    document["second"]["runtime"] = "another"
    found, own = page(document), document["first"]["runtime"]
    heads = [f"first ({own})", "second (another)"]
    assert [fact.name for fact in found.facts.facts][:2] == [f"step of the {it}" for it in heads]
    steps = chart(found, "difference").figure["data"][0]
    assert [steps["y"][0], steps["y"][-1]] == heads
    assert steps["textposition"] == "outside"
    for part in chart(found, "memory-of-both").figure["data"][:-1]:
        assert [float(text) for text in part["text"]] == pytest.approx(part["x"], abs=0.06)


def test_a_sweep_states_how_far_its_steps_may_be_off_once(documents):
    document = documents.of("sweep")
    ranges = [
        (one["step_time_s"], one["uncertainty"])
        for point in document["curves"][0]["points"]
        if (one := point["estimate"])
    ]
    low = min(range_["step_time_low_s"] / step for step, range_ in ranges) - 1
    (line,) = [one for one in page(document).certainty if "Step times" in one.text]
    assert line.text.startswith(f"Step times, 80 %: {100 * low:+.0f} % to +")
