"""Launches of torchtitan as people write them: what is read, from where, and what is wrong."""

import textwrap
import tomllib

import pytest

from tests.torchtitan_jobs import launch, word
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import OffloadSpec
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.torchtitan.read import TORCHTITAN
from trainplan.planner.shell import Launch

OWN = textwrap.dedent(
    """
    from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.distributed.activation_checkpoint import FullAC
    from torchtitan.models.llama3 import model_registry
    from torchtitan.trainer import Trainer

    CONTEXT = 4096

    def _training(batch):
        return TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=batch * CONTEXT,
            max_context_length=CONTEXT,
        )

    def mine() -> Trainer.Config:
        config = Trainer.Config(
            model_spec=model_registry("70B", attn_backend="flex"),
            training=_training(2),
            activation_checkpoint=FullAC.Config(),
            compile=CompileConfig(enable=True),
        )
        config.parallelism = ParallelismConfig(tensor_parallel_degree=8)
        config.training.disable_cuda_graphs = True
        return config
    """
)


def read(*arguments, nodes=1, gpus=8, files=None, cluster=None, model=None, strict=False, **more):
    wanted = Request(
        strict=strict,
        cluster=parse_cluster(cluster) if cluster else None,
        model=preset(model) if model else None,
        text_of=(files or {}).get,
    )
    return TORCHTITAN.read(launch(*arguments, nodes=nodes, gpus=gpus, **more), wanted)


def module(*lines, config="llama3_debugmodel"):
    """A config module that changes one of torchtitan's."""
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"from torchtitan.models.llama3.config_registry import {config}\n"
        f"def mine():\n    config = {config}()\n{body}    return config\n"
    )


def joins(more="sync_steps=10", method="'diloco'"):
    """A line that has torchft join two islands."""
    of = f"enable=True, group_size=2, semi_sync_method={method}"
    return f"config.fault_tolerance = FaultTolerance({of}, {more})"


def changed(*lines, **more):
    files = {"my_config.py": module(*lines)}
    return read("--module", "my_config", "--config", "mine", files=files, **more)


def causes(reading, verdict=None):
    return [p.cause for p in reading.problems if verdict in (None, p.verdict)]


def field(reading, name):
    return next(one for one in reading.fields if one.name == name)


def test_a_ready_made_config_is_known_without_its_file():
    reading = read("--module", "llama3", "--config", "llama3_8b")
    assert reading.legal
    assert reading.job.model == preset("llama3.1-8b")
    assert reading.job.training.seq_length == 8192
    assert reading.job.training.global_batch_size == 8
    assert reading.job.cluster.name == "1x8:h100-sxm"
    layout = reading.layout
    assert (layout.dp, layout.zero_stage, layout.recompute) == (8, 3, "selective")
    assert reading.job.options.cuda_graph == "full_iteration"
    assert reading.job.options.compile is False


@pytest.mark.parametrize("mode", ["full", "none"])
def test_a_mode_of_recomputation_of_older_releases_is_taken(mode):
    reading = read("--module=llama3", "--config=llama3_8b", f"--activation_checkpoint.mode={mode}")
    assert reading.layout.recompute == mode


def test_options_of_the_command_go_before_the_config():
    reading = read(
        "--module=llama3", "--config=llama3_8b", "--parallelism.tensor-parallel-degree", "2",
        "--training.num_tokens_per_train_step=524288", "--training.disable-cuda-graphs",
        "--parallelism.no-enable-sequence-parallel", "activation-checkpoint:full",
    )  # fmt: skip
    assert (reading.layout.tp, reading.layout.dp) == (2, 4)
    assert reading.job.training.global_batch_size == 64
    assert reading.job.options.cuda_graph is None
    assert not reading.layout.sequence_parallel
    assert reading.layout.recompute == "full"
    printed = field(reading, "layout.tp")
    assert (printed.origin, printed.written) == ("stated", "--parallelism.tensor-parallel-degree 2")


def test_a_module_of_ones_own_is_read_with_its_lines():
    reading = read(
        "--module", "my_config", "--config", "mine", nodes=4, files={"my_config.py": OWN}
    )
    assert reading.legal
    assert reading.job.model == preset("llama3.1-70b")
    assert (reading.layout.tp, reading.layout.dp, reading.layout.micro_batch_size) == (8, 4, 2)
    assert reading.layout.sequence_parallel
    assert reading.layout.recompute == "full"
    assert reading.job.options.cross_entropy is None
    assert not reading.layout.tiled_loss
    place = field(reading, "training.seq_length").place
    assert (place.file, place.line) == ("my_config.py", 12)
    assert field(reading, "layout.sequence_parallel").origin == "default"


@pytest.mark.parametrize(
    ("loss", "tiled", "says"),
    [
        ("ChunkedLossWrapper.Config()", True, False),
        ("ChunkedLossWrapper.Config(num_chunks=8)", True, False),
        ("ChunkedLossWrapper.Config(num_chunks=1)", False, False),
        ("ChunkedLossWrapper.Config(num_chunks=4)", True, True),
        ("CrossEntropyLoss.Config()", False, False),
    ],
)
def test_the_loss_is_read_in_chunks_or_whole(loss, tiled, says):
    text = OWN.replace(
        "        activation_checkpoint", f"        loss={loss},\n        activation_checkpoint"
    )
    reading = read("--module", "my_config", "--config", "mine", files={"my_config.py": text})
    assert reading.layout.tiled_loss is tiled
    assert ("loss_chunks" in [one.cause for one in reading.problems]) is says


def test_the_configs_of_the_registries_take_the_loss_in_chunks():
    for config, tiled in (("llama3_8b", True), ("llama3_debugmodel_ce_loss", False)):
        reading = read("--module", "llama3", "--config", config)
        assert reading.layout.tiled_loss is tiled


def test_the_gpu_is_assumed_and_said():
    assert field(changed(), "cluster.num_nodes").origin == "stated"
    assert field(changed(), "cluster.gpu").origin == "assumed"
    reading = changed(cluster="1x8:a100-sxm-80gb")
    assert reading.job.cluster.name == "1x8:a100-sxm-80gb"
    assert "cluster.gpu" not in [one.name for one in reading.fields]


def test_stages_are_those_that_the_runtime_makes_by_itself():
    reading = read(
        "--module", "llama3", "--config", "llama3_8b", "--parallelism.pipeline_parallel_degree",
        "2", "--parallelism.pipeline_parallel_schedule", "Interleaved1F1B",
        "--parallelism.num_pp_microbatches", "8", "--training.disable_cuda_graphs",
    )  # fmt: skip
    assert reading.legal
    assert reading.layout.schedule == "interleaved"
    assert (reading.layout.vpp, reading.layout.zero_stage) == (2, 1)
    assert [stage.layers for stage in reading.layout.stages] == [8, 9, 8, 7]


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["config.parallelism.tensor_parallel_degree = 3"], "world_size"),
        (["config.parallelism.tensor_parallel_degree = 0"], "not_positive"),
        (["config.parallelism.tensor_parallel_degree = 'two'"], "wrong_kind"),
        (["config.parallelism.pipeline_parallel_degree = 2",
          "config.parallelism.num_pp_microbatches = 8"], "graphs_pipeline"),
        (["config.parallelism.pipeline_parallel_degree = 2",
          "config.parallelism.pipeline_parallel_schedule = '1F1B'",
          "config.training.disable_cuda_graphs = True"], "pipeline_is_filled"),
        (["config.parallelism.pipeline_parallel_degree = 2",
          "config.parallelism.pipeline_parallel_schedule = 'Fancy'",
          "config.training.disable_cuda_graphs = True"], "unknown_schedule"),
        (["config.parallelism.pipeline_parallel_degree = 8",
          "config.training.disable_cuda_graphs = True"], "stages_fill_ranks"),
        (["config.training.num_tokens_per_train_step = 100_000"], "micro_batch_divides_batch"),
        (["config.training.max_context_length = 262144",
          "config.training.num_tokens_per_microbatch_per_dp_rank = 262144"],
         "positions_hold_sequence"),
        (["config.parallelism.context_parallel_degree = 2",
          "config.parallelism.spmd_backend = 'partial_dtensor'"], "context_backend"),
        (["config.compile.enable_async_tensor_parallel = True"], "async_tp_compile"),
        (["config.parallelism.fsdp_reshard_after_forward = 'sometimes'"], "reshard_policy"),
        (["config.parallelism.expert_parallel_degree = 16"], "experts_fold_into_ranks"),
        ([joins("sync_steps=10, num_fragments=3")], "outer_steps_take_turns"),
        ([joins("sync_steps=10, num_fragments=2, fragment_sync_delay=5")],
         "outer_steps_take_turns"),
        ([joins("sync_steps=-4")], "outer_steps_take_turns"),
        ([joins(method="'sgd'")], "semi_sync_method"),
    ],
)  # fmt: skip
def test_what_stops_the_runtime_is_illegal(lines, cause):
    reading = changed(*lines, strict=True)
    assert cause in causes(reading, "illegal")
    assert not reading.legal


@pytest.mark.parametrize(
    ("model", "lines", "cause"),
    [
        ("1B", ["config.parallelism.pipeline_parallel_degree = 2"], "tied_pipeline"),
        ("8B", ["config.parallelism.tensor_parallel_degree = 16"], "tp_divides_heads"),
    ],
)
def test_what_the_model_forbids_is_illegal(model, lines, cause):
    spec = f'config.model_spec = model_registry("{model}")'
    text = "from torchtitan.models.llama3 import model_registry\n"
    files = {"my_config.py": text + module(spec, *lines)}
    reading = read("--module", "my_config", "--config", "mine", nodes=2, files=files)
    assert cause in causes(reading, "illegal")


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["config.training.enable_cpu_offload = True",
          "config.parallelism.fsdp_reshard_after_forward = 'never'"], "cpu_offload"),
        (["config.training.num_tokens_per_microbatch_per_dp_rank = 3000"], "packed_sequences"),
        (["config.activation_checkpoint = MemoryBudgetAC.Config(memory_budget=0.3)"],
         "activation_checkpoint"),
        ([joins(method="'local_sgd'")], "joined_replicas"),
        ([joins(method="None")], "joined_replicas"),
        ([joins("fragment_sync_delay=3")], "outer_steps_take_back"),
        ([joins("sync_steps=1000000000")], "outer_steps"),
    ],
)  # fmt: skip
def test_what_is_not_priced_is_said(lines, cause):
    assert cause in causes(changed(*lines), "unmodelled")


def test_one_key_keeps_weights_gradients_and_optimizer_on_the_host():
    reading = changed("config.training.enable_cpu_offload = True")
    assert "cpu_offload" not in causes(reading, "unmodelled")
    assert reading.layout.offload == OffloadSpec(optimizer=1, parameters="cpu")


def test_experts_of_a_dense_model_are_ignored():
    assert "ep_needs_experts" in causes(
        changed("config.parallelism.expert_parallel_degree = 2"), "ignored"
    )


@pytest.mark.parametrize(("strict", "verdict"), [(True, "illegal"), (False, "unread")])
def test_an_option_without_a_key_stops_this_release_alone(strict, verdict):
    words = ("--module", "llama3", "--config", "llama3_8b", "--parallelism.tensor_parallel", "2")
    assert causes(read(*words, strict=strict), verdict) == ["unknown_key"]


def test_what_another_line_may_cure_is_not_judged():
    reading = changed("config.parallelism.expert_parallel_degree = 16")
    assert causes(reading, "illegal") == []
    assert reading.legal is None


@pytest.mark.parametrize(
    "line",
    [
        "config.parallelism.tensor_parallel_degree = int(os.environ['TP'])",
        "config.parallelism.tensor_parallel_degree = pick()",
        "config.parallelism.tensor_parallel_degree = [2][N]",
        "if FAST: config.parallelism.tensor_parallel_degree = 2",
        "for d in degrees(): config.parallelism.tensor_parallel_degree = d",
        "config.parallelism = pick()",
    ],
)
def test_what_only_a_run_would_tell_is_unread_with_its_line(line):
    reading = changed(line)
    (problem,) = (p for p in reading.problems if p.verdict == "unread")
    assert problem.cause == "unread_value"
    assert (problem.place.file, problem.place.line) == ("my_config.py", 4)


@pytest.mark.parametrize(
    "line",
    [
        "config.parallelism.tensor_parallel_degree = [2][0]",
        "for d in (1, 2): config.parallelism.tensor_parallel_degree = d",
        "if 2 in [1, 2]: config.parallelism.tensor_parallel_degree = 2",
    ],
)
def test_what_the_text_alone_decides_is_read(line):
    reading = changed(line)
    assert (reading.problems, reading.layout.tp) == ((), 2)


def test_functions_of_the_module_are_followed_where_they_change_a_config():
    text = module("twice(config)") + (
        "def twice(c):\n    c.parallelism.tensor_parallel_degree = 2\n"
        "    c.parallelism.data_parallel_replicate_degree = WORLD // 4\nWORLD = 8\n"
    )
    reading = read("--module", "my_config", "--config", "mine", files={"my_config.py": text})
    assert (reading.layout.tp, reading.layout.dp_replicate, reading.layout.dp) == (2, 2, 4)


def test_a_config_that_depends_on_a_branch_is_unread():
    reading = changed("if FAST: return config")
    assert causes(reading, "unread") == ["unread_config"]


def test_nothing_is_executed(tmp_path):
    canary = tmp_path / "canary"
    line = f"config.parallelism.tensor_parallel_degree = open({str(canary)!r}, 'w').write('x')"
    changed(line, f"__import__('os').system('touch {canary}')")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("def mine(:\n", "unread_config"),
        ("x = 1\n", "no_config"),
        ("def mine():\n    return 3\n", "unread_config"),
        ("(" * 5000 + ")" * 5000, "unread_config"),
        ("#" * 1_000_001, "unread_config"),
        ("def mine():\n    return mine()\n", "unread_config"),
        ("\0", "unread_config"),
    ],
)
def test_a_module_that_is_none_is_said(text, cause):
    reading = read("--module", "my_config", "--config", "mine", files={"my_config.py": text})
    assert cause in causes(reading)
    assert reading.job is None


def test_a_missing_file_a_missing_option_and_an_unknown_number_of_ranks():
    assert causes(read("--module", "nowhere", "--config", "mine")) == ["unread_config"]
    assert causes(read("--module", "llama3")) == ["no_config"]
    reading = read("--module", "llama3", "--config", "llama3_8b", nodes=None, gpus=None)
    assert causes(reading, "unread") == ["world_size"]


def test_a_model_that_cannot_be_read_may_be_given():
    text = "def mine():\n    return Trainer.Config(model_spec=secret())\n"
    files = {"my_config.py": text}
    arguments = ("--module", "my_config", "--config", "mine")
    assert causes(read(*arguments, files=files), "unread") == ["unread_model"]
    assert read(*arguments, files=files, model="qwen3-8b").job.model == preset("qwen3-8b")


OLD = """
[model]
name = "llama3"
flavor = "8B"

[training]
local_batch_size = 8
global_batch_size = 128
seq_len = 8192

[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "1F1B"
pipeline_parallel_microbatch_size = 2

[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"

[compile]
enable = true
"""


def test_an_old_config_in_toml_is_read_and_said_to_be_old():
    reading = read(
        "--job.config_file", "llama.toml", nodes=2, files={"llama.toml": OLD}, program="train.py"
    )
    assert causes(reading, "unmodelled") == ["old_format", "accumulates_pipelines"]
    assert reading.legal
    assert "TOML" in reading.runtime_version
    layout = reading.layout
    assert (layout.tp, layout.pp, layout.dp, layout.micro_batch_size) == (2, 2, 4, 2)
    assert reading.job.training.global_batch_size == 128
    assert layout.recompute == "selective"
    assert field(reading, "layout.tp").place.line == 12


@pytest.mark.parametrize(
    ("mode", "option", "recompute", "number"),
    [("none", "op", "none", None), ("full", "op", "full", 1), ("selective", "2", "full", 16)],
)
def test_old_policies_are_all_or_every_kth_layer(mode, option, recompute, number):
    text = OLD.replace('"selective"', f'"{mode}"').replace('"op"', f'"{option}"')
    text = text.replace("pipeline_parallel_degree = 2", "pipeline_parallel_degree = 1")
    reading = read("--job.config_file=x.toml", nodes=2, files={"x.toml": text})
    assert reading.layout.recompute == recompute
    assert reading.layout.recompute_num_layers == number


@pytest.mark.parametrize(
    ("name", "legal"), [("float32", True), ("float16", False), ("half", False)]
)
@pytest.mark.parametrize("key", ["dtype", "mixed_precision_param"])
def test_formats_are_bfloat16_or_float32(key, name, legal):
    text = OLD.replace("[training]", f'[training]\n{key} = "{name}"')
    reading = read("--job.config_file=x.toml", nodes=2, files={"x.toml": text})
    assert ("formats" not in {one.cause for one in reading.problems}) == legal
    assert reading.legal == legal


@pytest.mark.parametrize(
    ("converter", "section", "recipe"),
    [
        ("float8", "", "tensorwise"),
        ("float8", '[float8]\nrecipe_name = "rowwise"', "rowwise"),
        ("quantize.linear.float8", '[quantize.linear.float8]\nrecipe_name = "rowwise"', "rowwise"),
        ("quantize.linear.float8", "", "tensorwise"),
    ],
)
def test_an_old_config_scales_tensors_unless_it_names_a_recipe(converter, section, recipe):
    text = OLD.replace('flavor = "8B"', f'flavor = "8B"\nconverters = ["{converter}"]') + section
    job = read("--job.config_file=x.toml", nodes=2, files={"x.toml": text}).job
    assert (job.training.precision, job.options.fp8_recipe) == ("fp8", recipe)


@pytest.mark.parametrize(
    ("named", "recipe"), [("", None), ('recipe_name="rowwise_with_gw_hp"', "rowwise_with_gw_hp")]
)
def test_the_recipe_of_fp8_is_read_from_its_converter(named, recipe):
    spec = f'model_registry("70B", converters=[Float8LinearConverter.Config({named})])'
    text = OWN.replace('model_registry("70B", attn_backend="flex")', spec)
    job = read("--module=my", "--config=mine", nodes=8, files={"my.py": text}).job
    assert (job.training.precision, job.options.fp8_recipe) == ("fp8", recipe)


def test_a_recipe_that_torchtitan_does_not_have_is_said():
    spec = 'model_registry("70B", converters=[Float8LinearConverter.Config(recipe_name="x")])'
    text = OWN.replace('model_registry("70B", attn_backend="flex")', spec)
    reading = read("--module=my", "--config=mine", nodes=8, files={"my.py": text})
    assert causes(reading, "illegal") == ["fp8_recipe"]


@pytest.mark.parametrize("text", ["[", "a = 1\n", "[model]\nname = 3\nflavor = []\n"])
def test_a_toml_file_that_says_nothing_is_said(text):
    reading = read("--job.config_file", "x.toml", files={"x.toml": text})
    assert reading.job is None
    assert reading.problems


def test_a_toml_file_alone_is_known_by_its_keys():
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n'
    alone = Launch(
        "file", word("job.toml"), is_module=False, arguments=(), environment={},
        document=tomllib.loads(text), format="torchtitan",
    )  # fmt: skip
    assert TORCHTITAN.recognises(alone)
    wanted = Request(cluster=parse_cluster("1x8:h100-sxm"), text_of={"job.toml": text}.get)
    reading = TORCHTITAN.read(alone, wanted)
    assert (reading.legal, reading.job.model.name, reading.layout.dp) == (True, "llama3-8b", 8)


def test_launches_are_told_by_their_program():
    def of(program, *arguments):
        words = tuple(map(word, arguments))
        return Launch("torchrun", word(program), program.endswith("train"), words, {})

    assert TORCHTITAN.recognises(of("torchtitan.train"))
    assert TORCHTITAN.recognises(of("src/torchtitan/train.py"))
    assert TORCHTITAN.recognises(of("train.py", "--job.config_file", "x.toml"))
    assert not TORCHTITAN.recognises(of("train.py", "--config", "x"))
    assert not TORCHTITAN.recognises(of("pretrain_gpt.py"))


def test_one_node_is_meant_where_torchrun_is_told_of_none():
    reading = read("--module", "llama3", "--config", "llama3_8b", nodes=None, gpus=8)
    assert causes(reading, "unread") == []
    assert reading.job.cluster.num_gpus == 8
