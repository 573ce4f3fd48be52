"""Matrix products of mixers against those that transformers' own torch code runs."""

import pytest

from tests.oracles.mixers import MIXERS, module_of, spec_of, torch
from trainplan.costmodel.mixers.products import core_products
from trainplan.costmodel.model.adapters import matrices
from trainplan.costmodel.model.params import MIXER_COUNTS, query_columns, value_columns

pytestmark = pytest.mark.oracle
TOKENS, BATCH, CHUNK = 128, 2, 32
BY_OTHER_MEANS = {"gated delta rule": (5, 6, 7), "delta attention": (0, 4, 5)}
"""Of `linear_attention_products`, in their order, those that transformers makes without a product:
it solves the triangle, or multiplies keys with keys element by element."""
CARRIED = ("gated delta", "delta attention", "lightning", "mamba", "short convolution")
UNLIKE = ("mamba-2 without a norm",)  # its scales come from the whole model


def counted(name, **arguments):
    """FLOPs of all matrix products of a forward pass, for one token."""
    counters = pytest.importorskip("torch.utils.flop_counter")
    module = module_of(name).eval()
    hidden = torch.empty(BATCH, TOKENS, 96, device="meta")
    with counters.FlopCounterMode(display=False) as counter:
        module(hidden, **arguments)
    operations = counter.get_flop_counts()["Global"]
    products = {"mm", "bmm", "addmm", "baddbmm"}
    return sum(n for op, n in operations.items() if op.__name__ in products) / (TOKENS * BATCH)


def reference(name, model):
    """What transformers makes beyond `core_products`, or by other means."""
    products = core_products(model, TOKENS)
    for kind, left_out in BY_OTHER_MEANS.items():
        if name.startswith(kind):
            return -sum(products[place].flop for place in left_out)
    if not name.startswith("mamba-2"):
        return 0
    ssm, chunks = model.ssm, TOKENS // CHUNK
    every_head = products[0].flop * (ssm.num_heads / ssm.num_groups - 1)
    state = ssm.inner_width * ssm.state_size
    return every_head + 2 * (chunks + 1) ** 2 * state / TOKENS  # each chunk from every other


def met(model):
    """Weights of matrix products that one token is multiplied with."""
    return sum(one.size for one in matrices(model))


@pytest.mark.parametrize("name", [n for n in MIXERS if n.startswith(CARRIED) and n not in UNLIKE])
def test_a_mixer_that_carries_a_state_makes_these_products(name):
    model, arguments = spec_of(name), {}
    mixer = MIXER_COUNTS[model.mixer]
    if name.startswith("lightning"):
        arguments = {"position_embeddings": None, "attention_mask": None}
    expected = 2 * met(model) + mixer.core_flop(model, TOKENS)
    if not name.startswith("short"):
        expected += reference(name, model)
    assert counted(name, **arguments) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [n for n in MIXERS if n.startswith(("gated attention", "sparse"))])
def test_attention_with_a_gate_or_an_indexer_makes_these_products(name):
    """The torch code compares all pairs, also those that the mask hides or that are not picked."""
    model = spec_of(name)
    rotated = 8 if model.mla else 16
    angles = torch.empty(BATCH, TOKENS, rotated, device="meta")
    arguments = {"position_embeddings": (angles, angles)}
    arguments["attention_mask"] = torch.empty(BATCH, 1, TOKENS, TOKENS, device="meta")
    if model.mla:
        arguments["position_ids"] = None
    if model.shares_index:
        picked = torch.empty(BATCH, TOKENS, 32, device="meta", dtype=torch.int32)
        arguments["prev_topk_indices"] = picked
    pairs = 2 * TOKENS * (query_columns(model) + value_columns(model))
    indexer = model.indexer if not model.shares_index else None
    scores = 2 * TOKENS * indexer.num_heads * (indexer.head_dim + 1) if indexer else 0
    expected = 2 * met(model) + pairs + scores
    assert counted(name, **arguments) == expected
