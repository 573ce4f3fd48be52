"""A launch of Megatron-LM becomes a job and a layout, each field with where it comes from."""

from dataclasses import replace

import pytest

from tests import megatron_jobs as models
from tests.launches import launch, launch_of, word
from trainplan.costmodel.catalog import release_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import READERS, Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_lm.read.facts import DEGREES
from trainplan.planner.runtimes.megatron_lm.read.fields import READ
from trainplan.planner.runtimes.megatron_lm.read.parser import options
from trainplan.planner.runtimes.megatron_lm.read.pipeline import layout_stages
from trainplan.planner.runtimes.megatron_lm.read.reader import CHECKS
from trainplan.planner.runtimes.megatron_lm.read.without_price import IGNORED, NO_EFFECT, UNMODELLED
from trainplan.planner.shell import Host, launches_of_script

LLAMA = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --seq-length 8192 --max-position-embeddings 8192 "
    "--position-embedding-type rope --rotary-base 500000 --normalization RMSNorm --swiglu "
    "--disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0 "
    "--hidden-dropout 0 --bf16 --train-iters 10 --micro-batch-size 1 --global-batch-size 128"
)
VOCABULARY = " --vocab-size 128256"
EXPERTS = " --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 14336 --moe-grouped-gemm"
REQUEST = Request(cluster=parse_cluster("2x8:h100-sxm"))


def read(more="", *, environment=None, wanted=REQUEST, base=LLAMA + VOCABULARY, **fields):
    return MEGATRON_LM.read(launch(base + " " + more, environment, **fields), wanted)


def field(reading, name):
    return next(one for one in reading.fields if one.name == name)


def causes(reading, verdict):
    return [one.cause for one in reading.problems if one.verdict == verdict]


def test_the_program_tells_whose_launch_it_is():
    assert MEGATRON_LM in READERS
    assert MEGATRON_LM.recognises(launch("", program="/opt/megatron/pretrain_gpt.py"))
    assert not MEGATRON_LM.recognises(launch("", program="pretrain_bert.py"))


def test_a_preset_is_known_by_its_shape_and_read_whole():
    assert read().job.model == preset("llama3-8b")


def test_another_length_of_positions_is_the_same_model_by_name():
    job = read("--max-position-embeddings 16384").job
    assert (job.model.name, job.model.max_position_embeddings) == ("llama3-8b", 16384)


SEVENTY = (
    LLAMA.replace("--num-layers 32 --hidden-size 4096", "--num-layers 80 --hidden-size 8192")
    .replace("--ffn-hidden-size 14336", "--ffn-hidden-size 28672")
    .replace("--num-attention-heads 32", "--num-attention-heads 64")
    .replace(" --rotary-base 500000", "")
)


@pytest.mark.parametrize(
    ("words", "name", "entries"),
    [
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model x", "llama3-70b", 128_256),
        ("--vocab-size 128256", "llama3-70b", 128_256),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model x", "llama2-70b", 32_000),
    ],
)
def test_a_model_is_named_by_its_numbers_and_keeps_its_positions(words, name, entries):
    reading = read(words, base=SEVENTY)
    model = reading.job.model
    assert (model.name, model.vocab_size) == (name, entries)
    assert field(reading, "model.max_position_embeddings").value == 8192


def test_replicas_are_what_the_degrees_leave_of_the_ranks():
    reading = read("--pipeline-model-parallel-size 4")
    assert (reading.layout.pp, reading.layout.dp) == (4, 4)
    assert field(reading, "layout.dp").origin == "derived"


def test_stated_fields_bring_the_words_and_the_place_of_the_launch():
    found = field(read("--pipeline-model-parallel-size 4"), "layout.pp")
    assert (found.origin, found.written) == ("stated", "--pipeline-model-parallel-size 4")
    assert found.place is not None


def test_defaults_are_the_runtimes_own():
    reading = read(EXPERTS)
    assert field(reading, "layout.sequence_parallel").value is False
    assert field(reading, "layout.sequence_parallel").origin == "default"
    assert reading.layout.zero_stage == 0
    assert reading.job.options.overlap_grad_reduce is False
    assert reading.job.options.moe_dispatcher == "allgather"
    assert "unmodelled_moe_token_dispatcher_type" not in causes(reading, "unmodelled")


NCCLEP = "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ncclep"


def test_tokens_in_8_bits_are_read_with_the_exchange_of_nccl():
    ways = ("--moe-dispatch-fwd-dtype mxfp8", "--moe-combine-bwd-dtype mxfp8")
    both, one = (read(" ".join((EXPERTS, NCCLEP, *some))) for some in (ways, ways[:1]))
    for reading in (both, one):
        options = reading.job.options
        assert (options.moe_dispatcher, options.moe_dispatch_dtype) == ("ncclep", "mxfp8")
        assert "unmodelled_moe_flex_dispatcher_backend" in causes(reading, "unmodelled")
    priced = "unmodelled_moe_token_dispatcher_type"
    assert [priced in causes(reading, "unmodelled") for reading in (both, one)] == [False, True]


def test_experts_are_cut_over_tensor_ranks_by_default():
    tp = "--tensor-model-parallel-size 2 --sequence-parallel"
    queue = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    reading = read(f"{EXPERTS} --expert-model-parallel-size 4 {tp}", environment=queue)
    assert reading.legal
    assert (reading.layout.ep, reading.layout.etp) == (4, 2)
    assert field(reading, "layout.etp").origin == "default"


def test_dense_models_have_no_expert_degrees():
    reading = read("--expert-tensor-parallel-size 2")
    assert reading.layout.etp == 1
    assert "ignored_expert_tensor_parallel_size" in causes(reading, "ignored")


def test_without_a_word_on_it_the_gpu_is_assumed_and_the_world_read():
    reading = read(wanted=Request(), nodes=word("2"), gpus_per_node=word("8"))
    assert reading.job.cluster == parse_cluster("2x8:h100-sxm")
    assert field(reading, "cluster.gpu").origin == "assumed"
    assert field(reading, "cluster.num_nodes").origin == "stated"


def test_no_gpu_is_assumed_that_lacks_the_format():
    reading = read("--fp4-format e2m1", wanted=Request(), nodes=word("2"), gpus_per_node=word("8"))
    (problem,) = [one for one in reading.problems if one.cause == "unknown_gpu"]
    assert problem.verdict == "unread"
    assert problem.says.endswith("has no nvfp4: give --cluster NODESxGPUS:GPU")
    assert reading.job is None or reading.job.cluster is None or reading.layout is None


def test_a_gpu_without_the_format_stops_the_launch():
    reading = read("--fp4-format e2m1")
    assert causes(reading, "illegal") == ["gpu_lacks_format"]
    wide = read(
        "--bf16", wanted=Request(), nodes=word("2"), gpus_per_node=word("8"), gpu=word("v100")
    )
    assert causes(wide, "illegal") == []
    assert "gpu_lacks_format" in causes(wide, "unmodelled")


def test_ranks_alone_fill_nodes_of_eight():
    reading = read(wanted=Request(), ranks=word("32"))
    assert reading.job.cluster.name == "4x8:h100-sxm"


def test_an_open_number_of_nodes_is_asked_for_unless_the_user_has_said_the_cluster():
    nodes = {"nodes": word("$SLURM_NNODES"), "gpus_per_node": word("8")}
    reading = read(wanted=Request(), **nodes)
    assert (reading.job, causes(reading, "unread")) == (None, ["world_size"])
    assert read(**nodes).layout.dp == 16


def test_a_launch_of_other_size_than_the_users_cluster_is_priced_as_it_is_and_said():
    reading = read(nodes=word("4"), gpus_per_node=word("8"))
    assert reading.job.cluster.num_gpus == 32
    assert "cluster_size" in causes(reading, "ignored")


def test_a_degree_that_only_a_run_tells_is_asked_for():
    reading = read("--tensor-model-parallel-size $TP")
    assert (reading.job, reading.layout) == (None, None)
    [problem] = [one for one in reading.problems if one.verdict == "unread"]
    assert problem.cause == "unread_value"
    assert "--set TP=VALUE" in problem.says
    assert reading.legal is None


def test_a_path_that_only_a_run_tells_is_no_matter():
    reading = read("--data-path $DATA --tokenizer-model $TOKENIZER")
    assert causes(reading, "unread") == []


def test_words_that_only_a_run_tells_may_hold_what_is_missing():
    reading = read("$ARGUMENTS", base="--bf16")
    assert causes(reading, "unread") == ["unread_words", "missing_flag"]
    assert reading.legal is None


def test_a_variable_that_only_a_run_tells_breaks_no_rule():
    tp = "--tensor-model-parallel-size 2"
    strict = replace(REQUEST, strict=True)
    assert not read(tp, wanted=strict).legal
    assert read(tp, wanted=strict, environment={"CUDA_DEVICE_MAX_CONNECTIONS": "$QUEUES"}).legal


def test_blackwell_needs_no_single_queue():
    wanted = Request(cluster=parse_cluster("2x8:b200"))
    assert read("--tensor-model-parallel-size 2", wanted=wanted).legal


def test_a_vocabulary_that_a_tokenizer_has_is_that_of_the_preset_of_this_shape():
    reading = read(base=LLAMA)
    assert field(reading, "model.vocab_size").value == 128256
    assert field(reading, "model.vocab_size").origin == "assumed"
    assert "assumed_vocabulary" in causes(reading, "unread")


def test_the_users_model_says_what_the_launch_does_not():
    wanted = Request(cluster=REQUEST.cluster, model=models.DENSE)
    assert read(base=LLAMA, wanted=wanted).job.model == models.DENSE
    checkpoint = read(
        base="--use-checkpoint-args --seq-length 512 --micro-batch-size 1", wanted=wanted
    )
    assert checkpoint.job.model == models.DENSE
    assert causes(checkpoint, "unread") == []
    assert checkpoint.layout.dp == 16
    alone = read(base="--use-checkpoint-args --seq-length 512 --micro-batch-size 1")
    assert "unread_use_checkpoint_args" in causes(alone, "unread")


def test_a_shape_that_makes_no_model_is_said_by_its_field():
    reading = read("--num-attention-heads 0")
    assert not reading.legal
    assert reading.job is None


@pytest.mark.parametrize(
    ("more", "stages"),
    [
        ("--pipeline-model-parallel-layout Et*6|(t*9|)*2t*8L", (6, 9, 9, 8)),
        (
            "--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 7",
            (5, 10, 10, 7),
        ),
        ("--num-layers 31 --account-for-embedding-in-pipeline-split", (7, 8, 8, 8)),
        ("--num-layers-per-virtual-pipeline-stage 2", None),
        ("--pipeline-model-parallel-layout Et*8|(t*8|)*2t*8L", None),
    ],
)
def test_uneven_stages_are_read_from_each_way_to_say_them(more, stages):
    layout = read("--pipeline-model-parallel-size 4 " + more).layout
    assert (layout.stages and tuple(s.layers for s in layout.stages)) == stages


def test_virtual_stages_are_read_from_each_way_to_say_them():
    pipeline = "--pipeline-model-parallel-size 4 "
    per_stage = read(pipeline + "--num-layers-per-virtual-pipeline-stage 2").layout
    per_rank = read(pipeline + "--num-virtual-stages-per-pipeline-rank 4").layout
    assert per_stage == per_rank
    assert (per_rank.vpp, per_rank.schedule) == (4, "interleaved")


def test_the_layout_of_a_pipeline_is_written_out_as_the_runtime_does():
    assert layout_stages("Et*3|(tt|)*29,m|L").layers == (3, *[2] * 29, 0, 0)


@pytest.mark.parametrize("text", ["E(t*999999)*999999L", "Ex|L", "E(((t)*9)*9)*9L"])
def test_a_layout_that_is_none_is_refused_before_it_is_written_out(text):
    reading = read(f"--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout {text}")
    assert "stages_hold_the_model" in causes(reading, "illegal")


@pytest.mark.parametrize(
    ("more", "layout"),
    [
        ("--use-distributed-optimizer", {"zero_stage": 1}),
        (
            "--use-distributed-optimizer --num-distributed-optimizer-instances 4",
            {"zero_stage": 1, "dp_replicate": 4},
        ),
        ("--use-megatron-fsdp --ckpt-format fsdp_dtensor", {"zero_stage": 3}),
        (
            "--use-megatron-fsdp --ckpt-format fsdp_dtensor "
            "--data-parallel-sharding-strategy optim_grads",
            {"zero_stage": 2},
        ),
        ("--use-torch-fsdp2 --no-gradient-accumulation-fusion", {"zero_stage": 3}),
        (
            "--recompute-activations",
            {"recompute": "selective", "recompute_modules": ("core_attn",)},
        ),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 99",
            {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 32},
        ),
    ],
)
def test_sharding_and_recomputation_are_read(more, layout):
    reading = read(more)
    assert reading.legal
    assert reading.layout == Layout(**{"dp": 16, "zero_stage": 0} | layout)


def test_recomputing_what_a_model_does_not_have_does_nothing():
    reading = read("--recompute-granularity selective --recompute-modules moe")
    assert reading.layout.recompute == "none"
    assert "ignored_recompute_modules" in causes(reading, "ignored")


def test_groups_of_heads_count_only_beside_their_switch():
    reading = read(base=(LLAMA + VOCABULARY).replace("--group-query-attention ", ""))
    assert reading.job.model.num_key_value_heads == 32
    assert causes(reading, "ignored") == ["ignored_num_query_groups"]


def test_the_numbers_of_a_broken_rule_are_said():
    reading = read("--pipeline-model-parallel-size 32")
    problem = next(one for one in reading.problems if one.cause == "degrees_divide_world")
    assert "(32 and 16 ranks)" in problem.says


def test_what_is_illegal_has_still_a_layout_where_it_can_have_one():
    reading = read("--overlap-param-gather")
    assert not reading.legal
    assert reading.layout == Layout(dp=16, zero_stage=0)


@pytest.mark.parametrize("name", ["llama3.1-405b", "deepseek-v3", "qwen3-30b-a3b", "gpt3-175b"])
def test_an_exported_launch_has_nothing_ignored_and_nothing_unread(name):
    config = models.export(preset(name))
    reading = MEGATRON_LM.read(launch_of(config), Request(cluster=parse_cluster("1x8:h100-sxm")))
    assert reading.job.model == preset(name)
    assert causes(reading, "ignored") == causes(reading, "unread") == []


def test_every_field_of_a_layout_and_of_a_run_says_where_it_comes_from():
    names = {one.name for one in read().fields}
    specs = {"layout": Layout, "options": RuntimeOptions, "training": TrainingSpec}
    wanted = {f"{part}.{name}" for part, spec in specs.items() for name in spec.model_fields}
    # no compiler fuses kernels, no runtime is told which experts tokens choose or how long its
    # sequences are, no option stores gradients in 8 bits
    untold = {"options.compile", "options.routing", "training.state_precision"}
    untold |= {"training.lengths", "training.packing", "training.loss_tokens"}
    untold |= {"layout.tiled_loss", "layout.tiled_mlp", "options.liger"}  # of no Megatron
    untold.add("options.deepep_proxy")  # set by what is installed, not by an argument
    # of DeepSpeed alone
    untold |= {"layout.hpz", "layout.shard", "options.weight_bits", "options.gradient_bits"}
    # of torch and PEFT alone
    untold |= {"options.fused_optimizer", "options.adapter_dtype", "options.fsdp_version"}
    # keys of TransformerConfig that have no option
    untold |= {"options.fp8_transpose_cache", "options.activation_func_fp8_input_store"}
    # what no option of Megatron has: its experts lie in order and are not cut into chunks
    untold |= {"options.fp8_attention", "options.moe_chunks", "options.expert_placement"}
    assert wanted - names == untold
    assert {f"cluster.{name}" for name in ("num_nodes", "gpus_per_node", "gpu")} <= names


def test_every_option_that_is_looked_at_is_one_of_the_release():
    known = {option.dest for option in options().values()} | DEGREES | {"recompute", "graph"}
    looked = {*READ, *NO_EFFECT, *UNMODELLED, *(one for pair in IGNORED for one in pair)}
    looked |= {check.dest for check in CHECKS if not isinstance(check, str) and check.dest}
    assert {one.removeprefix("!").partition("=")[0] for one in looked} <= known


OFFLOADED = "--use-distributed-optimizer --use-precision-aware-optimizer --optimizer-cpu-offload"
MOVED = "--fine-grained-activation-offloading --offload-modules core_attn attn_proj"


@pytest.mark.parametrize(
    ("more", "dest"),
    [
        (f"{OFFLOADED} --no-pin-cpu-grads", "pin_cpu_grads"),
        (f"{OFFLOADED} --no-pin-cpu-params", "pin_cpu_params"),
        (f"{OFFLOADED} --use-torch-optimizer-for-cpu-offload",
         "use_torch_optimizer_for_cpu_offload"),
        (f"{MOVED} --activation-offload-fraction 0.5", "activation_offload_fraction"),
        (f"{MOVED} --delta-offload-bytes-across-pp-ranks 1024",
         "delta_offload_bytes_across_pp_ranks"),
        (f"{MOVED} --fine-grained-offloading-max-inflight-offloads 4",
         "fine_grained_offloading_max_inflight_offloads"),
    ],
)  # fmt: skip
def test_ways_to_offload_without_a_price_are_named(more, dest):
    reading = read(more)
    assert f"unmodelled_{dest}" in causes(reading, "unmodelled")
    idle = more.split("--")[-1]
    assert f"ignored_{dest}" in causes(read(f"--{idle}"), "ignored")


def test_saves_are_asked_for_by_their_usual_name_and_with_their_worker():
    """arguments.py:1814: without its worker --async-save is switched off."""
    assert "ignored_async_save" in causes(read("--async-save"), "ignored")
    assert not causes(read("--async-save --use-persistent-ckpt-worker"), "ignored")
    for text in ("--save /x --save-interval 0", "--save /x"):
        (one,) = (one for one in read(text).problems if one.cause == "save_needs_interval")
        assert "--save needs --save-interval of at least 1: give that" in one.says
    assert "save_needs_interval" not in causes(read("--save /x --save-interval 5"), "illegal")


def test_a_release_is_that_of_the_container_or_what_is_stated():
    image = word("--container-image=nvcr.io/nvidia/nemo:26.04.01")
    run = replace(launch(LLAMA + VOCABULARY), container=image)
    found = MEGATRON_LM.read(run, REQUEST)
    named = found.of_release(run, None)
    assert named.job.release == field(named, "job.release").value == "nemo:26.04.01"
    assert found.of_release(run, "26.02").job.release == "26.02"
    assert found.of_release(replace(run, container=None), None).fields == found.fields
    experts = MEGATRON_LM.read(launch(LLAMA + VOCABULARY + EXPERTS), REQUEST)
    assumed = field(experts.of_release(launch(""), None), "job.release")
    assert (assumed.origin, assumed.value) == ("assumed", release_of(None).container)


@pytest.mark.parametrize(
    ("value", "settings", "says"),
    [
        ("$TP", {}, "give it with --set TP=VALUE"),
        ("$(python pick_tp.py)", {}, "hold it in a variable (NAME=$(...)) and give --set NAME="),
        ("$(python pick_tp.py)", {"before": "TP"}, "give it with --set TP=VALUE"),
    ],
)
def test_what_a_run_alone_knows_is_given_in_a_form_that_works(value, settings, says):
    first = f"{settings['before']}={value}\n" if settings else ""
    used = f"${settings['before']}" if settings else value
    rest = "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024"
    text = f"{first}torchrun --nproc_per_node 8 pretrain_gpt.py {rest} --tp-comm-overlap"
    text += f" --max-position-embeddings 1024 --tensor-model-parallel-size {used}"
    (launch,) = launches_of_script(text, "run.sh", {}, Host())
    reading = MEGATRON_LM.read(launch, Request(cluster=parse_cluster("1x8:h100-sxm")))
    (problem,) = [one for one in reading.problems if one.cause == "unread_value"]
    assert says in problem.says
    assert "--set (" not in problem.says
    if "--set TP" in says:
        (launch,) = launches_of_script(text, "run.sh", {"TP": "2"}, Host())
        reading = MEGATRON_LM.read(launch, Request(cluster=parse_cluster("1x8:h100-sxm")))
        assert not [one for one in reading.problems if one.cause == "unread_value"]
