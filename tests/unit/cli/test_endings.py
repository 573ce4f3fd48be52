"""Plans, files to write and how a run ends: nothing half-written, never a traceback."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.command import LLAMA, PLAN, TINY, plan, plan_process, refused, with_value
from trainplan.cli.commands.search import STOPPED
from trainplan.cli.main import ControlC, run
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.planner.questions.estimation import check_model
from trainplan.planner.runtimes import EXPORTERS

ROOT = Path(__file__).parents[3]
CPU = ROOT / "tests/replay/cpu_two_processes.json"
needs_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


FEW = (*TINY, "--fix", "pp=1", "--fix", "cp=1", "--fix", "recompute=none")
"""The job, searched among few layouts."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """The page of a plan, and the plan as it is written."""
    made = tmp_path_factory.mktemp("tiny") / "plan.json"
    outcome = plan("search", *FEW, "--output", made)
    assert outcome.code == 0
    return outcome.out, made.read_bytes()


@pytest.fixture(scope="module")
def tiny(searched: tuple[str, bytes]) -> bytes:
    """A plan as it is written."""
    return searched[1]


@pytest.fixture
def made(tmp_path: Path, tiny: bytes) -> Path:
    """A plan that was written."""
    path = tmp_path / "plan.json"
    path.write_bytes(tiny)
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "trainplan/plan/v2"}, ["trainplan/plan/v2", "make the plan again"]),
        ({"best": {}}, [""]),
        ({"model": []}, [""]),
        ({"cluster": {"groups": []}}, ["groups"]),
    ],
)
def test_a_plan_that_is_none_is_refused(
    tmp_path: Path, made: Path, change: dict[str, object], words: list[str]
):
    made.write_text(json.dumps({**json.loads(made.read_text()), **change}))
    refused(plan("export", made, "--output-dir", tmp_path / "launch"), str(made), *words)
    assert not (tmp_path / "launch").exists()


def test_a_plan_that_is_no_json_is_refused(tmp_path: Path):
    made = tmp_path / "plan.json"
    made.write_text('{"schema": ')
    refused(plan("export", made, "--output-dir", tmp_path / "launch"), f"{made}:1:12")


def test_an_edited_plan_with_an_illegal_layout_is_refused(tmp_path: Path, made: Path):
    document = json.loads(made.read_text())
    document["best"]["layout"] |= {"tp": 8, "dp": 1, "cp": 1, "pp": 1}
    derived = {
        "dp_shard": 1,
        "num_microbatches": 8 // document["best"]["layout"]["micro_batch_size"],
    }
    document["best"]["layout"] |= derived
    made.write_text(json.dumps(document))
    refused(plan("export", made, "--output-dir", tmp_path / "launch"), "rule")


def test_nothing_is_replaced_without_force(tmp_path: Path, made: Path):
    launch = tmp_path / "launch"
    before = made.read_bytes()
    refused(plan("search", *FEW, "--output", made), "--force")
    assert made.read_bytes() == before
    launch.mkdir()
    (launch / "mine").write_text("keep")
    refused(plan("export", made, "--output-dir", launch), "--force")
    assert plan("export", made, "--output-dir", launch, "--force").code == 0
    assert sorted(path.name for path in launch.iterdir()) == ["mine", "plan.json", "run.sh"]
    assert plan("search", *FEW, "--output", made, "--force").code == 0


def test_another_launcher_s_script_does_not_stay_beside_the_new_plan(tmp_path: Path, made: Path):
    launch = tmp_path / "launch"
    assert plan("export", made, "--output-dir", launch).code == 0
    outcome = plan("export", made, "--launcher", "slurm", "--output-dir", launch, "--force")
    assert outcome.code == 0
    assert outcome.err == f"removed {launch / 'run.sh'}\n"
    assert sorted(path.name for path in launch.iterdir()) == ["plan.json", "run.sbatch"]


def test_a_plan_is_written_after_its_script_and_after_the_stale_one_is_gone(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
):
    launch = tmp_path / "launch"
    assert plan("export", made, "--output-dir", launch).code == 0
    seen: dict[str, list[str]] = {}
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen[target.name] = sorted(p.name for p in launch.iterdir() if p.name[0] != ".")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    arguments = ("--launcher", "slurm", "--output-dir", launch, "--force")
    assert plan("export", made, *arguments).code == 0
    assert list(seen) == ["run.sbatch", "plan.json"]
    assert seen["plan.json"] == ["plan.json", "run.sbatch"]


def test_a_writable_folder_in_a_read_only_one_is_used(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
):
    launch = tmp_path / "launch"
    launch.mkdir()
    allowed = launch

    def access(path: Path, mode: int) -> bool:
        return not mode & os.W_OK or Path(path) == allowed

    monkeypatch.setattr(os, "access", access)
    assert plan("export", made, "--output-dir", launch, "--force").code == 0
    assert (launch / "run.sh").exists()
    allowed = tmp_path
    refused(plan("export", made, "--output-dir", launch, "--force"), "read-only")


def test_a_plan_is_exported_for_its_own_runtime(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
):
    made.write_text(made.read_text().replace('"runtime": "megatron-lm"', '"runtime": "other"'))
    monkeypatch.setattr(
        "trainplan.costmodel.runtimes.registry.RUNTIMES", {"other": RUNTIMES["megatron-lm"]}
    )
    unknown = plan("export", made, "--output-dir", tmp_path / "launch")
    refused(unknown, "unknown runtime 'other'", "megatron-lm")
    exporters = {"other": EXPORTERS["megatron-lm"]}
    monkeypatch.setattr("trainplan.cli.commands.export.EXPORTERS", exporters)
    assert plan("export", made, "--output-dir", tmp_path / "launch").code == 0


def test_a_runtime_without_launch_files_is_not_called_unknown(tmp_path: Path):
    made = tmp_path / "plan.json"
    assert plan("search", *FEW, "--runtime", "nemo", "--output", made).code == 0
    outcome = plan("export", made, "--output-dir", tmp_path / "launch")
    refused(outcome, "no launch files are written for nemo: `plan export` knows megatron-lm")


def test_without_gpus_a_runtime_that_needs_them_has_no_launch_files(tmp_path: Path):
    made, launch = tmp_path / "plan.json", ("--output-dir", tmp_path / "launch")
    sizes = ("--model", ROOT / "examples/tiny.yaml", "--cluster", CPU)
    wanted = ("search", *sizes, "--global-batch-size", "4", "--seq-length", "128")
    refused(plan(*wanted, "--precision", "bf16"), "no bf16 speed of cpu-intel-xeon is known")
    found = plan(*wanted, "--output", made)
    assert "precision fp32: no product was measured in bf16" in " ".join(found.out.split())
    assert "runtime fsdp2: megatron-lm trains on no CPU" in " ".join(found.out.split())
    assert plan("export", made, *launch).code == 0
    refused(
        plan("export", made, *launch, "--runtime", "megatron-lm", "--force"),
        "megatron-lm trains on no CPU, as fsdp2 and torch-eager and transformers do",
    )


def test_a_missing_output_folder_is_refused_before_the_search(tmp_path: Path):
    refused(plan("search", *LLAMA, "--output", tmp_path / "a" / "plan.json"), "make it first")


def test_a_file_where_a_folder_should_be_is_refused(tmp_path: Path, made: Path):
    refused(plan("export", made, "--output-dir", made, "--force"), "is a file")
    refused(plan("search", *FEW, "--output", tmp_path, "--force"), "is a folder")


@needs_user
def test_a_read_only_folder_is_refused_and_stays_empty(tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    refused(plan("search", *FEW, "--output", folder / "plan.json"), "read-only")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_an_answer_that_cannot_be_written_is_shown_all_the_same(
    tmp_path: Path,
    searched: tuple[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    as_json: tuple[str, ...],
):
    def fail(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    made, shown = tmp_path / "plan.json", searched[1].decode() if as_json else searched[0]
    monkeypatch.setattr(Path, "replace", fail)
    outcome = plan("search", *FEW, *as_json, "--output", made)
    assert outcome.code == 2
    assert outcome.out.splitlines()[:2] == shown.splitlines()[:2]
    assert outcome.err == f"plan: error: {made}: cannot be written: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_goes_while_the_search_runs_costs_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "folder"
    folder.mkdir()

    def checked(job: Job) -> None:
        folder.rmdir()
        check_model(job)

    monkeypatch.setattr("trainplan.planner.questions.best_plan.check_model", checked)
    outcome = plan("search", *FEW, "--output", folder / "plan.json")
    assert outcome.code == 2
    assert outcome.out.startswith("tp 1 · pp 1")
    assert outcome.err.count("\n") == 1
    assert "make it first" in outcome.err


def test_a_full_disk_is_told_before_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    monkeypatch.setattr("trainplan.planner.questions.best_plan.check_model", None)
    made = tmp_path / "plan.json"
    refused(plan("search", *FEW, "--output", made), f"{made}: cannot be written: No space left")


def test_control_c_while_writing_leaves_nothing(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    outcome = plan("export", made, "--output-dir", tmp_path / "launch")
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")
    assert list(tmp_path.iterdir()) == [made]


IN_A_TERMINAL = """\
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
from trainplan.cli.main import main
main()
"""


WHILE_IT_SEARCHES = """\
from trainplan.cli.terminal.clock import Clock
Clock.report = lambda clock, done, bound, best: (
    isinf(best) or clock.seconds < 1 or sys.stderr.write("searching\\n")
)
"""
LARGE = with_value(with_value(LLAMA, "--cluster", "64x8:h100-sxm"), "--global-batch-size", "1024")
"""Searched in 5 s; the first layout is found in half a second."""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_control_c_in_the_middle_of_a_search_ends_it_with_the_best_so_far(workers: str):
    program = f"import sys\nfrom math import isinf\n{WHILE_IT_SEARCHES}{IN_A_TERMINAL}"
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            program,
            "search",
            *LARGE,
            "--workers",
            workers,
            "--time-limit",
            "600",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "searching\n"
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "the time limit struck" in out.replace("\n", " ")
    assert set(err.splitlines()) <= {"searching", STOPPED}


def _pressed(times: int) -> Callable[..., None]:
    def report(*arguments: object) -> None:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)

    return report


@pytest.fixture
def in_a_terminal():
    """A shell in the background has its children ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("in_a_terminal")
def test_a_second_control_c_ends_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainplan.cli.terminal.clock.Clock.report", _pressed(2))
    before = signal.getsignal(signal.SIGINT)
    outcome = plan("search", *LLAMA)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("in_a_terminal")
@pytest.mark.parametrize("wanted", [("--json",), ("--objective", "energy")])
def test_control_c_is_as_a_time_limit_whatever_is_asked(
    monkeypatch: pytest.MonkeyPatch, wanted: tuple[str, ...]
):
    monkeypatch.setattr("trainplan.cli.terminal.clock.Clock.report", _pressed(1))
    outcome = plan("search", *LLAMA, *wanted)
    assert (outcome.code, outcome.err) == (130, f"{STOPPED}\n")
    assert outcome.out


@pytest.mark.usefixtures("in_a_terminal")
def test_control_c_before_anything_is_found_says_so(monkeypatch: pytest.MonkeyPatch):
    def struck(*arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise SpecError("the time limit struck before any layout was found")

    monkeypatch.setattr("trainplan.planner.questions.best_plan.check_model", struck)
    outcome = plan("search", *LLAMA)
    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err == "stopped before any layout was found\n"


@pytest.mark.usefixtures("in_a_terminal")
def test_control_c_that_compiled_code_turned_into_another_error_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted(*arguments: object, **options: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise TypeError("addRow(): incompatible function arguments")

    control_c, before = ControlC(), signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("trainplan.planner.questions.estimation._answer", interrupted)
    signal.signal(signal.SIGINT, control_c)
    try:
        code = run(["estimate", *TINY, "--layout", "tp=1"], control_c)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, *capsys.readouterr()) == (130, "", "")


def test_a_reader_that_leaves_early_is_no_error():
    running = subprocess.Popen(
        [*PLAN, "catalog", "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    err = running.stderr.read()
    running.stderr.close()
    assert (running.wait(timeout=30), err) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("catalog", "gpus")])
def test_a_full_disk_behind_stdout_is_said(arguments: tuple[str, ...]):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PLAN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("plan: error: cannot write to standard output")


def test_a_bug_is_one_line_with_the_way_to_its_traceback(monkeypatch: pytest.MonkeyPatch):
    def broken(*arguments: object, **options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("trainplan.planner.questions.estimation._answer", broken)
    outcome = plan("estimate", *TINY, "--layout", "tp=1")
    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1
    assert "this is a bug" in outcome.err
    assert "PLAN_DEBUG=1" in outcome.err


def test_a_bug_shows_its_traceback_on_demand(monkeypatch: pytest.MonkeyPatch):
    def broken(*arguments: object, **options: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("trainplan.planner.questions.estimation._answer", broken)
    monkeypatch.setenv("PLAN_DEBUG", "1")
    with pytest.raises(KeyError):
        plan("estimate", *TINY, "--layout", "tp=1")


def test_a_terminal_without_our_characters_is_no_error():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    outcome = plan_process("estimate", *TINY, "--layout", "tp=1", **environment)
    assert outcome.code == 0
    assert outcome.out.isascii()
    assert outcome.out.startswith("tp 1 | pp 1 | ")
    assert " ####" in outcome.out
    assert "?" not in outcome.out
