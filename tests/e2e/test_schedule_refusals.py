"""`plan schedule`: files and what it refuses."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.command import Outcome, plan, refused
from tests.grids import number
from trainplan.costmodel.schedules import SCHEDULES

SIZES = ("--pp", "4", "--num-microbatches", "8")
UNEVEN = ("--forward", "3", "--input-grad", "4", "--weight-grad", "2")


def schedule(*arguments: str | Path) -> Outcome:
    return plan("schedule", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("give one of --kind KIND",)),
        (("--kind", "1f1b", "--synthesise", *SIZES), ("give one of --kind KIND",)),
        (("--kind", "zb-g", *SIZES), ("unknown schedule 'zb-g'", "did you mean", "'zb-v'")),
        (("--kind", "1f1b", "--pp", "4"), ("--num-microbatches",)),
        (("--kind", "1f1b", "--num-microbatches", "4"), ("--pp",)),
        (("--kind", "1f1b", *SIZES, "--forward", "nan"), ("not a finite number",)),
        (("--kind", "1f1b", *SIZES, "--forward", "-1"), ("not in the range x>=0",)),
        (("--kind", "1f1b", *SIZES, "--p2p", "inf"), ("--p2p",)),
        (("--kind", "1f1b", *SIZES, "--p2p", "1e300"), ("p2p is 1e+300", "a duration is 0, or")),
        (("--kind", "vocab-1f1b", *SIZES, "--vocab-forward", "1e300"), ("a duration is 0, or",)),
        (("--kind", "1f1b", *SIZES, "--forward", "1e-300"), ("a duration is 0, or lies",)),
        (
            ("--kind", "1f1b", *SIZES, "--memory-limit", "2"),
            ("raise it to 4, the smallest 1f1b runs with",),
        ),
        (("--kind", "1f1b", *SIZES, "--vpp", "2"), ("1f1b runs with vpp=1",)),
        (("--kind", "zb-v", *SIZES, "--placement", "loop"), ("in a v",)),
        (("--kind", "zb-h2", "--pp", "4", "--num-microbatches", "6"), ("2 * pp - 1",)),
        (("--kind", "1f1b", *SIZES, "--sequence-chunks", "2"), ("no sequence_chunks",)),
        (("--kind", "1f1b", "--pp", "9999", "--num-microbatches", "99999"), ("5,000,000",)),
        (("--kind", "all", "--pp", "9999", "--num-microbatches", "99999"), ("5,000,000",)),
        (("--synthesise", *SIZES, "--vpp", "2", "--memory-limit", "1"), ("smallest limit", "2")),
        (
            ("--kind", "all", *SIZES, "--vpp", "2", "--memory-limit", "1"),
            ("no schedule runs with this memory", "v-min, needs --memory-limit 4"),
        ),
        (("--kind", "all", *SIZES, "--vpp", "2", "--sequence-chunks", "2"), ("in this shape",)),
        (("--kind", "chimera", *SIZES, "--csv", "x.csv"), ("two copies of the model",)),
        (("--from-csv", "/nowhere.csv"), ("no such file",)),
        (("--kind", "1f1b", *SIZES, "--offload-chunks", "1"), ("give --offload, or",)),
        (
            ("--kind", "zb-h1", *SIZES, "--vocab-forward", "1"),
            ("for the kinds that share the output layer, vocab-1f1b, vocab-1f1b-2: leave",),
        ),
        (("--synthesise", *SIZES, "--vocab-backward", "1"), ("leave them out",)),
        (("--from-csv", "/nowhere.csv", "--vocab-backward", "1"), ("leave them out",)),
        (("--kind", "seq-1f1b", *SIZES, "--attention-share", "0.3"), ("--sequence-chunks of 2",)),
        (("--kind", "all", *SIZES, "--attention-share", "0.3"), ("--sequence-chunks of 2",)),
        (("--from-csv", "/nowhere.csv", "--placement", "loop"), ("the file has one",)),
        (("--kind", "1f1b", *SIZES, "--placement", "v"), ("1f1b places its stages in a loop",)),
        (("--kind", "all", *SIZES, "--placement", "v", "--vpp", "1"), ("give --vpp 2",)),
        (("--synthesise", *SIZES, "--placement", "v", "--vpp", "1"), ("give --vpp 2",)),
        (
            ("--kind", "zb-h1", *SIZES, "--split-backward"),
            ("zb-h1 has no whole backward pass to split: leave --split-backward out",),
        ),
        (("--kind", "v-min", *SIZES, "--split-backward"), ("has no whole backward pass",)),
        (("--synthesise", *SIZES, "--split-backward"), ("leave --split-backward out",)),
        (("--kind", "all", *SIZES, "--offload", "1", "--csv", "x.csv"), ("with --offload",)),
        (
            ("--kind", "all", *SIZES, "--sequence-chunks", "2", "--csv", "x.csv"),
            ("with --sequence-chunks: leave --csv or",),
        ),
        (("--kind", "all", "--pp", "9999999", "--num-microbatches", "2"), ("lower pp",)),
        (
            ("--kind", "interleaved", *SIZES, "--vpp", "9999999"),
            ("more than 5,000,000: lower vpp",),
        ),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_bad_input_is_refused_in_one_line(arguments: tuple[str, ...], words: tuple[str, ...]):
    refused(schedule(*arguments), *words)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_the_file_of_all_kinds_holds_the_fastest_that_torch_runs(tmp_path: Path, more):
    order, trace = tmp_path / "order.csv", tmp_path / "trace.json"
    wanted = ("--kind", "all", "--pp", "2", "--num-microbatches", "4")
    found = schedule(*wanted, "--json").json["schedules"]
    assert found[0]["kind"] == "chimera"
    first = next(one for one in found if "torch CSV" in one["runs_on"])
    outcome = schedule(*wanted, "--csv", order, "--trace", trace, *more)
    assert outcome.code == 0
    *written, remark = outcome.err.splitlines()
    assert len(written) == 2
    assert f"{order} and {trace} hold {first['kind']}, the fastest that torch runs" in remark
    assert remark.endswith("chimera has two copies of the model")
    assert schedule("--from-csv", order, "--json").json["makespan"] == first["makespan"]
    passes = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    ends = max(event["ts"] + event["dur"] for event in passes)
    assert ends == pytest.approx(first["makespan"] * 1e6)
    assert len(passes) == sum(len(line.split(",")) for line in order.read_text().splitlines())


def test_the_fastest_kind_is_written_without_a_remark_where_torch_runs_it(tmp_path: Path):
    order = tmp_path / "order.csv"
    wanted = ("--kind", "all", *SIZES, "--vpp", "2", "--placement", "v")
    assert schedule(*wanted, "--csv", order).err.splitlines() == [f"wrote {order}"]


def test_no_file_is_written_where_torch_runs_none_of_all_kinds(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("trainplan.cli.commands.schedule.what_torch_lacks", lambda _: "magic")
    order, trace = tmp_path / "order.csv", tmp_path / "trace.json"
    wanted = ("--kind", "all", *SIZES, "--csv", order, "--trace", trace)
    refused(schedule(*wanted), "runs none of these: leave --csv out")
    assert not list(tmp_path.iterdir())


def test_all_kinds_in_a_v_have_two_virtual_stages_unless_stated():
    document = schedule("--kind", "all", *SIZES, "--placement", "v", "--json").json
    assert {(one["placement"], one["vpp"]) for one in document["schedules"]} == {("v", 2)}
    assert {"zb-v", "hanayo"} <= {one["kind"] for one in document["schedules"]}


def test_two_files_of_one_name_are_refused_before_either_is_written(tmp_path: Path):
    path = tmp_path / "both"
    again = tmp_path / ".." / tmp_path.name / "both"
    wanted = ("--kind", "1f1b", *SIZES)
    refused(schedule(*wanted, "--csv", path, "--trace", path), str(path), "choose two names")
    refused(schedule(*wanted, "--csv", path, "--trace", again), "choose two names")
    refused(schedule(*wanted, "--csv", path, "--trace", again, "--force"), "choose two names")
    assert not list(tmp_path.iterdir())


def test_options_that_have_an_effect_on_some_kind_are_not_refused_for_all():
    shares = ("--vocab-forward", "0.5", "--vocab-backward", "1")
    assert schedule("--kind", "all", *SIZES, *shares).code == 0
    half_split = schedule("--kind", "dualpipe-v", "--pp", "2", "--num-microbatches", "8", "--json")
    split = ("--kind", "dualpipe-v", "--pp", "2", "--num-microbatches", "8", "--split-backward")
    assert schedule(*split, "--json").json["makespan"] <= half_split.json["makespan"]


def test_a_file_that_cannot_be_scored_says_so_in_its_own_words(tmp_path: Path):
    path = tmp_path / "order.csv"
    schedule("--kind", "gpipe", *SIZES, "--csv", path)
    words = "the schedule holds more than --memory-limit 4: raise it to 8, the smallest the sch"
    refused(schedule("--from-csv", path, "--memory-limit", "4"), str(path), words)
    assert schedule("--from-csv", path, "--memory-limit", "8").code == 0
    assert schedule("--from-csv", path, "--split-backward").code == 0
    path.write_text("0F0,0I0,0W0\n")
    refused(schedule("--from-csv", path, "--split-backward"), "the schedule has no whole backward")
    path.write_bytes(b"0F0\0")
    refused(schedule("--from-csv", path), "binary file, expected text (CSV)")


def test_only_the_trace_of_relative_durations_speaks_of_a_unit():
    assert "unit of time is a" in " ".join(schedule("--help").out.split())
    assert "unit of time" not in " ".join(plan("simulate", "--help").out.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0,0B0,0F1,0I1,0W1,0W0\n", "micro batch 0 has W as well as B: use I and W, or B alone"),
        ("0F0,0B0,1F0\n", "stage 1, micro batch 0"),
        ("1F0,1B0,0F0,0B0\n", "deadlocks"),
        ("0F0,0B0\n0F1,0B1\n", "on rank 0"),
        ("0F0,0X0\n", "0X0"),
        ("0F999999999,0B0\n", "no rank runs"),
        ("", "empty"),
    ],
)
def test_a_broken_schedule_file_is_refused(tmp_path: Path, text: str, words: str):
    path = tmp_path / "broken.csv"
    path.write_text(text)
    refused(schedule("--from-csv", path), str(path), words)


NUMBERS = st.sampled_from(
    ["0", "1", "2", "3", "4", "7", "0.5", "-1", "nan", "inf", "1e300", "x", ""]
)
OPTIONS = st.sampled_from(
    [
        *("--pp", "--vpp", "--num-microbatches", "--microbatch-group-size", "--sequence-chunks"),
        *("--memory-limit", "--forward", "--input-grad", "--weight-grad", "--p2p", "--width"),
        *("--attention-share", "--vocab-forward", "--vocab-backward", "--offload"),
    ]
)
FLAGS = st.sampled_from(["--split-backward", "--json", "--placement=v", "--placement=loop"])
KINDS = st.sampled_from([*SCHEDULES, "all", "zb"])


@settings(deadline=None, max_examples=number(75, 150), suppress_health_check=[HealthCheck.too_slow])
@given(KINDS, st.dictionaries(OPTIONS, NUMBERS, max_size=4), st.lists(FLAGS, max_size=2))
def test_any_options_are_answered_or_refused(kind: str, stated: dict[str, str], flags: list[str]):
    sizes = {"--pp": "4", "--num-microbatches": "8", **stated}
    outcome = schedule(f"--kind={kind}", *(f"{k}={v}" for k, v in sizes.items()), *flags)
    assert outcome.code in (0, 2), outcome
    if outcome.code == 2:
        refused(outcome)
    elif "--json" in flags:
        document = outcome.json
        for one in document.get("schedules", [document]):
            assert one["lower_bound"] <= one["makespan"] * (1 + 1e-9)
            assert 0 <= one["bubble_fraction"] <= 1
