"""Every number of a plan's estimate that is edited is noticed, and no number that is not."""

import copy
import json
import math

import pytest

from trainplan.costmodel.base.errors import PlanError
from trainplan.planner.documents.document import estimate_json, plan_json
from trainplan.planner.documents.written_plan import changed_values, written
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.space import parse_choice

PLANS = (
    ("llama3.2-1b", "1x8:h100-sxm", ("pp=2", "tp=1", "cp=1")),
    ("small-moe", "1x8:h100-sxm", ("cp=1",)),
    ("llama3-8b", "1x4:a100-sxm-40gb", ("offload.optimizer=1", "cp=1", "micro_batch_size=1")),
)


def leaves(value, path=()):
    """Keys of every number."""
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def edited(document, path, change):
    """The document with one value changed."""
    result = copy.deepcopy(document)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = change(inner[path[-1]])
    return result


@pytest.fixture(scope="module", params=PLANS, ids=lambda one: one[0])
def document(request, make_job):
    model, cluster, fixed = request.param
    fix = tuple(parse_choice(text, excluded=False) for text in fixed)
    options = SearchOptions(top=1, fix=fix, search_options="none", slack=0.0)
    return json.loads(json.dumps(plan_json(search(make_job(model, cluster, 16), options))))


def priced_now(plan):
    """Its layout as this version prices it."""
    return estimate(plan.job, plan.layout, memory_margin=plan.options.memory_margin)


def changed(document):
    """What is noticed of a plan."""
    plan = written(json.dumps(document))
    return changed_values(plan.estimate, priced_now(plan))


def test_nothing_is_noticed_where_nothing_was_edited(document):
    assert changed(document) == ()


def test_numbers_that_every_document_has_are_missed(document):
    gone = edited(document, ("best", "estimate"), lambda _: None)
    assert [one.name for one in changed(gone)] == ["step_time_s", "memory.peak_allocated_bytes"]
    gone = edited(document, ("best", "estimate", "memory"), lambda _: {})
    assert [one.name for one in changed(gone)] == ["memory.peak_allocated_bytes"]


@pytest.mark.parametrize("change", [lambda x: 0.1 * x + 1e-9, lambda x: 100 * x + 1e-9])
def test_every_number_of_the_estimate_is_noticed_by_its_name(document, change):
    estimate_of = document["best"]["estimate"]
    numbers = list(leaves(estimate_of))
    assert len(numbers) > 35
    now = priced_now(written(json.dumps(document)))
    for path in numbers:
        plan = written(json.dumps(edited(document, ("best", "estimate", *path), change)))
        found = changed_values(plan.estimate, now)
        assert [one.name for one in found] == [".".join(map(str, path))]


def test_an_entry_too_many_is_noticed_and_one_that_older_versions_lack_is_not(document):
    longer = edited(document, ("best", "estimate", "terms"), lambda terms: terms | {"wings": 1.0})
    assert [(one.name, one.now) for one in changed(longer)] == [("terms.wings", None)]
    shorter = copy.deepcopy(document)
    del shorter["best"]["estimate"]["memory"]["pipeline_ranks"][0]["cached_bytes"]
    assert changed(shorter) == ()


@pytest.mark.parametrize("part", [("best", "layout"), ("training",), ("cluster",)])
def test_every_number_of_the_question_is_refused_or_changes_the_estimate(document, part):
    inner = document
    for key in part:
        inner = inner[key]
    for path in leaves(inner):
        name = ".".join(map(str, (*part, *path)))
        for change in (lambda x: 2 * x + 1, lambda x: x // 2):
            other = edited(document, (*part, *path), change)
            if other == document:
                continue
            try:
                noticed = bool(changed(other))
            except PlanError:
                noticed = True
            assert noticed, name


def test_rounding_is_no_change(document):
    nearly = edited(document, ("best", "estimate", "mfu"), lambda x: math.nextafter(x, 1))
    assert changed(nearly) == ()


def test_the_estimate_of_now_is_written_as_the_document_has_it(document):
    plan = written(json.dumps(document))
    assert set(leaves(estimate_json(priced_now(plan)))) == set(leaves(document["best"]["estimate"]))
