"""Whose configuration a file is: by the keys that only its format has."""

import pytest

from trainplan.planner.formats import FORMATS, command_keys, document_of, format_of

FILES = {
    "axolotl": "base_model: a/b\nsequence_len: 4096\nfsdp_config: {}\nmixed_precision: bf16\n",
    "llama_factory": "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\n",
    "ms_swift_megatron": "model: a/b\ntensor_model_parallel_size: 4\nmicro_batch_size: 1\n",
    "nemo1": "trainer: {num_nodes: 4}\nexp_manager: {}\nmodel: {tensor_model_parallel_size: 4}\n",
    "nemo_rl": "policy: {model_name: a/b, dtensor_cfg: {enabled: true}}\ngrpo: {}\n",
    "verl": "actor_rollout_ref: {model: {path: a/b}}\ntrainer: {nnodes: 1}\n",
    "primus": "work_group: a\nmodules: {pre_trainer: {framework: megatron, overrides: {}}}\n",
    "flagscale": "system: {tensor_model_parallel_size: 2}\nmodel: {num_layers: 2}\ndata: {}\n",
    "nanotron": "parallelism: {dp: 2, tp: 2, pp: 1}\ntokens: {micro_batch_size: 1}\n",
    "gpt_neox": "pipe-parallel-size: 1\nzero_optimization: {stage: 1}\nfp16: {enabled: true}\n",
    "maxtext": "base_config: base.yml\nper_device_batch_size: 4\nmodel_name: llama2-7b\n",
    "olmo_core": "train_module: {rank_microbatch_size: 8192}\ndata_loader: {}\n",
    "llm_foundry": "global_train_batch_size: 256\nfsdp_config: {}\nmodel: {}\n",
    "torch_xla": "defaults: [a]\nper_device_train_batch_size: 1\noptimizer: ADAMW_TORCH_XLA\n",
    "hydra_script": "defaults: [a]\nper_device_train_batch_size: 1\n",
    "hf_arguments": "per_device_train_batch_size: 1\noutput_dir: a\n",
    "olmo": "device_train_microbatch_size: 2\nmodel: {d_model: 64}\nfsdp: {}\n",
    "litgpt": "checkpoint_dir: a\ntrain: {micro_batch_size: 1, global_batch_size: 8}\n",
    "veomni": "model: {model_path: a}\ntrain: {micro_batch_size: 1, global_batch_size: 8}\n",
    "levanter": "trainer: {mp: x, train_batch_size: 8}\nmodel: {type: llama}\n",
    "fast_llm": "training: {train_iters: 9}\nmodel: {base_model: {}, multi_stage: {}}\n",
    "torchtune": "model: {_component_: torchtune.models.llama3.llama3_8b}\nbatch_size: 2\n",
    "helm_values": "queue: a\nworkload: {gpus: 64}\n",
    "compose": "services: {train: {image: a}}\n",
    "conda": "name: a\nchannels: [conda-forge]\ndependencies: [python]\n",
    "github_workflow": "on: push\njobs: {a: {runs-on: ubuntu}}\n",
    "pre_commit": "repos: [{repo: a, hooks: [{id: b}]}]\n",
    "kubernetes": "apiVersion: v1\nkind: Pod\n",
    "hf_adapter": "peft_type: LORA\nr: 8\n",
    "hf_model": "architectures: [A]\nmodel_type: llama\n",
    "accelerate": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n",
    "deepspeed": "zero_optimization: {stage: 3}\n",
    "": "answer: 42\nmixed_precision: bf16\nfp16: true\n",
}
COMMANDS = {
    "verl": ("verl.trainer.main_ppo", "trainer.nnodes=2"),
    "slime": ("train.py", "--actor-num-nodes", "1"),
    "maxtext": ("MaxText.train", "base.yml", "per_device_batch_size=4"),
    "gpt_neox": ("./deepy.py", "train.py", "a.yml"),
    "openrlhf": ("openrlhf.cli.train_sft", "--pretrain", "a/b"),
    "nemo_rl": ("examples/run_grpo.py", "policy.model_name=a/b", "++cluster.num_nodes=2"),
    "": ("train.py", "--lr", "1", "a=b"),
}
PYTHON = {
    "nemo2": "import nemo_run as run\nfrom nemo.collections import llm\n",
    "olmo_core": "from olmo_core.train import TrainerConfig\n",
    "nanotron": "parallelism = ParallelismArgs(dp=2, tp=1)\ntokens = TokensArgs(n=4)\n",
    "internevo": "JOB_NAME = 'a'\nparallel = dict(zero1=dict(size=8), tensor=dict(size=1))\n",
    "": "import os\nos.system('false')\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_known_by_keys_that_only_it_has(name: str) -> None:
    [document] = document_of(FILES[name], ".yaml")
    assert format_of(document) == name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_known_by_its_program_options_and_keys(name: str) -> None:
    program, *words = COMMANDS[name]
    assert format_of(command_keys(program, words)) == name


@pytest.mark.parametrize("name", PYTHON)
def test_python_is_known_by_what_it_imports_and_assigns(name: str) -> None:
    [document] = document_of(PYTHON[name], ".py")
    assert format_of(document) == name


def test_python_is_read_as_far_as_literals_and_keywords_go() -> None:
    text = (
        "SIZE = 2 * 8\nmodel = Model(layers=SIZE, kinds=['a'], rest=f(), of=dict(b=1.5))\nx = y\n"
    )
    [document] = document_of(text, ".py")
    whole = {"layers": 16, "kinds": ["a"], "rest": {}, "of": {"b": 1.5}}
    assert {name: document[name] for name in ("SIZE", "model", "x")} == {
        "SIZE": 16,
        "model": whole,
        "x": None,
    }


def test_calls_defaults_and_attributes_of_functions_are_keys() -> None:
    text = (
        "def build(tp: int = 4, *, dp=2):\n"
        "    nodes = 3\n"
        "    one = run.Config(Strategy, tp=tp, nodes=nodes, mode=Kind.full)\n"
        "    one.data.length = 8 * 512\n"
        "    return other(tp=1)\n"
    )
    [document] = document_of(text, ".py")
    assert document == {
        "call": {"tp": 4, "nodes": 3, "mode": "Kind.full"},
        "argument": {"tp": 4, "dp": 2},
        "set": {"data.length": 4096},
        "functions": ["run.Config", "other"],
    }


def test_tags_of_other_programs_are_no_error_and_are_not_followed() -> None:
    [document] = document_of("a: !include other.yaml\nb: !!python/name:os.system x\n", ".yaml")
    assert document == {"a": "other.yaml", "b": "x"}


def test_documents_of_one_file_are_read_one_by_one() -> None:
    assert document_of("kind: A\n---\n- 1\n---\nkind: B\n", ".yaml") == (
        {"kind": "A"},
        {"kind": "B"},
    )


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("a: [", ".yaml"),
        ("{", ".json"),
        ("[" * 100_000, ".json"),
        ("=", ".toml"),
        ("x = (", ".py"),
        ("x = " + "[" * 5_000, ".py"),
        ("x = " + "-" * 90_000 + "1", ".py"),
    ],
)
def test_what_cannot_be_read_has_no_documents(text: str, suffix: str) -> None:
    assert document_of(text, suffix) == ()


def test_a_larger_yaml_than_any_configuration_is_not_parsed() -> None:
    assert document_of("".join(f"k{n}: {n}\n" for n in range(150_000)), ".yaml") == ()


def test_every_format_has_keys_and_a_source() -> None:
    assert all(one.own and all(one.own) and one.source for one in FORMATS.values())


def test_a_shape_in_the_words_of_mpt_is_of_llm_foundry_not_of_olmo() -> None:
    text = "device_train_microbatch_size: 4\nmodel: {d_model: 2048}\nfsdp_config: {}\n"
    [document] = document_of(text, ".yaml")
    assert format_of(document) == "llm_foundry"
