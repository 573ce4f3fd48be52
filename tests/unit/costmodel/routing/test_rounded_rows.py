"""Rows of an expert in whole blocks, against draws: MegaBlocks, arXiv:2211.15841, rounds to 128."""

import numpy as np
import pytest

from trainplan.costmodel.routing.choices import counts_of

TOKENS, DRAWS = 8192, 4000


@pytest.mark.parametrize("experts", [8, 64, 256])
@pytest.mark.parametrize("multiple", [16, 128])
def test_rows_in_whole_blocks_are_those_of_draws(experts, multiple):
    probability = np.full(experts, 1.0 / experts)
    drawn = np.random.default_rng(7).binomial(TOKENS, 1.0 / experts, size=DRAWS)
    rows = np.ceil(drawn / multiple) * multiple
    found = counts_of(probability, TOKENS, None, multiple)
    off = rows.std() / DRAWS**0.5
    assert found.means[0] == pytest.approx(rows.mean(), abs=4 * off + 1e-6)
    assert found.variances[0] == pytest.approx(rows.var(), rel=0.1, abs=multiple)


def test_blocks_of_128_add_half_a_block_to_many_rows_and_most_of_one_to_few():
    many, few = (counts_of(np.array([p]), TOKENS, None, 128).means[0] for p in (1 / 8, 1 / 1024))
    assert many - TOKENS / 8 == pytest.approx(63.5, abs=2)
    assert few == pytest.approx(128, rel=0.001)
