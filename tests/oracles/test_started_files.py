"""Exported files, started by their own script on processes of a CPU: losses are those of one."""

import pytest

from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.verification.exported import exported_runs
from trainplan.profiler.train.request import TrainingFailedError
from trainplan.profiler.train.scripts import ScriptRuns, lacking

pytest.importorskip("torch", "2.13", reason="starting files needs torch: run `make oracles`")
pytestmark = pytest.mark.oracle
ALONE = ((6.956095, 1.693731), (7.029399, 1.71782))
"""Losses and gradient norms of one process, recorded with torch 2.14 by tests/runtimes."""


class Broken:
    script = "run.sh"

    def __init__(self, text):
        self.files = {"run.sh": text}
        self.environment = {"MINE": "."}


def test_files_of_fsdp2_train_on_two_processes_as_on_one(make_job):
    job = make_job("llama3-8b", "1x2:h100-sxm").model_copy(update={"runtime": "fsdp2"})
    layout = Layout(dp=2, zero_stage=3, recompute="full", recompute_method="uniform",
                    recompute_num_layers=1)  # fmt: skip
    (two,) = exported_runs(job, layout, len(ALONE), lacking).others
    steps, _ = ScriptRuns(120.0)(two)
    assert steps == [pytest.approx(one, rel=1e-4) for one in ALONE]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("ImportError: fine;[rank1]: ValueError: no;ChildFailedError: ", "ValueError: no"),
        ("ImportError: fine;a.b.KeyError: no;x.ChildFailedError: ", "a.b.KeyError: no"),
        ("Set TRAIN_FOLDER: the folder", "Set TRAIN_FOLDER: the folder"),
    ],
)
def test_a_failed_script_is_reported_with_the_error_that_ended_it(log, words):
    text = f"printf '%s' '{log}' | tr ';' '\\n'; exit 3"
    with pytest.raises(TrainingFailedError, match=f"code 3: {words}$"):
        ScriptRuns()(Broken(text))


def test_a_script_that_logs_no_losses_has_failed():
    with pytest.raises(TrainingFailedError, match="code 0: all is well"):
        ScriptRuns()(Broken("echo all is well"))


def test_a_script_that_does_not_end_is_ended():
    with pytest.raises(TrainingFailedError, match=r"run\.sh did not end in 1 s"):
        ScriptRuns(1.0)(Broken("sleep 60"))


def test_losses_are_read_from_the_lines_of_the_rank_that_logs_them():
    said = "echo '[rank0]: step 1: loss 6.9, gradient norm 1e-3'; test -d \"$MINE\""
    steps, seconds = ScriptRuns()(Broken(said))
    assert steps == [(6.9, 1e-3)]
    assert seconds > 0


def test_missing_modules_and_variables_are_reported(monkeypatch):
    monkeypatch.setenv("HERE", "/x")
    monkeypatch.delenv("NOWHERE", raising=False)
    assert lacking(("torch", "$HERE")) is None
    assert lacking(("torch", "nothing_of_this_name")) == "nothing_of_this_name is not installed"
    assert lacking(("$NOWHERE", "torch")) == "NOWHERE is not set"


def test_a_script_whose_rank_a_signal_ended_is_started_once_more(tmp_path):
    said = "E api.py:1002] failed (exitcode: -6) local_rank: 1 (pid: 7)"
    text = f"echo x >> {tmp_path}/tries; echo '{said}'; exit 1"
    with pytest.raises(TrainingFailedError, match="code 1"):
        ScriptRuns()(Broken(text))
    assert (tmp_path / "tries").read_text() == "x\nx\n"
