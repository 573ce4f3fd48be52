"""Differences of plans as text."""

import pytest

from trainplan.cli.pages.parts.differences import (
    SAME,
    change_text,
    gain,
    memories_table,
    release_line,
    signed,
)
from trainplan.costmodel.base.units import GIB
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step.results import Memory, NodeMemory, RankMemory

DENSE = preset("llama3-8b")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.0, "0.0 %"), (1e-6, "0.0 %"), (-1e-6, "0.0 %"), (0.012, "+1.2 %"), (-0.5, "-50.0 %")],
)
def test_a_gain_has_a_sign_only_where_it_can_be_seen(fraction, text):
    assert gain(fraction) == text


@pytest.mark.parametrize(
    ("gains", "named"),
    [([], False), ([0.0], False), ([0.3, -0.09], False), ([0.3, 0.02], True), ([-0.07], True)],
)
def test_a_small_gain_is_followed_by_what_a_release_moves(gains, named):
    assert [line.startswith("Gains below 8 %") for line in release_line(gains)] == [True] * named


def test_seconds_that_differ_carry_their_sign():
    assert signed(1.5, 10.0) == "+1.50 s"
    assert signed(-1.5, 10.0) == "-1.50 s"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, SAME),
        ({"tp": 2, "dp": 4}, "tp 2, dp 4"),
        ({"schedule": "gpipe"}, "gpipe"),
        ({"pp": 2, "vpp": 2, "dp": 4, "schedule": "interleaved"}, "pp 2, vpp 2, dp 4"),
        ({"pp": 2, "dp": 4, "stages": stage_specs((15, 17))}, "pp 2, dp 4, stages 15+17"),
        ({"micro_batch_size": 4, "zero_stage": 3}, "mbs 4, ZeRO-3"),
    ],
)
def test_only_what_changed_is_named(changes, text):
    base = Layout(dp=8)
    assert change_text(base.model_copy(update=changes), base, DENSE) == text


def test_what_is_gone_is_named_too():
    base = Layout(tp=2, dp=4, sequence_parallel=True)
    plain = base.model_copy(update={"sequence_parallel": False})
    assert change_text(plain, base, DENSE) == "no SP"


def differences(before, after):
    """Rows of the table of two memories, as a terminal shows them."""
    found = memories_table(before, after, ("first", "second"))
    shown = [place for place, column in enumerate(found.columns) if column.only != "page"]
    return [[row[place].text for place in shown] for row in found.rows]


def test_what_a_node_keeps_off_its_gpus_is_compared_where_one_of_both_keeps_any():
    def memory(host_gib=0, drive_gib=0):
        rank = RankMemory(0, 4 * GIB, 0, 0, 0, 0, 0)
        node = NodeMemory(host_gib * GIB, None, drive_gib * GIB, None)
        return Memory(0, 0, 80 * GIB, fits=True, pipeline_ranks=(rank,), host=node)

    *_, last = differences(memory(), memory(host_gib=30))
    assert last == ["host of a node", "0.0", "30.0", "+30.0"]
    *_, last = differences(memory(drive_gib=2), memory())
    assert last == ["drives of a node", "2.0", "0.0", "-2.0"]
    *_, last = differences(memory(), memory())
    assert last[0] == "of"
