"""Which products are measured."""

from math import log

import pytest

from trainplan.costmodel.presets.presets import preset
from trainplan.profiler.bench.inputs.shapes import Shape, caps, shapes, spread_shapes, three_passes
from trainplan.profiler.launch.requests import (
    TINY_LLAMA,
    notes,
    request_for,
    tensor_parallel_degrees,
)
from trainplan.profiler.task import Place

CPU = Place("cpu", 0, 1, 0, 1)
GPU = Place("cuda", 0, 8, 0, 8)


def request(name, device="cuda", **stated):
    return request_for(preset(name), device, 8, quick=stated.pop("quick", False), stated=stated)


def numbers(found):
    return {(shape.m, shape.n, shape.k) for shape in found}


def test_the_passes_of_a_product_are_those_that_the_cost_model_prices():
    forward, inputs, weight = three_passes(Shape(8, 5, 3))
    assert (forward.m, forward.n, forward.k) == (8, 5, 3)
    assert (inputs.m, inputs.n, inputs.k) == (8, 3, 5)
    assert (weight.m, weight.n, weight.k, weight.weight_gradient) == (3, 5, 8, True)


def test_a_dense_model_is_measured_at_its_own_products():
    wanted = request("llama3-8b", tensor_parallel=(1, 2), micro_batch_sizes=(1,))
    found = numbers(shapes(wanted, "cuda"))
    queries_keys_values, output = (4096, 6144, 4096), (4096, 4096, 4096)
    up_and_gate, down, head = (4096, 28672, 4096), (4096, 4096, 14336), (4096, 128256, 4096)
    assert {queries_keys_values, output, up_and_gate, down, head} <= found
    assert {(4096, 3072, 4096), (4096, 4096, 2048), (4096, 14336, 4096)} <= found
    assert {(4096, 4096, 28672), (14336, 4096, 4096)} <= found, "input and weight gradients"


def test_experts_are_grouped_products():
    wanted = request("mixtral-8x7b", tensor_parallel=(1, 8), micro_batch_sizes=(1,))
    groups = {(s.m, s.n, s.k, s.groups) for s in shapes(wanted, "cuda") if "groups" in s.text}
    assert (1024, 2 * 14336, 4096, 8) in groups, "4096 tokens, 2 of 8 experts"
    assert (14336, 4096, 1024, 8) in groups, "the weight gradient of the down projection"
    one_expert = Shape(8192, 2 * 14336, 4096)
    assert one_expert in shapes(wanted, "cuda"), "eight ranks hold one expert each"


def test_latent_attention_has_five_projections():
    wanted = request("deepseek-v3", tensor_parallel=(1,), micro_batch_sizes=(1,))
    found = numbers(shapes(wanted, "cuda"))
    assert {(4096, 1536, 7168), (4096, 24576, 1536), (4096, 576, 7168)} <= found
    assert {(4096, 32768, 512), (4096, 7168, 16384)} <= found


@pytest.mark.parametrize("name", ["gpt2", "llama3-70b", "mixtral-8x7b", "deepseek-v3"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
def test_no_product_is_measured_twice_or_is_too_much_work(name, device, quick):
    found = shapes(request(name, device, quick=quick), device)
    limit = caps(device, quick=quick)
    assert len({shape.text for shape in found}) == len(found) > 0
    assert all(shape.fits(limit) and min(shape.m, shape.n, shape.k) > 0 for shape in found)


def test_the_list_is_the_same_every_time():
    wanted = request("mixtral-8x7b")
    assert shapes(wanted, "cuda") == shapes(wanted, "cuda")


def test_the_first_products_are_of_whole_layers():
    first, *_ = shapes(request("llama3-8b"), "cuda")
    assert first == Shape(4096, 6144, 4096)


def test_spread_shapes_are_far_from_one_another_and_from_the_rest():
    alongside = [Shape(512, 512, 512)]
    found = spread_shapes("cpu", alongside, caps("cpu", quick=False), 12)
    assert len(found) == 12

    def distance(one, other):
        pairs = zip((one.m, one.n, one.k), (other.m, other.n, other.k), strict=True)
        return sum(log(a / b) ** 2 for a, b in pairs) ** 0.5

    every = [*alongside, *found]
    nearest = min(distance(a, b) for i, a in enumerate(every) for b in every[:i])
    assert nearest > log(4), "neighbours differ by two powers of two or more"


def test_a_request_has_degrees_that_divide_the_heads():
    assert tensor_parallel_degrees(preset("llama3-8b"), 8, quick=False) == (1, 2, 4, 8)
    assert tensor_parallel_degrees(preset("gpt2"), 8, quick=False) == (1, 2, 4)
    assert tensor_parallel_degrees(preset("llama3-8b"), 8, quick=True) == (1, 8)


def test_defaults_fit_the_device():
    here = request_for(None, "cpu", 1, quick=True)
    assert here.model == TINY_LLAMA
    assert (here.precision, here.micro_batch_sizes, here.seq_length) == ("fp32", (1,), 256)
    there = request_for(None, "cuda", 8, quick=False)
    assert there.model == preset("llama3-8b")
    assert (there.precision, there.seq_length) == ("bf16", 4096)
    assert request_for(None, "cpu", 1, quick=True, stated={"precision": "bf16"}).precision == "bf16"


def test_a_sequence_is_no_longer_than_the_model_takes():
    assert request_for(preset("gpt2"), "cuda", 8, quick=True).seq_length == 1024


def test_the_user_is_told_what_is_too_much_work():
    large = " ".join(notes(request("llama3-8b", "cpu", quick=True), CPU))
    assert "14 of 14 products of llama3-8b are too much work" in large
    assert "a layer of llama3-8b is too much work" in large
    torch_alone = {"runtimes": ("torch-eager",)}  # whatever else is installed
    assert not list(notes(request_for(None, "cpu", 1, quick=True, stated=torch_alone), CPU))
    assert not list(notes(request("llama3-8b", **torch_alone), GPU))
    assert "multiplies no mxfp8" in " ".join(notes(request("llama3-8b", precision="mxfp8"), CPU))
