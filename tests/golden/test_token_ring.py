"""What TokenRing gains by model.

Source: Wang et al., TokenRing, arXiv:2412.20501: up to twice as fast, both directions of a link.
"""

import numpy as np
import pytest

from trainplan.costmodel.blocks.attention.token_ring import (
    ring_bytes,
    token_ring_bytes,
    token_ring_gain,
)
from trainplan.costmodel.catalog.models import preset


def test_a_step_sends_queries_or_outputs_with_a_number_for_each_head():
    """Of Llama-2-7B, 32 heads of 128 and 1,000 tokens."""
    model, tokens = preset("llama2-7b"), np.array([1000.0])
    assert token_ring_bytes(model, tokens, 2)[0] == 1000 * (2 * 4096 + 4 * 32)
    assert ring_bytes(model, tokens, 2)[0] == 1000 * 2 * 2 * 4096


@pytest.mark.parametrize(
    ("name", "gain"),
    [("llama2-7b", 2 * 4096 / (4096 + 64)), ("llama3-8b", 2 * 1024 / (4096 + 64))],
)
def test_it_gains_where_every_head_has_keys_and_values(name, gain):
    assert token_ring_gain(preset(name), 2) == pytest.approx(gain)
