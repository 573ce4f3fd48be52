"""Products in 8 and 4 bits: run on the CPU, or taken by the checks of torch's GPU kernels."""

import pytest

from trainplan.costmodel.presets.presets import preset
from trainplan.profiler import torch_on_use
from trainplan.profiler.bench.gemm import product_tasks
from trainplan.profiler.bench.inputs.scaled import FAST, FAST_ROWS, SPLIT, refusal, scaled, ways
from trainplan.profiler.bench.inputs.shapes import Shape
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.launch.requests import request_for
from trainplan.profiler.task import Place

torch = pytest.importorskip("torch", reason="the products are torch's")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from trainplan.profiler.bench.inputs.tensors import Tensors, tensors  # noqa: E402

CPU, GPU = Place("cpu", 0, 1, 0, 1), Place("cuda", 0, 8, 0, 8)
EVERY = [("fp8", FAST), ("fp8", FAST_ROWS), ("fp8", SPLIT), ("mxfp8", SPLIT), ("nvfp4", SPLIT)]
FORWARD, SHAPE = frozenset({"forward"}), Shape(4096, 6144, 4096)


def tasks(precision):
    model = preset("llama3-8b")
    stated = {"precision": precision, "tensor_parallel": (1,), "micro_batch_sizes": (1,)}
    request = request_for(model, "cuda", 8, quick=True, stated=stated)
    return {task.key: task for task in product_tasks(request, GPU)}


def test_forward_products_in_fp8_accumulate_fast_and_gradients_in_fp32():
    assert tuple(ways(SHAPE, "fp8", FORWARD)) == (FAST, FAST_ROWS)
    for part in ("input", "weight"):
        assert tuple(ways(SHAPE, "fp8", frozenset({part}))) == (SPLIT,)
    both = frozenset({"forward", "input"})
    assert tuple(ways(SHAPE, "fp8", both)) == (FAST, FAST_ROWS, SPLIT)


@pytest.mark.parametrize("precision", ["mxfp8", "nvfp4", "bf16"])
def test_other_formats_know_one_way(precision):
    assert tuple(ways(SHAPE, precision, FORWARD)) == (SPLIT,)


def test_what_does_not_fit_a_format_is_not_asked_of_it():
    assert not tuple(ways(Shape(24, 32, 32), "fp8", FORWARD))
    assert not tuple(ways(Shape(32, 48, 32), "mxfp8", FORWARD))
    assert not tuple(ways(Shape(32, 32, 32, groups=2), "fp8", FORWARD))


def test_a_product_of_two_passes_is_measured_as_in_both():
    found = tasks("fp8")
    queries, output = "m=4096 n=6144 k=4096 fp8", "m=4096 n=4096 k=4096 fp8"
    assert f"{queries} fast_accumulation" in found
    assert f"{queries} fast_accumulation rowwise" in found
    assert queries not in found, "its gradients have other numbers"
    assert {output, f"{output} fast_accumulation"} <= found.keys(), "and those of output have not"
    gradient = "m=4096 n=6144 k=4096 weight_gradient fp8"
    assert gradient in found
    assert f"{gradient} fast_accumulation" not in found


@pytest.mark.parametrize("shape", [Shape(256, 384, 512), Shape(96, 160, 416)])
@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize(("precision", "way"), EVERY)
def test_the_checks_of_the_gpu_kernels_take_operands_and_scales(shape, weight, precision, way):
    shape = Shape(shape.m, shape.n, shape.k, weight_gradient=weight)
    with FakeTensorMode():
        result = scaled(shape, precision, way, Tensors("cuda", torch.bfloat16, None))()
    assert result.shape == (shape.m, shape.n)
    assert result.dtype == (torch.float32 if weight else torch.bfloat16)


@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("way", [FAST, FAST_ROWS, SPLIT])
def test_fp8_on_a_cpu_is_the_product_of_its_operands(monkeypatch, way, weight):
    made, real = [], torch._scaled_mm

    def seen(left, right, **more):
        made.append((left, right, more["use_fast_accum"]))
        return real(left, right, **more)

    monkeypatch.setattr(torch_on_use.torch, "_scaled_mm", seen)
    shape = Shape(32, 48, 64, weight_gradient=weight)
    result = scaled(shape, "fp8", way, tensors(CPU, "fp8"))()
    left, right, fast = made[0]
    torch.testing.assert_close(result.float(), left.float() @ right.float(), rtol=0.01, atol=0.1)
    assert fast == way.fast_accumulation
    of_gradient = right if weight else left
    assert (of_gradient.dtype == torch.float8_e5m2) == (not fast)


def test_a_format_that_torch_does_not_multiply_here_is_refused_in_one_line(monkeypatch):
    assert not any(refusal("fp8", way, "cpu") for way in (FAST, FAST_ROWS, SPLIT))
    assert "Invalid scaling" in refusal("mxfp8", SPLIT, "cpu")
    monkeypatch.setattr("trainplan.profiler.bench.gemm.device_of", lambda _: "cpu")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A GPU")
    found = tasks("nvfp4")
    first, *rest = [key for key in found if "nvfp4" in key]
    with pytest.raises(ProfilerError, match=r"torch 2.* on A GPU does not multiply nvfp4 \(.+\): "):
        found[first].measure(None)
    assert not [point for key in rest for point in found[key].measure(None)]


def test_scales_of_rows_that_a_gpu_does_not_know_are_left_out_without_a_word(monkeypatch):
    real = torch._scaled_mm

    def older(left, right, **more):
        if more["scale_a"].dim():
            raise RuntimeError("Rowwise scaling is not supported on this device")
        return real(left, right, **more)

    monkeypatch.setattr(torch_on_use.torch, "_scaled_mm", older)
    monkeypatch.setattr("trainplan.profiler.bench.gemm.device_of", lambda _: "cpu")
    refusal.cache_clear()
    found = tasks("fp8")
    assert not found["kernel fp8"].measure(None)
    assert not found["m=4096 n=6144 k=4096 fp8 fast_accumulation rowwise"].measure(None)
    refusal.cache_clear()


def test_a_torch_without_the_format_says_so(monkeypatch):
    for module in (torch_on_use.torch, torch):
        monkeypatch.delattr(module, "float4_e2m1fn_x2")
    refusal.cache_clear()
    assert "float4_e2m1fn_x2" in refusal("nvfp4", SPLIT, "cpu")
    refusal.cache_clear()
