"""State of optimizers as their own packages keep it, to the byte, of a small LLaMA.

Step counters, which lie on the host, are left out, as are the tables of 8-bit codes, of which all
tensors share one. Packages that are not there are skipped; with all of them:

    pip install galore-torch==1.0 apollo-torch==1.0.3 bitsandbytes==0.50.2 pytorch-optimizer==4.1.0
"""

import numpy as np
import pytest

from tests.oracles.decoder import Decoder, torch
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.job.optimizer import OptimizerSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.matrices import of_blocks
from trainplan.costmodel.optimizers.registry import Matrix, optimizer_of

pytestmark = pytest.mark.oracle

LLAMA = ModelSpec(
    name="llama",
    num_hidden_layers=3,
    hidden_size=160,
    intermediate_size=416,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=40,
    vocab_size=512,
    max_position_embeddings=512,
)
SHARED = {"qmap1", "qmap2", "step"}


def formula(text, width, model=LLAMA):
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=128, global_batch_size=1),
        cluster=parse_cluster("1x1:h100-sxm"),
    )
    wanted, table = OptimizerSpec.parse(text), LayoutTable.of([Layout()])
    found = optimizer_of(wanted)
    blocks = of_blocks(job, table, lambda one: found.state_bytes(one, wanted, width))
    layers = model.num_hidden_layers * blocks.layers[0]
    return float((layers + blocks.embedding + blocks.head)[0])


def tensors(value):
    """Those that a state holds, in lists and in objects, too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            if name not in SHARED:
                yield from tensors(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors(part)
    elif hasattr(value, "ortho_matrix"):
        yield value.ortho_matrix


def kept(make, dtype):
    """Bytes of state after steps of an optimizer that `make` builds of (hidden, other) weights."""
    torch.manual_seed(0)
    decoder = Decoder(LLAMA).to(dtype)
    weights = [*decoder.parameters()]
    for weight in weights:
        weight.data.normal_(std=0.02)
    hidden = [one for one in weights if one.dim() == 2 and LLAMA.vocab_size not in one.shape]
    others = [one for one in weights if all(one is not each for each in hidden)]
    total = 0
    for optimizer in make(hidden, others):
        for _ in range(2):
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            optimizer.step()
        for state in optimizer.state.values():
            total += sum(one.numel() * one.element_size() for one in tensors(state))
    return total


def test_the_formula_and_the_model_have_the_same_matrices():
    """Every matrix is hidden or at an end, so an optimizer of one number counts them all."""
    weights = sum(one.numel() for one in Decoder(LLAMA).parameters())
    assert formula("sgd", 1) == weights


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_adamw_of_torch(dtype, width):
    found = kept(lambda a, b: [torch.optim.AdamW(a + b)], getattr(torch, dtype))
    assert formula("adamw", width) == found


def test_sgd_of_torch():
    found = kept(lambda a, b: [torch.optim.SGD(a + b, lr=0.1, momentum=0.9)], torch.float32)
    assert formula("sgd", 4) == found


def test_adafactor_of_torch():
    assert formula("adafactor", 4) == kept(
        lambda a, b: [torch.optim.Adafactor(a + b)], torch.float32
    )


def test_muon_of_torch():
    muon = getattr(torch.optim, "Muon", None)
    if muon is None:
        pytest.skip("this torch has no Muon")
    assert formula("muon", 4) == kept(lambda a, b: [muon(a), torch.optim.AdamW(b)], torch.float32)


@pytest.mark.parametrize(("name", "kind"), [("adamw8bit", "AdamW8bit"), ("lion", "Lion")])
def test_bitsandbytes(name, kind):
    package = pytest.importorskip("bitsandbytes")
    made = getattr(package.optim, kind)
    assert formula(name, 4) == kept(lambda a, b: [made(a + b, lr=1e-3)], torch.float32)


@pytest.mark.parametrize("rank", [16, 128, 1024])
@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_galore_torch(rank, dtype, width):
    """A rank above the smaller side is no more than it."""
    package = pytest.importorskip("galore_torch")
    settings = {"rank": rank, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}

    def make(hidden, others):
        groups = [{"params": others}, {"params": hidden, **settings}]
        return [package.GaLoreAdamW(groups, no_deprecation_warning=True)]

    assert formula(f"galore:rank={rank}", width) == kept(make, getattr(torch, dtype))


@pytest.mark.parametrize("rank", [8, 64])
def test_galore_torch_in_eight_bits(rank, monkeypatch):
    """It waits for the GPU between tensors, and hands its clipping on as a limit of the norm."""
    package = pytest.importorskip("galore_torch")
    pytest.importorskip("bitsandbytes")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    settings = {"rank": rank, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}

    def make(hidden, others):
        groups = [{"params": others}, {"params": hidden, **settings}]
        return [package.GaLoreAdamW8bit(groups, percentile_clipping=0, block_wise=False)]

    assert formula(f"galore8bit:rank={rank}", 2) == kept(make, torch.bfloat16)


@pytest.mark.parametrize(
    ("text", "rank", "scale"),
    [("apollo:rank=16", 16, "channel"), ("apollo:rank=64", 64, "channel"),
     ("apollo-mini", 1, "tensor")],
)  # fmt: skip
@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_apollo_torch(text, rank, scale, dtype, width):
    package = pytest.importorskip("apollo_torch")
    settings = {"rank": rank, "update_proj_gap": 200, "scale": 1, "scale_type": scale}
    settings |= {"proj": "random", "proj_type": "std"}

    def make(hidden, others):
        return [package.APOLLOAdamW([{"params": others}, {"params": hidden, **settings}])]

    assert formula(text, width) == kept(make, getattr(torch, dtype))


@pytest.mark.parametrize(("name", "kind"), [("soap", "SOAP"), ("shampoo", "Shampoo")])
def test_preconditioners_of_pytorch_optimizer(name, kind):
    package = pytest.importorskip("pytorch_optimizer")
    made = getattr(package, kind)
    momentum = {"momentum": 0.9} if name == "shampoo" else {}
    found = kept(lambda a, b: [made(a, **momentum), torch.optim.AdamW(b)], torch.float32)
    assert formula(name, 4) == found


def test_a_side_of_more_than_ten_thousand_is_left_alone_by_soap():
    package = pytest.importorskip("pytorch_optimizer")
    weight = torch.nn.Parameter(torch.zeros(10_001, 8))
    weight.grad = torch.randn_like(weight)
    optimizer = package.SOAP([weight])
    optimizer.step()
    found = sum(one.numel() * one.element_size() for one in tensors(optimizer.state[weight]))
    wanted = OptimizerSpec.parse("soap")
    one = _matrix(10_001, 8)
    assert (
        found == float(optimizer_of(wanted).state_bytes(one, wanted, 4)) == 4 * (2 * 80_008 + 128)
    )


def _matrix(rows, columns):
    return Matrix(np.asarray(float(rows)), np.asarray(float(columns)))
