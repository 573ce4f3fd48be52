"""A layout as a config of torchtitan: every value is said, or refused by name."""

import ast
from pathlib import Path

import pytest

from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec, stage_specs
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.compare import missing_flags, recorded_flags
from trainplan.planner.runtimes.torch_schedule_csv import program_of_csv
from trainplan.planner.runtimes.torchtitan.write.facts import flavours, what_it_builds

GOLDEN = Path(__file__).parents[3] / "golden" / "torchtitan"
FSDP = {"dp": 8, "zero_stage": 3}
PIPELINE = {"pp": 4, "dp": 2, "zero_stage": 1}
BLOCK = {"recompute": "full", "recompute_method": "block"}


def job_of(model, cluster="1x8:h100-sxm", precision="bf16", **options):
    spec = preset(model) if isinstance(model, str) else model
    return Job(
        model=spec,
        training=TrainingSpec(seq_length=2048, global_batch_size=64, precision=precision),
        cluster=parse_cluster(cluster),
        runtime="torchtitan",
        options=RuntimeOptions(**options),
    )


def export(model="llama3.1-8b", cluster="1x8:h100-sxm", precision="bf16", options=None, **layout):
    job = job_of(model, cluster, precision, **(options or {}))
    return EXPORTERS["torchtitan"](job, Layout(**layout))


def keys(**changes):
    return dict(export(**changes).keys)


def refused(says, **changes):
    with pytest.raises(UnsupportedError, match=says):
        export(**changes)


EXPORTS = {
    "dense": {
        "cluster": "2x8:h100-sxm",
        "tp": 2,
        "dp": 8,
        "dp_replicate": 2,
        "zero_stage": 3,
        "sequence_parallel": True,
        "recompute": "selective",
        "recompute_modules": ("torchtitan_selective_op",),
    },
    "table": {
        "model": "llama2-7b",
        "precision": "fp8",
        "schedule": "zb-h1",
        **PIPELINE,
        **BLOCK,
        "recompute_num_layers": 2,
    },
}


@pytest.mark.parametrize("name", EXPORTS)
def test_the_module_is_as_it_was_checked(name):
    golden = (GOLDEN / f"{name}.txt").read_text("utf-8")
    assert export(**EXPORTS[name]).files[0].text == golden


def test_a_flavour_of_the_registry_is_called_by_name():
    spec = keys(**FSDP)["model_spec"]
    assert spec == "llama3.model_registry('8B', attn_backend='flex')"


def test_another_size_is_built_as_the_family_builds_its_own():
    spec = keys(model="llama3-8b", **FSDP)["model_spec"]
    assert spec.startswith("sized(llama3, flavor='llama3-8b', dim=4096, vocab_size=128256")
    assert "llama3._build_llama3_layers(n_layers=32, dim=4096, n_heads=32, n_kv_heads=8" in spec


def test_heads_without_norms_leave_a_family_that_has_them():
    config = export(model="mixtral-8x7b", ep=8, **FSDP)
    assert "without_qk_norm(qwen3._build_qwen3_moe_layers(" in dict(config.keys)["model_spec"]
    assert "def without_qk_norm(layers):" in config.files[0].text


def test_the_batch_is_told_in_tokens():
    stated = keys(dp=4, pp=2, zero_stage=1, micro_batch_size=2)
    assert stated["training.num_tokens_per_microbatch_per_dp_rank"] == "4096"
    assert stated["training.num_tokens_per_train_step"] == str(64 * 2048)
    assert stated["parallelism.num_pp_microbatches"] == "8"
    assert stated["training.max_context_length"] == "2048"


@pytest.mark.parametrize(
    ("layout", "replicate", "shard", "policy"),
    [
        ({"dp": 8, "zero_stage": 3}, "1", "8", "default"),
        ({"dp": 8, "zero_stage": 2}, "1", "8", "never"),
        ({"dp": 8, "zero_stage": 0}, "8", "1", "default"),
        ({"dp": 8, "dp_replicate": 2, "zero_stage": 3}, "2", "4", "default"),
        ({"dp": 4, "pp": 2, "zero_stage": 1}, "1", "4", "default"),
    ],
)
def test_the_zero_stage_is_two_degrees_and_a_policy(layout, replicate, shard, policy):
    stated = keys(**layout)
    assert stated["parallelism.data_parallel_replicate_degree"] == replicate
    assert stated["parallelism.data_parallel_shard_degree"] == shard
    assert stated["parallelism.fsdp_reshard_after_forward"] == policy


@pytest.mark.parametrize(
    ("schedule", "vpp", "name", "table"),
    [
        ("1f1b", 1, "1F1B", False),
        ("gpipe", 1, "GPipe", False),
        ("zb-h1", 1, "1F1B", True),
        ("zb-h2", 1, "1F1B", True),
        ("interleaved", 2, "Interleaved1F1B", False),
        ("breadth-first", 2, "LoopedBFS", False),
        ("zb-h1", 2, "InterleavedZeroBubble", False),
        ("zb-v", 2, "ZBVZeroBubble", False),
        ("dualpipe-v", 2, "DualPipeV", False),
        ("v-half", 2, "ZBVZeroBubble", True),
        ("v-min", 2, "ZBVZeroBubble", True),
    ],
)
def test_a_schedule_is_a_class_of_torch_or_a_table_beside_one(schedule, vpp, name, table):
    config = export(model="llama2-7b", schedule=schedule, vpp=vpp, **PIPELINE)
    assert dict(config.keys)["parallelism.pipeline_parallel_schedule"] == name
    assert ("parallelism.pipeline_parallel_schedule_csv" in dict(config.keys)) == table
    if table:
        program = program_of_csv(config.files[1].text)
        assert (program.pp, program.num_microbatches) == (4, 32)


def test_every_stage_names_its_modules():
    stated = keys(model="llama2-7b", stages=stage_specs((7, 9, 9, 7)), **PIPELINE)
    parts = ast.literal_eval(stated["parallelism.module_fqns_per_model_part"])
    assert [len(part) for part in parts] == [8, 9, 9, 9]
    assert parts[0][:2] == ["tok_embeddings", "layers.0"]
    assert parts[-1][-3:] == ["layers.31", "norm", "lm_head"]


@pytest.mark.parametrize(
    ("recompute", "says"),
    [
        ({}, "None"),
        (
            {"recompute": "selective", "recompute_modules": ("torchtitan_selective_op",)},
            "SelectiveAC.Config()",
        ),
        ({**BLOCK, "recompute_method": "uniform", "recompute_num_layers": 1}, "FullAC.Config()"),
        ({**BLOCK, "recompute_num_layers": 8}, "EveryKth.Config(every=4)"),
        ({**BLOCK, "recompute_num_layers": 32}, "FullAC.Config()"),
    ],
)
def test_recomputation_is_a_policy(recompute, says):
    assert keys(**FSDP, **recompute)["activation_checkpoint"] == says


def test_graphs_are_off_unless_the_job_has_them():
    assert keys(**FSDP)["training.disable_cuda_graphs"] == "True"
    stated = keys(options={"cuda_graph": "full_iteration"}, **FSDP)
    assert stated["training.disable_cuda_graphs"] == "False"


def test_the_compiler_takes_model_and_loss_unless_one_is_left_out():
    assert keys(**FSDP)["compile.components"] == "['model', 'loss']"
    assert keys(options={"cross_entropy": "unfused"}, **FSDP)["compile.components"] == "['model']"
    alone = keys(options={"compile": False, "cross_entropy": "jit"}, **FSDP)
    assert alone["compile.components"] == "['loss']"
    assert keys(options={"compile": False}, **FSDP)["compile.enable"] == "False"


def test_a_loss_in_chunks_wraps_the_other():
    text = export(tiled_loss=True, **FSDP).files[0].text
    assert "loss=ChunkedLossWrapper.Config(" in text
    assert "num_chunks=8" in text
    assert "import ChunkedLossWrapper, CrossEntropyLoss" in text
    assert "ChunkedLossWrapper" not in export(**FSDP).files[0].text


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_low_precision_is_a_converter_that_spares_the_head(precision):
    spec = keys(precision=precision, **FSDP)["model_spec"]
    prefix = {"fp8": "Float8", "mxfp8": "MXFP8", "nvfp4": "NVFP4"}[precision]
    assert f"converters=[{prefix}LinearConverter.Config(" in spec


def test_the_recipe_of_fp8_is_named_where_the_job_states_it():
    named = keys(precision="fp8", options={"fp8_recipe": "rowwise_with_gw_hp"}, **FSDP)
    assert "recipe_name='rowwise_with_gw_hp'" in named["model_spec"].replace('"', "'")
    assert "recipe_name" not in keys(precision="fp8", **FSDP)["model_spec"]
    refused("went with 2025's TOML", precision="fp8", options={"fp8_recipe": "tensorwise"}, **FSDP)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dp": 8, "zero_stage": 1}, "zero_stage 2 or 3 with pp = 1"),
        ({"pp": 2, "dp": 4, "zero_stage": 3}, "which is zero_stage 1: set it"),
        ({"cp": 2, "dp": 4, "zero_stage": 0}, "context ranks always share"),
        ({"tp": 16, "zero_stage": 3, "cluster": "2x8:h100-sxm"}, "multiple of tp"),
        ({"pp": 8, "zero_stage": 1, "micro_batch_size": 16}, "as many micro batches as stages"),
        ({"pp": 4, "dp": 2, "schedule": "zb-1p", "zero_stage": 1}, "executes no schedule but"),
        ({"model": "llama3.2-1b", "pp": 2, "dp": 4, "zero_stage": 1}, "one weight"),
        ({"model": "deepseek-v3", "pp": 2, "dp": 4, "ep": 4, "zero_stage": 1}, "multi-token"),
        ({"model": "qwen3-30b-a3b", "tp": 2, "dp": 4, "zero_stage": 3}, "set etp to tp or to 1"),
        ({"model": "qwen3-30b-a3b", "dp": 8, "dp_replicate": 2, "ep": 8, "zero_stage": 3},
         "takes ep from the ranks"),
        ({"model": "gpt-oss-20b", "cp": 2, "dp": 4, "zero_stage": 3}, "gpt_oss does not run"),
        ({"model": "gpt3-175b", **FSDP}, "norms other than RMSNorm"),
        ({"model": "mistral-7b", **FSDP}, "sliding windows"),
        ({"model": "qwen2.5-7b", **FSDP}, "biases of attention"),
        ({"model": "gemma2-9b", **FSDP}, "does not build"),
        ({"precision": "fp16", **FSDP}, "precision fp16 has no key"),
        ({"model": "qwen3-30b-a3b", "precision": "nvfp4", "ep": 8, **FSDP}, "no experts in nvfp4"),
        ({"options": {"moment_dtype": "bf16"}, **FSDP}, "moment_dtype=bf16 has no key"),
        ({"options": {"cuda_graph": "full_iteration"}, **PIPELINE}, "runs without pipeline"),
        ({"recompute": "selective", "recompute_modules": ("core_attn",), **FSDP}, "by operation"),
    ],
)  # fmt: skip
def test_what_it_does_not_run_is_refused_by_name(changes, says):
    refused(says, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        FSDP,
        {**PIPELINE, "schedule": "zb-h2"},
        {"model": "qwen3-30b-a3b", "ep": 8, **FSDP},
        {"options": {"compile": False}, **FSDP},
        {"options": {"overlap_tp_comm": True}, "tp": 2, "dp": 4, "zero_stage": 3},
    ],
)
def test_every_key_written_is_recorded(changes):
    config = export(**changes)
    assert missing_flags(config, recorded_flags("torchtitan")) == ()


@pytest.mark.parametrize(
    "name", ["a'''\nimport os\n", '"""', "x\\", "$(touch canary)", "\u2028import os", "{0}"]
)
def test_a_hostile_name_stays_data(name):
    model = preset("llama3-8b").model_copy(update={"name": name})
    text = export(model=model, **FSDP).files[0].text
    tree = ast.parse(text)
    ours = {"os", "dataclasses"}
    imports = {a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names}
    assert imports <= ours
    kinds = {ast.Import, ast.ImportFrom, ast.FunctionDef}
    assert {type(node) for node in tree.body} == kinds
    assert repr(name) in text


def test_presets_that_are_flavours_are_found():
    same = {
        f"{flavour.module} {flavour.name}": name
        for flavour, model in flavours().items()
        for name in ("llama3.1-8b", "llama3.1-70b", "llama3.1-405b", "qwen3-8b", "gpt-oss-20b")
        if what_it_builds(model) == what_it_builds(preset(name))
    }
    assert same == {
        "llama3 8B": "llama3.1-8b",
        "llama3 70B": "llama3.1-70b",
        "llama3 405B": "llama3.1-405b",
        "qwen3 8B": "qwen3-8b",
        "gpt_oss 20b": "gpt-oss-20b",
    }


def test_a_module_beside_the_script_is_on_the_path():
    config = export(**FSDP)
    for launcher in LAUNCHERS.values():
        text = launcher(config, parse_cluster("1x8:h100-sxm")).text
        assert 'export PYTHONPATH="$LAUNCH_DIR${PYTHONPATH:+:$PYTHONPATH}"' in text


EVERY = "fault_tolerance.sync_steps"
OUTER = {"islands": 2, "every": 100, "gb_per_s": 0.125}


def island(model="llama3-8b", outer=None, states="o0", options=None, **layout):
    job = job_of(model, **(options or {}))
    training = job.training.model_copy(update={"state_precision": states})
    own = {"training": training, "outer": OuterSpec(**OUTER | (outer or {}))}
    return EXPORTERS["torchtitan"](job.model_copy(update=own), Layout(**layout or FSDP))


def test_an_island_is_a_launch_of_its_own_that_torchft_joins_with_the_others():
    config = island()
    joined = {k: v for k, v in config.keys if k.startswith("fault_tolerance.")}
    assert joined == {
        "fault_tolerance.enable": "True",
        "fault_tolerance.semi_sync_method": "diloco",
        "fault_tolerance.group_size": "2",
        "fault_tolerance.min_replica_size": "2",
        "fault_tolerance.replica_id": 'int(os.environ["ISLAND"])',
        "fault_tolerance.sync_steps": "100",
        "fault_tolerance.should_quantize": "False",
        "fault_tolerance.num_fragments": "1",
        "fault_tolerance.process_group": "nccl",
        "fault_tolerance.process_group_timeout_ms": joined[
            "fault_tolerance.process_group_timeout_ms"
        ],
    }
    assert dict(config.keys)["training.num_tokens_per_train_step"] == str(2 * 64 * 2048)
    assert missing_flags(config, recorded_flags("torchtitan")) == ()
    text = config.files[0].text
    assert "def trainplan() -> FaultTolerantTrainer.Config:" in text
    assert "import Trainer\n" not in text
    assert "CheckpointManager\n" not in text.replace("TorchFTCheckpointManager\n", "")
    assert ast.parse(text)
    required = {one.name: one.sentence for one in config.required_environment}
    assert "0 to 1" in required["ISLAND"]
    assert "torchft_lighthouse --min_replicas 2" in required["TORCHFT_LIGHTHOUSE"]


def test_what_joins_waits_ten_times_as_long_as_a_sync_takes():
    config = island()
    limits = {one.name: int(one.value) for one in config.environment}
    sent_bytes = 2 * (2 - 1) / 2 * 8.03e9 * 4
    nic_efficiency = machine_for(job_of("llama3-8b")).constants.nic_efficiency
    sync_s = sent_bytes / (0.125e9 * nic_efficiency)
    assert limits["TORCHFT_TIMEOUT_SEC"] == pytest.approx(10 * sync_s, rel=1e-3)
    assert limits["TORCHFT_QUORUM_TIMEOUT_SEC"] == 3600
    keys = dict(config.keys)
    assert keys["comm.train_timeout_seconds"] == str(limits["TORCHFT_TIMEOUT_SEC"])
    assert keys["fault_tolerance.process_group_timeout_ms"] == f"{limits['TORCHFT_TIMEOUT_SEC']}000"
    fast = dict(island(outer={"gb_per_s": 400.0}).keys)
    assert fast["comm.train_timeout_seconds"] == "100"
    assert fast["fault_tolerance.process_group_timeout_ms"] == "60000"


def test_free_rounds_are_the_fewest_that_keep_an_island_busy():
    slow, fast = (
        int(dict(island(outer={"every": None, "gb_per_s": speed}).keys)[EVERY])
        for speed in (0.125, 12.5)
    )
    assert slow == pytest.approx(100 * fast, rel=0.05)
    assert fast > 1


def test_fragments_overlap_and_eight_bits_are_keys():
    config = island(outer={"fragments": 4, "overlap": 3, "dtype": "fp8"})
    keys = dict(config.keys)
    assert keys["fault_tolerance.num_fragments"] == "4"
    assert keys["fault_tolerance.fragment_sync_delay"] == "3"
    assert keys["fault_tolerance.fragment_update_alpha"] == "0.5"
    assert keys["fault_tolerance.should_quantize"] == "True"
    assert keys["model_spec"].startswith("in_fragments(")
    assert "fragment_fn=fragment_llm" in config.files[0].text
    assert any("Triton" in note for note in config.notes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"outer": {"overlap": "eager"}}, "no eager updates: hide a sync by .* 99 at most"),
        ({"outer": {"dtype": "int8"}}, "use --outer-dtype fp32 or fp8, not int8"),
        ({"outer": {"dtype": "bf16"}}, "as weights are stored .fp32., or in fp8"),
        ({"states": "bf16"}, "use --outer-dtype bf16 or fp8, not fp32"),
        ({"options": {"cuda_graph": "full_iteration"}}, "gradients that an outer step replaces"),
        ({"outer": {"fragments": 50}}, "32 layers make no 50 fragments: give 34 or fewer"),
        ({"model": "llama3.2-1b", "outer": {"fragments": 2}}, "none of a tied embedding"),
        ({"outer": {"fragments": 2}, **PIPELINE}, "which no stage of a pipeline has"),
        ({"vpp": 2, "schedule": "interleaved", **PIPELINE}, "set vpp to 1"),
        ({**FSDP, "dp_replicate": 2}, "every copy of the weights in an island would be sent"),
        (
            {"offload": OffloadSpec(optimizer=1.0, parameters="cpu"), **FSDP},
            "outer steps join weights on GPUs",
        ),
    ],
)
def test_what_torchft_does_not_join_is_refused_by_name(changes, says):
    with pytest.raises(UnsupportedError, match=says):
        island(**changes)


@pytest.mark.parametrize("runtime", sorted(set(EXPORTERS) - {"torchtitan"}))
def test_no_other_runtime_has_outer_steps(runtime):
    job = job_of("llama3-8b")
    job = job.model_copy(update={"runtime": runtime, "outer": OuterSpec(**OUTER)})
    with pytest.raises(UnsupportedError, match="no outer steps among islands: plan for torchtitan"):
        EXPORTERS[runtime](job, Layout(dp=8, zero_stage=1))
