"""What a journal says, however the run before it ended."""

import re

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.profiles.profile import Failure, Host, Software, StreamPoint, Timing
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.journal.file import JournalFile
from trainplan.profiler.journal.records import (
    Done,
    Failed,
    Header,
    Interrupted,
    LeftOut,
    Remark,
    Start,
    TaskName,
    line_of,
    read_journal,
    sealed,
)
from trainplan.profiler.journal.samples import Samples
from trainplan.profiler.journal.timing import timing_of
from trainplan.profiler.task import Request

MODEL = ModelSpec(
    name="tiny",
    num_hidden_layers=2,
    hidden_size=64,
    intermediate_size=256,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=16,
    vocab_size=512,
    max_position_embeddings=128,
)
REQUEST = Request(
    model=MODEL,
    tensor_parallel=(1,),
    micro_batch_sizes=(1,),
    seq_length=128,
    precision="fp32",
    quick=True,
)
HEADER = Header(
    created="2026-01-01T00:00:00+00:00",
    request=REQUEST,
    software=Software(torch="2.13.0", backend="gloo"),
    hosts=(Host(name="a", num_gpus=2),),
)
POINT = StreamPoint(name="copy", moved_bytes=8, time=Timing(seconds=0.1, flags=("noisy",)))
COPY = TaskName("stream", "copy")
START = Start(item="stream", key="copy")
NAMED = {"item": "stream", "key": "copy", "seconds": 0.5}
DONE = Done(**NAMED, points=(POINT,))
HALVES = (1.0, 1.04, 1.05, 1.05, 1.06, 1.1), (1.0, 1.04, 1.05, 1.06, 1.05, 1.1)
"""Samples of two times, alike."""


def journal(*records):
    return "".join(map(line_of, (HEADER, *records)))


def test_what_was_measured_comes_back_as_it_was():
    content = read_journal(journal(START, DONE))
    assert content.header == HEADER
    assert content.points == (POINT,)
    assert content.done == {COPY}
    assert content.starts == {}
    assert content.seconds == {COPY: (0.5,)}


def test_a_last_line_that_was_cut_off_does_not_count():
    whole = journal(START, DONE)
    for length in range(1, len(line_of(DONE))):
        content = read_journal(whole[:-length])
        assert content.points == ()
        assert content.starts == {COPY: 1}


def test_a_line_broken_in_the_middle_is_refused():
    for broken in ('{"record": "do', sealed('{"record":"done"}')):
        with pytest.raises(SpecError, match=r"line 2 of the journal .* --restart"):
            read_journal(line_of(HEADER) + broken + "\n" + line_of(DONE))


def test_every_digit_that_is_flipped_is_seen_and_its_line_named():
    whole = journal(START, DONE)
    lines = whole.split("\n")[:-1]
    digits = [(n, i) for n, line in enumerate(lines) for i, c in enumerate(line) if c.isdigit()]
    for number, place in digits:
        line = lines[number]
        flipped = line[:place] + str((int(line[place]) + 1) % 10) + line[place + 1 :]
        text = "\n".join([*lines[:number], flipped, *lines[number + 1 :], ""])
        with pytest.raises(SpecError, match=rf"line {number + 1} of the journal .*"):
            read_journal(text)


def test_a_line_that_lost_its_checksum_is_refused_unless_the_journal_never_had_any():
    def bare(record):
        return re.sub(r',"crc32":"[0-9a-f]*"', "", line_of(record))

    former = bare(HEADER) + bare(START)
    assert read_journal(former + line_of(DONE)).points == (POINT,)
    with pytest.raises(SpecError, match=r"line 3 .* is missing: remove the line and its task"):
        read_journal(journal(START) + bare(DONE))
    with pytest.raises(SpecError, match=r"line 3 .* is wrong"):
        read_journal(former + line_of(DONE).replace('"moved_bytes":8', '"moved_bytes":9'))


def test_a_line_that_is_removed_is_measured_again():
    content = read_journal(line_of(HEADER) + line_of(START))
    assert content.done == frozenset()
    assert content.starts == {COPY: 1}


def timed(seconds, *flags, key="copy", samples=()):
    time = Timing(seconds=seconds, flags=flags, half_width_fraction=0.2 if flags else 0.01)
    point = StreamPoint(name="copy", moved_bytes=8, time=time)
    labels = tuple(Samples(timing="time", seconds=samples) for _ in samples[:1])
    return Done(item="stream", key=key, seconds=0.5, points=(point,), samples=labels)


def only_time(*records):
    (point,) = read_journal(journal(*records)).points
    return point.time


def test_of_a_task_measured_again_the_better_known_timing_counts():
    assert only_time(timed(2.0, "noisy"), timed(1.0)).seconds == 1.0
    assert only_time(timed(1.0), timed(2.0, "noisy")).seconds == 1.0
    wide, narrow = (1.0, 1.3, 1.0, 1.3, 1.0, 1.3, 1.2), (1.11, 1.1, 1.12, 1.1, 1.11, 1.1, 1.11)
    assert only_time(timed(1, samples=wide), timed(1, samples=narrow)).seconds == 1.11


def test_times_that_are_one_another_s_count_together():
    apart = (1.0, 1.2, 1.0, 1.2, 1.0, 1.2), (1.1,) * 6
    found = only_time(*(timed(1, samples=one) for one in apart))
    assert (found.seconds, found.repeats) == (1.1, 6)
    both = only_time(*(timed(1, samples=one) for one in HALVES))
    assert both.repeats == 12
    assert both.half_width_fraction < min(timing_of(one).half_width_fraction for one in HALVES)


def test_times_that_count_together_keep_what_python_took():
    def twice(*hosts):
        samples = (
            Samples(timing="time", seconds=one, host_seconds=host or (), with_host=not host)
            for one, host in zip(HALVES, hosts, strict=True)
        )
        return only_time(*(Done(**NAMED, points=(POINT,), samples=(one,)) for one in samples))

    stated = twice((1e-3,) * 6, (3e-3,) * 6)
    assert (stated.repeats, stated.host_seconds, "with_host" in stated.flags) == (12, 2e-3, False)
    unclear = twice((1e-3,) * 6, None)
    assert (unclear.repeats, unclear.host_seconds, "with_host" in unclear.flags) == (12, None, True)


def test_a_remark_is_of_the_time_before_it():
    drift = Remark(item="stream", keys=("copy",), flags=("drift",), note="")
    first, again = timed(2.0), timed(1.0)
    assert only_time(first, drift).flags == ("drift",)
    assert only_time(first, drift, again).seconds == 1.0
    assert only_time(first, again, drift).seconds == 2.0
    assert only_time(first, drift, again, drift).flags == ("drift",)


def test_doubtful_tasks_are_those_with_a_flag_that_have_attempts_left():
    noisy = timed(1.0, "noisy")
    content = read_journal(journal(noisy, timed(1.0, "outliers", key="norm")))
    assert content.doubts == {COPY: 0.2}
    assert read_journal(journal(noisy, timed(1.0))).doubts == {}
    assert read_journal(journal(noisy, noisy)).doubts == {COPY: 0.2}
    assert read_journal(journal(noisy, noisy, noisy)).doubts == {}
    failure = Failure(item="stream", detail="copy: out of memory")
    failed = read_journal(journal(noisy, Failed(item="stream", key="copy", failure=failure)))
    assert failed.doubts == {}
    assert failed.failures == ()
    assert len(failed.points) == 1


def test_seconds_of_every_time_are_kept():
    content = read_journal(journal(timed(1.0, "noisy"), timed(1.0), timed(1.0, key="norm")))
    assert content.seconds == {COPY: (0.5, 0.5), TaskName("stream", "norm"): (0.5,)}


def test_what_was_left_out_is_what_no_later_run_measured():
    left = LeftOut(budget_seconds=60, keys={"stream": ("copy", "norm"), "gemm": ("a",)})
    assert read_journal(journal(left)).left_out == left
    content = read_journal(journal(left, timed(1.0)))
    assert content.left_out.keys == {"stream": ("norm",), "gemm": ("a",)}
    some = LeftOut(budget_seconds=60, keys={"stream": ("copy",)})
    assert read_journal(journal(left, some, timed(1.0))).left_out is None


@pytest.mark.parametrize("text", ["", "{}", line_of(START), line_of(HEADER).replace("/v1", "/v9")])
def test_text_that_is_no_journal_is_refused(text):
    with pytest.raises(SpecError, match="journal"):
        read_journal(text)


def test_starts_with_no_end_are_counted():
    assert read_journal(journal(START, START)).starts == {COPY: 2}


def test_a_run_the_user_stopped_does_not_count_against_its_task():
    interrupted = Interrupted(item="stream", key="copy")
    assert read_journal(journal(START, interrupted)).starts == {}


def test_a_failed_task_is_settled_and_listed_once():
    failure = Failure(item="stream", detail="copy: out of memory", rank=1, host="a")
    failed = Failed(item="stream", key="copy", failure=failure)
    content = read_journal(journal(START, failed, failed))
    assert content.failures == (failure,)
    assert content.done == {COPY}


def test_a_remark_flags_the_timings_of_its_tasks_and_no_others():
    other = Done(item="stream", key="norm", seconds=0.1, points=(POINT,))
    remark = Remark(item="stream", keys=("copy",), flags=("drift",), note="a noisy neighbour")
    content = read_journal(journal(DONE, other, remark))
    assert [point.time.flags for point in content.points] == [("noisy", "drift"), ("noisy",)]
    assert content.notes == ("a noisy neighbour",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"request": REQUEST.model_copy(update={"seq_length": 64})}, "a request .* seq_length"),
        ({"software": Software(torch="2.14.0", backend="gloo")}, "software .* torch"),
        ({"hosts": (Host(name="a", num_gpus=4),)}, "1 node.s. of 2 x CPU"),
    ],
)
def test_a_journal_of_something_else_is_refused(change, words):
    with pytest.raises(SpecError, match=f"{words}.*--restart"):
        HEADER.model_copy(update=change).must_match(HEADER)


def test_another_node_of_the_same_kind_may_go_on():
    elsewhere = HEADER.model_copy(update={"hosts": (Host(name="b", num_gpus=2),), "created": "x"})
    elsewhere.must_match(HEADER)


def test_a_torn_line_is_cut_off_before_the_next_record(tmp_path):
    file = JournalFile(tmp_path / "journal.jsonl")
    file.path.write_text(journal(START) + '{"record": "done", "it')
    file.append(DONE)
    assert file.path.read_text() == journal(START, DONE)


def test_a_header_that_was_cut_off_begins_anew(tmp_path):
    file = JournalFile(tmp_path / "journal.jsonl")
    assert file.content() is None
    file.path.write_text(line_of(HEADER)[:20])
    assert file.content() is None
    file.append(HEADER)
    content = file.content()
    assert content is not None
    assert content.header == HEADER


def test_a_line_torn_inside_a_character_does_not_count(tmp_path):
    file = JournalFile(tmp_path / "journal.jsonl")
    failure = Failure(item="stream", detail="copy: zu groß")
    torn = line_of(Failed(item="stream", key="copy", failure=failure)).encode()
    cut = torn.index("ß".encode()) + 1
    file.path.write_bytes(journal(START).encode() + torn[:cut])
    content = file.content()
    assert content is not None
    assert content.starts == {COPY: 1}
    assert content.failures == ()
    file.append(DONE)
    assert file.path.read_text("utf-8") == journal(START, DONE)


def test_bytes_that_are_no_text_in_the_middle_are_refused(tmp_path):
    file = JournalFile(tmp_path / "journal.jsonl")
    file.path.write_bytes(line_of(HEADER).encode() + b"\xc3\n" + line_of(DONE).encode())
    with pytest.raises(
        SpecError, match=r"journal\.jsonl: line 2 of the journal is no UTF-8 text.*--restart"
    ):
        file.content()


def test_a_journal_that_cannot_be_removed_is_named(tmp_path):
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(ProfilerError, match=r"journal\.jsonl: cannot be removed"):
        JournalFile(tmp_path / "journal.jsonl").remove()


def test_line_ends_that_a_copy_changed_are_no_harm():
    assert read_journal(journal(START, DONE).replace("\n", "\r\n")).points == (POINT,)


def test_two_journals_put_together_are_refused():
    with pytest.raises(SpecError, match="has two headers"):
        read_journal(journal(START, DONE) + journal())
