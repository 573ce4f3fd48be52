"""Differences of plans as text."""

import pytest

from trainplan.cli.render.parts.differences import SAME, change_text, gain, signed
from trainplan.costmodel.catalog.models import preset
from trainplan.costmodel.spec import Layout
from trainplan.costmodel.spec.layout import stage_specs

DENSE = preset("llama3-8b")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.0, "0.0 %"), (1e-6, "0.0 %"), (-1e-6, "0.0 %"), (0.012, "+1.2 %"), (-0.5, "-50.0 %")],
)
def test_a_gain_has_a_sign_only_where_it_can_be_seen(fraction, text):
    assert gain(fraction) == text


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
