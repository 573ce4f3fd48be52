"""Peak of a whole training step: the model's prediction against every tensor of a real step."""

import pytest

from tests.oracles import formula, step
from tests.oracles.shapes import DENSE, MOE

pytestmark = pytest.mark.oracle
TOLERANCE = 0.005


def check(case, **how):
    """States, what comes on top of them, and the sum."""
    found, written = step.step_bytes(*case, **how), formula.memory(*case, **how)
    states = written.weights + written.gradients + written.optimizer
    assert states[0, 0] == pytest.approx(found.resident, rel=TOLERANCE)
    on_top = written.activations + written.transients
    assert on_top[0, 0] == pytest.approx(found.peak - found.resident, rel=TOLERANCE), found.at
    assert written.allocated[0, 0] == pytest.approx(found.peak, rel=TOLERANCE)


@pytest.mark.grid
@pytest.mark.parametrize("recompute", ["none", "core_attn", "full"])
@pytest.mark.parametrize("case", DENSE.values(), ids=DENSE)
def test_a_dense_model_peaks_where_the_formula_says(case, recompute):
    check(case, recompute=recompute)


@pytest.mark.grid
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("name", ["small", "llama2-7b", "llama3-70b", "qwen2.5-7b"])
def test_norms_of_single_operations_keep_more(name, recompute):
    check(DENSE[name], recompute=recompute, fused=False)


@pytest.mark.grid
@pytest.mark.parametrize("recompute", ["none", "core_attn", "full"])
@pytest.mark.parametrize("case", MOE.values(), ids=MOE)
def test_a_mixture_of_experts_peaks_where_the_formula_says(case, recompute):
    check(case, recompute=recompute)
