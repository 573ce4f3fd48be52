"""Real layouts on torch's own parallelism: they train as one process does, and as counted."""

import pytest

from tests.torch_requests import TINY, request
from trainplan.planner.verification.by_megatron import Combination
from trainplan.planner.verification.by_torch import torch_expected
from trainplan.planner.verification.compared import compared
from trainplan.profiler.train.client import Trainers

pytest.importorskip("torch", "2.13", reason="the trainer needs torch")
TIED = TINY.model_copy(update={"tie_word_embeddings": True})
BLOCK = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 1}
LAYOUTS = {
    "tensor and sequence, sharded": {
        "tp": 2,
        "dp": 2,
        "zero_stage": 3,
        "sequence_parallel": True,
        "micro_batch_size": 2,
    },
    "context ring": {"cp": 2, "zero_stage": 3},
    "groups of shards": {"dp": 4, "dp_replicate": 2, "zero_stage": 3},
    "split backward on a V": {
        "pp": 2,
        "vpp": 2,
        "dp": 2,
        "zero_stage": 1,
        "schedule": "zb-v",
        "model": TINY.model_copy(update={"num_hidden_layers": 4}),
    },
    "all forward first": {"pp": 2, "zero_stage": 0, "schedule": "gpipe", "steps": 1},
    "split backward by a table": {"pp": 2, "zero_stage": 0, "schedule": "zb-h1"},
    "whole gradients, a layer again": {"runtime": "fsdp2", "dp": 2, "zero_stage": 1, **BLOCK},
    "tied": {"runtime": "fsdp2", "tp": 2, "micro_batch_size": 4, "zero_stage": 0, "model": TIED},
}
SECONDS = 120.0


@pytest.fixture(scope="module")
def found():
    """Every layout beside one process, with what is counted of it."""
    alone, result = {}, {}
    with Trainers("torch") as trainers:
        for name, layout in LAYOUTS.items():
            wanted = request(**layout)
            of = wanted.job.model, wanted.steps
            if of not in alone:
                whole = request(model=of[0], steps=of[1], zero_stage=0)
                alone[of] = trainers.run(whole, 1, SECONDS)
            ranks = trainers.run(wanted, wanted.layout.world_size, SECONDS)
            counted = torch_expected(Combination(wanted.job, wanted.layout))
            result[name] = compared(wanted.job, alone[of], ranks, counted)
    return result


@pytest.mark.parametrize("name", LAYOUTS)
def test_losses_and_gradient_norms_are_those_of_one_process(found, name):
    assert found[name].loss_difference < 1e-6
    assert found[name].grad_norm_difference < 5e-6


@pytest.mark.parametrize("name", LAYOUTS)
def test_ranks_have_send_and_keep_what_the_cost_model_counts(found, name):
    assert found[name].wrong_parameters == ()
    assert found[name].wrong_sent == ()
    assert found[name].saved_difference < 1e-4
