"""`plan tune`: simulated machines, launches of a command, and real processes over gloo."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.e2e.command import plan, refused
from trainplan.cli.trials import remark_load
from trainplan.cli.trials.gpus import num_gpus

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "tests" / "replay" / "cpu_two_processes.json"
TINY = ("--model", ROOT / "examples" / "tiny.yaml", "--cluster", PROFILE)
MACHINE = {
    "schema": "trainplan/simulated-machine/v1",
    "seed": 1,
    "scalars": {"speed": 0.8, "intra_node_bandwidth": 0.6},
    "own_spread": 0.05,
    "trial_spread": 0.01,
}
PROGRAM = """
import sys
if sys.argv[1].endswith("trial-1"):
    raise SystemExit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
for number in range(1, 9):
    print(f" iteration {number}/ 8 | elapsed time per iteration (ms): 250.0 |"
          f" global batch size: 8 | lm loss: 1.0E+00 |", flush=True)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A plan for a node of GPUs."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    wanted = ("--model", "gpt2", "--cluster", "1x4:h100-sxm", "--global-batch-size", "8")
    assert plan("search", *wanted, "--seq-length", "1024", "--output", path).code == 0
    return path


@pytest.fixture
def simulated(tmp_path: Path, written: Path):
    """Tune on a simulated machine, with more arguments; the folder is `tuned`."""
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps(MACHINE))

    def run(*arguments):
        wanted = ("--simulate", machine, "--output-dir", tmp_path / "tuned", *arguments)
        return plan("tune", written, *wanted)

    return run


@pytest.fixture
def no_gpu(monkeypatch):
    """Nobody imports torch to count them."""
    for module in ("launches", "question"):
        monkeypatch.setattr(f"trainplan.cli.trials.{module}.num_gpus", lambda: 0)


def test_gpus_are_counted_once(monkeypatch):
    counted = []
    monkeypatch.setattr("trainplan.profiler.launch.num_gpus", lambda: counted.append(1) or 3)
    num_gpus.cache_clear()
    assert (num_gpus(), num_gpus(), counted) == (3, 3, [1])
    num_gpus.cache_clear()


def events(outcome) -> list[dict]:
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_the_last_event_has_the_best_measured_the_trials_and_what_remains(simulated, tmp_path):
    stated = events(simulated("--trials", "3", "--json"))
    last = stated[-1]
    times = [one["outcome"]["step_time_s"] for one in last["trials"]]
    assert last["event"] == "finished"
    assert last["best"]["measured_step_time_s"] == min(times)
    assert 0 <= last["remains"]["probability_faster"] <= 1
    assert [one["event"] for one in stated[:4]] == ["started", *EVENTS_OF_A_TRIAL]
    document = json.loads((tmp_path / "tuned" / "plan.json").read_text())
    assert document["tuned"]["best"] == last["best"]
    assert document["best"]["layout"]["tp"] == last["best"]["layout"]["tp"]
    assert document["certificate"]["lower_bound_s"] > 0


def test_trials_keep_what_was_believed_before_and_after_them(simulated):
    stated = events(simulated("--trials", "2", "--json"))
    forecasts = [one["forecast"] for one in stated if one["event"] == "trial_started"]
    chances = [one["probability_faster_remains"] for one in stated if one["event"] == "learned"]
    trials = stated[-1]["trials"]
    assert [one["expected"] for one in trials] == forecasts
    assert [one["probability_faster_remains"] for one in trials] == chances
    assert len(chances) == 2


EVENTS_OF_A_TRIAL = ["trial_started", "trial_ended", "learned"]


def test_the_tuned_plan_is_exported_and_its_calibration_used(simulated, tmp_path, written):
    assert simulated("--trials", "2").code == 0
    tuned, launch = tmp_path / "tuned", tmp_path / "launch"
    assert plan("export", tuned / "plan.json", "--output-dir", launch).code == 0
    wanted = ("--model", "gpt2", "--cluster", "1x4:h100-sxm", "--global-batch-size", "8")
    stated = plan(
        *("search", *wanted, "--seq-length", "1024"), "--profile", tuned / "calibration.json"
    )
    assert "calibrated on 2 measured runs" in stated.out


def test_a_loaded_machine_is_reported_and_its_first_two_run_again(simulated, tmp_path):
    loaded = {**MACHINE, "trial_spread": 0.35, "step_spread": 0.4, "slow_steps": 0.1}
    (tmp_path / "machine.json").write_text(json.dumps(loaded))
    page = tmp_path / "tune.html"
    outcome = simulated("--trials", "4", "--report", page)
    assert "once more, of the first two: trials differ by" in outcome.err
    (line,) = (one for one in outcome.out.splitlines() if "noisy neighbour" in one)
    tuned = json.loads((tmp_path / "tuned" / "plan.json").read_text())["tuned"]
    assert f"a trial run again differs by {100 * tuned['noise_fraction']:.0f} %" in line
    assert line.split(":")[0] in page.read_text()
    steps = [one["outcome"]["step_time_s"] for one in tuned["trials"]]
    first = 1 + steps.index(min(steps))
    own = first in (tuned["best"]["number"], *tuned["best"]["repeats"])
    assert (f"trial {first} was shorter" in " ".join(outcome.out.split())) != own
    layouts = [json.dumps(one["layout"]) for one in tuned["trials"]]
    assert (len(layouts), len(set(layouts))) == (4, 2)
    assert len(tuned["best"]["repeats"]) == 1
    assert "measured in trials" in outcome.out
    outcomes = [one["outcome"] for one in tuned["trials"]]
    assert all(one["spread_fraction"] > 0.05 for one in outcomes)


@pytest.mark.usefixtures("no_gpu")
def test_a_busy_machine_is_reported_before_trials_as_in_a_profile(monkeypatch, capsys):
    monkeypatch.setattr("trainplan.profiler.host.probe.usable_cores", lambda: 4)
    for used, stated in ((0.1, False), (3.2, True)):
        monkeypatch.setattr("trainplan.profiler.host.probe.busy_cores", lambda _, used=used: used)
        remark_load(2)
        heard = capsys.readouterr().err
        assert ("noisy neighbour or throttling: other programs used 3.2 of 4" in heard) == stated


def test_what_goes_on_repeats_no_trial(simulated, tmp_path):
    first = events(simulated("--trials", "2", "--json"))[-1]["trials"]
    kept = (tmp_path / "tuned" / "trials.jsonl").read_text()
    stated = events(simulated("--trials", "3", "--resume", "--json"))
    assert stated[0]["earlier_trials"] == 2
    believed = {"expected": None, "probability_faster_remains": None}
    assert stated[-1]["trials"][:2] == [{**one, **believed} for one in first]
    assert (tmp_path / "tuned" / "trials.jsonl").read_text().startswith(kept)
    layouts = [json.dumps(one["layout"]) for one in stated[-1]["trials"]]
    assert len(set(layouts)) == len(layouts)


def test_simulated_trials_are_not_taken_for_those_of_a_machine(simulated, written, tmp_path):
    assert simulated("--trials", "1").code == 0
    wanted = ("--launcher", "command", "--command", "true {script}", "--resume")
    stated = plan("tune", written, *wanted, "--output-dir", tmp_path / "tuned")
    refused(stated, "a simulated machine, not by launches", "--resume")


def test_a_folder_that_is_there_is_not_written_over(simulated):
    assert simulated("--trials", "1").code == 0
    refused(simulated("--trials", "1"), "exists", "--resume")


def test_a_run_goes_on_where_only_the_machine_was_measured_and_nowhere_else(simulated, tmp_path):
    folder = tmp_path / "tuned"
    folder.mkdir()
    stated = simulated("--trials", "1")
    refused(stated, "exists; choose another")
    refused(simulated("--trials", "1", "--resume"), "trials.jsonl")
    (folder / "profile.json").write_text(PROFILE.read_text())
    assert events(simulated("--trials", "1", "--resume", "--json"))[0]["earlier_trials"] == 0


def test_a_dry_run_prints_commands_and_writes_nothing(written, tmp_path):
    folder = tmp_path / "tuned"
    wanted = ("--launcher", "slurm", "--dry-run", "--trials", "2", "--output-dir", folder)
    stated = plan("tune", written, *wanted)
    assert stated.code == 0
    assert stated.out.count("sbatch --parsable") == 2
    assert not folder.exists()


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("PLAN", "--model")),
        (("--model", "gpt2"), ("--cluster", "--nproc")),
        (("--model", "gpt2", "--nproc", "2", "--launcher", "slurm"), ("two ways",)),
        (("--model", "gpt2", "--launcher", "command"), ("--command TEMPLATE",)),
        (("--model", "gpt2", "--stop-command", "true"), ("--launcher command",)),
        (("--model", "gpt2", "--nproc", "2", "--resume"), ("--output-dir",)),
        (("--model", "gpt2", "--budget", "3"), ("no duration", "30m")),
        ((*TINY, "--nproc", "3", "--trials", "1"), ("--nproc 3", "2 devices")),
    ],
)
def test_options_that_do_not_go_together_are_said_in_a_line(
    arguments, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    refused(plan("tune", *arguments), *words)
    assert not list(tmp_path.iterdir())


def test_a_machine_file_of_another_kind_is_refused_by_its_name(written, tmp_path):
    machine = tmp_path / "machine.json"
    machine.write_text('{"schema": "trainplan/plan/v1"}')
    stated = plan("tune", written, "--simulate", machine, "--output-dir", tmp_path / "tuned")
    refused(stated, str(machine), "trainplan/simulated-machine/v1")
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scalars": {"speed": 0}}, ("scalars.speed", "0")),
        ({"faults": {"crash": 0.6, "hang": 0.6}}, ("faults", "more than 1")),
    ],
)
def test_a_machine_that_cannot_be_is_refused_before_any_trial(written, tmp_path, changes, words):
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps({**MACHINE, **changes}))
    refused(plan("tune", written, "--simulate", machine, "--output-dir", tmp_path / "t"), *words)


def test_a_command_runs_exported_files_and_a_trial_without_memory_loses_nothing(written, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = shlex.join((sys.executable, str(program), "{folder}", "{script}"))
    folder = tmp_path / "tuned"
    wanted = ("--launcher", "command", "--command", command, "--steps", "3", "--output-dir", folder)
    last = events(plan("tune", written, *wanted, "--trials", "2", "--json"))[-1]
    endings = [one["outcome"]["ending"] for one in last["trials"]]
    assert endings == ["out_of_memory", "measured"]
    assert "Tried to allocate" in last["trials"][0]["outcome"]["reason"]
    assert last["best"]["measured_step_time_s"] == pytest.approx(0.25)
    script = (folder / "trial-2" / "run.sh").read_text()
    assert "--mock-data" in script
    assert "--log-interval 1" in script
    assert "iteration 8/" in (folder / "trial-2" / "log.txt").read_text()


def test_layouts_are_trained_in_processes_of_this_machine(tmp_path):
    pytest.importorskip("torch", reason="training needs torch: run `make oracles`")
    pytest.importorskip("megatron.core", reason="training needs torch and megatron-core")
    wanted = ("--nproc", "2", "--steps", "2", "--trials", "2", "--output-dir", tmp_path / "tuned")
    last = events(plan("tune", *TINY, *wanted, "--json"))[-1]
    endings = [one["outcome"]["ending"] for one in last["trials"]]
    assert endings == ["measured"] * len(endings)
    assert last["best"]["measured_step_time_s"] > 0


@pytest.mark.usefixtures("no_gpu")
def test_times_of_this_cpu_are_none_of_a_gpu(tmp_path):
    wanted = ("--model", TINY[1], "--cluster", "1x2:h100-sxm", "--nproc", "2")
    folder = tmp_path / "tuned"
    stated = plan("tune", *wanted, "--precision", "bf16", "--output-dir", folder)
    refused(stated, "h100-sxm", "no GPU", "--cluster")
    assert not folder.exists()


@pytest.mark.usefixtures("no_gpu")
def test_a_runtime_whose_code_is_not_run_is_not_tuned_in_processes(tmp_path):
    wanted = ("--nproc", "2", "--runtime", "deepspeed", "--output-dir", tmp_path / "tuned")
    refused(plan("tune", *TINY, *wanted), "deepspeed", "--launcher")
