"""What a journal says, however the run before it ended."""

import pytest

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import ModelSpec
from trainplan.costmodel.spec.evidence.profile import Failure, Host, Software, StreamPoint, Timing
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.journal.file import JournalFile
from trainplan.profiler.journal.records import (
    Done,
    Failed,
    Header,
    Interrupted,
    Remark,
    Start,
    TaskName,
    line_of,
    must_match,
    read_journal,
)
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
DONE = Done(item="stream", key="copy", seconds=0.5, points=(POINT,))


def journal(*records):
    return "".join(map(line_of, (HEADER, *records)))


def test_what_was_measured_comes_back_as_it_was():
    content = read_journal(journal(START, DONE))
    assert content.header == HEADER
    assert content.points == (POINT,)
    assert content.done == {COPY}
    assert content.starts == {}
    assert content.seconds == 0.5


def test_a_last_line_that_was_cut_off_does_not_count():
    whole = journal(START, DONE)
    for length in range(1, len(line_of(DONE))):
        content = read_journal(whole[:-length])
        assert content.points == ()
        assert content.starts == {COPY: 1}


def test_a_line_broken_in_the_middle_is_refused():
    with pytest.raises(SpecError, match=r"line 2 of the journal .* --restart"):
        read_journal(line_of(HEADER) + '{"record": "do\n' + line_of(DONE))


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
        must_match(HEADER.model_copy(update=change), HEADER)


def test_another_node_of_the_same_kind_may_go_on():
    elsewhere = HEADER.model_copy(update={"hosts": (Host(name="b", num_gpus=2),), "created": "x"})
    must_match(elsewhere, HEADER)


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
    with pytest.raises(SpecError, match=r"line 2 of the journal is no UTF-8 text.*--restart"):
        file.content()


def test_a_journal_that_cannot_be_removed_is_named(tmp_path):
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(ProfilerError, match=r"journal\.jsonl: cannot be removed"):
        JournalFile(tmp_path / "journal.jsonl").remove()
