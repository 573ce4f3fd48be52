"""How a launch saves where the cluster states its failures: often, and in the runtime's own way."""

import pytest

from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.run_costs import goodput_of
from trainplan.planner.operations import with_operations, with_saves
from trainplan.planner.operations.saves import saves_of
from trainplan.planner.runtimes import EXPORTERS, TRAINERS
from trainplan.planner.runtimes.able import unwritten

STEP_S = 5.0
WAYS = ("sync", "async", "local")
TRAINS_AS = {"torchtitan": 3, "accelerate": 3, "transformers": 3}
"""ZeRO stages; 1 elsewhere."""
REFUSED = {
    ("transformers", "async"),
    ("transformers", "local"),
    ("megatron-zero-bubble", "async"),
    ("megatron-zero-bubble", "local"),
    ("torchtitan", "local"),
}


def job_with(runtime, save, cluster="128x8:h100-sxm"):
    nodes = cluster_of(cluster)
    if save:
        stated = FailureSpec(mtbf_node_days=730, checkpoint_gb_per_s=50, save=save)
        nodes = nodes.model_copy(update={"failures": stated})
    return Job(
        model=preset("llama3-8b"),
        training=TrainingSpec(seq_length=8192, global_batch_size=1024),
        cluster=nodes,
        runtime=runtime,
    )


def exported(runtime, save, cluster="128x8:h100-sxm", **fields):
    job = job_with(runtime, save, cluster)
    degrees = {"dp": job.cluster.num_gpus, "zero_stage": TRAINS_AS.get(runtime, 1)} | fields
    config = EXPORTERS[runtime](job, Layout(**degrees))
    return config, job, with_saves(config, job, STEP_S)


def words(config):
    return {one.flag: one.values for one in config.arguments}


@pytest.mark.parametrize("runtime", EXPORTERS)
def test_without_failures_a_launch_is_as_it_was(runtime):
    config, _, saved = exported(runtime, None)
    assert saved is config


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("runtime", EXPORTERS)
def test_every_runtime_saves_so_or_is_refused_or_leaves_it_to_a_script_of_the_users(runtime, way):
    job = job_with(runtime, way)
    if (runtime, way) in REFUSED:
        with pytest.raises(UnsupportedError, match=f"{runtime} has no saves that are {way}, only"):
            exported(runtime, way)
        assert f"no saves that are {way}" in unwritten(job)
        return
    _, _, saved = exported(runtime, way)
    assert unwritten(job) is None
    steps = round(goodput_of(job).save_interval_s / STEP_S)
    (line,) = (note for note in saved.notes if "a checkpoint every" in note)
    assert f"a checkpoint every {steps} steps" in line
    assert "which loses least with a failure every 5.7 days" in line


def test_megatron_takes_the_interval_in_place_of_its_own():
    _, job, saved = exported("megatron-lm", "sync")
    steps = round(goodput_of(job).save_interval_s / STEP_S)
    assert [one.values for one in saved.arguments if one.flag == "--save-interval"] == [
        (str(steps),)
    ]
    assert "--async-save" not in words(saved)
    _, _, saved = exported("megatron-lm", "async")
    assert {"--async-save", "--use-persistent-ckpt-worker"} <= words(saved).keys()


@pytest.mark.parametrize(
    ("cluster", "copies"), [("128x8:h100-sxm", "2"), ("3x8:h100-sxm", "3"), ("35x8:h100-sxm", "5")]
)
def test_local_saves_are_copied_to_other_nodes_in_groups_that_divide_the_ranks(cluster, copies):
    _, job, saved = exported("megatron-lm", "local", cluster)
    own = words(saved)
    jump = job.cluster.groups[0].gpus_per_node
    assert (own["--replication-jump"], own["--replication-factor"]) == ((str(jump),), (copies,))
    assert job.cluster.num_gpus % (jump * int(copies)) == 0
    assert own["--non-persistent-ckpt-type"] == ("local",)
    local, whole = (
        int(own[one][0]) for one in ("--non-persistent-save-interval", "--save-interval")
    )
    assert whole % local == 0
    assert saved.defaults[0].name == "LOCAL_CHECKPOINTS"


def test_local_saves_of_one_node_are_refused():
    config, _, _ = exported("megatron-lm", None, "1x8:h100-sxm")
    with pytest.raises(UnsupportedError, match="take --save async"):
        with_saves(config, job_with("megatron-lm", "local", "1x8:h100-sxm"), STEP_S)


def test_local_saves_of_megatron_fsdp_are_refused_by_a_rule_of_the_search():
    with pytest.raises(UnsupportedError, match="not with Megatron-FSDP"):
        exported("megatron-lm", "local", zero_stage=3)
    exported("megatron-lm", "async", zero_stage=3)


def test_trainers_over_transformers_save_alone_or_are_refused():
    layout = Layout(dp=1024, zero_stage=3)
    config = TRAINERS["llama-factory"](job_with("deepspeed", "sync"), layout)
    saved = with_saves(config, job_with("deepspeed", "sync"), STEP_S)
    assert any("save_steps: 297\n" in file.text for file in saved.files)
    with pytest.raises(UnsupportedError, match="for saves that are async: take --save sync"):
        with_saves(config, job_with("deepspeed", "async"), STEP_S)


@pytest.mark.parametrize("way", WAYS)
def test_operations_save_as_a_launch_without_them_does(way):
    config, job, saved = exported("megatron-lm", way)
    layout = Layout(dp=1024, zero_stage=1)
    operated = words(with_operations(config, job, layout, "slurm", STEP_S))
    assert words(saved).items() <= operated.items()


def test_the_interval_is_half_an_hour_where_nothing_is_stated():
    saves = saves_of(job_with("megatron-lm", None))
    assert (saves.seconds, saves.reason, saves.stated) == (1800, "assumed", False)
    assert saves.steps(9.0) == 200
    assert saves.steps(1e6) == 1
