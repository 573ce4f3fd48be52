"""Ties and counts of decoders inside larger configurations against the installed transformers."""

import pytest

from tests.golden import composites
from tests.oracles.record_composites import classes
from tests.oracles.record_composites import recorded as counted_now

pytestmark = pytest.mark.oracle
RECORDED = composites.recorded()


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_class_ties_and_counts_as_was_recorded(name):
    now = counted_now(name, classes()[name])
    assert {**now, "config": None} == {**RECORDED[name], "config": None}
