"""Rules of thumb against the search: the jobs as they were drawn, the rules as their guides have
them, and results that say what the code says now."""

import json

import numpy as np
import pytest

from tests import examples
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable

examples.on_path("thumb_rules")

import scored_thumbs  # noqa: E402
import thumb_jobs  # noqa: E402
import thumb_tables  # noqa: E402
from thumb_rule import among, at_least, either, only  # noqa: E402
from thumb_rules import RULES  # noqa: E402

RESULTS = json.loads(thumb_tables.RESULTS.read_text("utf-8"))
RULE = {rule.name: rule for rule in RULES}
QUICK = [
    ("llama2-13b, other", "bridge-dense-sizes"),
    ("llama3-70b, home", "megatron-start-simple"),
    ("llama3-8b, home", "deepspeed-stages"),
]


def facts(job):
    return thumb_jobs.facts_of(thumb_jobs.jobs()[job])


def allows(rule, job, **values):
    """The first step that a layout is of; None where it is of none."""
    steps = RULE[rule].steps(facts(job))
    table = LayoutTable.of([Layout(**values)])
    of = (n for n, step in enumerate(steps) if scored_thumbs.passes(None, step, table)[0])
    return next(of, None)


@pytest.mark.parametrize(("job", "rule"), QUICK)
def test_a_score_is_what_the_results_say(job, rule):
    found, known = scored_thumbs.scored(RULE[rule], job), RESULTS["rules"][rule]["jobs"][job]
    figures = {name for name, value in known.items() if isinstance(value, float)}
    assert {name: found[name] for name in figures} == pytest.approx(
        {name: known[name] for name in figures}, abs=1e-3
    )
    assert {**found, **{name: known[name] for name in figures}} == known


def test_the_tables_of_the_pages_are_those_of_the_results():
    for path, page in thumb_tables.pages(RESULTS):
        assert page == path.read_text("utf-8"), f"{path}: evaluate.py --write"


def test_every_rule_has_its_results_and_no_other():
    assert list(RESULTS["rules"]) == list(RULE)
    for name, one in RESULTS["rules"].items():
        speaks = {job for job in thumb_jobs.jobs() if RULE[name].steps(facts(job))}
        assert set(one["jobs"]) <= speaks
        assert one["summary"] == thumb_tables.summary(list(one["jobs"].values()))


def test_no_completion_of_a_rule_beats_the_search_and_none_as_read_beats_the_best():
    scores = [one for rule in RESULTS["rules"].values() for one in rule["jobs"].values()]
    for one in scores:
        if "best" in one:
            assert one["best"] >= 0
            assert one.get("read", np.inf) >= one["best"]
            assert one.get("read_same_axes", np.inf) >= -1e-9


def test_the_jobs_are_those_of_the_drawing_rule():
    jobs = thumb_jobs.jobs()
    assert len(jobs) == 30
    for name in jobs:
        known = facts(name)
        least = 4 * 18e9 * known.billions / (known.memory_gib * 2**30)
        power = 2 ** int(np.ceil(np.log2(least)))
        if name.endswith("long"):
            home = facts(name.replace("long", "home"))
            assert known.gpus == min(4 * home.gpus, 2048)
        else:
            assert known.gpus == max(power, known.node)
            assert known.seq_length == 4096
        tokens = 20 if known.billions <= 14 else 22 if known.billions <= 100 else 24
        assert known.seq_length * known.job.training.global_batch_size == 2**tokens


def test_a_ladder_has_data_then_tensor_then_pipeline_parallelism():
    def step(**values):
        return allows("megatron-start-simple", "llama3-70b, home", **values)

    assert [step(tp=tp) for tp in (1, 2, 4, 8, 16)] == [0, 1, 2, 3, None]
    assert [step(tp=8, pp=pp) for pp in (2, 4, 8)] == [4, 5, 6]
    assert step(tp=4, pp=2) is None
    assert step(tp=8, cp=2) is None
    assert allows("megatron-start-simple", "llama3-70b, long", tp=8, cp=2) == 3


def test_a_model_at_the_border_of_two_rows_may_use_either():
    def step(**values):
        return allows("bridge-dense-sizes", "llama3-70b, home", **values)

    assert step(tp=4, pp=2) == 0  # 10 to 70 B
    assert step(tp=8, pp=8) == 0  # 70 to 175 B
    assert step(tp=4, pp=8) is None
    assert allows("bridge-dense-sizes", "llama3-70b, long", tp=8, pp=4, cp=2) == 0
    assert allows("bridge-dense-sizes", "llama3-70b, long", tp=8, pp=4) is None


def test_experts_stay_inside_the_fast_domain_with_tensor_ranks():
    layout = {"tp": 2, "ep": 8, "pp": 4, "vpp": 2, "schedule": "interleaved"}
    assert allows("megatron-moe", "mixtral-8x7b, home", **layout) is None
    assert allows("megatron-moe", "mixtral-8x7b, home", **{**layout, "tp": 1}) == 5
    assert allows("megatron-moe", "deepseek-v3, other", **layout) == 6  # very large models may


def test_a_limited_network_asks_for_four_tensor_ranks_and_a_pipeline():
    assert allows("bridge-topology", "llama2-13b, other", tp=4, pp=2) == 0
    assert allows("bridge-topology", "llama2-13b, other", tp=8, pp=2) is None
    assert allows("bridge-topology", "llama2-13b, home", tp=8, pp=2) == 0
    assert RULE["bridge-topology"].steps(facts("llama3-8b, other")) is None  # PCI Express


def test_the_grid_of_a_tool_is_its_table():
    def step(**values):
        return allows("nemo-grid", "llama3-70b, home", **values)

    assert step(tp=4, pp=2) == 0
    assert step(tp=4, pp=4, vpp=20, schedule="interleaved") == 0
    assert step(tp=4, pp=4) is None
    assert step(tp=4) is None  # eight ranks share a model at least
    assert step(tp=4, pp=2, micro_batch_size=4) is None


def test_a_table_that_states_its_gpus_is_silent_of_fewer():
    assert RULE["megatron-models"].steps(facts("deepseek-v3, other")) is None
    assert RULE["bridge-moe-models"].steps(facts("deepseek-v3, other"))


def test_either_step_allows_what_one_of_them_does():
    table = LayoutTable.of([Layout(tp=tp, pp=pp) for tp, pp in ((1, 1), (4, 1), (8, 2), (8, 4))])
    step = either((among("tp", 2, 4),), (*only(tp=8), at_least("pp", 4)))
    assert scored_thumbs.passes(None, step, table).tolist() == [False, True, False, True]
