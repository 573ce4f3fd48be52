"""The main line of the README: search, export, launch script."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.command import LLAMA, SMALLER, TINY, Outcome, plan, plan_process, refused, with_value
from trainplan.costmodel.job.job import Job, RuntimeOptions
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.document import plan_json
from trainplan.planner.questions import best_plan as answer
from trainplan.planner.questions.best_plan import SearchOptions, search

SAFE = ("--search-options", "safe")
"""As the command and Python search where nothing is stated."""


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    """What is printed of a job, and the file of its plan."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    outcome = plan("search", *SMALLER, *SAFE, "--json", "--output", path)
    assert outcome.code == 0, outcome.err
    return outcome, path


@pytest.fixture(scope="module")
def made(answered: tuple[Outcome, Path]) -> Path:
    return answered[1]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is printed of the same job on priced GPUs, beside a baseline."""
    path = tmp_path_factory.mktemp("page") / "cluster.yaml"
    group = "{gpu: h100-sxm, num_nodes: 2, gpus_per_node: 8, price_per_gpu_hour: 2.0}"
    path.write_text(f"groups: [{group}]\ncurrency: EUR\n")
    job = (*with_value(SMALLER, "--cluster", str(path)), "--tokens", "15T")
    baseline = ("--baseline", "tp=8,pp=2,sp=true,recompute=full")
    outcome = plan("search", *job, *baseline, "--runtime-version", "v1")
    assert outcome.code == 0, outcome.err
    return outcome.out


@pytest.mark.parametrize(("launcher", "name"), [("torchrun", "run.sh"), ("slurm", "run.sbatch")])
def test_a_plan_becomes_a_script_that_bash_accepts(
    made: Path, tmp_path: Path, launcher: str, name: str
):
    launch = tmp_path / "launch"
    outcome = plan("export", made, "--launcher", launcher, "--output-dir", launch)
    assert outcome.code == 0, outcome.err
    assert sorted(path.name for path in launch.iterdir()) == sorted([name, "plan.json"])
    assert (launch / "plan.json").read_text() == made.read_text()
    assert bool((launch / name).stat().st_mode & 0o100) == (name == "run.sh")
    assert subprocess.run(["bash", "-n", launch / name], check=False).returncode == 0


def test_another_layout_of_the_table_is_exported_by_its_rank(made: Path, tmp_path: Path):
    second = json.loads(made.read_text())["candidates"][1]
    launch = tmp_path / "launch"
    assert plan("export", made, "--candidate", "2", "--output-dir", launch).code == 0
    best = json.loads((launch / "plan.json").read_text())["best"]
    assert best == {"layout": second["layout"], "estimate": second["estimate"]}
    script = (launch / "run.sh").read_text()
    assert f"--pipeline-model-parallel-size {second['layout']['pp']}\n" in script
    assert f"--context-parallel-size {second['layout']['cp']}\n" in script
    missing = plan("export", made, "--candidate", "99", "--output-dir", tmp_path / "none")
    refused(missing, "no candidate 99")


def test_one_rank_and_what_it_has_no_use_for_are_not_asked_together(made: Path, tmp_path: Path):
    wanted = ("export", made, "--output-dir", tmp_path / "launch", "--one-rank", "0")
    for other in (("--trials", "2"), ("--launcher", "slurm")):
        refused(plan(*wanted, *other), "--one-rank", other[0])
    assert not (tmp_path / "launch").exists()


def test_the_script_asks_for_what_only_the_user_knows(made: Path, tmp_path: Path):
    launch = tmp_path / "launch"
    assert plan("export", made, "--output-dir", launch).code == 0
    done = subprocess.run(
        ["bash", launch / "run.sh"], capture_output=True, text=True, env={}, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Set MEGATRON_PATH: ")


def test_the_first_lines_are_the_answer(page: str):
    layout, numbers, run, *_ = page.splitlines()
    assert re.match(r"tp \d+ · pp \d+ · vpp \d+ · cp \d+ · dp \d+ · mbs \d+ · ", layout)
    assert re.search(r"s a step \(80 %: .* to .* s\) · [\d,]+ tokens/s/GPU · MFU", numbers)
    assert numbers.endswith("GiB")
    assert run.startswith("15 T tokens in ")
    assert "GPU-hours" in run
    for part in ("Proved fastest of", "Where the step goes", "recompute", "Next"):
        assert part in page


BEHIND_VERBOSE = (
    "combinations of settings, chosen",
    "Memory of each pipeline rank, GiB",
    "Refused: ",
)


def test_the_first_screen_is_short_and_the_rest_comes_with_verbose():
    held = (*SMALLER, *SAFE, "--memory-margin", "0.05", "--fix", "tp=1", "--fix", "stages=even")
    short, long = (plan("search", *held, *more).out for more in ((), ("--verbose",)))
    before = short[: short.index("\n #")].splitlines()
    assert len(before) <= 28
    assert "With --verbose: memory of every rank" in short
    assert short.count("distance") == 1
    for part in BEHIND_VERBOSE:
        assert part not in short
        assert part in long
    assert long.count("distance") == 3
    assert "With --verbose" not in long
    assert "smaller ones, each below 1 %" in short
    assert "smaller ones" not in long


def test_no_line_of_a_plan_is_wider_than_a_hundred_columns(page: str):
    assert max(len(line) for line in page.splitlines()) <= 100
    assert "…" not in page


def test_json_is_the_plan_and_nothing_else(answered: tuple[Outcome, Path]):
    outcome, made = answered
    printed, stored = outcome.json, json.loads(made.read_text())
    assert outcome.err == f"wrote {made}\n"
    job, _ = chosen_from_json(outcome.out)
    wanted = job.model_copy(update={"options": RuntimeOptions()})
    expected = plan_json(search(wanted, SearchOptions()))
    for document in (printed, stored):
        assert document["certificate"].pop("search_seconds") > 0
    expected["certificate"].pop("search_seconds")
    assert printed == stored == json.loads(json.dumps(expected))


def test_the_command_and_the_python_interface_agree():
    outcome = plan("search", *TINY, *SAFE, "--json")
    assert outcome.err == ""
    job, layout = chosen_from_json(outcome.out)
    assert isinstance(job, Job)
    assert search(job).best.layout == layout


def test_a_baseline_is_compared(page: str):
    assert "Baseline: tp 8 · pp 2" in page
    assert "times as fast" in page


def test_fixed_and_excluded_values_are_respected():
    document = plan("search", *TINY, "--fix", "tp=2", "--exclude", "cp=1", "--json").json
    layouts = [candidate["layout"] for candidate in document["candidates"]]
    assert {layout["tp"] for layout in layouts} == {2}
    assert 1 not in {layout["cp"] for layout in layouts}


def test_top_limits_the_alternatives():
    assert len(plan("search", *TINY, "--top", "3", "--json").json["candidates"]) == 3


def test_money_comes_from_the_price_of_the_cluster(page: str):
    line = page.splitlines()[2]
    hours, money = re.search(r"([\d,]+) GPU-hours · ([\d,]+) EUR", line).groups()
    ratio = int(money.replace(",", "")) / int(hours.replace(",", ""))
    assert ratio == pytest.approx(2.0, rel=1e-4)


def test_a_printed_layout_without_sequence_parallelism_says_so_itself():
    printed = ("--layout", "tp 2 · pp 1 · dp 8 · mbs 1 · ZeRO-1 · recompute none")
    stated = ("--layout", "tp=2,dp=8")
    values = [plan("estimate", *SMALLER, *layout).out for layout in (printed, stated)]
    assert ["sequence_parallel is not in the layout" in one for one in values] == [False, True]


def test_energy_and_carbon_dioxide_of_the_run_come_with_what_is_stated_of_the_site(tmp_path):
    layout = ("--layout", "pp=2", "--tokens", "1T")
    _, _, _, failures, plain, *_ = plan("estimate", *SMALLER, *layout).out.splitlines()
    assert failures == "without failures and saves: --mtbf-node adds them"
    assert re.fullmatch(r"energy [\d.]+ MWh, [\d.]+ Wh a step \(GPUs alone\)", plain)
    stated = ("--pue", "1.2", "--carbon", "world", "--json")
    on_line = plan("estimate", *SMALLER, *layout, *stated).json
    assert (on_line["cluster"]["pue"], on_line["cluster"]["kg_co2_per_kwh"]) == (1.2, 0.445)
    group = "{gpu: h100-sxm, num_nodes: 2, gpus_per_node: 8}"
    path = tmp_path / "cluster.yaml"
    path.write_text(f"groups: [{group}]\npue: 1.2\nkg_co2_per_kwh: 0.445\n")
    job = with_value(SMALLER, "--cluster", str(path))
    in_file = plan("estimate", *job, *layout, "--json").json
    assert in_file["spent"] == on_line["spent"]
    spent = in_file["spent"]
    assert spent["kg_co2_per_run"] == pytest.approx(0.445 * spent["kwh_per_run"])
    assert spent["kwh_per_step"] == pytest.approx(1.2 * spent["joules_per_step"] / 3.6e6)


def test_another_runtime_version_is_noted():
    assert "you run v1" in plan("search", *TINY, "--runtime-version", "v1").out
    document = plan("search", *TINY, "--runtime-version", "v1", "--json").json
    assert any("you run v1" in note for note in document["provenance"]["notes"])


def test_nothing_fits_is_an_answer_with_changes():
    job = with_value(LLAMA, "--cluster", "1x8:a100-sxm-40gb")
    outcome = plan("search", *job)
    assert outcome.code == 2
    assert outcome.out.startswith("Nothing fits: the layout of least memory needs ")
    assert "GPUs" in outcome.out
    outcome = plan("search", *job, "--json")
    assert outcome.code == 2
    assert outcome.json["schema"] == "trainplan/infeasible/v1"
    assert outcome.json["least_memory_bytes"] > outcome.json["capacity_bytes"]
    assert outcome.json["changes"]


def test_no_legal_layout_is_said():
    outcome = plan("search", *TINY, "--fix", "tp=3")
    assert outcome.code == 2
    assert outcome.out.startswith("No layout is legal")
    assert "drop --fix tp=3" in outcome.out


def test_a_layout_that_does_not_fit_is_priced_and_says_what_would():
    arguments = ("estimate", *LLAMA, "--layout")
    outcome = plan(*arguments, "tp=8,mbs=4")
    assert outcome.code == 0
    assert outcome.out.splitlines()[2].startswith("Does not fit (1 of 100): ")
    assert "It runs with" in outcome.out
    document = plan(*arguments, "tp=8,mbs=4", "--json").json
    assert document["estimate"]["memory"]["fits"] is False
    for remedy in document["remedies"]:
        changes = {one["field"].split(".")[0]: one["after"] for one in remedy["changes"]}
        layout = {"tp": 8, "micro_batch_size": 4, **changes}
        wanted = ",".join(f"{name}={value}" for name, value in layout.items())
        assert plan(*arguments, wanted, "--json").json["estimate"]["memory"]["fits"], remedy


def test_a_time_limit_that_ends_the_search_is_said():
    job = with_value(with_value(LLAMA, "--model", "deepseek-v3"), "--cluster", "256x8:h100-sxm")
    job = with_value(with_value(job, "--global-batch-size", "8192"), "--seq-length", "4096")
    outcome = plan("search", *job, "--time-limit", "1e-6")
    assert outcome.code == 0
    assert "Not proved fastest" in outcome.out
    assert "the time limit struck: `--time-limit none`" in outcome.out


def test_infeasibility_that_was_proved_in_time_is_the_answer(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]

    def late(*arguments: object) -> tuple[str, ...]:
        now[0] = 100.0
        return ()

    monkeypatch.setattr("trainplan.cli.terminal.clock.time.monotonic", lambda: now[0])
    monkeypatch.setattr("trainplan.planner.questions.best_plan.relaxations", late)
    job = with_value(with_value(LLAMA, "--model", "llama3.1-405b"), "--cluster", "1x8:h100-sxm")
    outcome = plan("search", *job, "--time-limit", "50")
    assert (outcome.code, outcome.err) == (2, "")
    assert outcome.out.startswith("Nothing fits: the layout of least memory needs ")
    assert "Changes not tried: time limit." in outcome.out
    now[0] = 0.0
    outcome = plan("search", *job, "--time-limit", "50", "--json")
    assert outcome.json["schema"] == "trainplan/infeasible/v1"
    assert outcome.err == "changes not tried: time limit\n"


def test_a_layout_the_runtime_cannot_express_is_not_sent_to_export(
    monkeypatch: pytest.MonkeyPatch,
):
    note = "megatron-lm cannot express this model: train it with another runtime"
    notes = answer.notes_on
    monkeypatch.setattr(answer, "notes_on", lambda *given: (*notes(*given), note))
    _, found, following = plan("search", *TINY).out.partition("Next\n")
    assert found
    assert following.startswith(f"  {note}\n\n")


FEATURE = "megatron-lm cannot express unused rows in front of the learned positions"


def test_a_model_the_runtime_cannot_run_stands_above_the_answer_and_nowhere_else():
    note = f"{FEATURE}: `plan export` will refuse"
    job = with_value(TINY, "--model", "opt-125m")
    shown, written = (
        plan("estimate", "--layout", "tp=1", *job, *more) for more in ((), ("--json",))
    )
    assert shown.out.splitlines()[0] == note
    assert note not in shown.out.partition("Good to know")[2]
    assert note in written.json["provenance"]["notes"]


def test_a_search_refuses_a_runtime_that_cannot_run_the_model_and_chooses_one_that_can():
    job = with_value(TINY, "--model", "opt-125m")
    stated = plan("search", *job, "--runtime", "megatron-lm")
    assert stated.code == 2
    assert stated.err.splitlines()[0] == (
        f"plan: error: {FEATURE}; accelerate, deepspeed, arctic-training and transformers can: use "
        "--runtime accelerate, or leave it out"
    )
    shown, written = (plan("search", *job, *more) for more in ((), ("--json",)))
    first = "runtime accelerate, which shards any model of transformers"
    assert " ".join(shown.out.splitlines()[1:3]) == f"{first}: {FEATURE}"
    assert written.json["provenance"]["notes"][-1].startswith(first)


def test_an_estimate_tells_what_it_assumes_as_a_search_does():
    job = (*with_value(TINY, "--cluster", "1x8:l4"), "--runtime-version", "v1")
    searched = plan("search", *job, "--json").json["provenance"]["notes"]
    assert any("not measured on l4" in note for note in searched)
    assert "you run v1" in searched[-1]
    assert plan("estimate", *job, "--layout", "tp=1", "--json").json["provenance"] == {
        "notes": searched
    }
    shown = " ".join(plan("estimate", *job, "--layout", "tp=1").out.split())
    for note in searched:
        assert " ".join(note.split()) in shown


def test_two_processes_find_what_one_finds():
    found = [plan("search", *SMALLER, "--workers", number, "--json").json for number in "12"]
    assert all(one["certificate"].pop("search_seconds") > 0 for one in found)
    assert found[0] == found[1]


def test_a_process_prints_what_the_function_prints():
    arguments = ("estimate", *TINY, "--layout", "tp=2,sp=true")
    assert plan_process(*arguments) == plan(*arguments)


def test_an_estimate_says_what_the_sequence_parallelism_it_was_not_told_of_would_change():
    notes = plan("estimate", *TINY, "--layout", "tp=4", "--json").json["provenance"]["notes"]
    assert notes[0].startswith("sequence_parallel is not in the layout, so it is off: with")
    for values in ("tp=4,sequence_parallel=false", "tp=4,sequence_parallel=true", "tp=1"):
        document = plan("estimate", *TINY, "--layout", values, "--json").json
        assert "sequence_parallel" not in " ".join(document["provenance"]["notes"])
