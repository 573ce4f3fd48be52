"""Options of forks and older releases: taken for what they mean, or named by what they change."""

import pytest

from tests.launches import launch
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.runtimes.megatron_lm.read.cores import core_of
from trainplan.planner.runtimes.megatron_lm.read.parser import options
from trainplan.planner.runtimes.megatron_lm.read.releases import KINDS, kind, table
from trainplan.planner.shell import launches_of_script

REQUEST = Request(cluster=parse_cluster("4x8:h100-sxm"))
SIZES = "--hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --vocab-size 32000 "
PLAIN = (
    "--num-layers 8 --ffn-hidden-size 4096 --max-position-embeddings 2048 --micro-batch-size 1 "
    "--global-batch-size 64 --bf16 --disable-bias-linear --normalization RMSNorm "
    "--position-embedding-type rope --untie-embeddings-and-output-weights " + SIZES
)
EXPERTS = "--num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 512 --moe-grouped-gemm "


def read(flags, base=PLAIN, **fields):
    return MEGATRON_LM.read(launch(base + flags), Request(cluster=REQUEST.cluster, **fields))


def message_of(reading, cause):
    return next(one.says for one in reading.problems if one.cause == cause)


def test_what_the_table_writes_are_options_that_are_read():
    sections = table()
    for flag, now in sections["means"].items():
        texts = now.values() if isinstance(now, dict) else (now,)
        words = [word for text in texts for word in text.split() if word.startswith("--")]
        assert all(word in options() or word in sections["own"] for word in words), flag
    assert not set(sections["own"]) & set(options())


def test_every_kind_is_one_of_the_table():
    assert kind("--log-our-metrics") == "nothing"
    assert kind("--moe-router-of-ours") == "model"
    assert kind("--swap-attention-out") == "run"
    assert kind("--anything-new") == ""
    assert set(KINDS) < set(table())


def test_an_unknown_option_is_not_read_and_breaks_nothing():
    reading = read("--log-our-metrics --use-fused-rope-kernel")
    assert reading.legal is True
    assert reading.job == read("").job
    assert "--log-our-metrics, --use-fused-rope-kernel: own of a fork" in message_of(
        reading, "unknown_flag"
    )


def test_a_slip_of_an_option_is_shown_next_to_what_it_may_be():
    words = message_of(read("--sequence-paralel --log-our-metrics"), "unknown_flag")
    assert "--sequence-paralel (is it --sequence-parallel?), --log-our-metrics: own of" in words


def test_strict_refuses_what_this_release_does_not_know():
    reading = read("--log-our-metrics", strict=True)
    assert reading.legal is False
    assert "take it out" in message_of(reading, "unknown_flag")


def test_an_option_that_may_change_the_model_is_reported_by_itself():
    assert "which it may change" in message_of(
        read("--moe-router-of-ours 3"), "unread_model_option"
    )


@pytest.mark.parametrize("flag", ["--geglu", "--gelu-tanh", "--glu-activation geglu"])
def test_a_gated_activation_of_a_fork_has_three_matrices(flag):
    assert read(flag).job.model.gated_mlp
    assert not read("").job.model.gated_mlp


def test_layers_that_do_nothing_have_no_weights_and_keep_the_stages():
    reading = read("--noop-layers 3,7 --pipeline-model-parallel-size 4 --swiglu")
    assert reading.job.model.num_hidden_layers == 6
    assert [stage.layers for stage in reading.layout.stages] == [2, 1, 2, 1]


def test_layers_of_each_stage_are_those_of_the_list():
    words = "--num-layer-list 3,2,2,1 --pipeline-model-parallel-size 4 --swiglu"
    assert [stage.layers for stage in read(words).layout.stages] == [3, 2, 2, 1]


def test_first_layers_of_a_fork_are_dense_and_experts_are_shared():
    model = read(EXPERTS + "--first-k-dense-replace 3 --n-shared-experts 2").job.model
    assert (model.moe.first_k_dense_replace, model.moe.shared_expert_intermediate_size) == (3, 1024)


def test_an_older_release_is_read_by_what_stands_for_its_options_now():
    older = PLAIN.replace("--micro-batch-size", "--batch-size")
    reading = read("--model-parallel-size 2 --num-key-value-heads 4 --DDP-impl local", base=older)
    assert reading.layout.tp == 2
    assert reading.layout.micro_batch_size == 1
    assert reading.job.model.num_key_value_heads == 4
    read_as = message_of(reading, "other_release")
    assert "--model-parallel-size as --tensor-model-parallel-size," in read_as


def test_underscores_of_a_fork_are_dashes():
    words = PLAIN.replace("-", "_").replace("__", "--").replace("bias_linear", "bias_linear ")
    reading = read("", base=words)
    assert (reading.job.model, reading.layout) == (read("").job.model, read("").layout)


def test_a_value_of_a_fork_is_taken_as_the_default():
    reading = read("--moe-token-dispatcher-type alltoall_seq " + EXPERTS)
    assert reading.legal is True
    assert "a value of a fork" in message_of(reading, "foreign_value")


def test_a_program_of_a_fork_is_known_by_its_options():
    assert MEGATRON_LM.recognises(launch(PLAIN, program="pretrain_qwen.py"))
    assert MEGATRON_LM.recognises(launch(PLAIN.replace("num-layers", "num_layers"), program="x.py"))
    assert not MEGATRON_LM.recognises(launch(PLAIN, program="pretrain_bert.py"))
    for name in ("tasks/msdp/main.py", "pretrain_mamba.py", "pretrain_qwen2_vl.py", "train_rl.py"):
        assert not MEGATRON_LM.recognises(launch(PLAIN, program=name))
    assert not MEGATRON_LM.recognises(launch(PLAIN + "--rollout-batch-size 8", program="train.py"))
    assert not MEGATRON_LM.recognises(launch("--num-layers 8", program="train.py"))
    words = (
        "--use_checkpoint_args --tensor_model_parallel_size 4 --micro_batch_size 1 --bf16 "
        "--global_batch_size 64 --seq_length 4096 --load ckpt"
    )
    tuned = launch(words, program="finetune.py")
    assert MEGATRON_LM.recognises(tuned)
    wanted = Request(cluster=REQUEST.cluster, model=preset("llama2-7b"))
    reading = MEGATRON_LM.read(tuned, wanted)
    assert (reading.job.model.name, reading.layout.tp, reading.layout.dp) == ("llama2-7b", 4, 8)
    assert MEGATRON_LM.read(tuned, REQUEST).legal is None


def test_what_this_release_alone_stops_at_is_no_verdict_on_a_fork():
    flags = "--swiglu --squared-relu"
    assert read(flags).legal is False
    reading = MEGATRON_LM.read(launch(PLAIN + flags, program="pretrain_qwen.py"), REQUEST)
    assert reading.legal is None
    assert "pretrain_qwen.py may not" in message_of(reading, "one_activation")
    own = read(flags + " --moe-router-of-ours 3")
    assert own.legal is None
    assert "a fork may not" in message_of(own, "one_activation")
    odd = launch(PLAIN + "--tensor-model-parallel-size 3", program="pretrain_qwen.py")
    assert MEGATRON_LM.read(odd, REQUEST).legal is False


ZERO = '{"zero_optimization": {"stage": 3}}'


@pytest.mark.parametrize(
    ("flags", "stage"),
    [
        ("--zero-stage 0", 0),
        ("--zero-stage=1", 1),
        ("--deepspeed_config ds.json", 3),
        ("--deepspeed_config=ds.json", 3),
        ("--deepspeed_config other.json", 1),
        ("", 1),
    ],
)
def test_megatron_deepspeed_is_read_with_its_stage(flags, stage):
    request = Request(cluster=REQUEST.cluster, text_of={"ds.json": ZERO}.get)
    reading = MEGATRON_LM.read(launch(PLAIN + "--deepspeed " + flags), request)
    assert reading.layout.zero_stage == stage
    assert reading.legal is True
    assert "priced as Megatron-LM" in message_of(reading, "megatron_deepspeed")


def test_every_other_layer_of_megatron_deepspeed_has_experts():
    flags = (
        "--deepspeed --num-experts 8 --topk 2 --tensor-model-parallel-size 2 --sequence-parallel"
    )
    reading = MEGATRON_LM.read(launch(PLAIN + flags), REQUEST)
    assert reading.job.model.num_dense_layers == 4
    assert reading.layout.etp == 1


def test_nodes_that_are_a_default_of_the_script_are_not_judged_by():
    head = "torchrun --nnodes ${SLURM_NNODES:-1} --nproc_per_node 8 pretrain_gpt.py "
    [made] = launches_of_script(head + PLAIN + "--tensor-model-parallel-size 16", "x.sh", {})
    assert MEGATRON_LM.read(made, Request()).legal is None
    wide = MEGATRON_LM.read(made, Request(cluster=parse_cluster("4x8:h100-sxm")))
    assert (wide.legal, wide.layout.dp) == (True, 2)
    [stated] = launches_of_script(
        (head + PLAIN).replace("{SLURM_NNODES:-1}", "{N}"), "x.sh", {"N": "1"}
    )
    assert not stated.nodes.fallback


@pytest.mark.parametrize(
    ("name", "core"),
    [
        ("core 0.12", 12),
        ("0.9.0", 9),
        ("megatron-core==0.14.1", 14),
        ("nemo:24.07", 7),
        ("2024-11", 9),
        ("nemo:20.01", 4),
        ("newest", None),
        (None, None),
    ],
)
def test_a_release_is_a_version_of_megatron_core(name, core):
    assert core_of(name) == core


def test_the_parser_is_that_of_the_release_that_runs():
    older = "--use-legacy-models --no-async-tensor-model-parallel-allreduce"
    assert read(older, strict=True).legal is False
    assert read(older, strict=True, release="core 0.9").legal is True
    assert "--no-async-tensor-model-parallel-allreduce of Megatron Core 0.4 to 0.15" in message_of(
        read(older), "unknown_flag"
    )
    newer = "--use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer"
    reading = read(newer, strict=True, release="core 0.9")
    assert "of Megatron Core 0.14 and later, not of 0.9" in message_of(reading, "later_flag")
    assert reading.legal is False
    assert "later_flag" not in {one.cause for one in read(newer).problems}


UNSAID = PLAIN.replace("--vocab-size 32000 ", "")


@pytest.mark.parametrize(
    ("words", "entries", "is_assumed"),
    [
        ("--vocab-file data/gpt2-vocab.json --merge-file data/gpt2-merges.txt", 50_257, False),
        ("--tokenizer-type GPT2BPETokenizer", 50_257, False),
        ("--tokenizer-type GPT2BPETokenizer --vocab-file code-vocab.json", 50_257, True),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model llama/tokenizer.model", 32_000, False),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model jp-100k.model", 32_000, True),
        ("--tokenizer-model Qwen/Qwen3-8B", 151_936, False),
    ],
)
def test_a_vocabulary_is_that_of_the_tokenizers_file_or_named_as_assumed(
    words, entries, is_assumed
):
    def model_of(name):
        return preset("qwen3-8b") if name == "Qwen/Qwen3-8B" else None

    reading = read(words, base=UNSAID, model_of=model_of)
    assert reading.job.model.vocab_size == entries
    assert ("assumed_vocabulary" in {one.cause for one in reading.problems}) == is_assumed
    if is_assumed:
        assert "may be another" in message_of(reading, "assumed_vocabulary")


def test_the_length_behind_a_tower_is_that_of_the_language_model():
    reading = read("--decoder-seq-length 16384 --max-position-embeddings 32768")
    assert reading.job.training.seq_length == 16384
    [found] = [one for one in reading.fields if one.name == "training.seq_length"]
    assert found.written == "--seq-length 2048 --decoder-seq-length 16384"


def test_a_fork_is_not_stopped_by_what_moves_no_step():
    assert read("--save a").legal is None
    assert read("--save a --use-anything-new").legal is True
