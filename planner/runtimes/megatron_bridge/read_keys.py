"""`KEY=VALUE` words as keys, and keys as options of Megatron-LM: the exporter's table backwards."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from trainplan.planner.runtimes.key_tables import LATENT, KeyTable
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.shell import Word

ONE_WORD = frozenset({keys.WINDOW.flag, keys.EXPERT_LAYERS.flag, keys.WINDOW_SKIPS.flag})
"""Options whose list is one word."""
AS_LIST = keys.EXPERT_LAYERS.flag
ALIASES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
NOTHING = ("null", "none", "~", "")
SHORT = {
    "--max_steps": "train.train_iters",
    "--global_batch_size": "train.global_batch_size",
    "--micro_batch_size": "train.micro_batch_size",
    "--seq_length": "dataset.seq_length",
    "--tensor_model_parallel_size": "model.tensor_model_parallel_size",
    "--pipeline_model_parallel_size": "model.pipeline_model_parallel_size",
    "--context_parallel_size": "model.context_parallel_size",
    "--virtual_pipeline_model_parallel_size": "model.virtual_pipeline_model_parallel_size",
    "--expert_model_parallel_size": "model.expert_model_parallel_size",
    "--expert_tensor_parallel_size": "model.expert_tensor_parallel_size",
    "--lr": "optimizer.lr",
    "--min_lr": "optimizer.min_lr",
    "--warmup_iters": "scheduler.lr_warmup_iters",
    "--pretrained_checkpoint": "checkpoint.pretrained_checkpoint",
    "--save_dir": "checkpoint.save",
    "--load_dir": "checkpoint.load",
    "--save_interval": "checkpoint.save_interval",
}
"""Options of `run_recipe.py` that stand for keys. Source: its `COMMON_OVERRIDE_FIELDS`."""
LETTERS = {
    "-ms": "--max_steps",
    "-gb": "--global_batch_size",
    "-mb": "--micro_batch_size",
    "-sl": "--seq_length",
    "-tp": "--tensor_model_parallel_size",
    "-pp": "--pipeline_model_parallel_size",
    "-cp": "--context_parallel_size",
    "-vp": "--virtual_pipeline_model_parallel_size",
    "-ep": "--expert_model_parallel_size",
    "-etp": "--expert_tensor_parallel_size",
    "-et": "--expert_tensor_parallel_size",
    "-mr": "--model_recipe_name",
    "-ng": "--num_gpus",
    "-gn": "--gpus_per_node",
    "-g": "--gpu",
    "-c": "--compute_dtype",
}


def plain(text: str) -> str:
    """A value without the quotes and spellings that mean nothing."""
    quoted = re.fullmatch(r"\"(.*)\"|'(.*)'", text, re.DOTALL)
    bare = (quoted[1] or quoted[2] or "") if quoted else text
    bare = bare.removeprefix("torch.")
    return bare.lower() if bare.lower() in ("true", "false") else ALIASES.get(bare, bare)


def options_of(table: KeyTable, keys: Mapping[str, Word]) -> Iterator[tuple[str, list[Word]]]:
    """Options of Megatron-LM that say the same, each with the words of its values."""
    stated = {key: word for key, word in keys.items() if word.text.lower() not in NOTHING}
    written = {key: replace(word, text=plain(word.text)) for key, word in stated.items()}
    latent = written.get("model.multi_latent_attention")
    alongside = (LATENT,) if latent is not None and latent.text == "true" else ()
    for flag, templates in table.of(alongside).items():
        pairs = [template.partition("=")[::2] for template in templates]
        found = [(written[key], value) for key, value in pairs if key in written]
        if not found or not all(_says(word.text, value) for word, value in found):
            continue
        values = [(word, value) for word, value in found if "{}" in value]
        if not values and any("{}" in value for _, value in pairs):
            continue
        yield flag, _words(flag, *values[0]) if values else []


def _says(text: str, template: str) -> bool:
    """Is it this literal, or a value where the template has a place for one?"""
    if "{}" not in template:
        return text == template
    return text.lower() not in (*NOTHING, "[]")


def _words(flag: str, word: Word, template: str) -> list[Word]:
    """The value of a key as words of an option."""
    inner = word.text.strip()
    if template.startswith("["):
        inner = re.sub(r"\s+", "", inner.strip("[]()"))
    if flag == AS_LIST:
        return [replace(word, text=f"[{inner}]" if "," in inner else inner)]
    if flag in ONE_WORD or not template.startswith("["):
        return [replace(word, text=inner)]
    return [replace(word, text=part) for part in inner.split(",")]
