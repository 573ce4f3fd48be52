"""A layout as a file of DeepSpeed or Accelerate: every value is said, or refused by name."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from trainplan.costmodel.base.errors import PlanError, UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, OptimizerSpec, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.compare import missing_flags, recorded_flags

GOLDEN = Path(__file__).parents[3] / "golden" / "training_scripts"
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def job_of(runtime, precision="bf16", cluster="1x8:h100-sxm", name=None, **options):
    model = preset("llama3.1-8b")
    return Job(
        model=model if name is None else model.model_copy(update={"name": name}),
        training=TrainingSpec(seq_length=2048, global_batch_size=64, precision=precision),
        cluster=parse_cluster(cluster),
        runtime=runtime,
        options=RuntimeOptions(**options),
    )


def export(runtime, job=None, **layout):
    return EXPORTERS[runtime](job or job_of(runtime), Layout(**layout))


def written(runtime, **layout):
    text = export(runtime, **layout).files[0].text
    return json.loads(text) if runtime == "deepspeed" else yaml.safe_load(text)


@pytest.mark.parametrize("runtime", ["deepspeed", "accelerate"])
def test_the_file_is_as_it_was_checked(runtime):
    """DeepSpeedConfig, and ClusterConfig with ParallelismConfig, took files like these."""
    more = {"offload": OffloadSpec(optimizer=0.34)} if runtime == "deepspeed" else {}
    more |= {"cp": 2, "dp": 4} if runtime == "deepspeed" else {"tp": 2, "dp": 4, "dp_replicate": 2}
    (file,) = export(runtime, zero_stage=3, micro_batch_size=2, **more, **FULL).files
    assert file.text == (GOLDEN / f"{file.name}.txt").read_text("utf-8")


def test_the_triad_is_whole_unless_autotp_counts_its_ranks_in_it():
    stated = written("deepspeed", dp=8, micro_batch_size=2)
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert [stated[name] for name in names] == [64, 2, 4]
    stated = written("deepspeed", dp=4, tp=2)
    assert "train_batch_size" not in stated
    assert stated["tensor_parallel"] == {"autotp_size": 2}


def test_a_share_of_the_optimizer_is_a_ratio():
    offload = OffloadSpec(optimizer=0.34)
    stated = written("deepspeed", dp=8, zero_stage=3, offload=offload)["zero_optimization"]
    assert stated["offload_optimizer"] == {"device": "cpu", "ratio": 0.34, "pin_memory": True}
    with pytest.raises(UnsupportedError, match="ratio below 1 zero_stage 3"):
        export("deepspeed", dp=8, zero_stage=2, offload=offload)


ON_DRIVES = OffloadSpec(optimizer=1, tier="nvme", parameters="nvme")


def driven(**layout):
    """On nodes whose drives are known."""
    job = job_of("deepspeed", cluster="1x8:h100-sxm@dgx-2")
    return EXPORTERS["deepspeed"](job, Layout(dp=8, zero_stage=3, **layout))


def test_what_lies_on_drives_has_a_folder_of_the_user_and_buffers_as_priced():
    """8.03e9 parameters over 8 ranks are two subgroups of 1e9, of four buffers each."""
    config = driven(offload=ON_DRIVES)
    assert "NVME_FOLDER" in {one.name for one in config.required_environment}
    stated = json.loads(config.files[0].text)
    zero, aio = stated["zero_optimization"], stated["aio"]
    assert zero["offload_optimizer"] == {
        "device": "nvme", "pin_memory": True, "ratio": 1.0, "nvme_path": "NVME_FOLDER",
        "buffer_count": 8, "pipeline_read": True, "pipeline_write": True,
    }  # fmt: skip
    assert zero["offload_param"] == {
        "device": "nvme", "pin_memory": True, "nvme_path": "NVME_FOLDER", "buffer_count": 5,
        "buffer_size": 100_000_000, "max_in_cpu": 0,
    }  # fmt: skip
    assert zero["sub_group_size"] == 1_000_000_000
    assert aio["block_size"] == 1 << 20


@pytest.mark.parametrize("folder", ["/drives/run 1", "/a;touch pwned", "/a$(touch pwned)"])
def test_the_script_writes_the_folder_into_the_file_and_again_where_it_is_another(folder, tmp_path):
    config = driven(offload=ON_DRIVES)
    script = LAUNCHERS["torchrun"](config, job_of("deepspeed").cluster, ()).text
    (tmp_path / "run.sh").write_text(script)
    (tmp_path / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "train.py").touch()
    file = tmp_path / config.files[0].name
    file.write_text(config.files[0].text)
    for one in ("/first", folder):
        stated = {"TRAIN_FOLDER": str(tmp_path), "NVME_FOLDER": one}
        stated["PATH"] = f"{tmp_path}:/usr/bin:/bin"
        subprocess.run(["bash", "run.sh"], cwd=tmp_path, env=stated, check=True)
        zero = json.loads(file.read_text())["zero_optimization"]
        assert zero["offload_param"]["nvme_path"] == zero["offload_optimizer"]["nvme_path"] == one
    assert not (tmp_path / "pwned").exists()
    stated["NVME_FOLDER"] = 'a"b'
    ran = subprocess.run(
        ["bash", "run.sh"], cwd=tmp_path, env=stated, check=False, capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert "NVME_FOLDER has a quote" in ran.stderr


def test_checkpoints_on_the_host_are_the_engines_own_which_a_module_gives_the_model():
    config = export("deepspeed", dp=8, zero_stage=3, offload=OffloadSpec(checkpoints=1), **FULL)
    stated = json.loads(config.files[0].text)
    assert stated["activation_checkpointing"] == {"cpu_checkpointing": True}
    assert config.files[1].name == "offloaded_checkpoints.py"
    flags = [argument.flag for argument in config.arguments]
    assert "--offloaded_checkpoints" in flags
    assert "--gradient_checkpointing" not in flags
    assert any("offloaded_checkpoints(model, config)" in note for note in config.notes)


@pytest.mark.parametrize("name", ["sgd", "muon"])
def test_only_adam_and_lion_update_on_processors(name):
    job = job_of("deepspeed")
    training = job.training.model_copy(update={"optimizer": OptimizerSpec(name=name)})
    job = job.model_copy(update={"training": training})
    with pytest.raises(UnsupportedError, match="Adam or Lion alone"):
        export("deepspeed", job, dp=8, zero_stage=3, offload=OffloadSpec(optimizer=1))


def test_groups_of_shards_are_no_partition_of_zero_plus_plus():
    """hpZ keeps a second copy of the weights on a node; states stay sharded over all."""
    copied, grouped = (
        written("deepspeed", dp=8, zero_stage=3, **layout)["zero_optimization"]
        for layout in ({"hpz": 4}, {"dp_replicate": 2})
    )
    keys = ("zero_hpz_partition_size", "mics_shard_size")
    assert [copied.get(key) for key in keys] == [4, None]
    assert [grouped.get(key) for key in keys] == [None, 4]


@pytest.mark.parametrize("runtime", ["accelerate", "torchtitan", "megatron-lm"])
def test_only_the_engine_keeps_second_copies(runtime):
    with pytest.raises(UnsupportedError, match=r"ZeRO\+\+|no option for hpz"):
        export(runtime, dp=8, zero_stage=3, hpz=4)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"gradient_bits": 4}, "reads the bits of gradients as fp16"), ({"weight_bits": 8}, None)],
)
def test_what_is_quantised_is_refused_where_the_engine_misreads_it(options, says):
    job = job_of("deepspeed", **options)
    if says is None:
        (file, *_) = export("deepspeed", job, dp=8, zero_stage=3).files
        assert json.loads(file.text)["zero_optimization"]["zero_quantized_weights"] is True
        return
    with pytest.raises(UnsupportedError, match=says):
        export("deepspeed", job, dp=8, zero_stage=3)


@pytest.mark.parametrize(("stage", "reshards"), [(2, False), (3, True)])
def test_the_zero_stage_of_fsdp2_is_a_policy(stage, reshards):
    stated = written("accelerate", dp=8, zero_stage=stage)["fsdp_config"]
    assert stated["fsdp_version"] == 2
    assert stated["fsdp_reshard_after_forward"] is reshards


def test_degrees_of_accelerate_are_those_of_its_mesh():
    stated = written("accelerate", dp=4, cp=2, dp_replicate=2, zero_stage=3)["parallelism_config"]
    prefix = "parallelism_config_"
    assert {name.removeprefix(prefix): value for name, value in stated.items()} == {
        "dp_replicate_size": 2,
        "dp_shard_size": 2,
        "tp_size": 1,
        "cp_size": 2,
        "cp_comm_strategy": "allgather",
    }


def test_variables_say_what_the_yaml_says():
    config = export("accelerate", dp=8, zero_stage=2)
    variables = {variable.name: variable.value for variable in config.environment}
    assert variables["ACCELERATE_USE_FSDP"] == "true"
    assert variables["FSDP_RESHARD_AFTER_FORWARD"] == "false"
    assert variables["PARALLELISM_CONFIG_DP_SHARD_SIZE"] == "8"
    assert variables["ACCELERATE_MIXED_PRECISION"] == "bf16"


@pytest.mark.parametrize(
    ("runtime", "changes", "says"),
    [
        ("accelerate", {"precision": "fp32"}, "fp32 is no precision .*: use bf16, fp16, tf32"),
        ("deepspeed", {"precision": "fp8"}, "fp8 is no precision"),
        ("deepspeed", {"moment_dtype": "bf16"}, "moment_dtype=bf16 has no key"),
        ("accelerate", {"gradient_dtype": "fp32"}, "gradient_dtype=fp32 has no key"),
        ("accelerate", {"cuda_graph": "full_iteration"}, "cuda_graph=full_iteration has no key"),
    ],
)
def test_what_has_no_key_is_refused(runtime, changes, says):
    with pytest.raises(UnsupportedError, match=says):
        export(runtime, job_of(runtime, **changes), dp=8, zero_stage=3)


def test_replicas_alone_reduce_after_the_backward_pass():
    with pytest.raises(UnsupportedError, match="overlap_grad_reduce=false"):
        export("deepspeed", dp=8, zero_stage=0)
    job = job_of("deepspeed", overlap_grad_reduce=False)
    config = export("deepspeed", job, dp=8, zero_stage=0)
    assert json.loads(config.files[0].text)["zero_optimization"] == {"stage": 0}


@pytest.mark.parametrize("runtime", ["deepspeed", "accelerate"])
def test_the_world_must_be_filled(runtime):
    with pytest.raises(PlanError, match="needs tp \\* cp \\* pp \\* dp = 4 GPUs"):
        export(runtime, dp=4, zero_stage=3)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "tf32"])
@pytest.mark.parametrize("runtime", ["deepspeed", "accelerate"])
def test_every_key_written_is_recorded(runtime, precision):
    job = job_of(runtime, precision)
    layouts = [{"dp": 8}, {"dp": 4, "tp": 2}, {"dp": 4, "cp": 2, **FULL}]
    if runtime == "deepspeed":
        config = driven(offload=ON_DRIVES.model_copy(update={"checkpoints": 1}), **FULL)
        assert missing_flags(config, recorded_flags(runtime)) == ()
    for layout in layouts:
        config = export(runtime, job, zero_stage=3, **layout)
        assert missing_flags(config, recorded_flags(runtime)) == ()


@pytest.mark.parametrize("launcher", ["torchrun", "slurm", "mpi", "kubernetes"])
@pytest.mark.parametrize("runtime", ["deepspeed", "accelerate"])
def test_a_hostile_name_stays_data(runtime, launcher, tmp_path):
    hostile = "x\"; touch pwned; $(touch pwned)\n- !!python/object: '"
    job = job_of(runtime, name=hostile)
    config = export(runtime, job, dp=8, zero_stage=3)
    text = config.files[0].text
    assert yaml.safe_load(text) if runtime == "accelerate" else json.loads(text)
    script = LAUNCHERS[launcher](config, job.cluster, ()).text
    if launcher == "kubernetes":
        assert yaml.safe_load(script)["kind"] == "TrainJob"
        return
    (tmp_path / "run.sh").write_text(script)
    subprocess.run(["bash", "run.sh"], cwd=tmp_path, capture_output=True, check=False)
    assert [*tmp_path.iterdir()] == [tmp_path / "run.sh"]


def test_tiles_are_a_module_that_the_script_calls():
    job = job_of("deepspeed")
    job = job.model_copy(
        update={"training": job.training.model_copy(update={"seq_length": 1 << 15})}
    )
    layout = {"cp": 2, "dp": 4, "zero_stage": 3, "tiled_loss": True, "tiled_mlp": True}
    config = export("deepspeed", job, **layout, **FULL)
    (module,) = [file for file in config.files if file.name == "tiled.py"]
    compile(module.text, module.name, "exec")
    assert "ACCUMULATED = 16  #" in module.text
    assert {"--tiled_loss", "--tiled_mlp"} <= {one.flag for one in config.arguments}
    scaled = job.model_copy(
        update={"training": job.training.model_copy(update={"precision": "fp16"})}
    )
    with pytest.raises(UnsupportedError, match="not written for scaled losses"):
        export("deepspeed", scaled, **layout, **FULL)


def test_kernels_of_liger_are_an_argument_of_the_trainer():
    job = job_of("accelerate", liger="0.6")
    config = export("accelerate", job, dp=8, zero_stage=3, tiled_loss=True)
    assert "--use_liger_kernel" in [one.flag for one in config.arguments]
    with pytest.raises(UnsupportedError, match="kernels of Liger tile the loss"):
        export("accelerate", job, dp=8, zero_stage=3)
