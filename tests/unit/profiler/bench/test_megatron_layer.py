"""Layers of megatron-core as its ranks train them, on one process of a CPU."""

import os
from importlib.util import find_spec

import pytest

from tests.tiny_models import DENSE, EXPERTS, changed
from trainplan.costmodel.architecture.layers import MlaSpec
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.candidates.context import Context
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.megatron.core import plain
from trainplan.costmodel.runtimes.megatron_lm import MEGATRON_LM
from trainplan.profiler.bench import megatron_layer
from trainplan.profiler.bench.layers.case import Case
from trainplan.profiler.bench.layers.in_step import MOST_LAYERS
from trainplan.profiler.bench.layers.modules import Sharding
from trainplan.profiler.bench.megatron_layer import (
    PLAIN_ON_A_GPU,
    megatron_notes,
    megatron_tasks,
    tensor_ranks,
)
from trainplan.profiler.journal.timing import timing_of
from trainplan.profiler.launch.requests import installed, notes
from trainplan.profiler.task import Place, Request
from trainplan.profiler.train.megatron import micro_batch
from trainplan.profiler.train.megatron.config import fused

CPU = Place("cpu", 0, 1, 0, 1)
LATENT = MlaSpec(kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16)


def wanted(model, **fields):
    stated = {
        "tensor_parallel": (1,),
        "micro_batch_sizes": (1,),
        "seq_length": 32,
        "precision": "fp32",
        "quick": True,
        "runtimes": ("megatron-lm",),
    }
    return Request(model=model, **stated | fields)


class Marks:
    """A clock on which every part takes a millisecond less than the one before, of 20."""

    def laps(self, call, *, together=False):
        assert together
        parts = []
        call(lambda: parts.append(1e-3 * (20 - len(parts))))
        return [parts] * 5

    def timing_of(self, seconds):
        return timing_of(seconds)


@pytest.fixture(scope="module")
def alone():
    """This process is all ranks; megatron-core compiles nothing."""
    torch = pytest.importorskip("torch")
    if find_spec("megatron") is None:
        pytest.skip("its layers need megatron-core: pip install '.[train]'")
    dist = torch.distributed
    before = os.environ.get("TORCHDYNAMO_DISABLE")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield torch
    dist.destroy_process_group()
    os.environ.pop("TORCHDYNAMO_DISABLE")
    if before is not None:
        os.environ["TORCHDYNAMO_DISABLE"] = before


@pytest.fixture(scope="module")
def measured(alone):
    (task,) = megatron_tasks(wanted(DENSE), CPU)
    assert task.together
    return task.measure(Marks())


def test_layers_are_told_apart_from_what_is_before_and_behind_them(measured):
    layer, embedding, head = measured
    passes = (layer.forward, layer.backward, layer.weight)
    # of 12 parts the second, the fifth, and that less the fifth of the frozen six
    expected = [one * 1e-3 / MOST_LAYERS for one in (19, 16, 16 - 10)]
    assert [one.seconds for one in passes] == pytest.approx(expected)
    ends = (embedding.forward, head.forward, head.backward, embedding.backward)
    assert [one.seconds for one in ends] == pytest.approx([20e-3, 18e-3, 17e-3, 15e-3])
    assert (layer.runtime, layer.kernels, layer.attention) == ("megatron-lm", "eager", "unfused")
    assert (embedding.vocab_size, embedding.tokens) == (512, 32)
    assert all(one.in_step for one in measured)


def test_a_layer_keeps_the_bytes_of_the_memory_model(measured):
    training = TrainingSpec(seq_length=32, global_batch_size=8, precision="tf32")
    job = Job(model=DENSE, training=training, cluster=parse_cluster("1x8:h100-sxm"))
    context = Context(job, machine_of(job.cluster, "tf32"), plain(MEGATRON_LM))
    table = LayoutTable.of([Layout(micro_batch_size=1)])
    assert measured[0].saved_bytes == blocks(context.with_table(table)).layers[0].saved_bytes[0]


@pytest.mark.parametrize("model", [DENSE, changed(moe=EXPERTS)], ids=["dense", "experts"])
def test_a_micro_batch_adds_a_gradient_to_that_of_every_weight(alone, model):
    """Twice as much after two, and no more of layers that are frozen."""
    case = Case(model, model.moe is not None, Sharding(), 1, 32)
    with megatron_layer.micro_batch(
        megatron_layer.training_request(case, CPU, 2, "fp32"), CPU
    ) as run:
        weights = dict(run.model.named_parameters())
        layers = [name for name in weights if "layers" in name]
        assert len(layers) > 10

        def sums():
            run.micro_batch(micro_batch.nothing)
            return {name: one.main_grad.clone() for name, one in weights.items()}

        one, two = sums(), sums()
        run.train(weights=False)
        frozen = sums()
        run.train(weights=True)
        after = sums()
    assert all(one[name].abs().max() > 0 for name in weights)
    for name in layers:
        assert frozen[name].equal(two[name])
        assert not after[name].equal(two[name])
        if model.moe is None:  # balanced routing is random
            alone.testing.assert_close(two[name], 2 * one[name])
    assert not frozen["output_layer.weight"].equal(two["output_layer.weight"])


def test_nothing_stands_in_for_cuda_afterwards(alone):
    before = (alone.zeros, alone.cuda.current_device, alone.distributed.all_gather)
    case = Case(DENSE, False, Sharding(), 1, 32)  # noqa: FBT003
    with megatron_layer.micro_batch(megatron_layer.training_request(case, CPU, 1, "fp32"), CPU):
        assert alone.zeros is not before[0]
    assert (alone.zeros, alone.cuda.current_device, alone.distributed.all_gather) == before


def test_a_rank_has_the_experts_it_would_have_and_all_layers_of_the_case_have_them():
    model = changed(moe=EXPERTS.model_copy(update={"first_k_dense_replace": 1, "num_experts": 8}))
    one = megatron_layer.model_of(Case(model, True, Sharding(ep=2), 1, 32), 3)  # noqa: FBT003
    assert (one.moe.num_experts, one.moe_layers) == (4, (True, True, True))
    dense = megatron_layer.model_of(Case(model, False, Sharding(), 1, 32), 3)  # noqa: FBT003
    assert dense.moe is None


@pytest.mark.parametrize(
    ("ranks", "quick", "degrees"),
    [(1, False, (1,)), (8, False, (1, 2)), (6, False, (1, 2)), (3, False, (1,)), (8, True, (1, 2))],
)
def test_tensor_ranks_are_real_ones_that_fill_a_node(ranks, quick, degrees):
    assert tensor_ranks(DENSE, Place("cuda", 0, ranks, 0, ranks), quick=quick) == degrees


def test_the_two_ends_of_the_degrees_are_quick():
    wide = changed(num_attention_heads=8, num_key_value_heads=8, intermediate_size=256)
    place = Place("cuda", 0, 8, 0, 8)
    assert tensor_ranks(wide, place, quick=True) == (1, 8)
    assert tensor_ranks(wide, place, quick=False) == (1, 2, 4, 8)


def test_with_several_ranks_every_degree_is_a_task_of_all_of_them(monkeypatch):
    monkeypatch.setattr(megatron_layer, "is_installed", lambda: True)
    tasks = list(megatron_tasks(wanted(DENSE), Place("cpu", 0, 2, 0, 2)))
    assert [task.key for task in tasks] == [
        f"megatron-lm dense tp={tp} batch=1 seq=32 fp32" for tp in (1, 2)
    ]
    assert all(task.together for task in tasks)
    case = Case(DENSE, False, Sharding(2), 1, 32)  # noqa: FBT003
    layout = megatron_layer.training_request(case, Place("cpu", 0, 4, 0, 2), 4, "fp32").layout
    assert (layout.tp, layout.dp, layout.sequence_parallel) == (2, 2, True)


@pytest.mark.parametrize(
    ("model", "place", "word"),
    [
        (changed(mla=LATENT, num_key_value_heads=4), CPU, "the model's mla"),
        (DENSE, Place("cuda", 0, 128, 0, 8), "up to 64 ranks"),
    ],
)
def test_what_megatron_core_cannot_measure_is_one_note_and_no_task(monkeypatch, model, place, word):
    monkeypatch.setattr(megatron_layer, "is_installed", lambda: True)
    (note,) = megatron_notes(wanted(model), place)
    assert note.startswith("layers of tiny were not measured in megatron-lm: ")
    assert word in note
    assert list(megatron_tasks(wanted(model), place)) == []


def test_without_megatron_core_plain_layers_are_measured_and_asking_for_its_own_says_why(
    monkeypatch,
):
    monkeypatch.setattr(
        micro_batch, "find_spec", lambda name: None if "megatron" in name else object()
    )
    assert installed() == ("torch-eager",)
    (note,) = notes(wanted(DENSE, only=("layer",)), CPU)
    assert "pip install 'trainplan[train]'" in note
    assert list(notes(wanted(DENSE, only=("gemm",)), CPU)) == []


@pytest.mark.parametrize(
    ("device", "engine", "written"),
    [
        ("cuda", True, "ran on megatron-core 1.2 with Transformer Engine 1.2"),
        ("cuda", False, f"ran on megatron-core 1.2 without Transformer Engine: {PLAIN_ON_A_GPU}"),
        ("cpu", False, "ran on megatron-core 1.2 without Transformer Engine"),
    ],
)
def test_a_note_says_what_ran_the_layers_and_which_jobs_take_their_times(
    monkeypatch, device, engine, written
):
    monkeypatch.setattr(megatron_layer, "is_installed", lambda: True)
    monkeypatch.setattr(micro_batch, "version", lambda _: "1.2")
    monkeypatch.setattr(megatron_layer, "has_engine", lambda _: engine)
    (note,) = megatron_notes(wanted(DENSE), Place(device, 0, 1, 0, 1))
    assert note == f"layers of tiny in megatron-lm {written}"


@pytest.mark.parametrize(
    ("fields", "fusion"),
    [
        ({}, True),
        ({"activation": "relu2", "gated_mlp": False}, False),
        ({"activation": "gelu", "gated_mlp": False}, False),
        (
            {
                "activation": "gelu",
                "gated_mlp": False,
                **dict.fromkeys(("qkv_bias", "mlp_bias", "attention_output_bias"), True),
            },
            True,
        ),
    ],
)
def test_fused_activations_are_asked_for_where_megatron_core_takes_them(fields, fusion):
    stated = fused(changed(**fields))
    assert stated["bias_activation_fusion"] == fusion
    assert not stated["gradient_accumulation_fusion"]  # needs an extension of Apex
    assert not stated["moe_grouped_gemm"]
    assert fused(changed(moe=EXPERTS))["moe_grouped_gemm"]
