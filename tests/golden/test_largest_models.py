"""Published statements on which model trains on which node once states leave its GPUs."""

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.hardware.cluster import ClusterSpec, DriveSpec, HostSpec, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space.choices import parse_choice

PLAIN = ("offload.optimizer=0", "offload.parameters=none", "offload.checkpoints=0")
ZERO_OFFLOAD = ("offload.parameters=none", "offload.checkpoints=0", "zero_stage=2")
DRIVES = DriveSpec(count=12, tb=3.84, read_gb_per_s=6.9, write_gb_per_s=4.1)


def gpt(hidden, layers):
    """A model of the family of GPT-2, heads of 128."""
    sizes = {
        "name": f"gpt-{hidden}-{layers}",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 128,
        "num_key_value_heads": hidden // 128,
        "head_dim": 128,
        "intermediate_size": 4 * hidden,
    }
    return ModelSpec.model_validate({**preset("gpt2").model_dump(), **sizes})


def with_host(cluster, **host):
    """The cluster of a short form with a host of its own."""
    known = parse_cluster(cluster)
    group = known.groups[0].model_copy(update={"host": HostSpec(**host)})
    return ClusterSpec(groups=(group,))


def trains(model, cluster, *, batch=32, fix=()):
    """Does any layout of DeepSpeed fit?"""
    training = TrainingSpec(seq_length=1024, global_batch_size=batch, precision="fp16")
    job = Job(model=model, training=training, cluster=cluster, runtime="deepspeed")
    choices = tuple(parse_choice(text, excluded=False) for text in fix)
    answer = search(job, SearchOptions(fix=choices, only_answer=True, search_options="none"))
    return not isinstance(answer, Infeasible)


SIZES = [(2048, 27), (2048, 40), (4096, 50), (4096, 65), (4096, 78)]
"""Models of 1.5, 2.1, 10, 13 and 16 B parameters."""


def largest(cluster, fix):
    """Billions of parameters of the largest of SIZES that trains, whole."""
    fit = [size for size in SIZES if trains(gpt(*size), cluster, fix=fix)]
    assert fit == SIZES[: len(fit)]
    return round(num_parameters(gpt(*fit[-1])) / 1e9)


def test_one_v100_trains_13_billion_parameters_with_zero_offload_and_one_and_a_half_without():
    """ZeRO-Offload, arXiv:2101.06840, abstract: over 13 B on one GPU, ten times PyTorch's."""
    v100 = with_host("1x1:v100-sxm-32gb", memory_gib=1536)
    assert largest(v100, PLAIN) == 1
    assert largest(v100, ZERO_OFFLOAD) == 13
    assert largest(v100, ()) == 16


def test_a_dgx_2_trains_a_trillion_parameters_with_its_drives_alone():
    """ZeRO-Infinity, arXiv:2104.07857, abstract: a trillion on one DGX-2 node."""
    trillion = gpt(25_600, 128)
    assert num_parameters(trillion) == pytest.approx(1e12, rel=0.02)
    assert trains(trillion, parse_cluster("1x16:v100-sxm-32gb@dgx-2"), batch=16)
    no_drives = with_host("1x16:v100-sxm-32gb", memory_gib=1536)
    assert not trains(trillion, no_drives, batch=16)


def test_one_rtx_4090_trains_gpt_3_with_drives_and_not_without():
    """Fuyou, arXiv:2403.06504, abstract: GPT-3 175 B on one RTX 4090 and 768 GB of host memory."""
    host = {"memory_gib": 768}
    assert trains(preset("gpt3-175b"), with_host("1x1:rtx4090", **host, drives=DRIVES), batch=8)
    assert not trains(preset("gpt3-175b"), with_host("1x1:rtx4090", **host), batch=8)
