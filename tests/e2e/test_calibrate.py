"""`plan calibrate` and `--profile`."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.e2e.command import TINY, Outcome, plan, refused, with_value
from tests.e2e.measured_runs import own_run, sample, write_runs
from trainplan.cli.files.profiles import load_measured
from trainplan.costmodel.documents.measured_run import MeasuredRun

LAYOUT = ("--layout", "tp=2,sp=true")
RUNS = Path(__file__).parents[2] / "examples" / "accuracy" / "runs.jsonl"


def log(path: Path, milliseconds: float, batch: int = 8) -> Path:
    """A log of 20 equal steps after a slow one."""
    times = [5 * milliseconds] + [milliseconds] * 20
    path.write_text(
        "\n".join(
            f" [2025-08-01 07:19:37] iteration {number:8d}/ 100 | consumed samples: 128 | elapsed "
            f"time per iteration (ms): {time:.3f} | global batch size: {batch:5d} | lm loss: 1.0 |"
            for number, time in enumerate(times, start=1)
        )
    )
    return path


def step(*arguments: str | Path, layout: tuple[str, str] = LAYOUT) -> float:
    """Predicted step time of the job."""
    document = plan("estimate", *TINY, *layout, *arguments, "--json").json
    estimate = document["estimate"]
    assert isinstance(estimate, dict)
    return float(estimate["step_time_s"])


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    """Of a machine half as fast as the catalog says, by runs of two layouts."""
    path = tmp_path / "calibration.json"
    train = log(tmp_path / "train.log", 2000 * step())
    other = log(tmp_path / "other.log", 2000 * step(layout=("--layout", "tp=4,sp=true")))
    words = ("--log", train, *LAYOUT, "--log", other, "--layout", "tp=4,sp=true")
    done = plan("calibrate", *TINY, *words, "--output", path)
    assert done.code == 0, done.err
    assert re.match(r"speed 0\.50\d of the catalog's for ", done.out)
    assert "--profile" in done.out
    assert "median of 19 lines after 2 of warm-up" in done.err
    return path


def test_steps_of_the_user_correct_the_estimate_of_a_third_layout(calibration: Path):
    layout = ("--layout", "tp=1")
    after = step("--profile", calibration, layout=layout)
    assert after == pytest.approx(2 * step(layout=layout), rel=0.02)
    page = plan("estimate", *TINY, *LAYOUT, "--profile", calibration).out
    assert "calibrated on 2 measured runs of h100-sxm" in page


def test_one_step_is_believed_in_part_and_the_page_asks_for_another_layout(tmp_path: Path):
    train = log(tmp_path / "train.log", 2000 * step())
    page = " ".join(plan("calibrate", *TINY, "--log", train, *LAYOUT).out.split())
    assert "one run is believed in part; measure another layout" in page
    assert "other models" in page
    assert "the runs alone give 0.500 (median)" in page
    assert "on runs of h100-sxm in bf16 under megatron-lm, so these are believed" in page


def test_runs_that_a_correction_does_not_help_are_told_so_with_the_numbers(tmp_path: Path):
    layouts = ("tp=2,sp=true", "tp=4,sp=true", "tp=1", "pp=2")
    words: list[str | Path] = []
    for name, layout, factor in zip("abcd", layouts, (1.2, 0.85, 1.15, 0.8), strict=True):
        time = 1000 * factor * step(layout=("--layout", layout))
        words += ["--log", log(tmp_path / f"{name}.log", time), "--layout", layout]
    path = tmp_path / "calibration.json"
    done = plan("calibrate", *TINY, *words, "--output", path)
    assert done.code == 0, done.err
    first = " ".join(done.out.split())
    pattern = r"no correction, from 4 measured runs: .* ([\d.]+) % off with .* ([\d.]+) % without"
    found = re.match(pattern, first)
    assert found
    assert float(found[1]) > float(found[2])
    assert "Next leave it out: it changes nothing" in first
    written = json.loads(path.read_text())
    assert written["refused"]
    assert written["speed"]["value"] == 1.0
    assert step("--profile", path) == step()


def test_a_plan_says_what_was_measured(calibration: Path, tmp_path: Path):
    output = tmp_path / "plan.json"
    job = (*TINY, "--profile", calibration, "--fix", "pp=1", "--fix", "cp=1")
    done = plan("search", *job, "--output", output)
    assert done.code == 0
    sources = json.loads(output.read_text())["provenance"]["sources"]
    measured = [one for one in sources if one["kind"] == "measured"]
    assert measured
    assert all("train.log, other.log" in one["source"] for one in measured)
    assert not any(one["kind"] in ("fitted", "assumed") for one in sources)
    baseline = plan("search", *job, "--baseline", "tp=2,sp=true").out
    assert "Baseline" in baseline


def test_a_calibration_file_reads_back_as_it_was_written(calibration: Path):
    read = load_measured([calibration]).calibration
    assert read is not None
    assert read.document() == json.loads(calibration.read_text())


def test_files_are_replaced_only_with_force(calibration: Path, tmp_path: Path):
    words = ("calibrate", *TINY, "--log", tmp_path / "train.log", *LAYOUT, "--output", calibration)
    refused(plan(*words), "--force replaces it")
    assert plan(*words, "--force").code == 0


def test_two_logs_of_one_job_are_fitted_together(tmp_path: Path):
    logs = [log(tmp_path / f"{name}.log", 1500 * step()) for name in "ab"]
    words = ("--log", logs[0], *LAYOUT, "--log", logs[1], "--layout", "tp=1")
    document = plan("calibrate", *TINY, *words, "--json").json
    assert isinstance(document["runs"], list)
    assert [run["id"] for run in document["runs"]] == ["a.log", "b.log"]
    assert document["error_left_out_fraction"] is not None


def test_published_runs_calibrate_by_kind(tmp_path: Path):
    some = tmp_path / "some.jsonl"
    some.write_text("\n".join(RUNS.read_text().splitlines()[::3]))
    words = ("calibrate", some, "--gpu", "b200", "--precision", "bf16")
    done = plan(*words, "--runtime", "megatron-lm", "--json")
    assert done.code == 0, done.err
    document = done.json
    assert (document["gpu"], document["precision"]) == ("b200", "bf16")
    after = document["error_after_fraction"]
    assert isinstance(after, float)
    assert after < 0.05
    assert isinstance(document["runs"], list)
    assert len(document["runs"]) > 5


def test_runs_of_several_kinds_name_the_options_that_choose(tmp_path: Path):
    two = tmp_path / "two.jsonl"
    kept = [line for line in RUNS.read_text().splitlines() if '"strict": true' in line]
    read = [(MeasuredRun.model_validate_json(line), line) for line in kept]
    runs = {run.cluster.gpu: line for run, line in read if not run.suspect}
    two.write_text("\n".join(runs[gpu] for gpu in ("b200", "l4")))
    done = plan("calibrate", two)
    assert done.code == 2
    assert "choose with --gpu, --precision and --runtime" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "one of both"),
        (("runs.jsonl", "--log", "train.log"), "one of both"),
        (("runs.jsonl", "--model", "gpt2"), "leave --model to --layout out"),
        (("--log", "train.log"), "--log needs --model"),
        (("--log", "train.log", *TINY), "1 --log and 0 --layout"),
        (("--log", "train.log", *TINY, *LAYOUT, "--gpu", "l4"), "the log's is in --cluster"),
        (("--log", "train.log", *TINY, *LAYOUT), "train.log: no such file"),
        (("runs.jsonl",), "runs.jsonl: no such file"),
        (("runs.jsonl", "--gpu", "h1000"), "unknown GPU"),
    ],
)
def test_bad_usage_is_refused_in_one_line(words: tuple[str, ...], says: str):
    refused(plan("calibrate", *words), says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "no step line found"),
        ("iteration 1/ 2 | elapsed time per iteration (ms): 5.0 |", "only the first step"),
    ],
)
def test_a_log_without_steps_is_refused(tmp_path: Path, text: str, says: str):
    path = tmp_path / "train.log"
    path.write_text(text)
    refused(plan("calibrate", *TINY, "--log", path, *LAYOUT), "train.log", says)


def test_a_log_of_another_batch_is_refused(tmp_path: Path):
    path = log(tmp_path / "train.log", 100.0, batch=16)
    refused(plan("calibrate", *TINY, "--log", path, *LAYOUT), "global batch size 16")


def test_a_log_may_hold_bytes_that_are_no_text(tmp_path: Path):
    path = log(tmp_path / "train.log", 100.0)
    path.write_bytes(b"\xff\x00progress\n" + path.read_bytes())
    assert plan("calibrate", *TINY, "--log", path, *LAYOUT).code == 0


def test_a_layout_too_large_for_the_gpu_is_doubted(tmp_path: Path):
    train = log(tmp_path / "train.log", 20000.0)
    job = with_value(with_value(TINY, "--model", "llama3-70b"), "--cluster", "1x8:l4")
    done = plan("calibrate", *job, "--log", train, "--layout", "tp=8")
    assert "GiB more than a GPU has: is it the layout of this run?" in done.err
    fits = plan("calibrate", *TINY, "--log", train, *LAYOUT)
    assert "is it the layout" not in fits.err


MEASURED = Path(__file__).parents[2] / "examples" / "accuracy" / "profiles" / "simumax-b200.json"


def test_one_step_corrects_a_profile_and_both_are_given_together(tmp_path: Path):
    job, path = with_value(TINY, "--cluster", str(MEASURED)), tmp_path / "calibration.json"
    parts = ("estimate", *job, *LAYOUT)
    before = plan(*parts, "--json").json["estimate"]
    assert isinstance(before, dict)
    train = log(tmp_path / "train.log", 2000 * float(before["step_time_s"]))
    done = plan("calibrate", *job, "--log", train, *LAYOUT, "--output", path)
    assert done.code == 0, done.err
    assert "of the profile's" in done.out
    digest = json.loads(path.read_text())["profile_digest"]
    assert isinstance(digest, str)
    page = plan(*parts, "--profile", path)
    assert page.code == 0, page.err
    assert "calibrated on 1 measured run of b200" in page.out
    alongside = ("estimate", *with_value(TINY, "--cluster", "1x8:b200"), *LAYOUT)
    assert plan(*alongside, "--profile", path, "--profile", MEASURED).code == 0
    refused(plan(*alongside, "--profile", path), "corrects a profile")


def test_a_calibration_of_the_catalog_is_refused_beside_a_profile(
    calibration: Path, tmp_path: Path
):
    alongside = ("estimate", *with_value(TINY, "--cluster", str(MEASURED)), *LAYOUT)
    refused(plan(*alongside, "--profile", calibration), "corrects the catalog, not a profile")
    words = ("calibrate", *TINY, "--log", tmp_path / "train.log", *LAYOUT)
    refused(plan(*words, "--profile", calibration), "one does not correct another")
    other = plan(*words, "--profile", MEASURED)
    assert other.code == 2
    assert "measured on b200, the runs are of h100-sxm" in other.err


def use(path: Path, *, cluster: str = "1x8:h100-sxm") -> Outcome:
    job = with_value(TINY, "--cluster", cluster)
    return plan("estimate", *job, "--layout", "tp=1", "--profile", path)


def test_another_gpu_is_refused_and_another_runtime_noted(calibration: Path):
    refused(use(calibration, cluster="1x8:a100-sxm-80gb"), "fitted on h100-sxm")
    job = ("estimate", *TINY, "--layout", "tp=1", "--profile", calibration)
    assert "requested fp8" in plan(*job, "--precision", "fp8").out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "trainplan/plan/v1"}, "nor 'trainplan/calibration/v1'"),
        ({"schema": None}, "the key 'schema' is missing"),
        ({"speed": {"value": -1, "low": 1, "high": 1, "identified": True}}, "speed.value"),
        ({"gpu": 3}, "gpu"),
        ({"colour": "red"}, "unknown field"),
        ({"runs": []}, "runs"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_field(
    calibration: Path, change: dict[str, object], says: str
):
    document = json.loads(calibration.read_text()) | change
    calibration.write_text(json.dumps(document))
    refused(use(calibration), "calibration.json", says)


def test_a_speed_of_zero_is_refused(calibration: Path):
    document = json.loads(calibration.read_text())
    document["speed"]["value"] = 0
    calibration.write_text(json.dumps(document))
    refused(use(calibration), "calibration.json")


def test_an_output_that_is_read_is_never_replaced(tmp_path: Path):
    runs = sample(tmp_path / "runs.jsonl")
    before = runs.read_bytes()
    refused = plan("calibrate", runs, "--output", runs, "--force")
    assert refused.code == 2
    assert "choose another --output" in refused.err
    assert runs.read_bytes() == before


def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("keep")
    link.symlink_to(target)
    refused = plan("search", *TINY, "--output", link, "--force")
    assert refused.code == 2
    assert "no regular file" in refused.err
    assert link.is_symlink()
    assert target.read_text() == "keep"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layout": {"tp": 3, "pp": 1, "micro_batch_size": 1}}, "is not 8 GPUs"),
        ({"measured": {}}, "neither measured.step_time_s nor measured.tokens_per_s_per_gpu"),
        ({"suspect": "a full disk"}, "marked suspect"),
        ({"strict": False}, "marked as not strict"),
        ({"use": ["memory"]}, "its use is not step_time"),
    ],
)
def test_where_no_run_is_left_each_says_why_and_the_error_does_not_blame_the_time(
    tmp_path: Path, changes: dict[str, object], says: str
):
    runs = write_runs(tmp_path / "runs.jsonl", [own_run(**changes)])
    done = plan("calibrate", runs)
    assert done.code == 2
    assert says in done.err
    assert "no run to calibrate on: correct what the line above names" in done.err


def test_a_step_faster_than_the_peak_of_its_gpus_is_refused(tmp_path: Path):
    """Tokens per second of all GPUs as those of one: 8 times too fast, and not 50."""
    own = own_run(measured={"tokens_per_s_per_gpu": 8 * 12000.0})
    runs = write_runs(tmp_path / "runs.jsonl", [own])
    refused(plan("calibrate", runs), "times the peak FLOP/s of 8 GPUs", "is of one")


def test_one_run_that_stays_off_is_no_odd_run(tmp_path: Path):
    run = own_run(measured={"step_time_s": 19.5})
    page = plan("calibrate", write_runs(tmp_path / "runs.jsonl", [run])).out
    assert "one run is believed in part; measure another layout" in " ".join(page.split())
    assert "was it disturbed" not in page


def test_a_compressed_log_is_told_to_be_unpacked(tmp_path: Path):
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(log(tmp_path / "train.log", 100.0).read_bytes()))
    refused(plan("calibrate", *TINY, "--log", path, *LAYOUT), "train.log.gz: compressed", "gunzip")
