"""`plan validate`: predictions beside measured runs."""

import json
import re
from pathlib import Path
from statistics import mean, median
from typing import get_args

import pytest

from tests.e2e.command import plan, refused
from tests.e2e.measured_runs import own_run, published, sample, write_runs
from trainplan.cli.files.disk import LARGEST_FILE_BYTES
from trainplan.cli.pages.validate import SKIPPED
from trainplan.costmodel.documents import MeasuredRun
from trainplan.costmodel.validate.cases.cases import SkipReason

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "reference" / "json.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return sample(tmp_path_factory.mktemp("runs") / "runs.jsonl")


@pytest.fixture(scope="module")
def document(runs):
    return plan("validate", runs, "--calibrate", "--json").json


def by_id(document):
    return {row["id"]: row for row in document["rows"]}


def test_the_first_line_is_the_headline(runs, document):
    outcome = plan("validate", runs, "--worst", "2", "--calibrate")
    assert outcome.code == 0
    first, *rest = outcome.out.splitlines()
    errors = {True: [], False: []}  # sources of few runs are one together
    for row in document["rows"]:
        if row.get("step_time_error_fraction") is not None:
            own = row["id"].startswith("vtrain")
            errors[own].append(abs(row["step_time_error_fraction"]))
    of_sources = 100 * mean(map(median, errors.values()))
    step = f"step time: {of_sources:.1f} % median error over 2 sources (23 of 24 runs priced)"
    assert first == step
    assert "Runs that are most off" in rest
    assert all(len(line) <= 100 for line in rest)


def test_every_row_of_the_file_appears_in_order(runs, document):
    written = [json.loads(line) for line in runs.read_text().splitlines()]
    names = [
        one["id"] if isinstance(one, dict) else f"runs.jsonl:{n}"
        for n, one in enumerate(written, start=1)
    ]
    assert [row["id"] for row in document["rows"]] == names


def test_a_row_says_what_is_predicted_and_measured(document):
    row = by_id(document)["llama3-8b on one node"]
    assert row["measured_step_time_s"] == 12.0
    low, step, high = (row[f"predicted_step_time_{end}s"] for end in ("low_", "", "high_"))
    assert low < step < high
    assert row["step_time_error_fraction"] == pytest.approx(step / 12.0 - 1)
    assert sum(row["terms"].values()) == pytest.approx(step)
    assert row["skip_reason"] is None


def test_an_odd_record_is_a_row_with_its_reason(document):
    rows = by_id(document)
    assert rows["no model"]["skip_reason"] == "invalid_record"
    assert "model" in rows["no model"]["skip_detail"]
    assert rows["unknown machine"]["skip_reason"] == "gpu_unknown"
    assert document["rows"][-1]["skip_reason"] == "invalid_record"
    assert document["overall"]["skipped"]["invalid_record"] == 2


def test_a_file_without_a_run_is_refused_in_one_line(tmp_path):
    path = write_runs(tmp_path / "runs.jsonl", [{"id": "x"}, ["not a run"]])
    refused(plan("validate", path), "no run to validate", "x: model: is missing", "(and 1 more)")
    assert plan("validate", write_runs(path, [{"id": "x"}, own_run()])).code == 0


def test_a_few_runs_of_small_regimes_are_one_row_of_the_interval(tmp_path):
    page = plan("validate", write_runs(tmp_path / "runs.jsonl", [own_run()])).out
    table = page[page.index("Measured steps and the 80 % interval") :].split("\n\n")[0]
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["all"]


def test_columns_of_the_order_of_layouts_are_explained_below_them(runs):
    page = " ".join(plan("validate", runs).out.split())
    for name in ("regret: how much", "near-ties: that ", "by evidence: regret", "all measured: "):
        assert name in page


def test_the_overall_numbers_agree_with_the_rows(document):
    study, overall = document["overall"]["multi_node_layout_study"], document["overall"]
    assert study["n"] == 19
    assert overall["ranking"]["groups"][0]["num_layouts"] == 15
    fits = overall["fits"]
    parts = ("true_fits", "false_fits", "false_refusals", "true_refusals")
    assert fits["answered"] == sum(fits[part] for part in parts)
    assert fits["answered"] >= 4
    assert overall["after_one_step"]["sources"][0]["n"] > 0
    sources = {one["name"]: one["n"] for one in document["groups"] if one["by"] == "source"}
    assert sources == {"vtrain": 19, "simumax": 3, "user": 1}


def test_a_label_without_a_memory_size_is_judged_on_its_gpu(tmp_path):
    large = own_run(id="too large", measured={}, fits=False)
    large["training"] = large["training"] | {"seq_length": 131072}
    path = write_runs(tmp_path / "runs.jsonl", [large])
    (row,) = plan("validate", path, "--json").json["rows"]
    assert row["predicted_fits"] is False


def test_a_page_without_a_comparison_says_what_is_compared(tmp_path):
    for odd in ({"measured": {}}, {"suspect": True}, {"strict": False}):
        page = plan("validate", write_runs(tmp_path / "runs.jsonl", [own_run(**odd)])).out
        assert "no run could be compared" in page
        assert "measured.step_time_s or measured.tokens_per_s_per_gpu" in " ".join(page.split())


def test_a_run_that_is_not_priced_says_why_in_its_own_numbers(tmp_path):
    run = own_run(layout={"tp": 3, "pp": 1, "micro_batch_size": 1})
    page = plan("validate", write_runs(tmp_path / "runs.jsonl", [run])).out
    assert "Records not priced" in page
    assert "tp 3 * pp 1 * cp 1 * dp 2 is not 8 GPUs" in page


def test_sizes_that_are_those_of_a_preset_are_called_assumed(tmp_path):
    named = write_runs(tmp_path / "named.jsonl", [own_run(model={"name": "llama3-8b"})])
    assert "Assumed: sizes of presets, for 1 run whose record has none: llama3-8b" in words(named)
    sized = write_runs(tmp_path / "sized.jsonl", [own_run()])
    assert "Assumed" not in words(sized)


def words(path):
    """The page of a file of runs, on one line."""
    return " ".join(plan("validate", path).out.split())


def test_rows_that_are_not_strict_count_only_on_request(tmp_path):
    path = write_runs(tmp_path / "runs.jsonl", [own_run(strict=False)])
    assert "no run could be compared" in plan("validate", path).out
    assert "(1 of 1 runs priced)" in plan("validate", path, "--all").out


def test_throughput_stands_for_a_step_time(tmp_path):
    by_rate = own_run(measured={"tokens_per_s_per_gpu": 8192 * 128 / 8 / 12})
    path = write_runs(tmp_path / "runs.jsonl", [by_rate])
    (row,) = plan("validate", path, "--json").json["rows"]
    assert row["measured_step_time_s"] == pytest.approx(12.0)


def test_a_run_without_a_gpu_is_priced_for_memory_alone(tmp_path):
    measured = {"step_time_s": 12.0, "peak_memory_gib": 60.0, "peak_memory_kind": "reserved"}
    run = own_run(cluster={"num_gpus": 8, "gpus_per_node": 8}, measured=measured)
    path = write_runs(tmp_path / "runs.jsonl", [run])
    (row,) = plan("validate", path, "--json").json["rows"]
    assert row["predicted_step_time_s"] is None
    assert row["predicted_peak_memory_gib"] > 0
    assert plan("validate", path).code == 0


def test_a_layout_that_cannot_run_does_not_hide_the_others(tmp_path):
    layout = {"tp": 1, "pp": 1, "micro_batch_size": 7, "recompute": "none"}
    path = write_runs(tmp_path / "runs.jsonl", [own_run(layout=layout), own_run()])
    odd, fine = plan("validate", path, "--json").json["rows"]
    assert odd["skip_reason"] == "layout_impossible"
    assert fine["skip_reason"] is None


def test_a_calibration_moves_the_runs_of_its_gpu(tmp_path):
    path = write_runs(tmp_path / "runs.jsonl", [own_run(measured={"step_time_s": 30.0})])
    calibration = tmp_path / "calibration.json"
    assert plan("calibrate", path, "--output", calibration).code == 0
    plain = plan("validate", path, "--json").json["rows"][0]
    outcome = plan("validate", path, "--profile", calibration, "--json")
    assert "corrects 1 of 1 runs" in outcome.err
    row = outcome.json["rows"][0]
    assert plain["predicted_step_time_s"] < row["predicted_step_time_s"] < 31


def test_a_file_that_is_not_json_is_refused_with_its_line(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(own_run()) + "\nstep time: 3 s\n")
    refused(plan("validate", path), f"{path}:2:1", "not JSON")
    path.write_text("[" * 100_000)
    refused(plan("validate", path), f"{path}:1", "nested")
    path.write_text("\n\n")
    refused(plan("validate", path), "no runs")
    refused(plan("validate", tmp_path / "missing.jsonl"), "no such file")
    refused(plan("validate"), "RUNS.jsonl")


def test_text_in_a_record_may_hold_any_mark_of_unicode(tmp_path):
    path, notes = tmp_path / "runs.jsonl", "one\u2028two\u0085three"
    text = json.dumps(own_run(notes=notes), ensure_ascii=False)
    path.write_text(f"{text}\r\n{text}\n", "utf-8-sig")
    assert "(2 of 2 runs priced)" in plan("validate", path).out


def test_runs_with_one_id_are_remarked_on_and_count_each(tmp_path):
    path = write_runs(tmp_path / "runs.jsonl", [own_run(), own_run(), own_run(id="other")])
    outcome = plan("validate", path)
    assert "the same id, each of which counts: 'llama3-8b on one node'" in outcome.err
    assert "(3 of 3 runs priced)" in outcome.out


def test_a_file_of_many_runs_is_no_configuration(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n" * LARGEST_FILE_BYTES + json.dumps(own_run()))
    assert "(1 of 1 runs priced)" in plan("validate", path).out


def test_every_reason_to_skip_a_run_has_its_words():
    assert set(SKIPPED) == set(get_args(SkipReason))
    explained = DOCUMENTATION.read_text("utf-8")
    assert all(f"`{reason}`" in explained for reason in SKIPPED)


def test_every_key_is_explained(document):
    explained = set(re.findall(r"`(\w+)`", DOCUMENTATION.read_text("utf-8")))
    found = {key for part in ("rows", "groups") for one in document[part] for key in one}
    overall = document["overall"]
    inner = [
        overall["ranking"]["groups"],
        overall["coverage"],
        overall["after_one_step"]["sources"],
    ]
    found |= set(overall) | set(overall["step_time"]) | set(overall["fits"])
    found |= {key for group in inner for one in group for key in one}
    assert found <= explained


def test_a_misspelt_field_is_named_not_swallowed(tmp_path):
    run = own_run()
    run["layout"] = run["layout"] | {"micro_batchsize": 2, "overlap": {"grads": True}}
    runs = write_runs(tmp_path / "runs.jsonl", [run, own_run(id="remarked", notes="fine")])
    outcome = plan("validate", runs, "--json")
    assert outcome.code == 0
    assert outcome.json["rows"]
    assert outcome.err.splitlines()[0] == (
        f"{runs}: not in the schema of runs, so not read: "
        "layout.micro_batchsize (1 run), layout.overlap.grads (1 run)"
    )


def test_a_record_that_is_no_run_is_said_once(tmp_path):
    path = write_runs(tmp_path / "runs.jsonl", [{"hidden_size": 5120}, own_run()])
    outcome = plan("validate", path)
    assert "not in the schema" not in outcome.err
    assert "runs.jsonl:1" in outcome.out


def test_a_name_in_a_file_cannot_steer_the_terminal(tmp_path):
    run = own_run() | {"\x1b[2Jgone": 1}
    outcome = plan("validate", write_runs(tmp_path / "runs.jsonl", [run]))
    assert "\x1b" not in outcome.out + outcome.err
    assert r"\x1b[2Jgone" in outcome.err


def test_nor_can_names_of_runs_and_models(tmp_path):
    run = own_run() | {"id": "\x1b[2Ja\nb"}
    run["model"] = run["model"] | {"name": "c\x1b[2J"}
    path = write_runs(tmp_path / "runs.jsonl", [run])
    for outcome in (plan("validate", path, "--worst", "1"), plan("calibrate", path)):
        assert outcome.code == 0
        assert "\x1b" not in outcome.out + outcome.err
        assert r"\x1b[2J" in outcome.out


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_of_a_stage_is_none_or_all_of_it_at_most(tmp_path, share):
    layout = own_run()["layout"] | {"pp": 2, "recompute_fraction_per_stage": [share, 0]}
    path = write_runs(tmp_path / "runs.jsonl", [own_run(layout=layout)])
    line = refused(plan("validate", path))
    assert "layout.recompute_fraction_per_stage.0: must be at" in line


def test_the_published_runs_hold_no_name_outside_the_schema():
    for record in published(""):
        assert not MeasuredRun.unknown_names(record), record["id"]
