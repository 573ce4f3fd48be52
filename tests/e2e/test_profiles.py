"""Profiles on the command line: `plan import`, `--profile`, `--cluster`, `plan doctor`."""

import json
import math
from pathlib import Path

import pytest

from tests.e2e.command import TINY, Outcome, plan, refused, with_value
from tests.e2e.measured_runs import published
from tests.plugged import simumax_profile
from trainplan.cli.files.documents import Document, read_document
from trainplan.cli.files.profiles import profile_of, profile_text
from trainplan.costmodel.profiles.profile import Profile

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted((ROOT / "examples" / "accuracy" / "profiles").glob("*.json"))
SIMUMAX = ROOT / "tests" / "replay" / "simumax_b200.json"
ON_B200 = with_value(TINY, "--cluster", "1x8:b200")
LAYOUT = ("--layout", "tp=2,dp=4,sp=true,zero=1")
ROWS = "".join(
    f" {size} {size // 4} float sum -1 {20 + size / 1e5:.2f} 0.0 0.0 0 {20 + size / 1e5:.2f}\n"
    for size in (2**12, 2**16, 2**20, 2**24, 2**28)
)
NCCL = (
    "# Using devices\n"
    + "".join(f"#  Rank {n:2d} Group 0 Pid 7 on host-a device {n} [0x0f] H100\n" for n in range(8))
    + "".join(
        f"# Collective test starting: {name}_perf\n"
        + "".join(
            f"#  Rank {n:2d} Group 0 Pid 7 on host-a device {n} [0x0f] H100\n" for n in range(8)
        )
        + ROWS
        for name in ("all_reduce", "all_gather")
    )
)
STRONG = {"seconds": 1e-3}


@pytest.fixture(scope="module")
def b200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The import of a SimuMax file."""
    path = tmp_path_factory.mktemp("b200") / "profile.json"
    simumax_profile(SIMUMAX, path)
    return path


@pytest.fixture
def nccl(tmp_path: Path) -> Path:
    """The import of a text of nccl-tests."""
    text, path = tmp_path / "all.txt", tmp_path / "links.json"
    text.write_text(NCCL)
    done = plan(
        *("import", "nccl-tests", text, "--gpu", "h100-sxm", "--source", "mine"),
        *("--output", path),
    )
    assert done.code == 0, done.err
    assert "all_reduce_8" in done.out
    return path


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    log, path = tmp_path / "train.log", tmp_path / "calibration.json"
    log.write_text(
        "".join(
            f" iteration {n:8d}/ 100 | elapsed time per iteration (ms): 40.0 | "
            "global batch size:     8 |\n"
            for n in range(1, 21)
        )
    )
    done = plan("calibrate", *ON_B200, "--log", log, *LAYOUT, "--output", path)
    assert done.code == 0, done.err
    return path


def step(*arguments: str | Path) -> float:
    """Predicted step time."""
    done = plan("estimate", *arguments, *LAYOUT, "--json")
    assert done.code == 0, done.err
    estimate = done.json["estimate"]
    assert isinstance(estimate, dict)
    return float(estimate["step_time_s"])


def changed(path: Path, **changes: object) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def use(path: Path, job: tuple[str, ...] = ON_B200) -> Outcome:
    return plan("estimate", *job, *LAYOUT, "--profile", path)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_profile_reads_back_as_it_was_written(path: Path):
    read = profile_of(read_document(path))
    text = profile_text(read)
    assert profile_of(Document(path, json.loads(text))) == read
    assert text.startswith('{"schema": "trainplan/profile/v1"')
    assert all(len(json.dumps(point)) for point in json.loads(text)["points"])
    assert text.count("\n") > len(read.points)


def test_an_import_says_where_it_comes_from_and_reads_back(nccl: Path):
    document = json.loads(nccl.read_text())
    assert document["schema"] == Profile.SCHEMA
    assert document["gpus_per_node"] == 8
    assert document["origins"] == [{"source": "mine"}]
    assert set(document["fitted"]["collectives"]) == {"all_reduce_8", "all_gather_8"}
    read = profile_of(read_document(nccl))
    assert len(read.points) == 10
    assert read.fitted.collectives["all_reduce_8"].alpha_us == pytest.approx(20, rel=0.02)


def test_an_import_as_json_is_its_file(tmp_path: Path):
    text, path = tmp_path / "all.txt", tmp_path / "out.json"
    text.write_text(NCCL)
    done = plan("import", "nccl-tests", text, "--gpu", "h100-sxm", "--output", path, "--json")
    assert done.json == json.loads(path.read_text())


def test_a_format_of_the_plug_in_says_how_to_get_it(tmp_path: Path):
    done = plan("import", "simumax", SIMUMAX, "--gpu", "b200", "--output", tmp_path / "new.json")
    refused(done, "unknown format 'simumax'", "known: nccl-tests", "pip install ./examples/import")


def test_an_import_of_too_few_sizes_has_no_curve_and_says_why(tmp_path: Path):
    text = tmp_path / "all.txt"
    two = "".join(ROWS.splitlines(keepends=True)[:2])
    text.write_text(NCCL.replace(ROWS, two))
    words = ("import", "nccl-tests", text, "--gpu", "h100-sxm", "--output", tmp_path / "new.json")
    done = plan(*words)
    assert done.code == 0, done.err
    assert "No curve yet" in done.out
    assert "all_reduce_8: 2 sizes, a curve needs 3" in done.out
    assert "off by" not in done.out


def test_an_import_never_replaces_unasked_nor_what_it_reads(tmp_path: Path):
    text = tmp_path / "all.txt"
    text.write_text(NCCL)
    words = ("import", "nccl-tests", text, "--gpu", "h100-sxm", "--output")
    assert plan(*words, tmp_path / "new.json").code == 0
    refused(plan(*words, tmp_path / "new.json"), "--force replaces it")
    assert plan(*words, tmp_path / "new.json", "--force").code == 0
    done = plan(*words, text, "--force")
    assert done.code == 2
    assert "choose another --output" in done.err
    assert text.read_text() == NCCL


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu", "h1000"), "unknown GPU"),
        (("--gpu", "h100-sxm", "--model", "no-such-model"), "no-such-model"),
    ],
)
def test_an_import_for_something_unknown_is_refused(tmp_path: Path, words, says: str):
    text = tmp_path / "all.txt"
    text.write_text(NCCL)
    refused(plan("import", "nccl-tests", text, *words, "--output", tmp_path / "p.json"), says)
    assert not (tmp_path / "p.json").exists()


def test_two_files_of_one_name_and_a_missing_one_are_refused(tmp_path: Path):
    paths = [tmp_path / name / "all.txt" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(NCCL)
    words = ("--gpu", "h100-sxm", "--output", tmp_path / "p.json")
    refused(plan("import", "nccl-tests", *paths, *words), "a second file 'all.txt'")
    refused(plan("import", "nccl-tests", tmp_path / "no.txt", *words), "no.txt: no such file")


def test_a_profile_replaces_the_catalog_in_an_estimate(b200: Path):
    assert step(*ON_B200, "--profile", b200) != step(*ON_B200)
    page = use(b200).out
    assert "measured: SimuMax" in page


def test_a_search_with_a_profile_is_proved_and_says_what_was_measured(b200: Path, tmp_path: Path):
    output = tmp_path / "plan.json"
    done = plan("search", *ON_B200, "--profile", b200, "--output", output)
    assert done.code == 0, done.err
    document = json.loads(output.read_text())
    assert document["certificate"]["optimal"] is True
    kinds = {one["quantity"]: one["kind"] for one in document["provenance"]["sources"]}
    assert kinds["b200 bf16 matrix products"] == "measured"
    assert kinds["b200 collectives"] == "measured"


def test_a_profile_names_its_own_machine(b200: Path):
    own = with_value(TINY, "--cluster", str(b200))
    assert step(*own) == pytest.approx(step(*ON_B200, "--profile", b200))
    assert step(*own, "--profile", b200) == pytest.approx(step(*own))


def test_two_profiles_of_a_gpu_merge(nccl: Path, tmp_path: Path):
    other = tmp_path / "other.json"
    document = json.loads(nccl.read_text())
    document["points"] = [
        {"kind": "gemm", "m": m, "n": 4096, "k": 1024, "time": {"seconds": m * 1e-6}}
        for m in (512, 1024, 2048)
    ]
    document |= {"fitted": {}, "origins": [{"source": "other"}]}
    other.write_text(json.dumps(document))
    page = plan("estimate", *TINY, *LAYOUT, "--profile", nccl, "--profile", other).out
    assert "measured: mine" in page
    assert "measured: other" in page
    both = [step(*TINY, "--profile", a, "--profile", b) for a, b in ((nccl, other), (other, nccl))]
    assert both[0] == pytest.approx(both[1])
    assert both[0] > step(*TINY, "--profile", nccl)


def test_runs_on_the_gpu_of_a_profile_are_predicted_with_it(b200: Path, tmp_path: Path):
    runs = [run for run in published("") if run["cluster"].get("gpu") in ("b200", "l4")]
    chosen = [next(r for r in runs if r["cluster"]["gpu"] == gpu) for gpu in ("b200", "l4")]
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(run) + "\n" for run in chosen))
    done = plan("validate", path, "--profile", b200)
    assert done.code == 0, done.err
    first, second = done.err.splitlines()[:2]
    assert first.startswith("mean error of 1 run of b200, catalog -> with --profile: ")
    assert second == ("--profile corrects 1 of 2 runs, those on b200; it was fitted on 0 of them")


def test_the_doctor_says_what_is_measured_and_what_to_measure_next(b200: Path, nccl: Path):
    page = plan("doctor", b200)
    assert page.code == 0, page.err
    lines = {line.strip()[:20].strip(): line for line in page.out.splitlines()}
    assert "measured" in lines["matrix products"]
    assert "plan profile --only" in page.out
    of_links = plan("doctor", nccl).out
    assert "plan profile --only collectives" not in of_links


def test_the_doctor_refuses_a_calibration_and_profiles_of_two_gpus(
    calibration: Path, b200: Path, nccl: Path
):
    refused(plan("doctor", calibration), "a calibration; give a file of `plan profile`")
    refused(plan("doctor", b200, nccl), "profiles of b200 and h100-sxm do not merge")


def test_a_profile_and_a_calibration_together_are_refused(b200: Path, calibration: Path):
    pair = ("--profile", b200, "--profile", calibration)
    refused(plan("estimate", *ON_B200, *LAYOUT, *pair), "give one or the other")
    own = with_value(TINY, "--cluster", str(b200))
    refused(
        plan("estimate", *own, *LAYOUT, "--profile", calibration),
        "give one or the other",
    )
    twice = ("--profile", calibration, "--profile", calibration)
    refused(plan("estimate", *ON_B200, *LAYOUT, *twice), "a second calibration")
    assert use(calibration).code == 0


def test_a_profile_of_another_gpu_is_refused(b200: Path, nccl: Path):
    refused(use(b200, TINY), "profile was measured on b200, the cluster has h100-sxm")
    own = with_value(TINY, "--cluster", str(b200))
    refused(plan("estimate", *own, *LAYOUT, "--profile", nccl), "do not merge")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema": "trainplan/plan/v1"}, "nor 'trainplan/calibration/v1'"),
        ({"schema": None}, "the key 'schema' is missing"),
        ({"schema": "trainplan/profile/v2"}, "is neither 'trainplan/profile/v1'"),
        ({"colour": "red"}, "'colour': unknown field"),
        ({"gpu": 3}, "'gpu'"),
        ({"gpus_per_node": 0}, "'gpus_per_node'"),
        ({"points": 7}, "'points'"),
        ({"origins": []}, "'origins'"),
        ({"points": [{"kind": "magic"}]}, "'points.0'"),
        (
            {"points": [{"kind": "gemm", "m": 8, "n": 8, "k": 8, "time": STRONG, "x": 1}]},
            "points.0.gemm.x",
        ),
        (
            {"points": [{"kind": "gemm", "m": 8, "n": 8, "k": 8, "time": {"seconds": -1}}]},
            "points.0.gemm.time.seconds",
        ),
        ({"constants": {"no_such": {"value": 1, "source": "x"}}}, "constants.no_such"),
        (
            {"constants": {"launch_seconds": {"value": -1, "source": "x"}}},
            "constants.launch_seconds",
        ),
        (
            {
                "fitted": {
                    "collectives": {
                        "all_reduce_8": {
                            "alpha_us": 1,
                            "bus_gb_per_s": 0,
                            "sqrt_coefficient": 0,
                            "source": "x",
                        }
                    }
                }
            },
            "fitted.collectives.all_reduce_8.bus_gb_per_s",
        ),
        (
            {
                "fitted": {
                    "gemm": {
                        "bf16": {
                            "fixed_us": 1,
                            "flop_factor": -1,
                            "byte_factor": 0,
                            "source": "x",
                        }
                    }
                }
            },
            "fitted.gemm.bf16.flop_factor",
        ),
        (
            {"fitted": {"sustained": {"bf16": {"value": 0, "source": "x"}}}},
            "fitted.sustained.bf16",
        ),
    ],
)
def test_a_wrong_profile_is_refused_with_its_field(
    nccl: Path, changes: dict[str, object], says: str
):
    path = changed(nccl, **changes)
    refused(use(path, TINY), "links.json", says)
    refused(plan("doctor", path), "links.json", says)
    own = with_value(TINY, "--cluster", str(path))
    refused(plan("estimate", *own, *LAYOUT), "links.json", says)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_torn_profile_is_refused(nccl: Path, share: float):
    text = nccl.read_text()
    nccl.write_text(text[: math.floor(share * (len(text) - 3))])
    refused(use(nccl, TINY), "links.json")


def test_a_profile_of_a_device_nobody_knows_is_refused(nccl: Path):
    path = changed(nccl, gpu="moon-gpu")
    refused(plan("doctor", path), "moon-gpu")
    own = with_value(TINY, "--cluster", str(path))
    refused(plan("estimate", *own, *LAYOUT), "moon-gpu")


def test_layers_of_runtimes_not_known_here_are_no_traceback(nccl: Path):
    model = json.loads((PUBLISHED[-2]).read_text())["points"][0]["model"]
    point = {
        "kind": "layer",
        "model": model,
        "runtime": "galvatron",
        "micro_batch_size": 1,
        "seq_length": 1024,
        "forward": STRONG,
    }
    assert step(*TINY, "--profile", changed(nccl, points=[point])) > 0
    assert plan("doctor", nccl).code == 0
