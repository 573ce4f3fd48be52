"""`import trainplan`: what a call takes, what it answers, and how a notebook shows it."""

import json
import re
import sys
import threading
from pathlib import Path

import pytest

import trainplan as tp
from tests.e2e.command import TINY
from tests.e2e.command import plan as typed
from trainplan import planner
from trainplan.cli.main import plan as group
from trainplan.cli.python import keywords
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.presets import preset, preset_config

PAGE = (Path(__file__).parents[4] / "docs/reference/python-api.md").read_text("utf-8")
MODEL, CLUSTER = "gpt2", "1x8:h100-sxm"
SIZES = {"global_batch_size": 8, "seq_length": 1024}
COMMANDS = {
    "search": keywords.SearchKeywords,
    "check": keywords.CheckKeywords,
    "export": keywords.ExportKeywords,
}
OWN = {
    "search": {"model", "cluster", "pareto"},
    "estimate": {"model", "cluster", "layout"},
    "export": {"runtime", "output_dir"},
    "why-not": {"layout"},
    "sweep": {"vary"},
}
"""Options that are parameters of a verb."""


@pytest.fixture(scope="module")
def found():
    return tp.search(MODEL, CLUSTER, **SIZES)


def options(name):
    """Those of a command, as keywords."""
    named = [one for each in group.get_command(None, name).params for one in each.opts]
    words = {one[2:].replace("-", "_") for one in named if one.startswith("--")} - {"json"}
    return {"with_" if one == "with" else one for one in words} - OWN.get(name, set())


@pytest.mark.parametrize("name", tp.__all__)
def test_a_name_has_a_line_in_the_module_and_on_the_page(name):
    assert re.search(rf"^{name}: ", tp.__doc__, re.MULTILINE)
    assert f"`tp.{name}" in PAGE
    assert name in dir(tp)
    assert getattr(tp, name) is not None


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_a_keyword_with_a_type(name):
    assert {*COMMANDS[name].__annotations__} == options(name)


def test_other_verbs_share_the_types_of_their_keywords():
    assert {*keywords.JobKeywords.__annotations__} == options("estimate")
    of_plans = [options(name) for name in ("explain", "why-not", "compare", "sweep")]
    assert {*keywords.PlanKeywords.__annotations__} == set().union(*of_plans)


def test_a_page_is_what_the_terminal_prints(found):
    """But for what to type next."""
    page = typed("search", *TINY, "--search-options", "safe").out
    assert without_seconds(f"{found}\n\n") == without_seconds(page).partition("Next\n")[0]
    assert "--output" not in str(found)


def test_a_page_is_plain_where_colour_is_forced(found, monkeypatch):
    """As kernels of notebooks do."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in str(found)


def without_seconds(page):
    return re.sub(r"simulated in [\d.]+ s", "", page)


def test_a_document_is_that_of_the_command(found, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(found.to_json())
    assert planner.written(path.read_text()).layout == found.best.layout
    assert str(tp.compare(path, found)) == typed("compare", path, path).out.rstrip("\n")


@pytest.mark.parametrize(
    ("model", "cluster"),
    [
        ("openai-community/gpt2", "8xh100-sxm"),
        (preset(MODEL), parse_cluster(CLUSTER)),
        ({**preset_config(MODEL), "_name_or_path": MODEL}, {"groups": [
            {"num_nodes": 1, "gpus_per_node": 8, "gpu": "h100-sxm"}]}),
    ],
)  # fmt: skip
def test_names_documents_and_values_are_the_same(found, model, cluster):
    other = tp.estimate(model, cluster, found.best, **SIZES)
    assert other.step_time_s == found.best.estimate.step_time_s


def test_files_are_taken_by_their_paths(found, tmp_path):
    config, machines = tmp_path / "config.json", tmp_path / "machines.yaml"
    config.write_text(json.dumps(preset_config(MODEL)))
    machines.write_text("groups: [{num_nodes: 1, gpus_per_node: 8, gpu: h100-sxm}]")
    other = tp.estimate(config, str(machines), {"tp": 1, "zero_stage": 1}, **SIZES)
    assert other.step_time_s == found.best.estimate.step_time_s


def test_why_not_is_of_a_layout_as_it_is(found):
    for one in found.alternatives[:4]:
        answer = tp.why_not(found, one)
        assert answer.layout == one.layout
        assert answer.fields == ()
        assert answer.listed_rank == one.rank


def test_a_layout_is_a_text_or_a_mapping():
    fields = {"tp": 2, "sequence_parallel": True, "recompute_modules": ["core_attn", "mlp"]}
    text = "tp=2,sequence_parallel=true,recompute_modules=core_attn+mlp"
    one, other = (tp.estimate(MODEL, CLUSTER, layout, **SIZES) for layout in (fields, text))
    assert one.step_time_s == other.step_time_s


def test_options_are_texts_lists_or_mappings():
    found = tp.search(
        MODEL,
        CLUSTER,
        **SIZES,
        fix={"tp": 2},
        exclude="recompute=full",
        option={"attention": "unfused", "dropout": True},
        tokens=1e9,
        trusted=False,
        workers=None,
    )
    assert found.choices == ("--fix tp=2", "--exclude recompute=full")
    assert found.job.options.attention == "unfused"
    assert found.job.training.tokens == 10**9


@pytest.mark.parametrize(("slack", "fraction"), [(0.02, 0.02), (0, 0.0), ("2%", 0.02)])
def test_a_slack_is_a_fraction_or_a_percentage(slack, fraction):
    few = {"fix": ["tp=1", "pp=1", "cp=1", "offload=0"], "search_options": "none"}
    found = tp.search(MODEL, CLUSTER, **SIZES, **few, slack=slack)
    assert found.certificate.objective.slack_fraction == fraction


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tp.search(MODEL, CLUSTER, **SIZES, slack=-0.1), "is no percentage: write 2%"),
        (lambda: tp.search(MODEL, CLUSTER, global_batchsize=8), "did you mean 'global_batch_size'"),
        (lambda: tp.search(MODEL, CLUSTER, trsted=False), "no option 'trsted': did you mean 'tr"),
        (lambda: tp.search(MODEL, CLUSTER, trsted=False), r"see `plan search --help`"),
        (lambda: tp.search(MODEL, CLUSTER), "missing global_batch_size and seq_length"),
        (lambda: tp.search("gpt22", CLUSTER, **SIZES), "did you mean 'gpt2'"),
        (lambda: tp.search(MODEL, "1x8:h100sxm", **SIZES), "did you mean 'h100-sxm'"),
        (lambda: tp.search(MODEL, CLUSTER, **SIZES, runtime="torchtitn"), "mean 'torchtitan'"),
        (lambda: tp.search({"model_type": object()}, CLUSTER, **SIZES), "give plain values"),
        (lambda: tp.search({"a": 1}, CLUSTER, **SIZES), "model.yaml:1: field"),
        (lambda: tp.search("a\0b", CLUSTER, **SIZES), "unknown model"),
        (lambda: tp.search(MODEL, offers="1x8:l4=1", objective="cost", tokens="1T",
                           **SIZES, fix={"pp": 3}), "nothing fits on any of the offers"),
        (lambda: tp.estimate(MODEL, CLUSTER, "tpp=2", **SIZES), "unknown layout field 'tpp'"),
        (lambda: tp.explain("none.json"), "none.json: no such file"),
        (lambda: tp.explain({"schema": "x"}), "plan.json: schema 'x' is not"),
        (lambda: tp.check("torchrun 'train.py"), "No closing quotation"),
    ],
)  # fmt: skip
def test_bad_input_is_an_error_in_the_words_of_the_command(call, says):
    with pytest.raises(tp.Error) as raised:
        call()
    text = str(raised.value)
    assert says in text
    assert "\n" not in text
    assert "/tmp" not in text.replace("trainplan-", "/tmp")


def test_nothing_fits_is_an_answer():
    found = tp.search("llama3-70b", "1x1:h100-sxm", **SIZES)
    assert not found
    assert isinstance(found, planner.Infeasible)
    assert str(found).startswith("Nothing fits")
    assert repr(found).startswith("<Infeasible: Nothing fits")
    with pytest.raises(tp.Error, match="no layout to draw"):
        found.report("report.html")


def test_a_plan_is_one_of_the_planner_and_short(found):
    assert isinstance(found, planner.Plan)
    assert (
        repr(found)
        == "<Plan gpt2 on 8 GPUs: dp=8 zero=1; 0.01876 s a step, 2.5 of 79.7 GiB, proved>"
    )
    assert str(planner.Plan.model_construct(**dict(found))) == repr(found)
    assert planner.plan_json(found) == json.loads(found.to_json())


def test_a_notebook_shows_the_top_of_the_report(found):
    shown = found._repr_html_()
    assert "2.5 GiB" in shown
    assert "Proved fastest" in shown
    assert len(shown) < 10_000
    assert not re.search(r"https?:|<script|<link|<html", shown)
    rules = re.search(r"<style>(.*)</style>", shown, re.DOTALL)[1]
    assert rules.startswith(".trainplan {")
    assert ".facts" in rules
    assert "<pre>" in tp.compare(found, found)._repr_html_()


def test_alternatives_are_a_frame(found):
    pytest.importorskip("pandas")
    frame = found.alternatives.to_frame()
    assert [*frame["rank"]] == [one.rank for one in found.candidates]
    assert [*frame["dp"]] == [one.layout.dp for one in found.candidates]
    assert frame["step_time_s"].iloc[0] == found.best.estimate.step_time_s
    assert {"tp", "peak_reserved_bytes", "mfu"} <= {*frame.columns}
    assert frame.map(lambda cell: isinstance(cell, tuple)).sum().sum() == 0
    interval = found.best.estimate.uncertainty
    assert frame["step_time_low_s"].iloc[0] == interval.step_time_low_s
    assert frame["step_time_high_s"].iloc[0] == interval.step_time_high_s


def test_a_sweep_is_a_frame_with_its_parameters_and_the_points_without_a_plan(found):
    pytest.importorskip("pandas")
    swept = tp.sweep(found, ["gpus=1,2", "seq_length=1024,3000"])
    frame = swept.to_frame()
    assert [*zip(frame["gpus"], frame["seq_length"], strict=True)] == [
        (1, 1024),
        (2, 1024),
        (1, 3000),
        (2, 3000),
    ]
    again = tp.sweep(found, {"gpus": [1, 2], "seq_length": (1024, 3000)})
    assert again.varied == swept.varied
    points = swept.curves[0].points
    assert [*frame["status"]] == ["proved", "proved", "impossible", "impossible"]
    assert [*frame["step_time_s"][:2]] == [p.outcome.best.estimate.step_time_s for p in points]
    assert [*frame["efficiency"][:2]] == [point.efficiency for point in points]
    assert frame["step_time_s"][2:].isna().all()
    assert frame["dp"][2:].isna().all()


def test_a_front_is_a_frame_with_its_objectives():
    pytest.importorskip("pandas")
    front = tp.pareto(MODEL, CLUSTER, fix=["tp=1", "pp=1", "cp=1", "offload=0"], **SIZES)
    frame = front.to_frame()
    assert [*zip(frame["time"], frame["memory"], strict=True)] == [p.values for p in front.points]
    assert [*frame["zero_stage"]] == [point.layout.zero_stage for point in front.points]
    assert {"tp", "recompute", "peak_reserved_bytes", "num_gpus"} <= {*frame.columns}


def test_the_version_is_the_command_s(found):
    assert tp.__version__ in typed("--version").out
    assert not hasattr(tp, "versions")


def test_alternatives_print_a_short_line_each(found):
    head, *lines = repr(found.alternatives).splitlines()
    assert head == f"<{len(lines)} layouts"
    assert lines[0].startswith("  1: ")
    assert f"; {found.best.estimate.step_time_s:.4g} s a step" in lines[0]
    assert max(map(len, lines)) < 200


def test_another_runtime_is_not_what_was_priced(found):
    words = "priced on megatron-lm: megatron-bridge takes another time and memory"
    assert any(one.startswith(words) for one in found.export("megatron-bridge").notes)
    assert not any(one.startswith("priced on") for one in found.export().notes)


def test_without_pandas_the_error_names_the_install(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(tp.Error, match="pip install pandas"):
        found.alternatives.to_frame()


def test_files_are_written_once(found, tmp_path):
    folder, report = tmp_path / "launch", tmp_path / "report.html"
    files = found.export("megatron-lm", folder, launcher="slurm")
    assert (folder / "run.sbatch").read_text() == files.files["run.sbatch"]
    assert "Wrote" in str(files)
    with pytest.raises(tp.Error, match="exists; force replaces"):
        found.export("megatron-lm", folder)
    assert tp.export(found).files["run.sh"]
    found.report(report)
    assert report.read_text().startswith("<!doctype html>")
    with pytest.raises(tp.Error, match="exists; force replaces"):
        found.report(report)


def test_other_questions_answer_with_values_and_pages(found):
    assert tp.estimate(MODEL, CLUSTER, "tp=2", **SIZES).memory.fits
    assert "limit this plan" in str(tp.explain(found, time_limit=0.1))
    assert tp.why_not(found, "tp=8").verdict == "refused"
    assert [point.tokens_per_s > 0 for point in tp.sweep(found, "gpus=8").curves[0].points]
    assert tp.pareto(MODEL, CLUSTER, **SIZES, fix=["tp=1", "cp=1", "pp=1"]).points
    launch = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 "
        "--num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 "
        "--vocab-size 50257 --mock-data --tokenizer-type NullTokenizer --micro-batch-size 1 "
        "--bf16 --global-batch-size 64 --train-iters 10 --lr 1e-4"
    )
    assert tp.check(launch, time_limit=0.1).fits


def test_a_thread_may_search(found):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(tp.search(MODEL, CLUSTER, **SIZES)))
    thread.start()
    thread.join()
    assert answers[0].best == found.best
