"""What `torch.utils.checkpoint`, not reentrant, multiplies again for a layer's backward pass."""

import pytest

from tests.oracles import formula
from tests.oracles.decoder import repeated
from tests.oracles.shapes import DENSE
from tests.oracles.step import bf16_decoder
from trainplan.costmodel.runtimes.registry import RUNTIMES

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

pytestmark = pytest.mark.oracle


def repeated_flop(model, micro_batch_size, seq_length):
    """FLOPs of one layer forward, and of what its backward pass does again."""
    with FakeTensorMode():
        decoder = bf16_decoder(model)
        layer, table = decoder.layers[0], decoder.table(seq_length)
        shape = (micro_batch_size, seq_length, model.hidden_size)
        x = torch.empty(shape, dtype=torch.bfloat16, requires_grad=True)
        counts = [_flop(lambda: layer(x, table))]
        for run in (layer, lambda *arguments: repeated(layer, *arguments)):
            counts.append(_flop(run(x, table).sum().backward))
    forward, plain, full = counts
    return forward, full - plain


def _flop(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("case", DENSE.values(), ids=DENSE)
def test_a_layer_runs_again_up_to_the_last_tensor_its_backward_pass_reads(case):
    model, micro_batch_size, seq_length = case
    forward, again = repeated_flop(*case)
    blocks = formula.blocks(*case)
    written = (blocks.layers[0].forward - blocks.layers[0].recompute_forward).gemm[0] > 0
    tokens = micro_batch_size * seq_length
    down = 2 * tokens * model.hidden_size * model.intermediate_size
    assert forward - again == (down if written else 0)


def test_the_oracle_is_the_runtime_that_stops_early():
    assert RUNTIMES["torch-eager"].recompute.stops_early
