"""A schedule as torch's pipeline runtime reads it, and back."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.program.ops import (
    LARGEST_PROGRAM,
    Op,
    Pass,
    RelativeSeconds,
    Shape,
    placed,
    program_of,
)
from trainplan.costmodel.schedules import SCHEDULES, program_for
from trainplan.costmodel.timeline.clock import StageSeconds, run
from trainplan.planner.runtimes.torch_schedule_csv import program_of_csv, schedule_csv

TWO_RANKS = "0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1I1,1W1\n"
"""Two micro batches; each rank runs one backward pass whole and one in two ops."""
ZB_V_LIKE = "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"
relative = st.builds(RelativeSeconds, *[st.integers(1, 9)] * 3, st.integers(0, 3))
SHAPES = [Shape(p, v, m) for p in (1, 2, 3, 4) for v in (1, 2, 3) for m in (1, 2, 3, 4, 8, 9)]


def legal(name, shape):
    """Does the schedule run in the shape?"""
    try:
        SCHEDULES[name].refuse(name, shape)
    except SpecError:
        return False
    return True


cases = st.sampled_from([(name, s) for name in SCHEDULES for s in SHAPES if legal(name, s)])


def ops(program):
    """Ops of every rank; what pads a row does not count."""
    rows = zip(program.kind, program.stage, program.microbatch, strict=True)
    return [
        [Pass(Op(k), s, m) for k, s, m in zip(*row, strict=True) if k != Op.NONE]
        for row in (tuple(line.tolist() for line in row) for row in rows)
    ]


@given(cases, relative)
def test_a_schedule_comes_back_from_its_file_unless_it_is_refused(case, durations):
    program = program_for(*case, durations)
    try:
        text = schedule_csv(program)
    except UnsupportedError:
        return
    back = program_of_csv(text)
    assert ops(back) == ops(program)
    assert (back.num_stages, back.num_microbatches) == (
        program.num_stages,
        case[1].num_microbatches,
    )
    assert schedule_csv(back) == text


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-1p"])
def test_a_schedule_torch_can_run_is_not_refused(name):
    program = program_for(name, Shape(4, SCHEDULES[name].least_vpp, 8))
    assert ops(program_of_csv(schedule_csv(program))) == ops(program)


def test_a_file_has_a_row_for_each_rank_and_a_cell_for_each_op():
    assert schedule_csv(program_for("1f1b", Shape(2, 1, 2))) == (
        "0F0,0F1,0B0,0B1\n"
        "1F0,1B0,1F1,1B1\n"
    )  # fmt: skip


def test_letters_are_those_of_torch():
    (split, whole), _ = (row[2:4] for row in ops(program_of_csv(TWO_RANKS)))
    assert (split, whole) == (Pass(Op.BACKWARD, 0, 0), Pass(Op.WEIGHT, 0, 0))
    assert schedule_csv(program_of_csv(TWO_RANKS)) == TWO_RANKS


def test_any_placement_of_stages_is_read_from_the_rows():
    program = program_of_csv(ZB_V_LIKE)
    assert program.rank_of_stage[placed("v", 2, 2)].tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    "text",
    [
        TWO_RANKS.replace("\n", "\r\n"),
        TWO_RANKS.rstrip("\n"),
        TWO_RANKS + "\n\n",
        ",,0F0,,0F1,0I0,0W0,0B1,\n1F0, 1B0 ,1F1,1I1,1W1,,,\n",
        "0F0,0F1,0I0,0W0,0B1\n1F0,( 1B0 ; )OVERLAP_F_B,1F1,1I1,(1W1)OVERLAP_F_B\n",
    ],
)
def test_bubbles_single_ops_in_brackets_and_line_ends_do_not_change_the_program(text):
    assert schedule_csv(program_of_csv(text)) == TWO_RANKS


def test_passes_written_as_a_pair_follow_one_another():
    text = "0F0,0F1,(0I0;0W0)OVERLAP_F_B,0B1\n1F0,(1B0;1F1)OVERLAP_F_B,1I1,1W1\n"
    program = program_of_csv(text)
    assert ops(program) == ops(program_of_csv(TWO_RANKS))
    assert schedule_csv(program) == text


def test_a_pair_sends_nothing_before_both_of_its_ops_have_ended():
    text = "0F0,0F1,0I0,0W0,0B1\n1F0,(1B0;1F1)OVERLAP_F_B,1I1,1W1\n"
    seconds = StageSeconds(*(part * np.ones((1, 2)) for part in (1.0, 2.0, 1.0)))
    starts = [run(program_of_csv(one), seconds).start[0, 2] for one in (TWO_RANKS, text)]
    assert starts == [4.0, 5.0]


def test_pairs_that_wait_for_one_another_are_refused():
    program_of_csv("0F0,0B0\n1F0,1B0\n")
    with pytest.raises(SpecError, match="deadlocks"):
        program_of_csv("(0F0;0B0)OVERLAP_F_B\n1F0,1B0\n")


@given(st.sampled_from(["1f1b", "interleaved", "zb-1p"]), st.integers(1, 4), st.data())
def test_a_schedule_without_one_of_its_ops_is_refused(name, pp, data):
    shape = Shape(pp, SCHEDULES[name].least_vpp, pp * data.draw(st.integers(1, 2)))
    rows = [line.split(",") for line in schedule_csv(program_for(name, shape)).splitlines()]
    row = data.draw(st.sampled_from(rows))
    del row[data.draw(st.integers(0, len(row) - 1))]
    with pytest.raises(SpecError, match=r"exactly one|no rank runs|output of a neighbouring"):
        program_of_csv("\n".join(",".join(row) for row in rows))


@given(st.text(alphabet="0123FIWB,;()\n SEND_OVERLAP", max_size=40))
def test_any_text_is_a_program_or_refused(text):
    try:
        program = program_of_csv(text)
    except SpecError:
        return
    assert ops(program_of_csv(schedule_csv(program))) == ops(program)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty", "one row"]),
        ("\n \n", ["empty"]),
        (",,\n0F0,0B0", ["rank 0 (line 1)", "no op"]),
        ("0F0,0B0\n\n1F0,1B0", ["rank 1 (line 2)", "no op", "delete the line"]),
        ("0F0,0X0", ["rank 0 (line 1), cell 2", "'0X0'", "such as 3F7"]),
        ("0F0,0B", ["cell 2", "'0B'"]),
        ("0F0,-1B0", ["cell 2", "'-1B0'"]),
        ("0F0,0B0 0B1", ["cell 2", "'0B0 0B1'"]),
        ("0F0,0b0", ["cell 2", "'0b0'"]),
        ("0F0,0B\N{ARABIC-INDIC DIGIT ZERO}", ["cell 2", "no op"]),
        ("0F0;0B0", ["cell 1", "'0F0;0B0'"]),
        ("(0F0;0Z0)OVERLAP_F_B,0B0", ["cell 1", "'0Z0'"]),
        ("((0F0)OVERLAP_F_B;0B0)OVERLAP_F_B", ["cell 1", "no op"]),
        ("(0F0;0B0)OVERLAP", ["cell 1", "'(0F0;0B0)OVERLAP'"]),
        ("0F0,0SEND_F0,0B0", ["cell 2", "message", '"compute_only"']),
        ("0UNSHARD,0F0,0B0", ["cell 1", "collective", '"compute_only"']),
        ("0F0,0B" + "1" * 5000, ["cell 2", "at most 9 digits"]),
        ("0F0,0F0,0B0", ["cell 2", "0F0 is also at rank 0 (line 1), cell 1", "delete"]),
        ("0F0,0B0\n0F1,0B1", ["rank 1 (line 2), cell 1", "stage 0", "rank 0", "one row"]),
        ("0F0,0B0,0F2,0B2", ["no rank runs 0F1", "micro batch 2", "add it"]),
        ("1F0,1B0", ["no rank runs 0F0", "stage 1"]),
        ("0F0,0B0,0W1", ["no rank runs 0F1", "micro batch 1"]),
        ("0F0", ["stage 0, micro batch 0", "one backward pass"]),
        ("0F0,0B0,0I0,0W0", ["stage 0, micro batch 0", "one backward pass"]),
        ("0F0,0I0", ["stage 0, micro batch 0", "weight gradient (W)"]),
        (
            "0F0,0B0,0W0",
            ["cell 3", "stage 0, micro batch 0 has W as well as B: use I and W, or B alone"],
        ),
        ("0F0,0W0", ["stage 0, micro batch 0", "one backward pass"]),
        ("0F0,0W0,0I0", ["deadlocks", "rank 0 at 0W0", "reorder"]),
        ("0B0,0F0", ["deadlocks", "rank 0 at 0B0"]),
        ("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1", ["deadlocks", "rank 0 at 0B0", "rank 1 at 1F1"]),
    ],
)
def test_a_malformed_schedule_is_refused_with_its_place(text, words):
    with pytest.raises(SpecError) as refusal:
        program_of_csv(text)
    for word in words:
        assert word in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("cell", ["999999999F0", "0F999999999", "999999999B999999999"])
def test_a_huge_number_is_refused_without_huge_memory(cell):
    tracemalloc.start()
    with pytest.raises(SpecError, match=r"no rank runs .* too large"):
        program_of_csv(f"0F0,0B0,{cell}")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_rows_of_very_unequal_length_are_refused_without_huge_memory():
    ranks, busy = 3000, 1 + LARGEST_PROGRAM // 3000
    long = ",".join(f"0F{m}" for m in range(busy))
    with pytest.raises(SpecError, match="fewer micro batches"):
        program_of_csv("\n".join([long] + [f"{rank}F0" for rank in range(1, ranks)]))


PLAIN = program_of([[Pass(Op.FORWARD, 0, 0), Pass(Op.WHOLE, 0, 0)]], 1, 1)


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (replace(PLAIN, copies=2), "two copies"),
        (replace(PLAIN, sequence_chunks=2), "along the sequence"),
        (replace(PLAIN, barriers=1), "output layer"),
        (replace(PLAIN, copy_lanes=True), "host"),
        (replace(PLAIN, kind=np.array([[Op.FORWARD, Op.VOCAB_FORWARD]])), "other than F, B, I"),
        (program_of([ops(PLAIN)[0], []], 1, 1), "ranks without a stage"),
    ],
)
def test_what_torch_cannot_run_is_not_written(program, what):
    with pytest.raises(UnsupportedError, match=rf"{what}.*export a schedule without"):
        schedule_csv(program)


def test_a_program_torch_would_hang_on_is_not_written():
    hangs = program_of([[Pass(Op.WHOLE, 0, 0), Pass(Op.FORWARD, 0, 0)]], 1, 1)
    with pytest.raises(SpecError, match="deadlocks"):
        schedule_csv(hangs)
    with pytest.raises(SpecError, match="exactly one backward"):
        schedule_csv(program_of([[Pass(Op.FORWARD, 0, 0)]], 1, 1))


def test_padding_is_not_written():
    more = ((0, 0), (0, 3))
    padded = replace(
        PLAIN,
        kind=np.pad(PLAIN.kind, more, constant_values=int(Op.NONE)),
        stage=np.pad(PLAIN.stage, more),
        microbatch=np.pad(PLAIN.microbatch, more),
    )
    assert schedule_csv(padded) == "0F0,0B0\n"
