"""Samples in the journal: what was timed is kept, and the timings follow from it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.profiler.journal.test_journal import HEADER
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.profiles.profile import AttentionPoint, StreamPoint
from trainplan.profiler.journal.records import Done, line_of, read_journal, sealed
from trainplan.profiler.journal.samples import MOST_SAMPLES, Book, Samples, labelled
from trainplan.profiler.journal.timing import timing_of

SECONDS = st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=30)


def stream(time):
    return StreamPoint(name="copy", moved_bytes=8, time=time)


def core(forward, backward):
    return AttentionPoint(
        micro_batch_size=1,
        seq_length=8,
        num_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        value_dim=8,
        forward=forward,
        backward=backward,
    )


def done(book, *points):
    samples = tuple(labelled(book.taken, points))
    return Done(item="stream", key="copy", seconds=0.5, points=points, samples=samples)


def written(record, changed=lambda fields: fields):
    """The journal of one record, whose fields may be changed on the way."""
    fields = json.loads(line_of(record))
    del fields["crc32"]
    return line_of(HEADER) + sealed(json.dumps(changed(fields))) + "\n"


@given(SECONDS, SECONDS)
def test_the_written_samples_give_the_timings_of_the_run(first, second):
    book = Book()
    forward = book.timing_of(first, range(len(first)))
    record = done(book, core(forward, book.timing_of(second)))
    assert {one.timing for one in record.samples} == {"forward", "backward"}
    assert read_journal(written(record)).points == record.points

    def without_timings(fields):
        for name in ("forward", "backward"):
            fields["points"][0][name] = {"seconds": 1.0}
        return fields

    assert read_journal(written(record, without_timings)).points == record.points


def test_the_time_of_the_host_is_written_with_the_samples():
    book = Book()
    known = book.timing_of([1.0, 2.0], (), [0.25, 0.5])
    record = done(book, core(known, book.timing_of([3.0], with_host=True)))
    (point,) = read_journal(written(record)).points
    assert (point.forward.host_seconds, point.backward.host_seconds) == (0.375, None)
    assert point.backward.flags == ("with_host",)


@given(SECONDS)
def test_samples_are_kept_in_order_to_six_digits(seconds):
    book = Book()
    book.timing_of(seconds)
    assert list(book.taken[0].seconds) == pytest.approx(seconds, rel=1e-5)


def test_of_too_many_samples_some_are_kept_over_the_whole_time():
    book, seconds = Book(), [1.0 + i for i in range(10 * MOST_SAMPLES)]
    timing = book.timing_of(seconds)
    assert list(book.taken[0].seconds) == seconds[::10]
    assert timing == timing_of(seconds[::10])


def test_samples_of_a_part_of_a_number_are_kept_and_name_no_timing():
    book = Book()
    point = stream(book.timing_of([1.0, 2.0]))
    book.timing_of([4.0])
    assert [(one.timing, one.seconds) for one in done(book, point).samples] == [
        ("time", (1.0, 2.0)),
        ("", (4.0,)),
    ]


def test_equal_samples_go_to_one_timing_each():
    book = Book()
    record = done(book, core(book.timing_of([2.0]), book.timing_of([2.0])))
    assert [one.timing for one in record.samples] == ["forward", "backward"]


def test_a_journal_of_before_samples_were_kept_is_read_as_it_is():
    book = Book()
    record = done(book, stream(book.timing_of([1.0, 2.0, 4.0])))
    former = written(record, lambda fields: {k: fields[k] for k in fields if k != "samples"})
    assert '"samples"' not in former
    assert read_journal(former) == read_journal(written(record))


@pytest.mark.parametrize("place", [{"point": 1, "timing": "time"}, {"timing": "name"}])
def test_samples_of_a_timing_that_is_not_there_are_refused(place):
    record = done(Book(), stream(timing_of([1.0])))
    samples = [Samples(seconds=(1.0,)).model_dump() | place]
    with pytest.raises(SpecError, match=r"line 2 .* which is not there"):
        read_journal(written(record, lambda fields: fields | {"samples": samples}))
