"""Every kind of bad input: one line that says what to do, exit code 2, nothing written."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.e2e.command import TINY, Outcome, plan, refused, with_value
from trainplan.cli.files.disk import LARGEST_FILE_BYTES
from trainplan.costmodel.presets.presets import preset_config

SHARDED = ("--fix", "tp=1", "--fix", "pp=1", "--fix", "cp=1")
"""Little to search."""


def searched(option: str, value: str) -> Outcome:
    return plan("search", *with_value(TINY, option, value))


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "nan", "", "1e400", "9" * 400])
@pytest.mark.parametrize("option", ["--global-batch-size", "--seq-length"])
def test_a_size_that_is_no_positive_whole_number_is_refused(option: str, value: str):
    refused(searched(option, value), option)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--global-batch-size", "6_4"), "is no number"),
        (("--global-batch-size", "1,0"), "is no number"),
        (("--global-batch-size", "-5"), "'-5' is below 0: write 4096"),
        (("--seq-length", "\uff11\uff12\uff18"), "is no length"),
        (("--top", "1_0"), "is no number: write 0 to 9"),
        (("--memory-margin", "0.0_5"), "is no number: write 0 to 9"),
        (("--loss-tokens", "1e-300"), "loss-tokens"),
        (("--tokens", "1.5"), "is no whole number of tokens"),
        (("--price", "0"), "must be above 0"),
        (("--price", "\uff12"), "is no price"),
        (("--option", "dropout=yes"), "dropout"),
        (("--option", "dropout=1"), "dropout"),
        (("--carbon", "\u0663"), "is no carbon dioxide"),
    ],
)
def test_what_is_written_as_no_number_or_switch_is_refused(words: tuple[str, str], said: str):
    refused(plan("search", *TINY, *words), said)


@pytest.mark.parametrize("text", ["64", "6.4e1", "0064"])
def test_a_number_may_be_written_as_usual(text: str):
    batch = with_value(TINY, "--global-batch-size", text)
    assert plan("estimate", *batch, "--layout", "tp=1").code == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--memory-margin", "nan"),
        ("--memory-margin", "1"),
        ("--memory-margin", "-0.1"),
        ("--time-limit", "nan"),
        ("--time-limit", "inf"),
        ("--time-limit", "0"),
        ("--time-limit", "-1"),
        ("--time-limit", "soon"),
        ("--tokens", "0"),
        ("--tokens", "many"),
        ("--tokens", "nan"),
        ("--tokens", "9e99"),
        ("--top", "0"),
        ("--precision", "int4"),
        ("--runtime", "megatron"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(option: str, value: str):
    refused(plan("search", *TINY, option, value), option)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0x8:h100-sxm", ["no GPUs"]),
        ("8x0:h100-sxm", ["no GPUs"]),
        ("8x8:h100-smx", ["h100-sxm", "did you mean"]),
        ("8x8", ["NODESxGPUS:GPU such as 8x8:h100"]),
        ("", ["NODESxGPUS:GPU such as 8x8:h100"]),
        ("h100", ["neither a machine nor a count", "64xh100"]),
        ("8xv100", ["may be v100-pcie-32gb or v100-sxm-16gb or v100-sxm-32gb"]),
        ("100xh100", ["100 GPUs fill no nodes of 8 h100-sxm", "NODESxGPUS:h100-sxm"]),
        ("2xp5.84xlarge", ["unknown GPU or machine", "did you mean 'p5.48xlarge'"]),
        ("8x8:h100@dgx-h10", ["unknown host", "did you mean 'dgx-h100'"]),
        ("64xh100+0xh100", ["no GPUs"]),
        ("1000000xgb200-nvl72", ["at most"]),
        ("9" * 5000 + "x8:h100-sxm", ["at most"]),
        ("999999999x8:h100-sxm", ["at most"]),
        ("missing.yaml", ["no such file"]),
        ("a\0b", ["NODESxGPUS"]),
        ("x" * 5000, ["NODESxGPUS"]),
    ],
)
def test_a_cluster_that_is_none_is_refused(text: str, words: list[str]):
    refused(searched("--cluster", text), *words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RWKV/rwkv7-2.9b", ["recurrent", "not modelled"]),
        ("google/vit-large-patch16-224", ["vision", "not modelled"]),
        ("google/flan-t5-xxl", ["encoder-decoder", "not modelled"]),
        ("bert-large", ["encoder", "not modelled"]),
        ("llama3-71b", ["did you mean 'llama3-70b'"]),
        ("mine/config.jsn", ["unknown model 'mine/config.jsn'"]),
        ("Qwen/Qwen3-18B", ["did you mean 'qwen3-8b'", "hf download Qwen/Qwen3-18B config.json"]),
        ("mine/llama3; rm -rf", ["unknown model", "`plan catalog models`"]),
        ("missing/config.json", ["no such file"]),
        ("", ["unknown model"]),
    ],
)
def test_a_model_that_is_none_is_refused(name: str, words: list[str]):
    refused(searched("--model", name), *words)


def test_what_is_like_no_name_suggests_none():
    assert "did you mean" not in refused(searched("--model", "minimax_m2"))


def test_only_a_name_of_hugging_face_is_put_into_a_command():
    assert "hf download" not in refused(searched("--model", "mine/llama3; rm -rf"))


@pytest.mark.parametrize("option", ["--model", "--cluster"])
def test_a_toml_file_is_refused_with_the_form_to_write(option: str, tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('gpu = "h100-sxm"\n')
    refused(searched(option, str(path)), "TOML", "YAML")


def changed_config(folder: Path, **changes: object) -> Path:
    """A valid config.json with some values changed; None removes one."""
    config = {**preset_config("llama3-8b"), **changes}
    path = folder / "config.json"
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": None}, ["lacks 'vocab_size'", "add it"]),
        ({"num_attention_heads": 30, "head_dim": 128}, ["num_key_value_heads"]),
        ({"hidden_size": -4096}, ["hidden_size", "positive"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers"]),
        ({"model_type": "rwkv7"}, ["recurrent"]),
        ({"model_type": "vit"}, ["vision"]),
        ({"model_type": "t5"}, ["encoder-decoder"]),
        ({"model_type": "mine", "parts": 3}, ["'parts' = 3 is not understood", "YAML file"]),
        ({"model_type": "mine", "layer_norm_eps": 1e-5}, ["'layer_norm_eps'", "LayerNorm"]),
        ({"num_local_experts": 8, "model_type": "mine"}, ["'num_experts_per_tok'"]),
        ({"n_layer": 31, "model_type": "mine"}, ["'n_layer' = 31", "contradict"]),
        ({"layer_types": ["full_attention"]}, ["'layer_types' has 1 entries", "is 32"]),
        ({"is_encoder_decoder": True}, ["encoder-decoder"]),
    ],
)
def test_a_config_that_makes_no_model_is_refused_with_its_path(
    tmp_path: Path, changes: dict[str, object], words: list[str]
):
    path = changed_config(tmp_path, **changes)
    refused(searched("--model", str(path)), str(path), *words)


def test_more_experts_per_token_than_experts_is_refused(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**preset_config("mixtral-8x7b"), "num_experts_per_tok": 9}))
    refused(searched("--model", str(path)), "num_experts_per_tok", "lower it")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"model_type": "llama", "hid', [":1:25: not JSON"]),
        (b"", [":1:1: not JSON"]),
        (b"PK\x03\x04\x00\x00", [":1: binary file"]),
        (b"\x1f\x8b\x08\x08", ["compressed", "gunzip"]),
        (b'{\n"model_type": "\xff"}', [":2:16: not UTF-8"]),
        (b"[1, 2]", ["a list"]),
        (
            b'{"model_type": "llama", "num_attention_heads": NaN}',
            ["_heads'", "NaN is not a number"],
        ),
        (b'{"model_type": "llama", "num_attention_heads": -Infinity}', ["_heads'", "-Infinity is"]),
        (b'{"model_type": "rwkv", "rescale": [[2, Infinity]]}', ["'rescale'", "Infinity is"]),
        (b"NaN", ["NaN is not a number"]),
        (b'{"hidden_size": 1e999}', ["1e999"]),
        (b'{"hidden_size": 1, "hidden_size": 2}', ["hidden_size", "twice"]),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", [""]),
        (b"[" * 100_000, ["nested"]),
        (b"{}", ["model_type"]),
    ],
)
def test_a_file_that_is_no_config_is_refused_with_its_place(
    tmp_path: Path, content: bytes, words: list[str]
):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    refused(searched("--model", str(path)), str(path), *words)


def test_a_file_of_a_gigabyte_is_refused_without_reading_it(tmp_path: Path):
    path = tmp_path / "weights.json"
    with path.open("wb") as file:
        file.truncate(10**9)
    refused(searched("--model", str(path)), f"larger than {LARGEST_FILE_BYTES // 10**6} MB")


def test_names_and_values_of_a_launch_cannot_steer_the_terminal(tmp_path: Path):
    path = tmp_path / "run\x1b[2J.sh"
    path.write_text("python pretrain_gpt.py --lr \x1b[2J --rotary-base \x1b]0;x\x07 --x\x1b[1m\n")
    answer = plan("check", str(path))
    assert not {"\x1b", "\x07"} & {*answer.out, *answer.err}


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "pipe.yaml", "pipe.sh"])
@pytest.mark.parametrize("command", ["--model", "--cluster", "check", "report", "validate"])
def test_what_is_no_regular_file_is_refused_without_waiting(
    tmp_path: Path, command: str, name: str
):
    path = tmp_path / name
    if not path.exists():
        os.mkfifo(path)
    words = {"report": ("report", "--output", str(tmp_path / "page.html"))}
    is_option = command.startswith("--")
    refused(
        searched(command, str(path))
        if is_option
        else plan(*words.get(command, (command,)), str(path)),
        "is no regular file",
    )


@pytest.mark.grid
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("".join(f"k{i}: {i}\n" for i in range(150_000)), ["more than 1 MB", "JSON"]),
        ("".join(f"{i:x}:\n" for i in range(100_000)), ["50,000 keys and values", "JSON"]),
        ("m: [" + "1," * 100_000 + "]", ["50,000 keys and values", "JSON"]),
    ],
)
@pytest.mark.parametrize("option", ["--model", "--cluster"])
def test_much_yaml_is_refused_before_it_is_read(
    tmp_path: Path, option: str, text: str, words: list[str]
):
    path = tmp_path / "much.yaml"
    path.write_text(text)
    before = time.process_time()
    refused(searched(option, str(path)), *words)
    assert time.process_time() - before < 5


def test_a_folder_without_config_is_refused(tmp_path: Path):
    refused(searched("--model", str(tmp_path)), "no config.json in this folder")


GROUP = "groups:\n  - gpu: h100-sxm\n    num_nodes: 1\n    gpus_per_node: 8\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GROUP.replace("num_nodes: 1", "num_nodes: 0"), [":3:", "'groups.0.num_nodes'"]),
        (GROUP.replace("num_nodes: 1", "num_nodes: .nan"), [":3:", "'groups.0.num_nodes'"]),
        (GROUP.replace("h100-sxm", "h100-smx"), [":2:", "did you mean"]),
        (GROUP.replace("gpus_per_node", "gpu_per_node"), ["gpu", "node"]),
        (GROUP + "    price_per_gpu_hour: .inf\n", [":5:", "price_per_gpu_hour"]),
        (GROUP + "name: a\nname: b\n", [":6:1", "twice"]),
        (GROUP + "a: &x [1]\nb: *x\n", [":6:", "aliases"]),
        (GROUP + "\tname: x\n", [":5:"]),
        (GROUP + "name: !!python/object/apply:os.system [id]\n", [":5:"]),
        (GROUP + "? [a, b]\n: 1\n", [":5:3", "no key"]),
        (GROUP + "? {a: b}\n: 1\n", [":5:3", "no key"]),
        (GROUP + "name: !!bool x\n", [":5:7", "tags are refused"]),
        (GROUP + 'name: !!int ""\n', [":5:7", "tags are refused"]),
        (GROUP + 'name: !!timestamp "x"\n', [":5:7", "tags are refused"]),
        (GROUP + "name: !own x\n", [":5:7", "tags are refused"]),
        (GROUP + "name: 1" + ":0" * 400 + ".5\n", ["not YAML"]),
        ("0x" + "f" * 5000 + ": 1\n", ["not YAML"]),
        (GROUP.replace("num_nodes: 1", "num_nodes: true"), [":3:", "'groups.0.num_nodes'", "true"]),
        (GROUP.replace("num_nodes: 1", "num_nodes: yes"), [":3:", "must be a number"]),
        (GROUP + "    nic: {per_node: on, gb_per_s: 50}\n", [":5:", "'groups.0.nic.per_node'"]),
        (GROUP + "    host: {memory_gib: 0}\n", [":5:", "'groups.0.host.memory_gib'"]),
        (GROUP + "    host: {memory_gib: -1}\n", [":5:", "'groups.0.host.memory_gib'"]),
        (GROUP + "    host: {drives: {tb: 0}}\n", [":5:", "'groups.0.host.drives.tb'"]),
        (GROUP + "    host: {drives: {tb: 1, read_gb_per_s: 2}}\n", ["give both or neither"]),
        (GROUP + "    host: {drives: {count: 2}}\n", ["'groups.0.host.drives.tb'", "missing"]),
        (GROUP + "    host: {like: dgx-h10}\n", ["'dgx-h10'", "did you mean 'dgx-h100'"]),
        (GROUP + "    host: {gpus_per_switch: 0}\n", ["'groups.0.host.gpus_per_switch'"]),
        ("groups: []\n", [":1:", "'groups'", "an empty list"]),
        ("", ["an empty file"]),
        ("- 1\n", ["a list"]),
        ("1: 2\n", ["not a word"]),
        ("[" * 5000, ["nested"]),
    ],
)
def test_a_cluster_file_is_refused_with_line_and_field(tmp_path: Path, text: str, words: list[str]):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    refused(searched("--cluster", str(path)), str(path), *words)


def test_a_cluster_file_in_json_is_told_how_it_is_read(tmp_path: Path):
    group = {"gpu": "h100-sxm", "num_nodes": 1, "gpus_per_node": 8}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"groups": [group]}))
    refused(searched("--cluster", str(path)), str(path), "cluster file is YAML", ".yaml")


def test_a_bomb_of_aliases_is_refused_at_once(tmp_path: Path):
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    path = tmp_path / "cluster.yaml"
    path.write_text("\n".join(lines))
    refused(searched("--cluster", str(path)), "aliases")


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("tp=8,tq=1", ["unknown layout field 'tq'"]),
        ("tensor=8", ["known: tp"]),
        ("tp", ["FIELD=VALUE"]),
        ("", ["FIELD=VALUE"]),
        ("tp=0", ["at least 1"]),
        ("tp=-2", ["whole number"]),
        ("tp=" + "9" * 5000, ["at most 9 digits"]),
        ("tp=" + "0" * 12 + "9" * 5000, ["whole number"]),
        ("tp=" + "0" * 5000, ["at least 1"]),
        ("tp=3", ["does not divide"]),
        ("tp=2,tp=4", ["twice"]),
        ("tp=2,dp=1", ["needs", "GPUs"]),
        ("zero_stage=4", ["zero_stage"]),
        ("schedule=zigzag", ["schedule"]),
        ("recompute=some", ["recompute"]),
        ("recompute_modules=mpl", ["mpl"]),
        ("offload=2", ["offload"]),
        ("offload=nan", ["offload"]),
        ("sequence_parallel=maybe", ["true or false"]),
        ("tp=8", ["rule"]),
    ],
)
def test_a_layout_that_is_none_is_refused(layout: str, words: list[str]):
    refused(plan("estimate", *TINY, "--layout", layout), *words)


@pytest.mark.parametrize("text", ["tp", "tq=8", "tp=x", "recompute=some", "recompute_modules=x"])
@pytest.mark.parametrize("option", ["--fix", "--exclude"])
def test_a_choice_that_is_none_is_refused(option: str, text: str):
    refused(plan("search", *TINY, option, text))


def test_a_baseline_that_is_illegal_is_refused():
    refused(plan("search", *TINY, "--baseline", "tp=8"), "--baseline")


def test_an_unknown_command_is_refused_with_the_nearest():
    refused(plan("serch"), "did you mean 'search'")


def test_all_fields_that_are_missing_or_unknown_are_told_at_once(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text("groups:\n  - gpu: h100-sxm\n    nodes: 2\n")
    refused(
        searched("--cluster", str(path)),
        "'groups.0.num_nodes': is missing: add it",
        "also 'groups.0.gpus_per_node' is missing, 'groups.0.nodes' is unknown",
    )


@pytest.mark.parametrize("number", [999, 12])
def test_the_last_layer_is_not_offloaded(number: int):
    words = ("--option", f"offload_activation_layers={number}")
    written = f"offload_activation_layers = {number} leaves none of the 12 layers"
    refused(plan("search", *TINY, *words), written, "give 11 or fewer")


def test_a_gpu_without_a_fused_core_cannot_be_told_to_have_one():
    old = (*with_value(TINY, "--cluster", "1x8:v100-sxm-32gb"), *SHARDED)
    words = ("--precision", "fp16", "--option", "attention=flash")
    refused(plan("search", *old, *words), "no fused core runs on v100-sxm-32gb")
    assert plan("search", *old, "--precision", "fp16", "--option", "attention=unfused").code == 0


def test_a_setting_that_cannot_be_exported_is_refused_or_another_runtime_is_chosen():
    fused = (*TINY, *SHARDED, "--option", "cross_entropy=fused")
    refused(plan("search", *fused, "--runtime", "megatron-lm"), "does not run cross_entropy=fused")
    done = plan("search", *fused)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1].startswith("runtime megatron-bridge, which")
    assert "\nruntime" not in plan("search", *TINY, *SHARDED, "--option", "cross_entropy=jit").out


def test_an_option_for_experts_is_told_to_be_idle_in_a_dense_model():
    done = plan("search", *TINY, *SHARDED, "--option", "moe_dispatcher=deepep")
    assert done.code == 0, done.err
    assert "moe_dispatcher changes nothing" in done.out
    assert "changes nothing" not in plan("search", *TINY, *SHARDED).out


def test_an_empty_file_is_called_empty(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("\n")
    refused(searched("--model", str(path)), f"{path}:1:1: not JSON: the file is empty")


@pytest.mark.parametrize("command", ["why-not", "explain", "simulate"])
def test_a_script_in_place_of_a_plan_is_one_for_another_command(tmp_path, command):
    path = tmp_path / "train.sh"
    path.write_text("torchrun x.py")
    line = refused(plan(command, path, *["tp=8"] * (command == "why-not")))
    assert "a script, not JSON: give a plan that `plan search --output` wrote" in line
    assert f"`plan check {path}` reads scripts" in line
