"""The parts of torch's own trainer, in one process."""

import pytest

from tests.torch_requests import TINY, request
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.runtimes.registry import runtime
from trainplan.profiler.train.torch_native import refused
from trainplan.profiler.train.torch_native.refused import refusal

torch = pytest.importorskip("torch", "2.13", reason="the trainer needs torch")
count = pytest.importorskip("trainplan.profiler.train.torch_native.count")
kernels = pytest.importorskip("trainplan.profiler.train.torch_native.kernels")
model = pytest.importorskip("trainplan.profiler.train.torch_native.model")
pipeline = pytest.importorskip("trainplan.profiler.train.torch_native.pipeline")
ring = pytest.importorskip("trainplan.profiler.train.torch_native.ring")
functional = torch.nn.functional
ALONE = ring.Ring((0,), 0, None)
LENGTH = 16


def heads(number, seed):
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(2, number, LENGTH, 8, generator=generator, dtype=torch.float64)
    return made.requires_grad_()


@pytest.fixture
def attended():
    """Queries in two groups, keys and values, and what torch makes of them."""
    query, key, value = heads(4, 1), heads(2, 2), heads(2, 3)
    out = functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=True
    )
    return (query, key, value), out


def test_attention_on_a_ring_of_one_is_attention(attended):
    given, out = attended
    found = ring.RingAttention.apply(*given, ALONE)
    assert torch.allclose(found, out, atol=1e-5)
    gradient = torch.randn(out.shape, dtype=out.dtype)
    expected = torch.autograd.grad(out, given, gradient)
    for one, other in zip(torch.autograd.grad(found, given, gradient), expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


PARTS = []


class Stated(ring.Ring):
    """A rank whose messages come from a list of what every rank holds."""

    def passed(self, tensor, by):
        place = next(n for n, part in enumerate(PARTS) if torch.equal(part, tensor))
        return PARTS[(place - by) % len(PARTS)]


@pytest.mark.parametrize("cp", [2, 4])
def test_parts_of_a_ring_merge_to_attention_over_all(attended, cp):
    (query, key, value), out = attended
    rings = [Stated(tuple(range(cp)), place, None) for place in range(cp)]
    at = [one.positions(LENGTH) for one in rings]
    PARTS[:] = [torch.stack((key[:, :, own], value[:, :, own])).detach() for own in at]
    for one, own in zip(rings, at, strict=True):
        parts = (query[:, :, own], key[:, :, own], value[:, :, own])
        found = ring.RingAttention.apply(*parts, one)
        assert torch.allclose(found, out[:, :, own], atol=1e-5)


def test_every_rank_of_a_ring_has_a_chunk_from_both_ends():
    at = [ring.Ring((0, 1), place, None).positions(8).tolist() for place in (0, 1)]
    assert at == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert ALONE.positions(8).tolist() == list(range(8))


@pytest.mark.parametrize("statistics", [True, False])
def test_the_norm_has_the_gradients_of_that_of_torch(statistics):
    x, weight = heads(2, 4), torch.linspace(0.5, 2, 8, dtype=torch.float64).requires_grad_()
    found = kernels.RmsNorm.apply(x, weight, 1e-3, statistics)
    expected = functional.rms_norm(x, (8,), weight, 1e-3)
    gradient = torch.randn(x.shape, dtype=x.dtype)
    ours = torch.autograd.grad(found, (x, weight), gradient)
    theirs = torch.autograd.grad(expected, (x, weight), gradient)
    for one, other in zip((found, *ours), (expected, *theirs), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_the_gated_unit_has_the_gradients_of_its_operations():
    branches = heads(2, 5), heads(2, 6)
    assert torch.autograd.gradcheck(kernels.SwiGlu.apply, branches)


def weights_of(layout, pp_rank):
    """Weights of a pipeline rank by name."""
    table = torch.zeros(2, 32, TINY.head_dim)
    kept = model.kept_by(runtime("torchtitan"))
    found = {}
    for part in pipeline.parts_of(TINY, layout, pp_rank).values():
        made = model.Decoder(TINY, part, kept, ALONE, table)
        model.start(made, seed=7)
        found |= {name: weight.detach() for name, weight in made.named_parameters()}
    return found


@pytest.mark.parametrize("layout", [{"pp": 2}, {"pp": 2, "vpp": 2, "schedule": "zb-v"}])
def test_stages_have_the_weights_of_the_whole(layout):
    made = Layout(**layout)
    whole = weights_of(Layout(), 0)
    found = [weights_of(made, rank) for rank in range(made.pp)]
    assert sum(len(part) for part in found) == len(whole)
    for name, weight in whole.items():
        assert torch.equal(next(part[name] for part in found if name in part), weight)


def test_kept_storages_count_once_and_until_the_backward_pass():
    saved = count.SavedBytes()
    product = torch.nn.Linear(8, 8, bias=False)
    saved.watch(product)
    x = torch.randn(4, 8)
    with saved.counted():
        made = product(x).sin()  # keeps x, and what it is given
        both = made * made[:]  # keeps one tensor, twice
        assert saved.now == saved.peak == 3 * x.nbytes
        both.sum().backward()
    assert (saved.now, saved.peak) == (0, 3 * x.nbytes)


def of_model(**changes):
    return request(model=TINY.model_copy(update=changes))


MOE = MoeSpec(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)
REFUSED = {
    "experts": (of_model(moe=MOE), "the model's moe"),
    "a bias": (of_model(qkv_bias=True), "the model's qkv_bias"),
    "8 bits": (request(precision="fp8"), "precision fp8: use fp32 or bf16"),
    "Megatron": (request(runtime="megatron-lm"), "plans of megatron-lm"),
    "modules": (
        request(recompute="selective", recompute_modules=("torchtitan_selective_op",)),
        "recompute=selective",
    ),
    "stages of fsdp2": (request(runtime="fsdp2", pp=2, zero_stage=0), "use pp=cp=1"),
    "heads": (request(tp=4, zero_stage=0), "num_key_value_heads to be a multiple of tp"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_does_not_run_is_refused_in_one_line(name):
    wanted, words = REFUSED[name]
    why = refusal(wanted)
    assert words in why
    assert "\n" not in why


def test_a_torch_from_before_is_refused(monkeypatch):
    monkeypatch.setattr(refused, "version", lambda name: "2.9.1+cpu")
    assert "torch 2.9.1+cpu: it is written for 2.13" in refusal(request(dp=2, zero_stage=3))


def test_what_it_runs_is_not_refused():
    assert refusal(request(tp=2, dp=2, zero_stage=3, sequence_parallel=True)) is None
    one = request(runtime="accelerate", zero_stage=0)
    assert refusal(one) is None
