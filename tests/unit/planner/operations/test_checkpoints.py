"""A checkpoint of one plan in the hands of another, by what the runtimes' own sources say."""

import re
import tomllib
from importlib import resources

import pytest

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.operations import checkpoint_move, checkpoint_note, loadable
from trainplan.planner.runtimes import EXPORTERS

TABLE = tomllib.loads(
    resources.files("trainplan.planner.operations").joinpath("checkpoints.toml").read_text("utf-8")
)
RESHARDABLE = "save once more under the first layout with --dist-ckpt-optim-fully-reshardable"


def job(runtime="megatron-lm", model="llama3-8b", **training):
    spec = {"seq_length": 4096, "global_batch_size": 64} | training
    return Job(
        model=preset(model),
        training=TrainingSpec(**spec),
        cluster=parse_cluster("8x8:h100-sxm"),
        runtime=runtime,
    )


def moved(one, other, first=None, second=None):
    first = first or job()
    return checkpoint_move(first, Layout(**one), second or first, Layout(**other))


PLAIN = {"tp": 2, "dp": 8}


@pytest.mark.parametrize(
    "other",
    [
        PLAIN | {"dp": 16},
        PLAIN | {"cp": 2, "dp": 4},
        PLAIN | {"micro_batch_size": 2, "tiled_loss": True, "sequence_parallel": True},
    ],
)
def test_buckets_of_megatron_load_under_other_replicas_and_knobs(other):
    assert moved(PLAIN, other).loads == "as it is"


@pytest.mark.parametrize(
    "other",
    [{"tp": 4, "dp": 8}, {"tp": 2, "pp": 2, "dp": 8}, PLAIN | {"ep": 2}, PLAIN | {"etp": 2}],
)
def test_other_cuts_of_the_model_need_a_save_that_reshards(other):
    """megatron/training/checkpointing.py raises where tp or pp differ from the checkpoint's."""
    found = moved(PLAIN, PLAIN | other)
    assert (found.loads, found.commands) == ("after", (RESHARDABLE,))


def test_virtual_stages_and_uneven_stages_are_other_cuts():
    pipeline = {"pp": 4, "dp": 4, "tp": 4}
    deeper = pipeline | {"vpp": 2, "schedule": "interleaved"}
    uneven = pipeline | {"stages": stage_specs((7, 9, 9, 7))}
    assert moved(pipeline, deeper).loads == "after"
    assert moved(pipeline, uneven).loads == "after"


def test_buckets_grow_with_more_than_forty_replicas():
    """bucket_size = max(40 M, 1 M * replicas): the sizes of both must be the same."""
    assert moved({"dp": 32}, {"dp": 40}).loads == "as it is"
    found = moved({"dp": 40}, {"dp": 64})
    assert (found.loads, found.why) == ("after", "another size of gradient buckets")


def test_states_that_are_not_sharded_reshard_freely():
    whole = {"zero_stage": 0}
    assert (
        moved(whole | {"tp": 2, "dp": 8}, whole | {"tp": 4, "pp": 2, "dp": 2}).loads == "as it is"
    )


def test_torch_dist_becomes_fsdp_dtensor_and_not_back():
    sharded = {"dp": 16, "zero_stage": 3}
    found = moved({"dp": 16}, sharded)
    assert found.loads == "after"
    assert "convert-torch-dist-to-fsdp-dtensor" in found.commands[0]
    back = moved(sharded, {"dp": 16})
    assert (back.loads, back.commands) == ("weights alone", ("--no-load-optim --no-load-rng",))


def test_torchtitan_reshards_and_its_data_starts_anew_with_other_replicas():
    """components/data/loader.py raises where dp_world_size differs."""
    first = job("torchtitan")
    cuts = {"tp": 2, "pp": 2, "dp": 4, "zero_stage": 2}
    assert moved(cuts, cuts | {"tp": 4, "pp": 1}, first).loads == "as it is"
    found = moved(cuts, cuts | {"dp": 8}, first)
    assert found.loads == "after"
    assert "exclude_from_loading dataloader" in found.commands[0]


def test_deepspeed_counts_its_ranks():
    """runtime/engine.py compares seq_dp_world_size, replicas times sequence ranks."""
    first, sharded = job("deepspeed"), {"zero_stage": 3}
    assert moved(sharded | {"dp": 16}, sharded | {"dp": 8, "cp": 2}, first).loads == "as it is"
    found = moved(sharded | {"dp": 16}, sharded | {"dp": 32}, first)
    assert found.loads == "after"
    assert "ds_to_universal.py" in found.commands[0]
    stage = moved(sharded | {"dp": 16}, {"zero_stage": 1, "dp": 16}, first)
    assert (stage.loads, stage.why) == ("weights alone", "zero_stage: not looked up")


def test_another_model_never_fits_and_another_runtime_takes_weights():
    assert moved(PLAIN, PLAIN, job(), job(model="llama3-70b")).loads == "no"
    assert moved(PLAIN, PLAIN, job(), job("torchtitan")).loads == "not known"
    through = moved(PLAIN, PLAIN, job("megatron-bridge"), job("torchtitan"))
    assert through.loads == "weights alone"
    assert [command.split()[0] for command in through.commands] == [
        "./scripts/conversion/convert.sh",
        "python",
    ]


def test_another_optimizer_starts_its_states_anew():
    other = job(optimizer={"name": "muon"})
    found = moved(PLAIN, PLAIN, job(), other)
    assert (found.loads, found.commands) == ("weights alone", ("--no-load-optim --no-load-rng",))


def test_what_was_not_looked_up_is_not_known():
    assert moved(PLAIN, PLAIN, job("megatron-zero-bubble")).loads == "not known"
    assert checkpoint_note("megatron-zero-bubble", Layout()) == ""


def test_the_table_names_axes_that_there_are_and_options_that_runtimes_have():
    columns = {axis.column for axis in AXES} | {"stages", "offload", "cp_heads"}
    for kind in TABLE["kind"]:
        after = kind.get("after", {"fields": (), "command": ""})
        named = {*kind["free"], *after["fields"]}
        assert named <= columns
        assert not named & set(TABLE["neutral"])
        text = " ".join((kind["note"], kind.get("weights", ""), after["command"]))
        if kind["runtimes"] == ["megatron-lm"]:
            assert set(re.findall(r"--[\w-]+", text)) <= EXPORTERS["megatron-lm"].flags
    assert set(TABLE["neutral"]) <= columns


@pytest.mark.parametrize(
    ("options", "loads"),
    [({}, "after"), ({"bucket_mb": 128}, "as it is"), ({"overlap_grad_reduce": False}, "as it is")],
)
def test_buckets_of_a_stated_size_are_even_under_any_replicas(options, loads):
    own = job().model_copy(update={"options": RuntimeOptions.model_validate(options)})
    assert moved({"dp": 64}, {"dp": 128}, own, own).loads == loads
    assert moved({"dp": 64}, {"dp": 128}, own, job()).loads == "after"


def test_buckets_of_bridge_have_one_size_under_any_replicas():
    """resolve_ddp_bucket_size is Megatron-LM's; Bridge states 128 Mi elements for every launch."""
    assert moved({"dp": 64}, {"dp": 128}, job("megatron-bridge"), job("megatron-bridge")).loads == (
        "as it is"
    )


def test_a_size_that_is_stated_as_it_was_is_even():
    """max(40 M, 1 M * 64 replicas) elements of 4 bytes."""
    found = loadable(job(), Layout(dp=64, zero_stage=1)).bucket_mb
    assert found == 64e6 * 4 / 2**20
    own = job().model_copy(update={"options": RuntimeOptions(bucket_mb=found)})
    assert moved({"dp": 64}, {"dp": 128}, job(), own).loads == "as it is"
    assert loadable(own, Layout(dp=64, zero_stage=1)).bucket_mb is None
    assert loadable(job("torchtitan"), Layout(dp=64, zero_stage=1)).bucket_mb is None
