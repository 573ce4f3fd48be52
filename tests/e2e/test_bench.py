"""Everything that is measured, on a CPU, with a clock that does not wait."""

import contextlib
import os
from types import MappingProxyType

import pytest

from tests.tiny_models import DENSE, EXPERTS, changed
from trainplan.costmodel.architecture.layers import MlaSpec
from trainplan.costmodel.blocks.rows import row_blocks
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.profiles.profile import Timing
from trainplan.profiler import torch_on_use
from trainplan.profiler.bench.items import ITEMS
from trainplan.profiler.bench.layers.modules import Sharding
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.journal.timing import timing_of
from trainplan.profiler.task import Place, Request

torch = pytest.importorskip("torch", reason="the measurements need torch")
from trainplan.profiler.bench import collectives, drive, power  # noqa: E402
from trainplan.profiler.bench.attention import _refuses, kernels  # noqa: E402
from trainplan.profiler.bench.collectives import CALLS  # noqa: E402
from trainplan.profiler.bench.drive import BLOCK_BYTES, drive_file  # noqa: E402
from trainplan.profiler.bench.embedding_and_head import head_tokens  # noqa: E402
from trainplan.profiler.bench.gemm import _measure  # noqa: E402
from trainplan.profiler.bench.inputs.groups import Shape as GroupShape  # noqa: E402
from trainplan.profiler.bench.inputs.scaled import SPLIT  # noqa: E402
from trainplan.profiler.bench.inputs.shapes import Shape, caps  # noqa: E402
from trainplan.profiler.bench.inputs.tensors import difference, tensors  # noqa: E402
from trainplan.profiler.bench.layers.case import Case  # noqa: E402
from trainplan.profiler.bench.layers.decoder import Layer  # noqa: E402
from trainplan.profiler.bench.layers.experts import balanced  # noqa: E402
from trainplan.profiler.bench.layers.in_step import MOST_LAYERS, Stack  # noqa: E402
from trainplan.profiler.bench.layers.modules import rms_norm  # noqa: E402

CPU = Place("cpu", 0, 1, 0, 1)
GPUS = Place("cuda", 0, 2, 0, 2)
MODELS = MappingProxyType(
    {
        "dense": DENSE,
        "experts": changed(moe=EXPERTS),
        "shared expert": changed(
            moe=EXPERTS.model_copy(update={"shared_expert_intermediate_size": 96})
        ),
        "like GPT": changed(
            gated_mlp=False,
            activation="gelu_tanh",
            norm="layernorm",
            num_key_value_heads=4,
            qkv_bias=True,
            mlp_bias=True,
            attention_output_bias=True,
            position_embedding="learned",
        ),
        "parallel": changed(parallel_residual=True, activation="relu", gated_mlp=False),
        "norms of heads": changed(qk_norm="head", norm_position="both"),
        "norms of all heads": changed(qk_norm="full", norm_position="post"),
    }
)
LATENT = changed(
    mla=MlaSpec(
        q_lora_rank=32, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16
    ),
    num_key_value_heads=4,
)


class OnceClock:
    """Calls once and waits for nothing."""

    def __init__(self):
        self.calls = 0

    def time(self, call, *, on_host=False):
        self.calls += 1
        call()
        return Timing(seconds=1e-3 * self.calls, spread_fraction=0.01, repeats=5)

    time_together = time

    def laps(self, call, *, together=False):
        parts = []
        call(lambda: parts.append(1e-3 * (20 - len(parts))))
        return [parts] * 5

    def timing_of(self, seconds):
        return timing_of(seconds)


def wanted(model, **fields):
    return Request(
        **{
            "model": model,
            "tensor_parallel": (1, 2),
            "micro_batch_sizes": (1,),
            "seq_length": 32,
            "precision": "fp32",
            "quick": True,
            **fields,
        }
    )


def points(item, request, place=CPU):
    found = []
    for task in ITEMS[item].tasks(request, place):
        found += task.measure(OnceClock())
    return found


def formula(model, precision, tp):
    """What the cost model says one layer keeps; on a GPU fp32 is stored for tf32 products."""
    precision = "tf32" if precision == "fp32" else precision
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=32, global_batch_size=2, precision=precision),
        cluster=parse_cluster("1x2:h100-sxm"),
        runtime="torch-eager",
    )
    layout = Layout(tp=tp, zero_stage=0, micro_batch_size=2, sequence_parallel=False)
    machine = machine_of(job.cluster, job.training.precision)
    blocks = row_blocks(context_of(job, machine).with_table(LayoutTable.of([layout])))
    return blocks.layers[0].saved_bytes[0]


@pytest.mark.grid
@pytest.mark.parametrize("name", ["dense", "experts", "like GPT"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("item", ["layer", "attention", "embedding", "head"])
def test_parts_of_a_model_give_points(item, name, precision):
    found = points(item, wanted(MODELS[name], precision=precision))
    count = 5 if item == "attention" else 2  # three more lengths for its curve, one on CPUs alone
    assert len(found) == count, "whole and cut in two"
    assert {point.precision for point in found} == {precision}


@pytest.mark.parametrize(
    ("item", "on_host"),
    [
        ("copies", True),
        ("cpu_adam", True),
        ("drive", True),
        ("offloaded_step", True),
        ("gemm", False),
        ("layer", False),
        ("optimizer", False),
    ],
)
def test_work_of_the_host_is_never_held_back_behind_the_gpu(item, on_host, tmp_path):
    written = set()

    class Listening(OnceClock):
        def time(self, call, *, on_host=False):
            written.add(on_host)
            return super().time(call)

        time_together = time

    first = next(iter(ITEMS[item].tasks(wanted(DENSE, scratch=str(tmp_path)), CPU)))
    tuple(first.measure(Listening()))
    assert written == {on_host}


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_the_layer_whose_energy_is_measured_has_all_its_gradients(name):
    gradients = power._layer(wanted(MODELS[name]), CPU)()
    assert gradients[0].shape == (1, 32, 64), "of its input"
    assert all(bool(torch.isfinite(one).all()) and bool(one.any()) for one in gradients)


@pytest.mark.parametrize("name", ["dense", "experts"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_products_give_points(name, precision):
    request = wanted(MODELS[name], precision=precision, tensor_parallel=(1,))
    found = points("gemm", request)
    passes = {(p.m, p.n, p.k, p.groups, p.weight_gradient) for p in found}
    assert (32, 128, 64, 1, False) in passes
    assert (64, 128, 32, 1, True) in passes
    assert ((16, 192, 64, 4, False) in passes) == (name == "experts")
    assert {p.precision for p in found} == {precision}


@pytest.mark.parametrize(("item", "place"), [("optimizer", "gpu"), ("cpu_adam", "cpu")])
def test_a_step_of_adam_is_timed_where_its_states_lie(item, place):
    (found,) = points(item, wanted(DENSE))
    assert (found.name, found.place, found.num_params) == ("adamw", place, 1 << 22)
    assert found.time.seconds == 0.001


def test_streams_move_what_their_operands_hold():
    """In fp32: a norm, an activation and a copy read and write, an addition reads two."""
    found = {(one.name, one.moved_bytes) for one in points("stream", wanted(DENSE))}
    assert found == {
        (name, operands * 4 * elements)
        for name, operands in (("norm", 2), ("activation", 2), ("add", 3), ("copy", 2))
        for elements in (1 << 20, 1 << 22)
    }


def test_a_model_with_latent_attention_is_measured():
    assert len(points("layer", wanted(LATENT))) == 2
    assert {p.value_dim for p in points("attention", wanted(LATENT))} == {16}


def test_copies_in_host_memory_are_measured_on_every_device():
    (point,) = points("copies", wanted(DENSE))
    assert (point.direction, point.concurrent) == ("host_to_host", 1)


def test_gpus_copy_pinned_and_pageable_both_ways_alone_and_together():
    keys = {task.key for task in ITEMS["copies"].tasks(wanted(DENSE), GPUS)}
    for gpus in (1, 2):
        for way in ("host_to_device", "device_to_host"):
            named = f"{way} bytes={2**28} gpus={gpus}"
            assert {named, f"{named} pageable"} <= keys
        assert f"host_to_device bytes={2**28} gpus={gpus} both_ways" in keys


def test_adam_in_host_memory_runs_in_all_processes_and_in_one():
    tasks = {task.key: task.together for task in ITEMS["cpu_adam"].tasks(wanted(DENSE), GPUS)}
    assert tasks == {f"params={2**26}": True, f"params={2**26} processes=1": False}
    (alone,) = points("cpu_adam", wanted(DENSE))
    assert alone.processes == 1


def test_a_drive_is_measured_past_the_cache_and_through_it_and_left_as_it_was(tmp_path):
    mine = tmp_path / "trainplan-mine"
    mine.write_text("kept")
    assert not points("drive", wanted(DENSE))
    request = wanted(DENSE, scratch=str(tmp_path))
    found = []
    for task in ITEMS["drive"].tasks(request, CPU):
        with contextlib.suppress(ProfilerError):  # a tmp_path in memory has no direct access
            found += task.measure(OnceClock())
    written = {(point.direction, point.cached) for point in found}
    assert written >= {("nvme_read", True), ("nvme_write", True)}
    assert {point.concurrent for point in found} == {8}
    assert [path.name for path in tmp_path.iterdir()] == ["trainplan-mine"]
    assert mine.read_text() == "kept"


def test_a_drive_is_measured_while_it_reads_and_writes(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(drive.DriveFile, "read", lambda self: seen.append(("read", id(self))))
    monkeypatch.setattr(drive.DriveFile, "write", lambda self: seen.append(("write", id(self))))
    case = drive.Access("nvme_read", cached=True, requests=2, both_ways=True)
    (point,) = drive._measure(case, BLOCK_BYTES, str(tmp_path), OnceClock())
    assert (point.direction, point.both_ways, point.num_bytes) == ("nvme_read", True, BLOCK_BYTES)
    made, others, timed = seen[0], seen[1], sorted(seen[2:])
    assert timed == [("read", made[1]), ("write", others[1])]


def test_every_block_of_a_file_is_written_and_read_once(tmp_path, monkeypatch):
    seen = []
    with drive_file(str(tmp_path), 5 * BLOCK_BYTES, 2) as file:
        assert os.fstat(file.descriptor).st_size == 5 * BLOCK_BYTES
        real = os.preadv
        monkeypatch.setattr(os, "preadv", lambda *args: (seen.append(args[2]), real(*args))[1])
        file.read()
    assert sorted(seen) == [n * BLOCK_BYTES for n in range(5)]


def test_a_file_has_no_name_so_that_nothing_is_left_of_a_process_that_is_killed(tmp_path):
    with drive_file(str(tmp_path), 2**23) as file:
        assert not list(tmp_path.iterdir())
        assert os.fstat(file.descriptor).st_size == 2**23


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_a_file_system_in_memory_is_no_drive(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(drive, "file_system", lambda _: kind)
    with (
        pytest.raises(ProfilerError, match=rf"\({kind}\) does not .* past its cache"),
        drive_file(str(tmp_path), 2**23, direct=True),
    ):
        raise AssertionError
    assert not list(tmp_path.iterdir())


def test_a_drive_that_refuses_to_be_used_past_the_cache_is_said_so(tmp_path, monkeypatch):
    real = os.open

    def refusing(path, flags, *more, **named):
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(drive, "file_system", lambda _: "overlay")
    with pytest.raises(ProfilerError, match="O_DIRECT"), drive_file(str(tmp_path), 1, direct=True):
        raise AssertionError


def test_a_drive_without_room_is_left_alone(tmp_path):
    with pytest.raises(ProfilerError, match="GiB free"), drive_file(str(tmp_path), 2**60):
        raise AssertionError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("place", [CPU, GPUS], ids=["cpu", "gpus"])
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
def test_tasks_have_names_of_their_own_and_are_the_same_on_every_rank(item, place, quick):
    request = wanted(MODELS["experts"], quick=quick, scratch="/scratch")
    keys = [task.key for task in ITEMS[item].tasks(request, place)]
    assert len(set(keys)) == len(keys)
    other = Place(place.device, 1, place.world_size, 1, place.local_world_size)
    assert [task.key for task in ITEMS[item].tasks(request, other)] == keys


@pytest.mark.grid
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_the_measured_layer_keeps_what_the_cost_model_says(name, precision, tp):
    model = MODELS[name]
    request = wanted(model, precision=precision, tensor_parallel=(tp,), micro_batch_sizes=(2,))
    (point,) = points("layer", request)
    # LayerNorm on a CPU keeps its two moments in bf16, on a GPU in fp32
    narrow = 2 * 2 * 2 * 64 if model.norm == "layernorm" and precision == "bf16" else 0
    # a norm over all heads has its moment on every rank, in the formula a share of it;
    # the router's indices and chosen weights are not in the formula: 2 of 64 columns at this size
    tolerance = 0.04 if model.moe else 0.003
    assert point.saved_bytes + narrow == pytest.approx(formula(model, precision, tp), rel=tolerance)


def test_indices_of_the_router_are_little_in_a_model_of_real_width():
    wide = changed(
        hidden_size=512, head_dim=128, moe={**EXPERTS.model_dump(), "moe_intermediate_size": 512}
    )
    (point,) = points("layer", wanted(wide, tensor_parallel=(1,), micro_batch_sizes=(2,)))
    assert point.saved_bytes == pytest.approx(formula(wide, "fp32", 1), rel=0.005)


@pytest.mark.parametrize("name", ["dense", "norms of heads"])
def test_a_rank_of_two_holds_half_of_every_projection(name):
    def matrices(tp):
        layer = Layer(tensors(CPU, "fp32"), MODELS[name], Sharding(tp=tp), moe=False)
        return sum(weight.numel() for weight in layer.parameters if weight.dim() > 1)

    assert matrices(2) * 2 == matrices(1)


def test_weight_gradients_are_the_backward_pass_without_input_gradients():
    (point,) = points("layer", wanted(DENSE, tensor_parallel=(1,)))
    forward, backward, _, inputs = (one / MOST_LAYERS for one in (20e-3, 19e-3, 18e-3, 17e-3))
    assert point.in_step
    assert (point.forward.seconds, point.backward.seconds) == pytest.approx((forward, backward))
    assert point.weight.seconds == pytest.approx(backward - inputs)
    assert (point.forward_alone.seconds, point.backward_alone.seconds) == (1e-3, 2e-3)


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_a_micro_batch_adds_the_gradient_of_every_weight_of_every_layer(name):
    """Once more with each, as much as autograd says, and nothing where weights are frozen."""
    model = MODELS[name]
    case = Case(model, name == "experts", Sharding(), 1, 32)
    make = tensors(CPU, "fp32")
    run = Stack(make, [Layer(make, model, Sharding(), moe=case.moe) for _ in range(2)], case)
    result = run.x
    for layer in run.layers:
        result = layer(result, run.table)
    expected = torch.autograd.grad(result, run.weights, run.gradient)
    for times, trained in ((1, True), (2, True), (2, False), (3, True)):
        run.train(weights=trained)
        run.micro_batch(lambda: None)
        for weight, gradient in zip(run.weights, expected, strict=True):
            assert gradient.abs().max() > 0
            torch.testing.assert_close(run.totals[weight], times * gradient)
    before = {weight: total.clone() for weight, total in run.totals.items()}
    run.backward_alone(run.forward_alone())
    changed_ones = [not run.totals[weight].equal(before[weight]) for weight in run.weights]
    own = len(run.layers[0].parameters)
    assert changed_ones == [True] * own + [False] * own


def test_scatter_of_a_difference_is_that_of_both():
    left = difference(
        Timing(seconds=3.0, spread_fraction=0.01, repeats=9, flags=("drift",)),
        Timing(seconds=2.0, spread_fraction=0.02, repeats=7, flags=("noisy",)),
    )
    assert left.seconds == 1.0
    assert left.spread_fraction == pytest.approx(0.05)
    assert (left.repeats, left.flags) == (7, ("drift", "noisy"))


def test_the_norm_is_that_of_torch():
    torch.manual_seed(0)
    results = []
    for norm in (rms_norm, lambda x, w, e: torch.nn.functional.rms_norm(x, (16,), w, e)):
        torch.manual_seed(0)
        x, weight = (torch.randn(s).requires_grad_() for s in ((3, 5, 16), (16,)))
        result = norm(x, weight, 1e-5)
        results.append((result, *torch.autograd.grad(result.square().sum(), (x, weight))))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_result_that_is_no_number_is_refused(monkeypatch):
    def broken(*_, **__):
        return torch.full((4, 4), float("nan"))

    monkeypatch.setattr(torch_on_use.torch, "mm", broken)
    first, *_ = ITEMS["gemm"].tasks(wanted(DENSE), CPU)
    with pytest.raises(ValueError, match="product m=32 n=128 k=64 fp32: the result has NaN or Inf"):
        first.measure(OnceClock())


def test_a_kernel_that_refuses_a_shape_is_no_failure_but_a_sick_device_is():
    assert _refuses(RuntimeError("No available kernel. Aborting execution."))
    assert not _refuses(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not _refuses(torch.OutOfMemoryError("out of memory"))


def test_groups_of_rows_are_equal_but_for_their_alignment():
    assert balanced(64, 4) == [16, 32, 48, 64]
    assert balanced(100, 3) == [40, 72, 100]
    assert balanced(10, 4) == [8, 8, 8, 10]


def test_the_head_is_measured_at_as_many_tokens_as_a_cpu_can_take():
    assert head_tokens(DENSE, 1, 512, caps("cpu", quick=True)) == 512
    wide = changed(vocab_size=50_000, hidden_size=768)
    assert head_tokens(wide, 1, 512, caps("cpu", quick=True)) == 64
    assert (
        head_tokens(changed(vocab_size=200_000, hidden_size=4096), 1, 512, caps("cpu", quick=True))
        == 0
    )


def test_kernels_of_attention_are_chosen_for_a_while():
    switches = torch.backends.cuda
    with kernels("flash"):
        assert switches.flash_sdp_enabled()
        assert not switches.math_sdp_enabled()
    assert switches.math_sdp_enabled()
    assert switches.mem_efficient_sdp_enabled()


@pytest.mark.parametrize(
    ("precision", "read", "groups"), [("bf16", 2, 1), ("bf16", 2, 4), ("fp8", 1, 1)]
)
def test_the_buffers_of_a_product_are_counted_with_every_group(
    monkeypatch, precision, read, groups
):
    """Outputs in 2 bytes: of so many are copies made to outgrow the cache."""
    counted = []

    def once(place, num_bytes, make):
        counted.append(num_bytes)
        return lambda: None

    monkeypatch.setattr("trainplan.profiler.bench.gemm.rotated", once)
    shape = Shape(m=16, n=48, k=32, groups=groups)
    (point,) = _measure(shape, precision, SPLIT, CPU, OnceClock())
    assert (point.m, point.n, point.k, point.groups) == (16, 48, 32, groups)
    assert counted == [groups * (read * (16 * 32 + 32 * 48) + 2 * 16 * 48)]


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_collective_moves_the_bytes_that_were_asked_for(monkeypatch, operation, ranks):
    """Of the full tensor, which one rank holds a part of; an all-to-all has two full ones."""
    team, seen = collectives.Team(None, ranks, 0, "cpu", torch.bfloat16), []
    monkeypatch.setattr(collectives, "_team", lambda *_: team)
    monkeypatch.setattr(collectives, "check", lambda *_: None)
    monkeypatch.setattr(collectives, "CALLS", {operation: lambda _, *both: seen.append(both)})
    case = collectives.Case(operation, GroupShape(ranks, ranks), 2**16)
    (point,) = collectives._measure(case, wanted(DENSE), CPU, OnceClock())
    part, full = (one.numel() * one.element_size() for one in seen[0])
    assert point.num_bytes == full == 2**16
    assert part == (full if operation == "alltoall" else full / ranks)
