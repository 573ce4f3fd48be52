"""Trials as batch jobs, under a Slurm of four small scripts."""

import os
import shlex
import threading
import time

import pytest

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.logs.formats import StatedRun
from trainplan.profiler.trials.backends import BACKENDS
from trainplan.profiler.trials.backends.slurm import JOB, Slurm
from trainplan.profiler.trials.follow import run_trial
from trainplan.profiler.trials.run import Limits, TrialRun

# planner/runtimes/fsdp2/train_fsdp2.txt, train
STEP = "step {}: loss 10.0, gradient norm 1.0, {:.3f} s, peak 0 bytes"
LIMITS = Limits(deadline_s=120, grace_s=2, poll_s=0.02)
SLURM = {
    "sbatch": """
printf '%s\\n' "$@" > "$SLURM/sbatch.words"
if [[ -f "$SLURM/refusal" ]]; then cat "$SLURM/refusal" >&2; exit 1; fi
for word in "$@"; do case "$word" in --output=*) log="${word#--output=}";; esac; done
script="${@: -1}"
becomes() { echo "$1" > "$SLURM/$2.draft"; mv "$SLURM/$2.draft" "$SLURM/$2"; }
becomes PENDING state
(
  trap 'kill "$child"; becomes CANCELLED state; exit' TERM
  becomes RUNNING state
  bash "$script" > "$log" 2>&1 &
  child=$!
  wait "$child"
  code=$?
  becomes "$code:0" code
  if [[ -f "$SLURM/end" ]]; then becomes "$(cat "$SLURM/end")" state
  elif [[ $code == 0 ]]; then becomes COMPLETED state
  else becomes FAILED state; fi
) > /dev/null 2>&1 &
echo $! > "$SLURM/job"
echo "4711;cluster"
""",
    "squeue": """
if [[ -f "$SLURM/deaf" ]]; then
  rm "$SLURM/deaf"
  echo "slurm_load_jobs error: Unable to contact slurm controller" >&2
  exit 1
fi
state="$(cat "$SLURM/state" 2> /dev/null || echo PENDING)"
if [[ -f "$SLURM/forgets" && "$state" != RUNNING && "$state" != PENDING ]]; then
  echo "slurm_load_jobs error: Invalid job id specified" >&2
  exit 1
fi
echo "$state"
""",
    "sacct": """
if [[ -f "$SLURM/no-account" ]]; then echo "Slurm accounting storage is disabled" >&2; exit 1; fi
echo "$(cat "$SLURM/state") by 1000|$(cat "$SLURM/code")"
""",
    "scancel": """
echo "$@" >> "$SLURM/cancelled"
kill "$(cat "$SLURM/job")" 2> /dev/null
""",
}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Folder of a Slurm, which takes files as orders."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in SLURM.items():
        program = folder / name
        program.write_text(f"#!/usr/bin/env bash\n{text}")
        program.chmod(0o755)
    monkeypatch.setenv("SLURM", str(folder))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def trial(folder, *lines):
    folder.mkdir(exist_ok=True)
    (folder / "run.sbatch").write_text("\n".join(("#!/usr/bin/env bash", *lines)) + "\n")
    return TrialRun(folder, "run.sbatch", StatedRun(8, 128, 4), 3)


def steps(*seconds):
    lines = (STEP.format(n, one) for n, one in enumerate(seconds, start=1))
    return f"printf '%s\\n' {shlex.join(lines)}"


def ran(tmp_path, *lines):
    return run_trial(trial(tmp_path / "trial-1", *lines), Slurm(0.02), LIMITS)


def test_a_job_with_enough_steps_is_cancelled_and_measured(tmp_path, slurm):
    found = ran(tmp_path, steps(9.0, 2.0, 1.0, 1.0, 1.0), "exec sleep 600")
    assert (found.ending, found.step_time_s, found.steps) == ("measured", 1.0, 3)
    assert (slurm / "cancelled").read_text().split()[0] == "4711"
    assert (slurm / "state").read_text() == "CANCELLED\n"
    assert (slurm / "sbatch.words").read_text().splitlines() == [
        "--parsable",
        "--no-requeue",
        f"--output={tmp_path}/trial-1/log.txt",
        f"{tmp_path}/trial-1/run.sbatch",
    ]


def test_a_job_that_ends_is_not_cancelled(tmp_path, slurm):
    assert ran(tmp_path, steps(9.0, 2.0, 1.0, 3.0)).step_time_s == 2.0
    assert not (slurm / "cancelled").exists()
    assert not (tmp_path / "trial-1" / JOB).exists()


@pytest.mark.parametrize(
    ("state", "ending", "reason"),
    [
        ("NODE_FAIL", "lost_node", "Slurm reports NODE_FAIL of job 4711: a node failed"),
        ("OUT_OF_MEMORY", "out_of_memory", "OUT_OF_MEMORY of job 4711"),
        ("PREEMPTED", "lost_node", "another job took its nodes"),
        ("TIMEOUT", "hang", "its time limit came"),
        ("CANCELLED", "lost_node", "somebody cancelled it"),
    ],
)
def test_slurm_knows_how_a_job_ended(tmp_path, slurm, state, ending, reason):
    (slurm / "end").write_text(state)
    found = ran(tmp_path, steps(9.0, 2.0), "exit 1")
    assert found.ending == ending
    assert reason in found.reason


@pytest.mark.parametrize("order", ["forgets", "no-account", "deaf"])
def test_an_end_is_found_wherever_slurm_keeps_it(tmp_path, slurm, order):
    (slurm / order).touch()
    found = ran(tmp_path, steps(9.0, 2.0), "echo 'ValueError: no'", "exit 3")
    assert (found.ending, found.reason) == ("crash", "ValueError: no")


def test_a_job_that_nobody_remembers_is_judged_by_its_log(tmp_path, slurm):
    (slurm / "forgets").touch()
    (slurm / "no-account").touch()
    assert ran(tmp_path, steps(9.0, 2.0, 1.0, 3.0)).step_time_s == 2.0
    (slurm / "state").unlink()
    found = ran(tmp_path, steps(9.0), "echo 'torch.OutOfMemoryError: CUDA'", "exit 1")
    assert found.ending == "out_of_memory"


def test_a_refusal_is_told(tmp_path, slurm):
    (slurm / "refusal").write_text("sbatch: error: invalid partition specified: gpu\n")
    with pytest.raises(ProfilerError, match=r"refuses .*run\.sbatch: .*invalid partition"):
        ran(tmp_path, "true")


def test_a_signal_to_us_cancels_the_job(tmp_path, slurm):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are the main thread's")
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path, f"kill -TERM {os.getpid()}", "exec sleep 600")
    assert (slurm / "state").read_text() == "CANCELLED\n"


def test_a_job_that_a_killed_run_left_is_cancelled_first(tmp_path, slurm):
    run = trial(tmp_path / "trial-1", "echo begun", "exec sleep 600")
    Slurm(0.02).start(run)
    assert (run.folder / JOB).read_text() == "4711\n"
    for _ in range(6000):
        if run.log.exists() and run.log.read_text():
            break
        time.sleep(0.01)
    found = ran(tmp_path, f'[[ "$(cat {slurm}/cancelled)" == 4711* ]] || exit 1', steps(9, 9, 1))
    assert found.ending == "measured"
    assert not (run.folder / JOB).exists()


def test_a_machine_without_slurm_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfilerError, match=r"sbatch does not start .*: start this where Slurm is"):
        ran(tmp_path, "true")


def test_a_percent_sign_of_a_folder_is_no_pattern(tmp_path):
    run = trial(tmp_path / "50%", "true")
    ((*_, output, script),) = BACKENDS["slurm"].commands(run)
    assert output == f"--output={tmp_path}/50%%/log.txt"
    assert script == f"{tmp_path}/50%/run.sbatch"


def test_a_job_waits_without_end_where_the_queue_has_none(tmp_path, slurm):
    (slurm / "sbatch").write_text("#!/usr/bin/env bash\necho 4711\n")
    (slurm / "scancel").write_text('#!/usr/bin/env bash\necho CANCELLED > "$SLURM/state"\n')
    soon = Limits(deadline_s=120, queue_s=0.0, poll_s=0.02)
    found = run_trial(trial(tmp_path / "trial-1", "true"), Slurm(0.02), soon)
    assert (found.ending, found.reason) == ("lost_node", "no nodes in 0 s: nothing was run")
    assert (slurm / "state").read_text() == "CANCELLED\n"
