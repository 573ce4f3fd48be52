"""Answers that are kept of layouts that come one by one."""

from dataclasses import replace

import pytest

from trainplan.costmodel.candidates import memo
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.candidates.memo import remembered
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of


@pytest.fixture(scope="module")
def small_job(make_job):
    """Fields of a layout -> candidates of one row, all of one context."""
    job = make_job("small-dense", "2x8:a100-sxm-80gb")
    context = context_of(job, machine_of(job.cluster, job.training.precision))
    return lambda **fields: context.with_table(LayoutTable.of([Layout(**fields)]))


def counted(formula):
    """The formula as it is remembered, and a list that grows with every time it is worked out."""
    calls = []
    return remembered(lambda *given: calls.append(given) or formula(*given)), calls


def test_an_answer_depends_on_the_columns_that_were_read_for_it(small_job):
    def formula(candidates):
        table = candidates.table
        return (table.tp + table.pp if table.vpp[0] == 1 else table.vpp).item()

    found, calls = counted(formula)
    assert found(small_job(tp=2, pp=2)) == 4
    assert found(small_job(tp=2, pp=2, dp=4)) == 4  # dp is not read
    assert found(small_job(tp=4, pp=2)) == 6
    assert len(calls) == 2
    assert found(small_job(tp=4, pp=2, vpp=3)) == found(small_job(tp=8, pp=2, vpp=3)) == 3
    assert len(calls) == 3


def test_one_formula_inside_another_passes_on_what_it_reads(small_job):
    inner, _ = counted(lambda candidates: candidates.table.tp.item())

    def formula(candidates):
        other = candidates.with_table(candidates.table.replaced(tp=candidates.table.cp))
        return inner(candidates), inner(other), len(candidates.table)

    outer, calls = counted(formula)
    assert inner(small_job(tp=2)) == 2  # so the outer formula finds it known
    assert outer(small_job(tp=2, cp=4)) == outer(small_job(tp=2, cp=4, pp=2)) == (2, 4, 1)
    assert outer(small_job(tp=2, cp=8)) == (2, 8, 1)
    assert len(calls) == 2


def test_an_answer_is_that_of_its_context_and_of_its_other_arguments(small_job):
    found, calls = counted(lambda candidates, number: (candidates.machine.num_gpus, *number))
    one = small_job(tp=2)
    other = replace(one, machine=replace(one.machine, num_gpus=7))
    first, second = [1], [2]
    assert found(one, first) == found(one, first) == (16, 1)
    assert (found(other, first), found(one, second)) == ((7, 1), (16, 2))
    assert len(calls) == 3


def test_of_many_rows_the_last_answer_alone_is_kept(small_job):
    found, calls = counted(lambda candidates, number: (len(candidates.table), *number))
    one, first, second = small_job(tp=2), [1], [2]
    both = one.with_table(LayoutTable.concat([one.table, one.table]))
    alike = one.with_table(LayoutTable.concat([one.table, one.table]))
    other = replace(both, machine=replace(both.machine, num_gpus=7))
    assert found(both, first) == found(both, first) == (2, 1)
    assert len(calls) == 1
    assert found(both, second) == (2, 2)
    for known, given in enumerate((both, alike, both, other), start=3):
        assert found(given, first) == (2, 1)
        assert len(calls) == known


def test_answers_of_one_row_keep_no_table(small_job):
    found, _ = counted(lambda candidates: candidates.table)
    one = small_job(tp=2)
    with pytest.raises(TypeError, match="tp is read of a layout whose answer is remembered"):
        found(one).replaced(cp=one.table.cp).tp  # noqa: B018 (to read is what is tested)
    with pytest.raises(AttributeError, match="no_column"):
        found(one).no_column  # noqa: B018 (as above)


def test_answers_are_bounded(small_job, monkeypatch):
    monkeypatch.setattr(memo, "REMEMBERED", 2)
    found, calls = counted(lambda candidates: candidates.table.tp.item())
    assert [found(small_job(tp=tp)) for tp in (1, 2, 2, 4, 1)] == [1, 2, 2, 4, 1]
    assert len(calls) == 4
