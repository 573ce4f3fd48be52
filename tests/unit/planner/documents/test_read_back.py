"""A plan read back is the plan that was written."""

import json
from importlib.metadata import PackageNotFoundError, version

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.planner.documents.document import package_version, plan_json
from trainplan.planner.documents.read_back import plan_from_json
from trainplan.planner.documents.written_plan import written
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions.best_plan import search
from trainplan.planner.space import parse_choice


@pytest.fixture(scope="module")
def text(make_job):
    options = SearchOptions(
        slack=0.0, fix=tuple(parse_choice(one, excluded=False) for one in ("cp=1", "tp=1"))
    )
    return json.dumps(plan_json(search(make_job("small-moe", "1x4:h100-sxm", 16), options)))


def test_what_is_read_back_writes_the_same_document(text):
    assert json.loads(json.dumps(plan_json(plan_from_json(text)))) == json.loads(text)


def test_a_release_is_kept_and_an_older_plan_has_none(text, make_job):
    job = make_job("small-moe", "1x8:h100-sxm", 16).model_copy(update={"release": "nemo:26.02"})
    stated = plan_json(search(job, SearchOptions(search_options="none", only_answer=True)))
    assert stated["release"] == "nemo:26.02"
    assert plan_from_json(json.dumps(stated)).job.release == "nemo:26.02"
    older = {name: value for name, value in json.loads(text).items() if name != "release"}
    assert plan_from_json(json.dumps(older)).job.release is None


def test_a_document_states_the_version_once_and_one_without_is_read(text, monkeypatch):
    document = json.loads(text)
    assert list(document)[:2] == ["schema", "trainplan_version"]
    assert document["trainplan_version"] == version("trainplan")
    assert text.count("trainplan_version") == 1
    older = {key: value for key, value in document.items() if key != "trainplan_version"}
    for one in (older, {**older, "trainplan_version": "0.0.1"}):
        assert plan_from_json(json.dumps(one)) == plan_from_json(text)
        assert written(json.dumps(one)) == written(text)

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    package_version.cache_clear()
    try:
        assert plan_json(plan_from_json(text))["trainplan_version"] is None
    finally:
        package_version.cache_clear()


def test_memory_is_of_every_pipeline_rank_once(text):
    for change in ([], 7):
        document = json.loads(text)
        memory = document["best"]["estimate"]["memory"]
        if change:
            memory["pipeline_ranks"][0]["rank"] = change
        else:
            memory["pipeline_ranks"] = change
        with pytest.raises(SpecError, match="pipeline_ranks': not one entry for each"):
            plan_from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"certificate": {}}, "field 'certificate.optimal'.*make the plan again"),
        ({"provenance": None}, "wrong kind: make it again"),
        ({"candidates": [{"rank": 1}]}, "'layout' is missing: make the plan again"),
        ({"candidates": [{"rank": 1, "layout": 3}]}, "wrong kind: make it again"),
        ({"schema": "trainplan/plan/v0"}, "make the plan again with this version"),
        ({"schema": "trainplan/pareto/v1"}, "pareto/v1' is not.*by `plan search --output`"),
    ],
)
def test_a_part_that_is_missing_or_wrong_is_named(text, changes, says):
    with pytest.raises(SpecError, match=says):
        plan_from_json(json.dumps({**json.loads(text), **changes}))
