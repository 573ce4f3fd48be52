"""Bytes of the operations that biases of experts, clamps and scaled rotations are made of."""

import pytest

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from trainplan.costmodel.blocks.operations import (  # noqa: E402
    expert_bias_bytes,
    gated_clamp_bytes,
    rotation_bytes,
)

pytestmark = pytest.mark.oracle
EXPERTS, ROWS, WIDTH, HEAD = 2, 512, 1024, 64
VIEWS = ("view", "split", "slice", "transpose", "alias", "detach", "expand", "unsqueeze", "permute")


class Moved(TorchDispatchMode):
    """Bytes of all tensors that operations read and write; views move nothing."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not func.name().removeprefix("aten::").startswith(VIEWS):
            tensors = [x for x in tree_leaves((args, kwargs, result)) if torch.is_tensor(x)]
            self.bytes += sum(x.numel() * x.element_size() for x in tensors)
        return result


def moved(function, *inputs):
    """Bytes moved forward and backward."""
    inputs = [x.requires_grad_() for x in inputs]
    with Moved() as forward:
        output = function(*inputs)
    gradient = torch.ones_like(output)
    with Moved() as backward:
        torch.autograd.grad(output, inputs, gradient)
    return forward.bytes, backward.bytes


@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32])
def test_biases_of_experts_move_what_their_operations_do(weights):
    def biased(output, weight, *biases):
        counts = [ROWS // EXPERTS] * EXPERTS
        parts = zip(output.split(counts), biases, weight.split(counts), strict=True)
        return torch.cat([part + bias * share for part, bias, share in parts]).to(output.dtype)

    biases = [torch.ones(WIDTH, dtype=torch.bfloat16) for _ in range(EXPERTS)]
    output = torch.ones(ROWS, WIDTH, dtype=torch.bfloat16)
    found = moved(biased, output, torch.ones(ROWS, 1, dtype=weights), *biases)
    expected = expert_bias_bytes(2, weights.itemsize)
    assert found == pytest.approx([ROWS * WIDTH * each for each in expected], rel=0.01)


def test_a_clamp_of_both_halves_moves_what_its_operations_do():
    def clamped(halves):
        gate, linear = halves.chunk(2, -1)
        return torch.cat((gate.clamp(max=7.0), linear.clamp(min=-7.0, max=7.0)), -1)

    found = moved(clamped, torch.ones(ROWS, 2 * WIDTH, dtype=torch.bfloat16))
    assert found == pytest.approx([ROWS * WIDTH * each for each in gated_clamp_bytes(2)], rel=0.01)


def test_a_rotation_with_scaled_cosines_moves_what_its_operations_do():
    angles = torch.ones(ROWS, 1, 1, HEAD)

    def rotated(heads):
        cosine, sine = ((f(angles) * 1.3).to(heads.dtype) for f in (torch.cos, torch.sin))
        first, second = heads.chunk(2, -1)
        turned = heads * cosine + torch.cat((-second, first), -1) * sine
        return torch.cat((turned, heads[..., HEAD:]), -1)

    heads = torch.ones(ROWS, 16, WIDTH // HEAD, HEAD, dtype=torch.bfloat16)
    found = moved(rotated, heads)
    assert found == pytest.approx([heads.numel() * each for each in rotation_bytes(2)], rel=0.01)
