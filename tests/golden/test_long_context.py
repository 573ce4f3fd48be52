"""The longest sequences that ArcticTraining's recipes train, beside those that fit here.

Source: snowflakedb/ArcticTraining projects/sequence-parallelism, run-h100-*.yml; Bekman et al.,
Arctic Long Sequence Training, arXiv:2506.13996. Their lengths are round and below the true limit.
Theirs run norms, loss and activations of Liger; these are priced with the kernels of transformers.
"""

import pytest

from trainplan.costmodel.measured import NOTHING
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.longest import ladder
from trainplan.planner.questions.search import SearchOptions
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

TOLERANCE = 0.15
LOSS = "tiled loss"
PARALLEL = "sequence, tensor and pipeline parallelism"
MLP = "tiled MLPs"
CHECKPOINTS = "checkpoints in host memory"
ALL = "optimizer and weights off the GPU"
ALONE = "sharded data parallelism alone"


@pytest.fixture(name="rungs")
def _rungs(make_job):
    """Longest sequences and their limits, by technique."""

    def make(cluster, *fixed, exclude=()):
        job = make_job("llama3.1-8b", cluster, 1, 16).model_copy(update={"runtime": "deepspeed"})
        options = SearchOptions(
            objective="context",
            fix=tuple(parse_choice(text, excluded=False) for text in fixed),
            exclude=tuple(parse_choice(text, excluded=True) for text in exclude),
        )
        _, found = ladder(SearchContext(options, NOTHING, Unlimited()), job)
        return {rung.adds: (rung.tokens, rung.limit) for rung in found}

    return make


def check(found, published):
    for name, tokens in published.items():
        assert found[name][0] == pytest.approx(tokens, rel=TOLERANCE), name
        assert found[name][1] == "GPU memory"


def test_the_ladder_of_llama_8b_on_eight_h100(rungs):
    """The optimizer is on the host in all recipes; that of all techniques keeps weights on GPUs."""
    published = {
        ALONE: 32_000,
        LOSS: 160_000,
        PARALLEL: 1_100_000,
        MLP: 1_200_000,
        CHECKPOINTS: 3_700_000,
    }
    check(rungs("1x8:h100-sxm", "offload=1", "offload.parameters=none"), published)


def test_checkpoints_in_host_memory_without_tiled_mlps(rungs):
    found = rungs(
        "1x8:h100-sxm", "offload=1", "offload.parameters=none", exclude=["tiled_mlp=true"]
    )
    check(found, {CHECKPOINTS: 2_400_000})


@pytest.mark.parametrize(("cluster", "tokens"), [("1x1:h100-sxm", 500_000), ("4x8:h100-sxm", 15e6)])
def test_one_gpu_and_four_nodes_train_as_long_sequences_for_each_gpu(rungs, cluster, tokens):
    check(rungs(cluster), {ALL: tokens})
