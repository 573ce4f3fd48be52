"""`plan serve --allow-files`: an answer is that of the files as they are now."""

import json
import multiprocessing
import sys
from pathlib import Path

import anyio
import pytest
import yaml
from mcp import Client

from tests.e2e.command import TINY, plan, with_value
from tests.e2e.test_serve import JOB as ON_EIGHT
from tests.e2e.test_serve import LIMITS, ON_TWO
from trainplan.cli.serve.fields import Inline
from trainplan.cli.serve.server import Planner, server_of
from trainplan.cli.serve.tools import TOOLS
from trainplan.cli.serve.work import Call, answer

JOB = {**ON_EIGHT, "cluster": "1x2:h100-sxm"}
"""A change is noticed in an answer of few layouts, too."""
MODEL = yaml.safe_load(Path("examples/tiny.yaml").read_text())
CLUSTER = {"groups": [{"gpu": "h100-sxm", "num_nodes": 1, "gpus_per_node": 2}]}
FACTOR = {"value": 1.0, "low": 0.5, "high": 2.0, "identified": True}
CALIBRATION = {
    **{"schema": "trainplan/calibration/v1", "gpu": "h100-sxm", "precision": "bf16"},
    **{"runtime": "megatron-lm", "models": ["gpt2"], "inter_node_bandwidth": FACTOR},
    **{"fixed_overhead_seconds": {**FACTOR, "value": 0.0, "low": 0.0}},
    **{"error_before_fraction": 0.1, "error_after_fraction": 0.1},
}
RUN = {
    **{"id": "a", "source": "a test", "measured_step_time_s": 1.0},
    **{"before_step_time_s": 1.0, "after_step_time_s": 1.0},
}
"""Of a calibration."""


FEW = ("--fix", "pp=1", "--fix", "recompute=none", "--fix", "cp=1", "--search-options", "none")


def model(change):
    return "m.yaml", yaml.safe_dump({**MODEL, "num_hidden_layers": 4 + 4 * change})


def cluster(change):
    group = {**CLUSTER["groups"][0], "gpu": ("h100-sxm", "h200-sxm")[change]}
    return "c.yaml", yaml.safe_dump({"groups": [group]})


def lengths(change):
    return "l.csv", f"length,count\n256,{3 + change}\n1024,1\n"


def profile(change):
    speed = {**FACTOR, "value": 1.0 - 0.2 * change}
    return "calibration.json", json.dumps({**CALIBRATION, "speed": speed, "runs": [RUN]})


def of_plan(change):
    job = with_value(TINY, "--cluster", "1x2:h100-sxm")
    job = with_value(job, "--global-batch-size", str(8 + 8 * change))
    return "p.json", plan("search", *job, *FEW, "--time-limit", "5", "--json").out


CONTENTS = {
    **{"model": model, "name": model, "cluster": cluster, "lengths": lengths, "profile": profile},
    **dict.fromkeys(("plan", "first", "second", "document"), of_plan),
}
"""Of the file that an argument names: before and after a change of it."""
KEPT_SHORT = {"time_limit": 0.1}
ENGINE = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
ARGUMENTS = {
    "search": {
        **{**JOB, **KEPT_SHORT, "packing": None, "search_options": "none"},
        "fix": ["pp=1", "tp=1", "cp=1", "recompute=none"],
    },
    "estimate": {**JOB, "layout": "tp=1"},
    "check": {"script": ON_TWO, "cluster": "1x2:h100-sxm", **KEPT_SHORT},
    "explain": {"time_limit": 0.01},
    "why_not": {"layout": "tp=2"},
    "sweep": {"vary": ["gpus=1,2"], **KEPT_SHORT},
    "replan": {"cluster": "1x1:h100-sxm", **KEPT_SHORT},
    "catalog": {"kind": "models"},
}
"""Of each tool, without what the test names a file for."""
CASES = [
    (tool, name)
    for tool, entry in TOOLS.items()
    for name in entry.request.marked(Inline)
    if tool != "report"  # it makes a file each time, and is not kept
]


@pytest.fixture(scope="module")
def contents():
    """Both contents of every argument, made once."""
    made = {make: (make(0), make(1)) for make in {*CONTENTS.values()}}
    return {name: made[make] for name, make in CONTENTS.items()}


async def _both(folder, tool, arguments, change):
    planner = Planner(LIMITS, readable=(folder,), workers=1)
    async with Client(server_of(planner), mode="legacy") as client:
        first = await client.call_tool(tool, arguments)
        again = await client.call_tool(tool, arguments)
        change()
        after = await client.call_tool(tool, arguments)
    for one in (first, again, after):
        assert not one.is_error, one.content
    assert first == again  # kept: the seconds of a search are the same
    return first.structured_content, after.structured_content


def changed(folder, tool, arguments, path, text):
    """The answers before and after a file has another text."""
    return anyio.run(_both, folder.resolve(), tool, arguments, lambda: path.write_text(text))


def without_seconds(document):
    """What an answer has that a second search of the same would not change."""
    certificate = {**document.get("certificate", {}), "search_seconds": None}
    return {**document, "certificate": certificate}


@pytest.mark.parametrize(("tool", "name"), CASES)
def test_a_file_that_has_changed_changes_the_answer(tool, name, contents, tmp_path):
    """Every argument of every tool that may name a file: the next one is here by itself."""
    needed = TOOLS[tool].request.model_fields
    arguments = dict(ARGUMENTS.get(tool, {}))
    for other, ((file, text), _) in contents.items():
        if other in needed and (other == name or needed[other].is_required()):
            if other != name and other in arguments:
                continue
            path = tmp_path / f"{other}-{file}"
            path.write_text(text)
            arguments[other] = [str(path)] if other == "profile" else str(path)
    if name == "lengths":
        arguments["packing"] = "greedy"
    if name == "model" and tool == "check":
        script = "deepspeed --num_gpus 2 train.py --deepspeed --deepspeed_config ds.json"
        arguments |= {"script": script, "files": {"ds.json": ENGINE}}
        arguments |= {"seq_length": 128, "global_batch_size": 8}
    (file, _), (_, after) = contents[name]
    before, then = changed(tmp_path, tool, arguments, tmp_path / f"{name}-{file}", after)
    assert without_seconds(before) != without_seconds(then)


def test_counts_of_a_routing_and_files_that_a_launch_names_count_too(tmp_path):
    routing = tmp_path / "routing.csv"
    routing.write_text("1,1,1,1,1,1,1,1\n")
    mixtral = {**JOB, "global_batch_size": 16, "model": "mixtral-8x7b", "cluster": "2x8:h100-sxm"}
    arguments = {**mixtral, "layout": "ep=8,recompute=full", "option": [f"routing={routing}"]}
    before, then = changed(tmp_path, "estimate", arguments, routing, "4,1,1,1,1,1,1,1\n")
    assert before["estimate"]["step_time_s"] < then["estimate"]["step_time_s"]

    engine = tmp_path / "ds.json"
    engine.write_text(ENGINE)
    script = f"deepspeed --num_gpus 2 train.py --deepspeed --deepspeed_config {engine}"
    arguments = {"script": script, "model": "gpt2", "seq_length": 1024, "global_batch_size": 8}
    before, then = changed(
        tmp_path, "check", {**arguments, **KEPT_SHORT}, engine, ENGINE.replace("2", "1")
    )
    assert (before["layout"]["zero_stage"], then["layout"]["zero_stage"]) == (2, 1)


def opened(call, line):
    """Files that a call opened, and those whose content it would look at again."""
    paths = set()
    sys.addaudithook(lambda event, words: event == "open" and paths.add(str(words[0])))
    looks = answer(call, line).looks
    line.send((paths, {path for _, path in looks.results}))


@pytest.mark.parametrize("tool", ["estimate", "compare"])
def test_no_file_is_opened_past_the_reader_that_takes_note(tool, contents, tmp_path):
    folder = tmp_path / "call"
    folder.mkdir()
    arguments = dict(ARGUMENTS.get(tool, {}))
    for name, ((file, text), _) in contents.items():
        if name in TOOLS[tool].request.model_fields:
            path = tmp_path / f"{name}-{file}"
            path.write_text(text)
            arguments[name] = [str(path)] if name == "profile" else str(path)
    request = TOOLS[tool].request.model_validate(arguments)
    call = Call(TOOLS[tool].command, request, (), {}, folder, (tmp_path,))
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=opened, args=(call, there))
    process.start()
    paths, noted = here.recv()
    process.join()
    assert {path for path in paths if path.startswith(str(tmp_path))} <= noted
    assert {str(path) for path in tmp_path.iterdir() if path.is_file()} <= noted
