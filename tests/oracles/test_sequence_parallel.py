"""Copies that sequence parallelism makes where the sequence is not the first dimension."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch import distributed  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

pytestmark = pytest.mark.oracle
RANKS, HIDDEN = 8, 64


class Half(torch.nn.Module):
    """A product cut by columns, one by rows, and what is gathered and scattered around them."""

    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(HIDDEN, 4 * HIDDEN, bias=False)
        self.down = torch.nn.Linear(4 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.up(x)))


@pytest.fixture
def mesh():
    distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    distributed.destroy_process_group()


def forward_operations(mesh, sequences):
    """Operations of the compiled forward pass of a half, by name."""
    plan = {
        "": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    half = Half()
    parallelize_module(half, mesh, {name: way for name, way in plan.items() if name})
    parallelize_module(half, mesh, plan[""])
    seen = Counter()

    def forward_only(graph, inputs):
        seen.update(str(node.target) for node in graph.graph.nodes)
        return graph

    torch._dynamo.reset()
    compiler = aot_autograd(fw_compiler=forward_only)
    x = torch.randn(sequences, 16, HIDDEN)
    with torch.no_grad():
        torch.compile(half, backend=compiler, fullgraph=True)(x)
    return seen


@pytest.mark.parametrize(("sequences", "copies"), [(1, 1), (4, 2)])
def test_a_scattered_tensor_is_copied_and_a_gathered_one_if_sequences_are_several(
    mesh, sequences, copies
):
    seen = forward_operations(mesh, sequences)
    assert seen["_c10d_functional.all_gather_into_tensor.default"] == 1
    assert seen["_c10d_functional.reduce_scatter_tensor.default"] == 1
    assert seen["aten.cat.default"] == copies
