"""Bytes one layer keeps for its backward pass: formula against autograd itself."""

import pytest

from tests.oracles import formula, step
from tests.oracles.shapes import DENSE, MOE

pytestmark = pytest.mark.oracle
SEED_BYTES = 24
"""Random state the flash kernel keeps though nothing is dropped."""


@pytest.mark.parametrize("fused", [True, False], ids=["fused norms", "composed norms"])
@pytest.mark.parametrize("case", DENSE.values(), ids=DENSE)
def test_a_dense_layer_keeps_what_the_formula_says(case, fused):
    found = step.layer_kept_bytes(*case, fused=fused)
    written = formula.layer_kept_bytes(*case, fused=fused)
    # LayerNorm on a CPU keeps its two moments in bf16, on a GPU in fp32
    tokens = case.micro_batch_size * case.seq_length
    narrow = 2 * 2 * 2 * tokens if case.model.norm == "layernorm" else 0
    assert found - SEED_BYTES + narrow == written


@pytest.mark.parametrize("case", MOE.values(), ids=MOE)
def test_a_mixture_of_experts_keeps_what_the_formula_says(case):
    """The router's indices and chosen weights are not in the formula."""
    found = step.layer_kept_bytes(*case)
    assert formula.layer_kept_bytes(*case) == pytest.approx(found, rel=0.005)
