"""What a run states of weights in 8 bits changes how they are kept, where they are kept at all."""

from dataclasses import replace

import pytest

from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.runtimes.traits.footprint import Footprint


@pytest.mark.parametrize("stated", [True, False])
def test_weights_that_are_cast_where_they_are_used_are_cast_whatever_is_gathered(stated):
    cast = Footprint(low_precision="cast")
    assert cast.with_options(RuntimeOptions(fp8_param_gather=stated)) == cast


@pytest.mark.parametrize("kept", ["cached", "primary"])
def test_others_are_kept_as_the_run_states(kept):
    own = Footprint(low_precision=kept)
    for stated, way in ((True, "primary"), (False, "cached"), (None, kept)):
        found = own.with_options(RuntimeOptions(fp8_param_gather=stated))
        assert found == replace(own, low_precision=way)
