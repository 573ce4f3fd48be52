"""The page and the lines of JSON of `plan verify`."""

import io
import json

import pytest
from rich.console import Console

from trainplan.cli.documents.verify import VerifyEnded, short_layout
from trainplan.cli.pages.verify import verify_page
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.planner.verification.by_megatron import Combinations, combinations
from trainplan.planner.verification.compared import Compared
from trainplan.planner.verification.runs import Ran

FINE = Compared(1e-7, 2e-7, 1e-4, (), (), (), 0.001)
SENT = Compared(1e-7, 2e-7, 1e-4, (), ("rank 1: send over pp of 9 bytes, 8 are counted",), (), 0.0)
FAR = Compared(0.2, 2e-7, 1e-4, (), (), (), 0.0)


@pytest.fixture(scope="module")
def pieces(make_job):
    job = make_job("gpt2", "1x8:h100-sxm", global_batch_size=8)
    return combinations(job, Layout(pp=2, dp=4), 2, lambda job, layout: None).others


def page(found, not_run=(), simplified=(), changed="", files=((), ())):
    text = io.StringIO()
    console = Console(file=text, width=100)
    request = Combinations(found[0].combination, (), tuple(not_run), tuple(simplified))
    for part in verify_page(found, request, changed, *files):
        console.print(part)
    return text.getvalue()


def test_the_answer_comes_first(pieces):
    found = [Ran(pieces[0], 1.5, FINE), Ran(pieces[1], 0.5, FINE)]
    text = page(found, ["cp: none here"], ["bf16: run in fp32"])
    assert text.startswith("equal: 2 of 2 run; cp was not run\n")
    assert "Differs" not in text
    assert "cp: none here" in text
    assert "bf16: run in fp32" in text
    ended = VerifyEnded.of(found, (), "").json()
    assert (ended["equal"], ended["complete"]) == (True, True)
    ended = VerifyEnded.of(found, ("cp: none here",), "").json()
    assert (ended["equal"], ended["complete"]) == (True, False)


@pytest.mark.parametrize(
    ("not_run", "words"),
    [
        ((), ""),
        (("cp: none", "cp: none, too"), "; cp was not run"),
        (("cp: none", "zb-v: none"), "; cp, zb-v were not run"),
        (tuple(f"{x}: none" for x in "abcde"), "; a, b, c and 2 more were not run"),
    ],
)
def test_the_verdict_names_what_was_not_run(pieces, not_run, words):
    found = [Ran(pieces[0], 1.5, FINE)]
    assert VerifyEnded.sentence(found, not_run, "") == f"equal: 1 of 1 run{words}"


def test_a_rank_that_a_signal_ended_is_not_known_and_never_differs(pieces):
    words = "rank 1 was ended by signal 6; its last words: what(): Connection closed"
    ended = Ran(pieces[1], failure=words, ended=True)
    text = page([Ran(pieces[0], 1.5, FINE), ended])
    assert text.startswith("not known: 1 of 1 run; 1 combination was not run\n")
    assert "Differs" not in text
    assert words in text.replace("\n    ", " ")
    event = VerifyEnded.of([Ran(pieces[0], 1.5, FINE), ended], (), "").json()
    assert (event["equal"], event["complete"]) == (False, False)
    assert [one["equal"] for one in event["combinations"]] == [True, None]
    assert page([Ran(pieces[0], 1.5, FAR), ended]).startswith("not equal: 0 of 1 run;")


def test_a_file_with_other_numbers_is_in_the_verdict(pieces):
    found = [Ran(pieces[0], 1.5, FINE)]
    text = page(found, changed="p.json states 1 s a step, this version 2 s")
    assert text.startswith("equal: 1 of 1 run; the file has other numbers than this version\n")
    assert "p.json states 1 s a step" in text
    assert not VerifyEnded.of(found, (), "p.json states").json()["complete"]


@pytest.mark.parametrize(
    ("other", "written"),
    [
        ({"found": SENT}, "send over pp of 9 bytes, 8 are counted"),
        ({"found": FAR}, "losses differ by 2.0e-01"),
        ({"failure": "rank 1 was ended by signal 9"}, "ended by signal 9"),
    ],
)
def test_what_differs_is_said_with_its_layout(pieces, other, written):
    found = [Ran(pieces[0], 1.5, FINE), Ran(pieces[1], 0.5, **other)]
    text = page(found)
    assert text.startswith("not equal: 1 of 2 run")
    name = short_layout(pieces[1].layout)
    assert f"{name}: " in text
    assert written in text
    event = VerifyEnded.of(found, (), "").json()
    assert event["equal"] is False
    assert [one["equal"] for one in event["combinations"]] == [True, False]
    json.dumps(event, allow_nan=False)


def test_a_layout_is_named_by_what_it_uses():
    assert short_layout(Layout()) == "one process"
    uneven = Layout(
        tp=2, sequence_parallel=True, pp=2, dp=2, stages=stage_specs([1, 3]), ep=4, zero_stage=1
    )
    assert short_layout(uneven) == "tp 2 SP · pp 2 · uneven · dp 2 · ZeRO-1 · ep 4"
    again = Layout(recompute="selective", recompute_modules=("core_attn", "mlp"))
    assert short_layout(again) == "recompute core_attn, mlp"


def test_exported_files_that_started_stand_below_with_those_that_did_not(pieces):
    found = [Ran(pieces[0], 1.5, FINE)]
    text = page(found, files=([Ran(pieces[1], 8.0, FINE)], ["cp: no CPU has it"]))
    assert text.startswith("equal: 1 of 1 run; exported files equal: 1 of 1 started\n")
    assert "'exported files'" in text
    assert "Exported files not started" in text
    assert "cp: no CPU has it" in text


def test_exported_files_that_differ_or_fail_make_the_answer_unequal(pieces):
    fine = [Ran(pieces[0], 1.5, FINE)]
    files = [Ran(pieces[1], 8.0, FAR), Ran(pieces[1], failure="run.sh ended with code 1: no")]
    text = page(fine, files=(files, ()))
    name = short_layout(pieces[1].layout)
    assert text.startswith("equal: 1 of 1 run; exported files equal: 0 of 2 started\n")
    assert f"files of {name}: losses differ by 2.0e-01" in text
    assert f"files of {name}: run.sh ended with code 1: no" in text
    ended = VerifyEnded.of(fine, (), "", files, ("cp: none",)).json()
    assert not ended["equal"]
    assert [one["equal"] for one in ended["files"]] == [False, False]
    assert ended["files_not_started"] == ["cp: none"]
