"""`plan search` with another objective: its second line, its document, and what it refuses."""

import json
import re
from pathlib import Path

import pytest

from tests.e2e.command import TINY, plan, refused, with_value

TOKENS = ("--tokens", "1B")


@pytest.fixture
def rented(tmp_path: Path) -> tuple[str, ...]:
    """A tiny job on two nodes with a price."""
    path = tmp_path / "rented.yaml"
    path.write_text(
        "name: rented\ncurrency: EUR\ngroups:\n"
        "  - {gpu: h100-sxm, num_nodes: 2, gpus_per_node: 4, price_per_gpu_hour: 2.5}\n"
    )
    return with_value(TINY, "--cluster", str(path))


@pytest.mark.parametrize(
    ("arguments", "second"),
    [
        (("--objective", "memory", "--slack", "10%"), "GiB free, the most of all layouts"),
        (("--objective", "cost"), "EUR for one step on"),
        (("--objective", "cost", *TOKENS), "EUR for the whole run on"),
        (("--objective", "energy", *TOKENS), "kWh for the whole run on"),
        (("--objective", "gpus", *TOKENS, "--deadline", "2w"), "4 GPUs are the fewest"),
    ],
    ids=" ".join,
)
def test_the_value_of_the_objective_stands_beside_the_layout(rented, arguments, second):
    outcome = plan("search", *rented, *arguments)
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    first = int(arguments[1] != "gpus")  # a number of GPUs is the answer itself
    assert lines[1 - first].startswith("tp ")
    assert second in lines[first]
    even = arguments[1] in ("memory", "energy")
    assert lines[first].endswith("; proved with even stages" if even else "; proved")
    assert any(" a step (80 %" in line for line in lines[2:4])  # part of the cluster comes first
    assert max(len(line) for line in lines) <= 100


def test_the_document_says_what_was_proved_in_the_unit_of_the_objective(rented, tmp_path):
    path = tmp_path / "plan.json"
    outcome = plan("search", *rented, *TOKENS, "--objective", "cost", "--json", "--output", path)
    certificate = outcome.json["certificate"]
    objective = certificate["objective"]
    assert (objective["name"], objective["unit"], objective["per"]) == ("cost", "EUR", "run")
    assert objective["lower_bound"] == objective["value"] > 0
    assert [one["num_gpus"] for one in objective["tried"]] == [4, 8]
    assert certificate["optimal"] is True
    step = outcome.json["best"]["estimate"]["step_time_s"]
    assert certificate["lower_bound_s"] <= step
    launch = plan("export", path, "--launcher", "torchrun", "--output-dir", tmp_path / "launch")
    assert launch.code == 0
    nodes = outcome.json["cluster"]["groups"][0]["num_nodes"]
    assert f"--nnodes {nodes}" in (tmp_path / "launch" / "run.sh").read_text()


ISLANDS = """groups:
  - {gpu: h100-sxm, num_nodes: 1, gpus_per_node: 8}
  - {gpu: h100-sxm, num_nodes: 1, gpus_per_node: 8}
between_groups: {gb_per_s: 0.01}
"""


def test_the_fastest_step_of_slow_islands_is_on_one_of_them(tmp_path):
    cluster, path = tmp_path / "islands.yaml", tmp_path / "plan.json"
    cluster.write_text(ISLANDS)
    job = with_value(with_value(TINY, "--cluster", str(cluster)), "--global-batch-size", "16")
    page = plan("search", *job, "--time-limit", "20", "--output", path)
    assert page.out.splitlines()[1].startswith("8 of the 16 GPUs are faster: ")
    assert " 8 x h100-sxm\n" in page.out
    folder = tmp_path / "launch"
    assert plan("export", path, "--launcher", "torchrun", "--output-dir", folder).code == 0
    assert "--nnodes 1" in (folder / "run.sh").read_text()
    every = plan("search", *job, "--all-nodes", "--fix", "pp=1", "--time-limit", "3")
    assert "8 x h100-sxm + 8 x h100-sxm" in every.out
    assert "GPUs are" not in every.out


def test_seconds_of_parts_are_those_that_pass_where_nodes_fail():
    job = with_value(with_value(TINY, "--cluster", "2x8:h100-sxm"), "--global-batch-size", "16")
    job = (*job, "--mtbf-node", "2d", "--repair", "4d", "--checkpoint", "5GB/s", "--slack", "0")
    line = plan("search", *job).out.splitlines()[1]
    said = re.fullmatch(
        r"8 of the 16 GPUs are faster: ([\d.]+) (m?s) a step with failures, "
        r"all 16 take ([\d.]+) (m?s)",
        line,
    )
    assert said, line
    passing = []
    for more in ((), ("--all-nodes",)):
        found = plan("search", *job, *more, "--json").json
        step_s = found["best"]["estimate"]["step_time_s"]
        passing.append(step_s / found["spent"]["goodput"]["fraction"])
    units = {"s": 1.0, "ms": 1e-3}
    shown = [float(said[place]) * units[said[place + 1]] for place in (1, 3)]
    assert shown == pytest.approx(passing, rel=0.01)


def test_where_the_batch_divides_by_fewer_gpus_alone_a_line_names_them(tmp_path):
    job = with_value(with_value(TINY, "--cluster", "9x1:h100-sxm"), "--global-batch-size", "16")
    page = plan("search", *job)
    assert page.out.splitlines()[1].startswith("4 of the 9 GPUs are ")
    assert page.out.splitlines()[1].endswith("; 16 sequences do not divide by 9")


def test_where_not_every_size_is_tried_the_answer_has_of_how_many_it_is_the_best():
    job = with_value(with_value(TINY, "--cluster", "40x1:h100-sxm"), "--global-batch-size", "40")
    page = plan("search", *job, "--objective", "gpus", "--tokens", "20B", "--deadline", "4h")
    first = page.out.splitlines()[0]
    assert re.match(r"\d+ GPUs? (is|are) the fewest of the \d+ sizes tried that end", first)


def test_choices_between_two_objectives_are_a_table_and_a_document(rented):
    page = plan("search", *rented, "--pareto", "cost,time")
    assert page.code == 0
    assert "that no other beats in both cost and time" in page.out
    assert "no point with even stages is missing, over 2 sizes of the cluster" in page.out
    fixed = plan("search", *rented, "--pareto", "cost,time", "--runtime", "nanotron")
    assert "no point is missing, over 2 sizes of the cluster" in fixed.out
    document = plan("search", *rented, "--pareto", "cost,time", "--json").json
    assert sorted(document) == [
        *("changes_training", "cluster", "complete", "model", "objectives", "options", "outer"),
        "points",
        *(
            "release",
            "reserve_bytes",
            "reserve_host_bytes",
            "runtime",
            "schema",
            "sizes",
            "states",
            "ties",
            "training",
            "trainplan_version",
        ),
    ]
    assert document["schema"] == "trainplan/pareto/v1"
    assert [one["name"] for one in document["objectives"]] == ["cost", "time"]
    assert document["complete"] is True
    assert document["sizes"] == [4, 8]
    for point in document["points"]:
        assert sorted(point) == ["estimate", "layout", "num_gpus", "values"]
        assert point["values"][1] == point["estimate"]["step_time_s"]
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("option", ["--objective=cost", "--pareto=cost,time"])
def test_money_without_a_price_is_refused(option):
    refused(plan("search", *TINY, option), "price_per_gpu_hour", "plan catalog clusters --template")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--objective", "gpus", "--deadline", "3d"), ("--tokens",)),
        (("--deadline", "3d"), ("--tokens",)),
        (("--deadline", "1h", "--tokens", "900T"), ("raise --deadline", "on all 8 GPUs")),
        (
            ("--objective", "gpus", "--deadline", "1h", "--tokens", "900T"),
            ("raise --deadline", "on all 8 GPUs"),
        ),
        (("--objective", "energy", "--slack", "3%"), ("--slack", "energy")),
        (("--objective", "memory", "--slack", "3"), ("--slack", "write 2%")),
        (("--objective", "memory", "--slack", "-3%"), ("--slack", "write 2%")),
        (("--deadline", "soon", *TOKENS), ("--deadline", "write 30d")),
        (("--deadline", "0d", *TOKENS), ("--deadline", "write 30d")),
        (("--objective", "speed"), ("--objective", "energy")),
        (("--pareto", "cost"), ("--pareto", "cost,time")),
        (("--pareto", "time,time"), ("--pareto", "cost,time")),
        (("--pareto", "time,speed"), ("--pareto", "cost,time")),
        (("--pareto", "memory,gpus"), ("pairs are",)),
        (("--pareto", "time,memory", "--output", "plan.json"), ("--output",)),
        (("--pareto", "time,memory", "--baseline", "tp=1"), ("--baseline",)),
        (("--pareto", "time,memory", "--objective", "energy"), ("--objective energy",)),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_with_what_to_do(arguments, words):
    refused(plan("search", *TINY, *arguments), *words)


@pytest.mark.parametrize("run", [(), TOKENS], ids=["no run", "a run"])
def test_without_a_deadline_the_fewest_gpus_are_those_that_hold_the_job(rented, run):
    outcome = plan("search", *rented, "--objective", "gpus", *run)
    lines = outcome.out.splitlines()
    assert lines[0] == "4 GPUs are the fewest on which the job fits, in whole nodes; proved"
    assert lines[1].startswith("tp ")
    assert "certificate" in plan("search", *rented, "--objective", "gpus", *run, "--json").json


def test_a_job_that_fits_nowhere_is_infeasible_whatever_the_objective():
    job = with_value(with_value(TINY, "--model", "llama3-70b"), "--cluster", "1x1:l4")
    outcome = plan("search", *job, "--objective", "energy", "--time-limit", "5")
    assert outcome.code == 2
    assert "Nothing fits" in outcome.out


def test_a_short_run_is_told_in_hours_or_minutes_and_one_gpu_is_one():
    job = with_value(with_value(TINY, "--cluster", "2x1:h100-sxm"), "--global-batch-size", "16")
    run = ("--tokens", "100M", "--deadline", "3h")
    lines = plan("search", *job, "--objective", "gpus", *run).out.splitlines()
    assert lines[0].startswith("1 GPU is the fewest that ends the run in time: in ")
    assert lines[0].endswith(" minutes; proved")
    assert " minutes (" in lines[3]
    assert " 0 GPU-hours" not in lines[3]
    late = plan("search", *job, "--tokens", "1T", "--deadline", "1h")
    assert "ends the run in 60 minutes: the fastest" in late.err
