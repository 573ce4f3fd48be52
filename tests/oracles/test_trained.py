"""Frozen weights and adapters: bytes kept, and of weights, gradients and states, against torch."""

from typing import ClassVar

import pytest

from tests.oracles import formula, step
from tests.oracles.decoder import LatentAttention
from tests.oracles.live_bytes import saved_bytes
from tests.oracles.shapes import DENSE, MOE
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.trained import GROUPS, Trained
from trainplan.costmodel.blocks.rows import row_blocks
from trainplan.costmodel.candidates.context import Candidates

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch._subclasses import FakeTensorMode  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.oracle
SEED_BYTES = 24
RANK = 8
NAMES = {"query": "q", "key": "k", "value": "v", "output": "o"}
NAMES |= {"gate": "gate", "up": "up", "down": "down"}
LATENT = {"query_down": "q_down", "query": "q_up", "down": "kv_down", "up": "kv_up", "output": "o"}
WAYS = {
    "all": Trained(method="lora", rank=RANK, modules=("all",)),
    "queries and values": Trained(method="lora", rank=RANK, modules=("q", "v")),
    "attention": Trained(method="lora", rank=RANK, modules=("attention",)),
    "output": Trained(method="lora", rank=RANK, modules=("o",)),
    "mlp": Trained(method="lora", rank=RANK, modules=("mlp",)),
    "down": Trained(method="lora", rank=RANK, modules=("down",)),
    "frozen": Trained(method="frozen", layers=(1, 1)),
}


class Adapted(nn.Module):
    """A linear layer with an adapter, in the operations of peft's."""

    scaling: ClassVar[float] = 2.0

    def __init__(self, base):
        super().__init__()
        self.base = base
        made = {"bias": False, "dtype": base.weight.dtype}
        self.first = nn.Linear(base.in_features, RANK, **made)
        self.second = nn.Linear(RANK, base.out_features, **made)

    def forward(self, x):
        return self.base(x) + self.second(self.first(x)) * self.scaling


def trained(model, way):
    """The model where that is trained."""
    fields = model.model_dump() | {"trained": way.model_dump()}
    return ModelSpec.model_validate(fields)


def adapt(layer, modules):
    """Freeze a layer, and put adapters beside its named matrices."""
    layer.requires_grad_(requires_grad=False)
    chosen = {one for name in modules for one in GROUPS.get(name, (name,))}
    latent = isinstance(layer.attention, LatentAttention)
    for part, names in ((layer.attention, LATENT if latent else NAMES), (layer.mlp, NAMES)):
        for name, child in list(part.named_children()):
            if names.get(name) in chosen:
                setattr(part, name, Adapted(child))


def kept(case, way):
    """Bytes that the layer keeps by autograd."""
    with FakeTensorMode():
        decoder = step.bf16_decoder(case.model)
        layer, table = decoder.layers[1], decoder.table(case.seq_length)
        adapt(layer, way.modules)
        shape = (case.micro_batch_size, case.seq_length, case.model.hidden_size)
        x = torch.empty(shape, dtype=torch.bfloat16, requires_grad=True)
        owned = [*layer.parameters(), *(() if table is None else (table,))]
        return saved_bytes(lambda: layer(x, table), owned)


def kept_by_formula(case, way):
    """The same by the formula."""
    model = trained(case.model, way)
    given = formula.arguments(model, *case[1:], fused=True, recompute="none")
    kind = model.kind_of_layer[1]
    return row_blocks(Candidates(*given)).layers[kind].saved_bytes[0]


@pytest.mark.grid
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("case", DENSE.values(), ids=DENSE)
def test_a_layer_keeps_what_autograd_keeps(case, way):
    tokens = case.micro_batch_size * case.seq_length
    narrow = 2 * 2 * 2 * tokens if case.model.norm == "layernorm" else 0
    assert kept_by_formula(case, way) == kept(case, way) - SEED_BYTES + narrow


@pytest.mark.parametrize("name", ["attention", "output", "frozen"])
@pytest.mark.parametrize("case", MOE.values(), ids=MOE)
def test_experts_with_frozen_weights_keep_what_autograd_keeps(case, name):
    """As of experts that are trained, the router's indices are not in the formula."""
    found = kept(case, WAYS[name])
    assert kept_by_formula(case, WAYS[name]) == pytest.approx(found, rel=0.005)


def prepare(way):
    """What is done to the decoder: frozen layers, or adapters beside frozen weights."""

    def freeze(decoder):
        if way.layers:
            first, last = way.layers
            for layer in decoder.layers[first : last + 1]:
                layer.requires_grad_(requires_grad=False)
            decoder.embedding.requires_grad_(requires_grad=first > 0)
            return
        decoder.requires_grad_(requires_grad=False)
        for layer in decoder.layers:
            adapt(layer, way.modules)
        # transformers modeling_utils.py, enable_input_require_grads
        decoder.embedding.register_forward_hook(lambda _, __, output: output.requires_grad_())

    return freeze


STEPS = WAYS | {"first layer": Trained(method="frozen", layers=(0, 0))}


@pytest.mark.grid
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("way", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("name", ["small", "llama3-70b, few tokens", "llama3.2-1b", "qwen3-8b"])
def test_a_step_peaks_where_the_formula_says(name, way, recompute):
    case = DENSE[name]
    found = step.step_bytes(*case, recompute=recompute, prepare=prepare(way))
    written = formula.memory(trained(case.model, way), *case[1:], recompute=recompute)
    states = written.weights + written.gradients + written.optimizer
    rotation, ids = 2 * 2 * case.seq_length * case.model.head_dim, 8 * case.seq_length
    inputs = rotation + ids * case.micro_batch_size
    numbers_of_steps = 4 * 20 * case.model.num_hidden_layers
    assert 0 <= found.resident - inputs - states[0, 0] <= numbers_of_steps
    assert written.allocated[0, 0] == pytest.approx(found.peak, rel=0.01), found.at
