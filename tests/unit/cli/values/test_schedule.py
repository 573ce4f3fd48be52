"""Schedules as text, as traces, and what of a file of durations is refused."""

import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from trainplan.cli.documents.schedules import ScheduleDocument
from trainplan.cli.files.disk import FileError
from trainplan.cli.pages.parts.chrome_trace import COPIES, NETWORK, Extra, trace_text
from trainplan.cli.pages.parts.timeline import MOST_ROWS, positions, timeline_text
from trainplan.cli.pages.schedule import headline
from trainplan.cli.values.schedule_effects import SHARE_THE_OUTPUT_LAYER
from trainplan.cli.values.stage_times import read_stage_times
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.program.ops import Op, Shape
from trainplan.costmodel.schedules import SCHEDULES, program_for
from trainplan.costmodel.timeline.clock import run
from trainplan.planner.schedules.compare import better, imported, ranked, scheduled
from trainplan.planner.schedules.pipelines import (
    Extras,
    Pipeline,
    StageTimes,
    require_size,
    stage_seconds,
)

ONE = StageTimes(1, 1, 1)


def pipeline(pp: int, m: int, vpp: int = 1, times: StageTimes = ONE, **more: object) -> Pipeline:
    shape = Shape(pp, vpp, m, **{k: v for k, v in more.items() if k in Shape._fields})
    rest = {k: v for k, v in more.items() if k not in Shape._fields}
    return Pipeline(shape, stage_seconds((times,) * (pp * vpp), Extras()), **rest)


def timeline(kind: str, pp: int, m: int, vpp: int = 1, **more: object):
    return scheduled(kind, pipeline(pp, m, vpp, **more)).timeline


def lines(text) -> list[str]:
    return str(text).splitlines()


def test_a_timeline_shows_every_op_with_its_micro_batch():
    drawn = lines(timeline_text(timeline("1f1b", 2, 2), width=7 + 3 * 9))
    assert drawn[0].split()[-1] == "0FF1FF" + "." * 6 + "0BBBBB" + "..." + "1BBBBB"
    assert drawn[1].split()[-1] == "..." + "0FF0BBBBB1FF1BBBBB" + "." * 6
    assert drawn[2].split() == ["0", "9"]
    assert "F forward, B both gradients" in drawn[3]


def test_every_column_shows_the_op_in_its_middle():
    clock = timeline("zb-v", 3, 6, vpp=2, times=StageTimes(3.7, 4.1, 2.3), p2p=0.4)
    columns = 83
    for row in range(3):
        shown = positions(clock, row, columns)
        for column, position in enumerate(shown.tolist()):
            middle = (column + 0.5) * clock.makespan / columns
            running = (clock.start[row] <= middle) & (middle < clock.end[row])
            assert running[position] if position >= 0 else not running.any()


def test_uneven_stages_are_drawn_as_long_as_they_are():
    shape = Shape(2, 1, 1)
    times = (StageTimes(1, 0, 0), StageTimes(3, 0, 0))
    clock = run(program_for("1f1b", shape), stage_seconds(times, Extras()))
    drawn = lines(timeline_text(clock, width=7 + 8))
    assert drawn[0] == "rank 0 0F......"
    assert drawn[1] == "rank 1 ..0FFFFF"


@pytest.mark.parametrize("width", [40, 61, 100, 400])
def test_no_row_is_wider_than_asked(width: int):
    for kind, vpp in (("1f1b", 1), ("interleaved", 2), ("zb-v", 2)):
        drawn = lines(timeline_text(timeline(kind, 4, 8, vpp), width))
        assert max(len(line) for line in drawn[:5]) <= width
    assert {len(line) for line in drawn[:4]} == {width}


def test_a_second_virtual_stage_is_in_lower_case():
    drawn = lines(timeline_text(timeline("zb-v", 2, 4, vpp=2), width=200))
    assert "FF" in drawn[0]
    assert "ff" in drawn[0]
    assert "lower case" in drawn[-1]


def test_a_picture_too_small_for_its_ops_says_so():
    clock = timeline("1f1b", 2, 40)
    crowded = str(timeline_text(clock, width=60))
    assert crowded.endswith(
        "Several ops share a column, which shows one of them: patterns in it are not real; --width "
        "or --trace shows all"
    )
    assert "Several ops" not in str(timeline_text(clock, width=200))


def test_many_ranks_are_shortened():
    drawn = lines(timeline_text(timeline("1f1b", 40, 40), width=100))
    assert len(drawn) == MOST_ROWS + 3
    assert "16 rows more" in str(drawn)


def events(text: str) -> list[dict]:
    document = json.loads(text)
    assert set(document) == {"displayTimeUnit", "traceEvents"}
    return document["traceEvents"]


def lanes(found: list[dict]) -> dict[tuple[int, int], list[dict]]:
    result = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            result[event["pid"], event["tid"]].append(event)
    return result


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_trace_has_every_op_in_order_and_no_two_at_once(kind: str):
    schedule = SCHEDULES[kind]
    times = StageTimes(0.3, 0.41, 0.23)
    clock = timeline(kind, 4, 16, schedule.least_vpp, times=times, p2p=0.07)
    found = events(trace_text(clock))
    passes = [event for event in found if event["ph"] == "X"]
    assert len(passes) == clock.program.lengths.sum()
    moments = [event["ts"] for event in found if event["ph"] != "M"]
    assert moments == sorted(moments)
    assert max(e["ts"] + e["dur"] for e in passes) == pytest.approx(clock.makespan * 1e6)
    for lane in lanes(found).values():
        for one, after in pairwise(lane):
            assert one["ts"] + one["dur"] <= after["ts"] + 1e-3
    stages = {(e["args"]["stage"], e["args"]["microbatch"]) for e in passes}
    assert max(microbatch for _, microbatch in stages) == 15


def test_every_message_of_a_trace_leaves_an_op_and_reaches_a_later_one():
    found = events(trace_text(timeline("1f1b", 3, 5, p2p=0.5)))
    sent = {e["id"]: e for e in found if e["ph"] == "s"}
    reached = {e["id"]: e for e in found if e["ph"] == "f"}
    assert len(sent) == 2 * 2 * 5
    assert sent.keys() == reached.keys()
    by_lane = lanes(found)
    for number, leaves in sent.items():
        arrives = reached[number]
        assert abs(leaves["pid"] - arrives["pid"]) == 1
        assert arrives["ts"] >= leaves["ts"] + 0.5e6
        for event, other in ((leaves, False), (arrives, True)):
            inside = [
                op["args"]["microbatch"]
                for op in by_lane[event["pid"], event["tid"]]
                if op["ts"] <= event["ts"] < op["ts"] + op["dur"]
            ]
            assert len(inside) == 1, other


def nanoseconds(microseconds: float) -> int:
    """As a viewer reads them: whole, the rest cut off."""
    return int(microseconds * 1000)


UNEVEN = [
    StageTimes(*times) for times in ((0.31, 0.47, 0.23), (1 / 3, 1 / 7, 0.1), (0.9, 1.1, 0.7))
]


@pytest.mark.parametrize("kind", ["1f1b", "zb-h1", "vocab-1f1b", "vocab-1f1b-2"])
@pytest.mark.parametrize("share", [0.0, 0.1234567])
@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-7])
def test_every_arrow_touches_its_ops_in_whole_nanoseconds(kind: str, share: float, unit: float):
    times = [
        StageTimes(t.forward * unit, t.input_grad * unit, t.weight_grad * unit) for t in UNEVEN
    ]
    shares = share * unit * kind.startswith("vocab")
    seconds = stage_seconds(times, Extras(vocab_forward=shares, vocab_backward=shares))
    clock = run(program_for(kind, Shape(3, 1, 17)), seconds, 0.37 * unit)
    found = events(trace_text(clock))
    by_lane = lanes(found)
    arrows = [event for event in found if event["ph"] in "sf"]
    assert len(arrows) >= 2 * 2 * 2 * 17
    for arrow in arrows:
        now = nanoseconds(arrow["ts"])
        slices = [
            nanoseconds(op["ts"])
            for op in by_lane[arrow["pid"], arrow["tid"]]
            if nanoseconds(op["ts"]) <= now < nanoseconds(op["ts"]) + nanoseconds(op["dur"])
        ]
        assert len(slices) == 1, arrow
        assert arrow["ph"] == "s" or slices == [now]


def test_the_end_of_a_step_has_its_own_lane():
    extra = Extra(1, NETWORK, "gradients", 9.0, 0.5)
    found = events(trace_text(timeline("1f1b", 2, 2), [extra]))
    assert lanes(found)[1, NETWORK][0]["ts"] == 9e6
    names = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    assert (1, NETWORK) in names
    assert (1, COPIES) not in names


def test_a_trace_nobody_can_open_is_refused(monkeypatch):
    monkeypatch.setattr("trainplan.cli.pages.parts.chrome_trace.MOST_OPS", 10)
    with pytest.raises(SpecError, match="lower num_microbatches"):
        trace_text(timeline("1f1b", 2, 4))


@pytest.mark.parametrize(
    ("kind", "vpp", "times", "makespan", "peaks"),
    [
        ("gpipe", 1, (1, 1, 1), 33, [8, 8, 8, 8]),
        ("1f1b", 1, (1, 1, 1), 33, [4, 3, 2, 1]),
        ("interleaved", 2, (1, 1, 1), 57, [11, 9, 7, 5]),
        ("zb-h1", 1, (1, 1, 1), 27, [4, 4, 4, 4]),
        ("zb-h1", 1, (3, 4, 2), 87, [4, 4, 4, 4]),
        ("zb-v", 2, (1, 1, 1), 51, [8, 8, 8, 8]),
    ],
)
def test_a_score_has_the_published_figures(
    kind: str, vpp: int, times: tuple[int, int, int], makespan: float, peaks: list[int]
):
    found = ScheduleDocument.of(scheduled(kind, pipeline(4, 8, vpp, StageTimes(*times)))).json()
    assert found["makespan"] == pytest.approx(makespan)
    assert found["lower_bound"] == pytest.approx(makespan)
    assert found["optimal"] is True
    assert found["peak_activations"] == peaks


def test_a_gap_is_what_a_better_order_could_save_at_most():
    scored = scheduled("v-min", pipeline(4, 8, 2, StageTimes(3, 4, 2)))
    assert not scored.optimal
    assert scored.gap_fraction == pytest.approx(scored.makespan / scored.lower_bound - 1)
    assert "above the best order" in headline(scored)


def test_all_schedules_are_ranked_or_refused_with_a_reason():
    ranking = ranked(pipeline(4, 8))
    kinds = [one.kind for one in (*ranking.schedules, *ranking.refused)]
    assert sorted(kinds) == sorted(SCHEDULES)
    times = [one.makespan for one in ranking.schedules]
    assert times == sorted(times)
    assert all("vpp" in one.reason for one in ranking.refused if one.kind == "interleaved")


def test_a_memory_limit_keeps_out_what_holds_more_and_says_what_it_needs():
    for one in ranked(pipeline(4, 8, memory_limit=4)).schedules:
        assert max(one.peaks) <= 4
    with pytest.raises(SpecError, match="raise it to 8, the smallest gpipe runs with"):
        scheduled("gpipe", pipeline(4, 8, memory_limit=4))


def test_splitting_the_backward_pass_sends_the_gradient_earlier():
    whole = scheduled("1f1b", pipeline(4, 8))
    split = scheduled("1f1b", pipeline(4, 8, splits_backward=True))
    assert split.makespan < whole.makespan
    assert not (split.program.kind == Op.WHOLE).any()
    hints = {hint.change: hint.makespan for hint in better(whole, pipeline(4, 8))}
    assert hints["the same order with --split-backward"] == split.makespan


def test_no_hint_promises_a_slower_pipeline():
    for kind in ("1f1b", "zb-h1", "gpipe"):
        question = pipeline(4, 8, times=StageTimes(3, 4, 2))
        scored = scheduled(kind, question)
        assert all(hint.makespan < scored.makespan for hint in better(scored, question))


def test_a_program_knows_its_placement_and_its_virtual_stages():
    for kind, vpp, placement in (("1f1b", 1, "loop"), ("interleaved", 3, "loop"), ("zb-v", 2, "v")):
        scored = scheduled(kind, pipeline(4, 8, vpp))
        assert (scored.vpp, scored.placement) == (vpp, placement)
        assert imported(scored.program, pipeline(4, 8, vpp)).makespan == scored.makespan


def test_durations_with_a_common_unit_enter_an_order_exactly():
    assert pipeline(2, 2, times=StageTimes(3, 4, 2)).relative == (3, 4, 2, 0)
    assert pipeline(2, 2, times=StageTimes(0.3, 0.4, 0.2), p2p=0.05).relative == (6, 8, 4, 1)
    assert sum(pipeline(2, 2, times=StageTimes(np.pi, 1, 1)).relative) <= 50


def test_too_large_a_program_is_refused_before_it_is_made():
    with pytest.raises(SpecError, match="lower num_microbatches"):
        require_size(Shape(1 << 20, 1 << 10, 1 << 20))
    with pytest.raises(SpecError, match="lower num_microbatches"):
        ranked(pipeline(2, 1 << 25))


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (Shape(2, 1, 1 << 25), "num_microbatches"),
        (Shape(1 << 25, 1, 2), "pp"),
        (Shape(4, 1 << 25, 8), "vpp"),
        (Shape(4, 1, 8, sequence_chunks=1 << 25), "sequence_chunks"),
    ],
)
def test_the_largest_size_is_the_one_to_lower(shape: Shape, name: str):
    with pytest.raises(SpecError, match=f": lower {name}"):
        require_size(shape)


def test_the_kinds_with_shares_of_the_output_layer_are_those_whose_programs_have_them():
    found = [
        kind
        for kind, one in SCHEDULES.items()
        if (program_for(kind, Shape(4, one.least_vpp, 8)).kind == Op.VOCAB_FORWARD).any()
    ]
    assert found == list(SHARE_THE_OUTPUT_LAYER)


def test_a_kind_that_splits_no_backward_pass_has_only_whole_ones():
    for kind, one in SCHEDULES.items():
        program = program_for(kind, Shape(4, one.least_vpp, 8))
        assert one.splits_backward == bool((program.kind == Op.WEIGHT).any()), kind


def test_chunks_of_a_sequence_sum_to_the_whole():
    seconds = stage_seconds((StageTimes(3, 4, 2),), Extras(4, 0.5))
    assert seconds.forward.sum() == pytest.approx(3)
    assert seconds.backward.sum() == pytest.approx(6)
    assert seconds.weight[0].tolist() == pytest.approx([0.5] * 4)
    assert (np.diff(seconds.forward[0]) > 0).all()


def written(folder: Path, text: str, name: str = "times.json") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_stage_times_are_read_as_entries_or_as_lists(tmp_path: Path):
    entry = {"forward": 1, "input_grad": 2.5, "weight_grad": 0}
    wanted = (StageTimes(1, 2.5, 0),) * 2
    assert read_stage_times(written(tmp_path, json.dumps([entry, entry])), 2) == wanted
    columns = {name: [value] * 2 for name, value in entry.items()}
    assert read_stage_times(written(tmp_path, json.dumps(columns)), 2) == wanted
    text = "- {forward: 1, input_grad: 2.5, weight_grad: 0}\n" * 2
    assert read_stage_times(written(tmp_path, text, "times.yaml"), 2) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "0 entries, but pp * vpp = 2"),
        ('[{"forward": 1, "input_grad": 1, "weight_grad": -1}]', "stages.0.weight_grad"),
        ('[{"forward": 1, "input_grad": NaN, "weight_grad": 1}]', "NaN"),
        ('[{"forward": 1, "input_grad": 1}]', "stages.0.weight_grad"),
        ('[{"forward": 1, "input_grad": 1, "weight_grad": 1, "p2p": 1}]', "stages.0.p2p"),
        ('[{"forward": "1", "input_grad": 1, "weight_grad": 1}]', "stages.0.forward"),
        ('[{"forward": true, "input_grad": 1, "weight_grad": 1}]', "stages.0.forward"),
        ('[{"forward": 1, "input_grad": 1, "weight_grad": 1}]', "1 entries, but pp * vpp = 2"),
        ('{"forward": [1, 1e300], "input_grad": [1, 1], "weight_grad": [1, 1]}', "forward.1"),
        ('{"forward": [1, 1], "input_grad": [1, 1], "weight_grad": [1]}', "equally long"),
        ('{"forward": [1, 1], "input_grad": [1, -1], "weight_grad": [1, 1]}', "input_grad.1"),
        ("[1, 2]", "stages.0"),
        ("3", "expected fields"),
        ("{}", "write a list of virtual stages with forward, input_grad and weight_grad each, or"),
        ('{"times": [1]}', "or these three as lists"),
        ('{"forward": [1, 1]}', "input_grad"),
        ("[", "not JSON"),
    ],
)
def test_wrong_stage_times_are_refused_with_their_place(tmp_path: Path, text: str, words: str):
    with pytest.raises(FileError, match=re.escape(words)):
        read_stage_times(written(tmp_path, text), 2)
