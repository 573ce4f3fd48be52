"""Layouts as documents: what they write is read again."""

import pytest

from trainplan.costmodel.layout import Layout


@pytest.mark.parametrize("defaults", [True, False])
@pytest.mark.parametrize(
    "layout", [Layout(dp=8, gtp=2), Layout(dp=4, zero_stage=3, offload={"parameters_tier": "cpu"})]
)
def test_a_layout_is_read_as_it_is_written_with_or_without_defaults(layout, defaults):
    text = layout.model_dump_json(exclude_defaults=defaults)
    assert Layout.model_validate_json(text) == layout
