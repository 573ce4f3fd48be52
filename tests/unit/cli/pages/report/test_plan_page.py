"""The page of a plan: all its numbers are those of the document, and they add up."""

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest

from trainplan.cli.blocks.blocks import Block, Chart, Code, Facts, Folded, Page, Paragraph, Table
from trainplan.cli.blocks.html import html
from trainplan.cli.pages.figures import label_sides
from trainplan.cli.pages.parts.alternatives import ties_lines
from trainplan.cli.pages.report.plan.bars import joined, lanes_chart
from trainplan.cli.pages.report.plan.memory import rank_capacities
from trainplan.cli.pages.report.plan.page import plan_page
from trainplan.cli.pages.report.plan.step import parts_of, step_section
from trainplan.cli.words import seconds
from trainplan.costmodel.base.units import GIB
from trainplan.costmodel.copy_streams.transfer_volume import Lane
from trainplan.costmodel.copy_streams.work import Span
from trainplan.costmodel.layout.layout import Layout, StageSpec
from trainplan.planner.cases import Case, with_gpus
from trainplan.planner.documents.document import plan_json
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.questions.simulation import simulate
from trainplan.planner.space import parse_choice

NAME = "my plan.json"
EVIL = '<img src=x onerror=alert(1)>{"@blue"}%{x}</script>'


def blocks_of(blocks) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Folded):
            yield from blocks_of(block.blocks)
        if isinstance(block, Chart):
            yield block.numbers


def every_block(page: Page) -> list[Block]:
    return [block for part in page.sections for block in blocks_of(part.blocks)]


def chart(page: Page, name: str) -> Chart:
    return next(b for b in every_block(page) if isinstance(b, Chart) and b.name == name)


def table(page: Page, caption: str) -> Table:
    return next(b for b in every_block(page) if isinstance(b, Table) and caption in b.caption)


def column(table: Table, name: str) -> list[float | None]:
    place = [one.name for one in table.columns].index(name)
    return [row[place].value for row in table.rows]


@pytest.fixture(scope="module")
def plan(make_job):
    options = SearchOptions(fix=(parse_choice("pp=2", excluded=False),))
    return search(make_job("llama3-8b", "2x8:h100-sxm", 64), options)


@pytest.fixture(scope="module")
def text(plan):
    return json.dumps(plan_json(plan), indent=2) + "\n"


@pytest.fixture(scope="module")
def page(text):
    return plan_page(NAME, text)


def test_the_facts_are_those_of_the_document(page, text):
    best = json.loads(text)["best"]["estimate"]
    facts = {fact.name: fact for fact in page.facts.facts}
    assert facts["step"].value == seconds(best["step_time_s"])
    assert facts["tokens/s/GPU"].value == f"{best['tokens_per_s_per_gpu']:,.0f}"
    assert facts["MFU"].value == f"{best['mfu'] * 100:.1f} %"
    used = best["memory"]["peak_reserved_bytes"]
    assert facts["memory of the fullest GPU"].value == f"{used / GIB:.1f} GiB"


def test_parts_of_the_step_are_its_terms_and_add_up_to_it(page, text):
    best = json.loads(text)["best"]["estimate"]
    *parts, whole = column(table(page, "Parts of the step"), "seconds")
    assert whole == best["step_time_s"]
    assert sum(parts) == pytest.approx(whole, rel=1e-12)
    assert parts[0] == best["mfu"] * best["step_time_s"]
    products = best["terms"]["gemm"] + best["terms"]["attention"]
    assert parts[0] + parts[1] == pytest.approx(products, rel=1e-12)
    others = {name: s for name, s in best["terms"].items() if name not in ("gemm", "attention")}
    assert parts[2:] == [value for value in others.values() if value]


def test_each_bar_of_the_step_begins_where_the_one_before_ends(plan, page):
    parts = parts_of(plan.best.estimate)
    for one, then in pairwise(parts):
        assert then.start == pytest.approx(one.start + one.seconds)
    drawn = chart(page, "waterfall").figure["data"][0]
    assert drawn["base"][: len(parts)] == [part.start for part in parts]
    assert drawn["x"][: len(parts)] == [part.seconds for part in parts]


def test_a_measured_step_ends_the_waterfall(plan):
    step = plan.best.estimate.step_time_s
    section = step_section(plan.best.estimate, step * 1.1)
    *_, planned, missed, measured = section.blocks[0].numbers.rows
    assert planned[1].value == step
    assert missed[1].value == pytest.approx(0.1 * step)
    assert measured[1].value == step * 1.1
    assert "+10.0 %" in section.blocks[0].says


def test_memory_is_that_of_every_rank(page, text):
    memory = json.loads(text)["best"]["estimate"]["memory"]
    found = table(page, "GiB of each pipeline rank")
    for field, name in (("weights_bytes", "weights"), ("activations_bytes", "activations")):
        assert column(found, name) == [rank[field] for rank in memory["pipeline_ranks"]]
    totals = column(found, "together")
    assert max(totals) == pytest.approx(memory["peak_reserved_bytes"])
    assert column(found, "of") == [memory["capacity_bytes"]] * len(totals)
    bars = chart(page, "memory-by-rank").figure["data"]
    stacked = [sum(trace["y"][rank] for trace in bars[:6]) for rank in range(len(totals))]
    assert stacked == pytest.approx([one / GIB for one in totals])
    assert bars[6]["y"][0] == memory["capacity_bytes"] / GIB
    kept = 1 - json.loads(text)["provenance"]["memory_margin"]
    assert bars[7]["y"][0] == pytest.approx(kept * memory["capacity_bytes"] / GIB)


def test_ranks_on_unlike_gpus_have_the_memory_of_their_own(make_job):
    job = make_job("llama3-8b", "1x2:a100-sxm-40gb+1x2:h100-sxm", 8)
    stages = (StageSpec(layers=20, group=1), StageSpec(layers=12, group=0))
    layout = Layout(tp=2, pp=2, stages=stages)
    h100, a100 = rank_capacities(job, layout)
    assert a100 == 40 * GIB < 79 * GIB < h100
    assert estimate(job, layout).memory.capacity_bytes in (a100, h100)
    assert rank_capacities(job, Layout(tp=2, pp=2)) == ()


def test_alternatives_are_those_of_the_document(page, text):
    document = json.loads(text)
    best = document["best"]["estimate"]["step_time_s"]
    found = table(page, "The best layout of each family")
    steps = [one["estimate"]["step_time_s"] for one in document["candidates"]]
    assert column(found, "step") == steps
    assert column(found, "slower") == [step / best - 1 for step in steps]
    assert column(found, "MFU") == [one["estimate"]["mfu"] for one in document["candidates"]]
    memories = [one["estimate"]["memory"] for one in document["candidates"]]
    assert column(found, "GiB") == [one["peak_reserved_bytes"] for one in memories]
    assert column(found, "tp") == [one["layout"]["tp"] for one in document["candidates"]]
    place = [one.name for one in found.columns].index("near tie")
    ties = [row[place].text == "~" for row in found.rows]
    assert ties == [one["near_tie"] for one in document["candidates"]]
    assert found.marked == 0


def test_causes_add_up_to_what_an_alternative_takes_more(page, plan):
    found = table(page, "Seconds against the answer")
    for row, one in zip(found.rows, plan.candidates[1:], strict=True):
        *causes, together = (cell.value for cell in row[1:])
        assert together == one.estimate.step_time_s - plan.best.estimate.step_time_s
        assert sum(causes) == pytest.approx(together, abs=1e-9)
    bars = chart(page, "differences").figure["data"]
    sums = [sum(trace["x"][place] for trace in bars) for place in range(len(found.rows))]
    assert sums == pytest.approx(column(found, "together"), abs=1e-9)


def test_refusals_sources_schedules_and_runs_are_those_of_the_document(page, text):
    document = json.loads(text)
    refused = table(page, "Layouts refused")
    assert {row[1].text: row[0].value for row in refused.rows} == document["refused"]
    sources = table(page, "Numbers of the machine")
    stated = [tuple(source.values()) for source in document["provenance"]["sources"]]
    assert [tuple(cell.text for cell in row) for row in sources.rows] == stated
    others = table(page, "This layout under schedules")
    times = [one["step_time_s"] for one in document["other_schedules"]]
    assert column(others, "step") == times
    runs = table(page, "Nearest runs")
    nearest = document["evidence"]["nearest"]
    assert [row[4].text for row in runs.rows] == [run["precision"] for run in nearest]
    assert column(runs, "measured step") == [run["step_time_s"] for run in nearest]
    assert column(runs, "estimate off by") == [run["error_fraction"] for run in nearest]


def test_the_timeline_ends_with_the_step_and_its_ranks_work_as_simulated(page, plan):
    simulation = simulate(plan.job, plan.best.layout)
    figure = chart(page, "pipeline").figure
    step = plan.best.estimate.step_time_s
    assert figure["layout"]["xaxis"]["maxallowed"] == pytest.approx(step)
    passes = [one for one in figure["data"] if one["name"] in ("forward", "backward")]
    busy = [0.0] * plan.best.layout.pp
    for trace in passes:
        for row, length in zip(trace["y"], trace["x"], strict=True):
            busy[round(row)] += length
    assert busy == pytest.approx(simulation.busy.tolist(), rel=1e-4)
    ends = [b + x for one in figure["data"] for b, x in zip(one["base"], one["x"], strict=True)]
    assert max(ends) == pytest.approx(step, rel=1e-5)
    ranks = table(page, "Seconds of every pipeline rank")
    assert column(ranks, "busy") == simulation.busy.tolist()


def test_a_plan_of_other_numbers_is_said_to_be_one(text):
    document = json.loads(text)
    document["best"]["estimate"]["step_time_s"] *= 1.5
    blocks = every_block(plan_page(NAME, json.dumps(document)))
    assert any("make it anew" in getattr(block, "text", "") for block in blocks)


def test_the_document_stands_at_the_end_whole(page, text):
    codes = {block.name: block.text for block in every_block(page) if isinstance(block, Code)}
    assert codes[NAME] == text
    assert "plan explain 'my plan.json'" in codes["Explain"]


def test_a_name_with_html_in_it_is_text_everywhere(plan):
    model = plan.job.model.model_copy(update={"name": EVIL})
    evil = plan.model_copy(update={"job": plan.job.model_copy(update={"model": model})})
    written = html(plan_page(EVIL, json.dumps(plan_json(evil))))
    assert "<img" not in written.replace("&lt;img", "")
    assert "&lt;img src=x onerror=alert(1)&gt;" in written


def test_every_number_of_a_cell_is_finite_and_every_text_is_there(page):
    for block in every_block(page):
        if isinstance(block, Table):
            for row in block.rows:
                assert len(row) == len(block.columns)
                assert all(cell.value == cell.value for cell in row)
        if isinstance(block, Facts):
            assert all(fact.value for fact in block.facts)


def test_a_layout_that_is_no_answer_of_the_table_is_marked_nowhere(plan):
    other = plan.best.layout.model_copy(update={"micro_batch_size": 64})
    best = plan.best.model_copy(update={"layout": other})
    tuned = plan.model_copy(update={"best": best})
    document = json.loads(json.dumps(plan_json(tuned)))
    assert table(plan_page(NAME, json.dumps(document)), "The best layout").marked is None


def test_sizes_that_were_tried_for_an_objective_are_listed_with_their_values(make_job):
    job = make_job("small-dense", "2x2:h100-sxm")
    priced = tuple(g.model_copy(update={"price_per_gpu_hour": 2.0}) for g in job.cluster.groups)
    cluster = job.cluster.model_copy(update={"groups": priced})
    job = job.model_copy(update={"cluster": cluster})
    found = search(job, SearchOptions(objective="cost", search_options="none"))
    sizes = table(plan_page(NAME, json.dumps(plan_json(found))), "Parts of the cluster")
    tried = {one.num_gpus: one for one in found.certificate.objective.tried}
    stated = dict(zip(column(sizes, "GPUs"), column(sizes, "objective"), strict=True))
    assert stated.keys() == tried.keys()
    for number, value in stated.items():
        assert value == (tried[number].value or tried[number].lower_bound)


def test_a_run_of_known_length_has_its_days_and_gpu_hours(plan):
    training = plan.job.training.model_copy(update={"tokens": 10**13})
    long = plan.model_copy(update={"job": plan.job.model_copy(update={"training": training})})
    facts = {f.name: f for f in plan_page(NAME, json.dumps(plan_json(long))).facts.facts}
    steps = -(-(10**13) // training.tokens_per_step)
    days = steps * plan.best.estimate.step_time_s / 86_400
    assert facts["10 T tokens"].value == f"{days:,.0f} days"
    assert facts["GPU-hours"].value == f"{days * 24 * 16:,.0f}"


def test_many_spans_are_joined_up_to_the_last_copy_and_lose_no_lane():
    passes = [Span("pass", Lane.GPU, float(t), t + 0.9, None) for t in range(5_000)]
    copy = Span("weights", Lane.D2H, 4_999.0, 5_009.0, None)
    found = {one["name"]: one for one in lanes_chart([*passes, copy]).figure["data"]}
    assert list(found[Lane.D2H.plain]["base"]) == [4_999.0]
    assert list(found[Lane.D2H.plain]["x"]) == [10.0]
    assert list(found[Lane.GPU.plain]["base"]) == [0.0]
    assert found[Lane.GPU.plain]["x"][0] == pytest.approx(4_999.9)
    apart = joined([passes[0], passes[1], passes[9]], near=0.2)
    assert [(one.start, one.end) for one in apart] == [(0.0, 1.9), (9.0, 9.9)]


def test_energy_and_carbon_dioxide_stand_beside_the_money(make_job):
    job = make_job("small-dense", "1x8:h100-sxm", 64)
    training = job.training.model_copy(update={"tokens": 10**13})
    cluster = job.cluster.model_copy(update={"kg_co2_per_kwh": 0.4})
    wanted = job.model_copy(update={"training": training, "cluster": cluster})
    options = SearchOptions(fix=(parse_choice("pp=2", excluded=False),))
    found = search(wanted, options)
    section = plan_page(NAME, json.dumps(plan_json(found))).sections[0]
    stated = [block.text for block in section.blocks if "energy" in block.text]
    assert found.spent is not None and found.spent.kwh_per_run is not None
    assert stated and f"{found.spent.kwh_per_run / 1e3:.3g} MWh" in stated[0]
    assert "at 0.4 kg a kWh" in stated[0]


def test_what_a_tie_is_stands_above_the_table(plan):
    first, *others = plan.candidates
    near = (one.model_copy(update={"near_tie": True}) for one in others)
    tied = plan.model_copy(update={"candidates": (first, *near)})
    page = plan_page(NAME, json.dumps(plan_json(tied)))
    part = next(one for one in page.sections if one.name == "alternatives")
    stated = [block.text for block in part.blocks if isinstance(block, Paragraph)]
    assert others and set(ties_lines(tied)) <= set(stated)
    assert any("~ is a tie with it" in line for line in stated)
    names = [one.name for one in table(page, "The best layout of each family").columns]
    assert names.index("what makes it slower") < names.index("tp")


def test_idle_of_the_busiest_and_of_the_mean_rank_are_those_of_the_clock(plan, page):
    simulation, estimate_ = simulate(plan.job, plan.best.layout), plan.best.estimate
    assert estimate_.idle is not None
    waits = simulation.scored.makespan - simulation.busy
    assert estimate_.idle.mean_s == pytest.approx(float(waits.mean()), rel=1e-9)
    busiest = estimate_.idle.busiest_rank
    assert busiest == int(simulation.busy.argmax())
    own = estimate_.terms.bubble + estimate_.terms.p2p
    assert own == pytest.approx(float(waits[busiest]), abs=1e-9)
    assert f"on the busiest pipeline rank, {busiest}," in chart(page, "waterfall").caption
    texts = [one.text for one in every_block(page) if isinstance(one, Paragraph)]
    mean = f"{estimate_.idle.mean_s / estimate_.step_time_s * 100:.1f} %"
    stated = [text for text in texts if "mean rank" in text]
    assert len(stated) == 2 and all(mean in text for text in stated)
    plain = plan_json(plan)
    del plain["best"]["estimate"]["idle"]
    older = plan_page(NAME, json.dumps(plain))
    assert chart(older, "waterfall").caption.startswith(
        "Seconds of one step on the busiest pipeline rank, each"
    )


def test_proved_and_modelled_are_side_by_side_and_memory_has_its_chance(page, plan, text):
    claims = next(one for one in page.certainty if isinstance(one, Facts))
    proved, modelled = claims.facts
    assert proved.name == "proved under the cost model"
    assert modelled.name == "the cost model itself, on held-out runs"
    interval, step = plan.best.estimate.uncertainty, plan.best.estimate.step_time_s
    low, high = (float(word) / 100 for word in modelled.value.split() if word[0] in "+-")
    assert step * (1 + low) == pytest.approx(interval.step_time_low_s, rel=1e-3)
    assert step * (1 + high) == pytest.approx(interval.step_time_high_s, rel=1e-3)
    beyond = any("Out of distribution" in fact.note for fact in claims.facts)
    assert beyond == (modelled.tone == "doubtful") == bool(plan.evidence.beyond)
    chance = plan.best.estimate.memory.fit_chance
    memory = next(fact for fact in page.facts.facts if fact.name.startswith("memory"))
    assert f"fits in {min(round(100 * chance), 99)} of 100 runs" in memory.note
    document = json.loads(text)
    document["best"]["estimate"]["memory"]["fit_chance"] = None
    document["evidence"] = None
    older = plan_page(NAME, json.dumps(document))
    assert "chance to fit not known" in older.facts.facts[-1].note
    assert "not looked up" in older.certainty[0].facts[1].note


def test_what_each_setting_buys_is_priced_with_the_layout_or_not_at_all(page, plan):
    saved = table(page, "Settings of the plan")
    assert column(saved, "saves") == [one.saves_fraction for one in plan.assumed]
    stated = {row[0].text: row[1] for row in table(page, "Changes: what each buys").rows}
    twice = plan.best.layout.resized(32)
    bigger = estimate(with_gpus(Case(plan.job, SearchOptions()), 32).job, twice)
    gain = plan.best.estimate.step_time_s / bigger.step_time_s - 1
    assert stated["32 GPUs, same batch"].value == pytest.approx(gain)
    assert {cell.text for cell in stated.values() if cell.value is None} <= {"not priced"}
    assert not any(name in text for name in ("without", "best of all") for text in stated)
    texts = [one.text for one in every_block(page) if isinstance(one, Paragraph)]
    assert any("Searched anew: not priced here" in text for text in texts)


def test_labels_of_points_cover_no_other_point():
    points = [(1.0, 60.0), (1.1, 60.0), (1.0, 62.0), (2.0, 70.0)]
    sides = label_sides(points, ["a label of the first"] * 4)
    assert sides[0] != "middle right"
    assert sides[3].endswith("left")
    assert label_sides([(1.0, 2.0)], ["alone"]) == ["middle right"]
