"""`plan schema`: what commands print and read follows the schemas, and has no other key."""

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.e2e.command import TINY, plan, refused, with_value
from tests.e2e.measured_runs import sample
from tests.plugged import simumax_profile
from trainplan.cli.documents.registry import DOCUMENTS, documented
from trainplan.cli.documents.verify import VerifyEnded, VerifyRan, VerifyStarted
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.verification.by_megatron import combinations
from trainplan.planner.verification.compared import Compared
from trainplan.planner.verification.runs import Ran

ROOT = Path(__file__).parents[2]
SIMUMAX = ROOT / "tests" / "replay" / "simumax_b200.json"
PIPELINE = ("--fix", "pp=4", "--fix", "vpp=1", "--top", "2", "--search-options", "none")
QUICK = ("--top", "2", "--search-options", "none")
LAUNCH = (
    *("torchrun", "--nproc_per_node", "2", "pretrain_gpt.py", "--num-layers", "12"),
    *("--hidden-size", "768", "--num-attention-heads", "12", "--seq-length", "1024"),
    *("--max-position-embeddings", "1024", "--vocab-size", "50257", "--mock-data"),
    *("--tokenizer-type", "NullTokenizer", "--micro-batch-size", "1", "--bf16"),
    *("--global-batch-size", "64", "--train-iters", "10", "--lr", "1e-4"),
    *("--tensor-model-parallel-size", "2"),
)
MACHINE = {"schema": "trainplan/simulated-machine/v1", "own_spread": 0.05}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="module")
def planned(folder):
    """A plan with a pipeline."""
    path = folder / "plan.json"
    assert plan("search", *TINY, *PIPELINE, "--output", path).code == 0
    return path


def searches(planned):
    offloaded = ("--layout", "tp=2,offload=0.5")
    lengths = ("--lengths", "lognormal:200,1", "--packing", "greedy")
    moe = with_value(TINY, "--model", "qwen3-30b-a3b")
    small = with_value(with_value(TINY, "--model", "llama3-70b"), "--cluster", "1x1:l4")
    yield "plan", json.loads(planned.read_text())
    yield "plan", plan("search", *moe, *QUICK, "--fix", "pp=1", "--fix", "tp=1", "--json").json
    yield "plan", plan("search", *TINY, *QUICK, *lengths, "--tokens", "1B", "--json").json
    yield "infeasible", plan("search", *small, *QUICK, "--time-limit", "2", "--json").json
    few = [word for text in ("tp=1", "pp=1", "cp=1", "recompute=none") for word in ("--fix", text)]
    yield "pareto", plan("search", *TINY, *QUICK, *few, "--pareto", "time,memory", "--json").json
    place = TINY.index("--cluster")
    without = (*TINY[:place], *TINY[place + 2 :])
    offered = ("--objective", "cost", "--offers", "1x8:h100-sxm=2,1x1:l4=1", "--json")
    yield "offers", plan("search", *without, *QUICK, *offered).json
    yield "estimate", plan("estimate", *TINY, *offloaded, "--json").json
    lean = ("--layout", "tp=1,dp=8", "--memory-margin", "0.99")
    yield "estimate", plan("estimate", *TINY, *lean, "--json").json


def questions(planned):
    limit, short = ("--time-limit", "1"), ("--time-limit", "0.1")
    yield "explain", plan("explain", planned, *short, "--json").json
    for layout in ("tp=2", "tp=3,dp=2", "pp=4"):
        yield "why-not", plan("why-not", planned, "--layout", layout, *limit, "--json").json
    yield "compare", plan("compare", planned, planned, "--json").json
    times = ("--restart", "10m", "--repair", "2h")
    yield "replan", plan("replan", planned, "--cluster", "1x4:h100-sxm", *times, "--json").json
    yield "sweep", plan("sweep", planned, "--vary", "gpus=4,8", *limit, "--json").json
    yield "files", plan("export", planned, "--json").json
    yield "files", plan("export", planned, "--keys", "verl", "--json").json
    page = planned.with_name("report.html")
    yield "files", plan("report", planned, "--output", page, "--json").json
    yield "check", plan("check", "--json", *limit, "--", *LAUNCH).json
    yield "simulate", plan("simulate", planned, "--json").json


def measurements(folder, planned):
    runs = sample(folder / "runs.jsonl")
    for line in runs.read_text().splitlines():
        if "predicted" not in line and '"id": "' in line and '"no model"' not in line:
            yield "run", json.loads(line)
    yield "validate", plan("validate", runs, "--calibrate", "--json").json
    log = folder / "train.log"
    log.write_text("iteration 10/ 100 | elapsed time per iteration (ms): 100.0 |")
    yield "calibration", plan("calibrate", *TINY, "--log", log, "--layout", "tp=1", "--json").json
    profile = folder / "profile.json"
    simumax_profile(SIMUMAX, profile)
    yield "profile", json.loads(profile.read_text())
    times = ("--pp", "4", "--num-microbatches", "8")
    yield "schedule", plan("schedule", "--kind", "1f1b", *times, "--json").json
    yield "schedules", plan("schedule", "--kind", "all", *times, "--json").json
    machine = folder / "machine.json"
    machine.write_text(json.dumps(MACHINE))
    yield "machine", MACHINE
    tuned = folder / "tuned"
    wanted = ("--simulate", machine, "--trials", "2", "--output-dir", tuned, "--json")
    for line in plan("tune", planned, *wanted).out.splitlines():
        yield "tune-event", json.loads(line)
    yield "tuned-plan", json.loads((tuned / "plan.json").read_text())


def catalog():
    for kind in ("gpus", "models", "hosts", "methods", "optimizers", "clusters"):
        yield "catalog", plan("catalog", kind, "--json").json
    for words in (("gpus", "h100-sxm"), ("models", "deepseek-v3"), ("models", "gpt2")):
        yield "catalog", plan("catalog", *words, "--json").json
    yield "cluster", yaml.safe_load(plan("catalog", "clusters", "--template").out)
    yield "model", yaml.safe_load(plan("catalog", "models", "--template").out)


def verify_events(make_job):
    job = make_job("gpt2", "1x8:h100-sxm", global_batch_size=8)
    wanted = combinations(job, Layout(pp=2, dp=4), 2, lambda job, layout: None)
    fine = Ran(wanted.others[0], 1.5, Compared(1e-7, 2e-7, 1e-4, (), (), (), 0.001))
    failed = Ran(wanted.others[0], 0.5, failure="rank 1 was ended by signal 9")
    started, ended = (
        VerifyStarted.of(wanted, 2, "torch", ""),
        VerifyEnded.of([failed], (), "", [fine, failed], ("cp: none",)),
    )
    for event in (started, VerifyRan.of(fine, event="ran"), ended):
        yield "verify-event", json.loads(json.dumps(event.json()))


@pytest.fixture(scope="module")
def documents(folder, planned, make_job):
    """What commands print, and files that they read."""
    return [
        *searches(planned),
        *questions(planned),
        *measurements(folder, planned),
        *catalog(),
        *verify_events(make_job),
    ]


@cache
def printed(name):
    """A schema as `plan schema` prints it."""
    return plan("schema", name).json


def closed(schema):
    """The schema, with every key refused that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(one) for key, one in schema.items()}
    if "properties" in inner and "type" in inner:
        inner.setdefault("additionalProperties", False)
    return inner


def test_every_document_follows_its_schema_and_has_no_other_key(documents):
    assert {name for name, _ in documents} == set(DOCUMENTS)
    readers = {}
    for name, document in documents:
        if name not in readers:
            schema = printed(name)
            may_have_others = name == "run"  # they are remarked on
            reader = jsonschema.Draft202012Validator
            readers[name] = reader(schema if may_have_others else closed(schema))
        wrong = jsonschema.exceptions.best_match(readers[name].iter_errors(document))
        assert wrong is None, (name, wrong.json_path, wrong.message[:500])


def test_a_key_that_only_the_document_has_is_noticed(planned):
    document = json.loads(planned.read_text())
    document["best"]["estimate"]["memory"]["colour"] = "blue"
    with pytest.raises(jsonschema.ValidationError, match="colour"):
        jsonschema.validate(document, closed(printed("plan")))
    jsonschema.validate(document, printed("plan"))  # further keys may come


def test_a_key_that_only_the_schema_has_is_noticed(planned):
    document = json.loads(planned.read_text())
    del document["best"]["estimate"]["memory"]["fits"]
    with pytest.raises(jsonschema.ValidationError, match="fits"):
        jsonschema.validate(document, printed("plan"))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_one_and_says_what_keys_mean(name):
    schema = printed(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    if "properties" in schema:
        stated = [one for one in schema["properties"].values() if one.get("description")]
        assert stated or name in ("cluster", "model", "run", "profile", "calibration", "machine")


def test_the_names_of_all_are_listed_and_a_wrong_one_is_near_another():
    listed = plan("schema").out
    assert all(f"\n{name} " in listed for name in DOCUMENTS)
    refused(plan("schema", "plam"), "unknown document 'plam': did you mean 'plan'")


def test_docstrings_of_fields_are_read():
    class Example:
        one: int
        """What
        it is."""
        other: int

    assert dict(documented(Example)) == {"one": "What it is.", "other": ""}
