"""Plans of long sequences as the YAML of ArcticTraining."""

import pytest
import yaml

from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.compare import missing_flags, recorded_flags

FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
LONG = {"cp": 8, "zero_stage": 3, "tiled_loss": True, "tiled_mlp": True, **FULL}
AWAY = OffloadSpec(optimizer=1, tier="nvme", parameters="nvme", checkpoints=1)


KEPT = OffloadSpec()


MODEL = preset("llama3.1-8b")


def export(offload=KEPT, *, model=MODEL, seq=1 << 19, precision="bf16", options=None, **layout):
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=seq, global_batch_size=16, precision=precision),
        cluster=parse_cluster("1x8:h100-sxm@dgx-2"),
        runtime="arctic-training",
        options=RuntimeOptions(**(options or {})),
    )
    return EXPORTERS["arctic-training"](job, Layout(**{**LONG, **layout}, offload=offload))


def stated(*args, **kwargs):
    return yaml.safe_load(export(*args, **kwargs).files[0].text)


def test_techniques_of_long_sequences_have_keys():
    config = stated(OffloadSpec(checkpoints=1))
    assert config["sequence_parallel_size"] == 8
    assert config["tiled_mlp_compute"] is True
    assert config["activation_checkpoint_cpu_offload"] is True
    assert config["data"]["max_length"] == 1 << 19
    assert (config["micro_batch_size"], config["gradient_accumulation_steps"]) == (1, 16)
    plain = stated(tiled_mlp=False)
    assert "tiled_mlp_compute" not in plain
    assert "activation_checkpoint_cpu_offload" not in plain


def test_the_loss_is_tiled_with_sequence_ranks_or_by_liger():
    liger, alone = {"liger": "0.6"}, {"cp": 1, "dp": 8, "tiled_mlp": False, "seq": 1 << 15}
    assert stated(options=liger)["model"]["type"] == "liger"
    assert stated(options=liger, **alone)["model"]["type"] == "liger"
    assert stated()["model"]["type"] == "huggingface"
    assert stated(**alone, tiled_loss=False)["model"]["type"] == "huggingface"
    for layout in ({"tiled_loss": False}, alone, alone | {"tiled_loss": False, "options": liger}):
        with pytest.raises(UnsupportedError, match="tiles the loss with sequence ranks or kernels"):
            export(**layout)


def test_it_is_said_whose_gradients_are_not_divided():
    assert any("undivided" in note for note in export().notes)
    assert not any("undivided" in note for note in export(options={"liger": "0.6"}).notes)
    with pytest.raises(UnsupportedError, match=r"liger=0\.5 has no key"):
        export(options={"liger": "0.5"})


def test_kernels_of_liger_are_a_type_of_model():
    assert stated(options={"liger": "0.6"})["model"]["type"] == "liger"
    assert not any("--option liger" in note for note in export(options={"liger": "0.6"}).notes)
    with pytest.raises(UnsupportedError, match="liger"):
        export(options={"liger": "0.5"})
    with pytest.raises(UnsupportedError, match="tiled_loss"):
        export(options={"liger": "0.6"}, cp=1, dp=8, tiled_loss=False)


def test_an_offloaded_optimizer_is_one_for_processors():
    assert stated()["optimizer"]["type"] == "fused_adam"
    assert stated(OffloadSpec(optimizer=0.5))["optimizer"]["type"] == "cpu_adam"


def test_the_section_of_the_engine_is_that_of_deepspeed_without_what_the_trainer_writes():
    section = stated(AWAY)["deepspeed"]
    assert section["zero_optimization"]["offload_param"]["device"] == "nvme"
    assert section["seq_parallel_communication_data_type"] == "bf16"
    assert section["aio"]["queue_depth"] == 8
    assert not {"train_batch_size", "bf16", "sequence_parallel_size", "optimizer"} & {*section}


def test_what_only_the_user_knows_is_filled_in():
    config = export(AWAY)
    names = {one.name for one in config.required_environment}
    assert names == {"DATA_FILES", "NVME_FOLDER"}, "the model has a name"
    (file,) = config.files
    assert [(key, one.name) for key, one in file.filled_in] == [
        ("data_files", "DATA_FILES"), ("nvme_path", "NVME_FOLDER"),
    ]  # fmt: skip
    assert file.text.count("name_or_path: meta-llama/") == 1


def test_a_model_without_a_name_is_left_to_the_user():
    config = export(model=MODEL.model_copy(update={"vocab_size": 1024}))
    assert [one.name for one in config.required_environment] == ["MODEL", "DATA_FILES"]
    assert config.files[0].text.count('name_or_path: "MODEL"') == 1, "the other is no placeholder"


def test_recomputation_is_on_unless_the_file_says_otherwise():
    none = dict.fromkeys(("recompute_method", "recompute_num_layers")) | {"recompute": "none"}
    assert stated(**none)["model"]["disable_activation_checkpoint"] is True
    assert stated()["model"]["disable_activation_checkpoint"] is False


@pytest.mark.parametrize("offload", [KEPT, AWAY, OffloadSpec(optimizer=0.5)])
@pytest.mark.parametrize("options", [{}, {"gradient_dtype": "fp32"}])
def test_every_key_written_is_recorded(offload, options):
    config = export(offload, options=options)
    keys = [key for key, _ in config.keys if key != "data.sources"]
    assert {f"--{key}" for key in keys} <= recorded_flags("arctic-training")
    assert missing_flags(config, recorded_flags("arctic-training")) == ()


def test_its_checkpoints_are_copied_by_the_stream_that_computes():
    offload_policy = {
        name: RUNTIMES[name].offloading.offload_policy for name in ("deepspeed", "arctic-training")
    }
    alongside = {name: one(3, 1).overlaps_checkpoints for name, one in offload_policy.items()}
    assert alongside == {"deepspeed": True, "arctic-training": False}


def test_what_its_models_cannot_be_is_refused():
    with pytest.raises(UnsupportedError, match="tf32 is no dtype"):
        export(precision="tf32")
