"""Parameters of one rank against those of Megatron-LM's own modules.

`megatron_parameters.json` says of which repository, commit and path, and how they were counted.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.states import block_params, rank_params
from trainplan.costmodel.pipeline.ranks import ranks_of
from trainplan.costmodel.presets.presets import preset

CASES = json.loads(Path(__file__).with_name("megatron_parameters.json").read_text())["cases"]
GPUS = 32


def name(case):
    degrees = (
        f"{axis}{case['layout'][axis]}"
        for axis in ("tp", "pp", "ep", "etp")
        if axis in case["layout"]
    )
    return "-".join([case["model"], *degrees])


def model_of(case):
    """The preset with as many layers as were built; of those with dense ones, one is dense."""
    fields = preset(case["model"]).model_dump()
    if fields["moe"] and case["num_hidden_layers"] < fields["num_hidden_layers"]:
        fields["moe"]["first_k_dense_replace"] = min(1, fields["moe"]["first_k_dense_replace"])
    return ModelSpec.model_validate(fields | {"num_hidden_layers": case["num_hidden_layers"]})


def counts(case):
    """Parameters of every pipeline rank: shared ones, and those of routed experts."""
    given = case["layout"]
    job = Job(
        model=model_of(case),
        training=TrainingSpec(seq_length=2048, global_batch_size=64),
        cluster=parse_cluster(f"{GPUS // 8}x8:h100-sxm"),
    )
    dp = GPUS // (given["tp"] * given["pp"])
    table = LayoutTable.of([Layout(**{"dp": dp} | given)])
    found = rank_params(ranks_of(job, table, merged=False), block_params(job, table))
    return found.shared[:, 0], np.broadcast_to(found.expert, found.shared.shape)[:, 0]


def test_models_of_every_sort_are_compared_on_several_tensor_ranks():
    cut = {case["model"] for case in CASES if case["layout"]["tp"] > 1}
    assert {"gpt3-175b", "llama3-8b", "mixtral-8x7b", "deepseek-v3"} <= cut
    assert any(case["layout"].get("etp", 1) > 1 for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_rank_holds_the_parameters_of_its_megatron_modules_to_the_last_one(case):
    shared, expert = counts(case)
    assert shared.tolist() == case["shared"]
    assert expert.tolist() == case["expert"]
