"""Rows are dealt so that workers have about as much to do, and know their pipelines."""

import numpy as np
import pytest

from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.planner.work.together import PRICED_AT_ONCE, AffinityPartition


def table(*shapes):
    """Rows with these (pp, vpp, count)."""
    return LayoutTable.of(
        Layout(pp=pp, vpp=vpp, schedule="interleaved" if vpp > 1 else "1f1b")
        for pp, vpp, count in shapes
        for _ in range(count)
    )


def owners(partition, rows):
    """Which worker has each pipeline."""
    return {
        (int(rows.pp[i]), int(rows.vpp[i])): hand
        for hand, part in enumerate(partition.by_worker(rows, 1))
        for i in part.tolist()
    }


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_every_row_is_dealt_once(workers):
    rows = table((1, 1, 5), (2, 1, 40), (4, 2, 7), (4, 3, 1), (8, 1, 90))
    for parts in (
        AffinityPartition(workers).by_worker(rows, 1),
        AffinityPartition(workers).interleaved(rows),
    ):
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(rows)))


def test_rows_of_unlike_pipelines_are_dealt_evenly():
    rows = table((1, 1, 100), (2, 1, 60), (4, 1, 50), (8, 1, 50), (2, 2, 40))
    sizes = [len(part) for part in AffinityPartition(2).by_worker(rows, 1)]
    assert sizes == [150, 150]


def test_a_pipeline_stays_with_the_worker_that_had_it_first():
    partition = AffinityPartition(2)
    before = owners(partition, table((2, 1, 90), (4, 1, 80)))
    after = owners(partition, table((2, 1, 1), (4, 1, 900), (8, 1, 200), (16, 1, 300)))
    assert after == {**before, (8, 1): before[2, 1], (16, 1): before[2, 1]}


def test_few_rows_are_not_shared_and_many_not_taken_at_once():
    rows = table((1, 1, 3), (2, 1, 3))
    assert [len(part) for part in AffinityPartition(2).by_worker(rows, 4)] == [6]
    many = table((1, 1, PRICED_AT_ONCE + 1))
    assert [len(part) for part in AffinityPartition(1).by_worker(many, 1)] == [PRICED_AT_ONCE, 1]
