"""What is trained, for runtimes whose files have no key for it: a module beside the script.

Source: huggingface/peft @5d602fdb `tuners/lora/config.py`, LoraConfig, and `mapping_func.py`,
get_peft_model; transformers `utils/quantization_config.py`, BitsAndBytesConfig, and
`modeling_utils.py`, enable_input_require_grads; bitsandbytes `optim/adamw.py`, PagedAdamW32bit.
"""

import json
from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec, Projection, Trained, adapted
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import ConfigFile

FILE = "trained.py"
NAMES: dict[Projection, str] = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "q_down": "q_a_proj",
    "q_up": "q_b_proj",
    "kv_down": "kv_a_proj_with_mqa",
    "kv_up": "kv_b_proj",
    "o": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "x_proj": "x_proj",
    "dt_proj": "dt_proj",
    "out_proj": "out_proj",
}
"""Modules of a layer. Source: transformers `models/llama/modeling_llama.py`,
`models/deepseek_v3/modeling_deepseek_v3.py` and `models/mamba/modeling_mamba.py`; families of
OTHER_NAMES have others."""
INPUTS = {
    "qwen3_next": ("in_proj_qkvz", "in_proj_ba"),
    "minimax": ("qkv_proj", "output_gate"),
} | dict.fromkeys(
    ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
    ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"),
)
"""Modules that read the input of linear attention, by family. Source: transformers
`models/qwen3_next/modeling_qwen3_next.py`, `models/qwen3_5/modeling_qwen3_5.py` and
`models/minimax/modeling_minimax.py`; of mixers with a state it is one, `in_proj`."""
OTHER_NAMES = ("gpt2", "gpt_neox", "opt", "phi3", "glm4", "lfm2", "lfm2_moe")
"""Families that join these matrices, or call them something else.
Source: transformers `models/gpt2/modeling_gpt2.py` (c_attn), `models/gpt_neox/modeling_gpt_neox.py`
(query_key_value), `models/opt/modeling_opt.py` (fc1), `models/phi3/modeling_phi3.py` (qkv_proj),
`models/glm4/modeling_glm4.py` (gate_up_proj) and `models/lfm2/modeling_lfm2.py` (w1)."""

QUANTISED = """
QUANTISATION = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.{dtype},
    bnb_4bit_quant_storage=torch.{dtype},  # as the other weights: flat parameters have one type
)
"""
ADAPTERS = """
ADAPTERS = LoraConfig(
    r={rank},
    lora_alpha={alpha},
    lora_dropout=0.0,
    bias="none",
    task_type="CAUSAL_LM",
    target_modules={modules},
)
"""
COUNTED = '''

def of_counted_tokens(model):
    """The model whose loss is of tokens with labels alone: no other reaches the projection."""

    def forward(input_ids=None, labels=None, **others):
        hidden = model.base_model(input_ids=input_ids, **others).last_hidden_state
        if labels is None:
            return CausalLMOutput(logits=model.get_output_embeddings()(hidden))
        labels = labels[:, 1:]
        counted = labels != -100
        logits = model.get_output_embeddings()(hidden[:, :-1][counted]).float()
        return CausalLMOutput(loss=cross_entropy(logits, labels[counted]))

    model.forward = forward
    return model
'''
TRAINED = '''

def trained(model):
    """What is trained of the model that train.py loaded."""
{steps}    return model
'''
OPTIMIZER = '''

def optimizer(model, lr):
    """Moments in fp32 of adapters in 16 bits."""
    return PagedAdamW32bit([one for one in model.parameters() if one.requires_grad], lr=lr)
'''
ADAPTED = (
    "model.enable_input_require_grads()",
    "model = get_peft_model(model, ADAPTERS, autocast_adapter_dtype={wide})",
)
IMPORTS = {
    "torch": "import torch",
    "optimizer": "from bitsandbytes.optim import PagedAdamW32bit",
    "peft": "from peft import LoraConfig, get_peft_model",
    "loss": "from torch.nn.functional import cross_entropy",
    "quantisation": "from transformers import BitsAndBytesConfig",
    "output": "from transformers.modeling_outputs import CausalLMOutput",
}
"""In the order in which they are written."""
ALPHA_OVER_RANK = 2
"""Source: Megatron-Bridge `recipes/llama/h100/llama3.py`, dim 16 and alpha 32; free to change."""
TYPES = {"bf16": "bfloat16", "fp16": "float16"}


def trained_file(job: Job, layout: Layout, traits: RuntimeTraits) -> ConfigFile | None:
    """The module that says what is trained, and on which tokens; null: everything, on all.

    Raises:
        UnsupportedError: The family calls its matrices something else, or caps its logits.
    """
    trained, counted = job.model.trained, job.training.loss_tokens < 1
    if trained is None and not counted:
        return None
    for reason in _reasons(job):
        raise UnsupportedError(f"{job.runtime}: {reason}")
    imports: set[str] = set()
    steps: list[str] = []
    parts: list[str] = []
    if counted:
        imports |= {"loss", "output"}
        steps.append("model = of_counted_tokens(model)")
    if trained and trained.quantised:
        imports |= {"torch", "quantisation"}
        parts.append(QUANTISED.format(dtype=TYPES[job.training.precision]))
    if trained and trained.adapts:
        imports.add("peft")
        rank = trained.rank or 0
        modules = json.dumps(module_names(job.model))
        text = ADAPTERS.format(rank=rank, alpha=ALPHA_OVER_RANK * rank, modules=modules)
        parts.append(text)
        steps += (one.format(wide=job.options.adapter_dtype == "fp32") for one in ADAPTED)
    elif trained:
        steps += _frozen(trained)
    parts.append((COUNTED if counted else "") + TRAINED.format(steps=_lines(steps)))
    if _own_optimizer(job, layout, traits):
        imports.add("optimizer")
        parts.append(OPTIMIZER)
    return ConfigFile(FILE, _module(job, imports, parts))


def _module(job: Job, imports: set[str], parts: list[str]) -> str:
    written = job.model.trained.text if job.model.trained else "all of the model"
    share = job.training.loss_tokens
    tokens = f", on {share:g} of the tokens" if share < 1 else ""
    lines = [text for name, text in IMPORTS.items() if name in imports]
    head = f'"""What train.py trains. Written by `plan export`: {written}{tokens}."""\n'
    return "\n".join((head, *lines)) + "\n" + "".join(parts)


def _lines(steps: list[str]) -> str:
    return "".join(f"    {step}\n" for step in steps)


def _own_optimizer(job: Job, layout: Layout, traits: RuntimeTraits) -> bool:
    """Are adapters replicated in 16 bits, whose moments no common optimizer keeps in fp32?"""
    return bool(traits.adapting.replicated(job, LayoutTable.of([layout]))[0])


def _reasons(job: Job) -> Iterator[str]:
    model = job.model
    if model.trained and model.trained.adapts and model.model_type in OTHER_NAMES:
        yield (
            f"matrices of {model.model_type} have names of their own, which are not written: adapt "
            "a model with q_proj to down_proj, or export to megatron-bridge"
        )
    unnamed = {one for kind in model.kinds for one in adapted(kind) if not _names(model, one)}
    if unnamed:
        yield (
            f"names of {', '.join(sorted(unnamed))} in {model.model_type} are not written: choose "
            "other modules"
        )
    if job.training.loss_tokens < 1 and model.final_logit_softcapping:
        yield "the loss of some tokens is not written for logits that are capped: use loss_tokens=1"


def module_names(model: ModelSpec) -> list[str]:
    """Names of the matrices with adapters, of all layers."""
    there = (name for kind in model.kinds for name in adapted(kind))
    return list(dict.fromkeys(word for one in there for word in _names(model, one)))


def _names(model: ModelSpec, one: Projection) -> tuple[str, ...]:
    """Modules of one projection; none: transformers has it in no linear layer known here."""
    if one == "in_proj":
        return INPUTS.get(model.model_type or "", () if model.linear_attention else (one,))
    uncompressed = one == "q_up" and model.mla is not None and model.mla.q_lora_rank is None
    word = NAMES.get("q" if uncompressed else one)
    return (word,) if word else ()


def _frozen(trained: Trained) -> Iterator[str]:
    assert trained.layers is not None
    first, last = trained.layers
    yield f"for number in range({first}, {last + 1}):"
    yield "    model.get_decoder().layers[number].requires_grad_(False)"
    if trained.freezes_embedding:
        yield "model.get_input_embeddings().requires_grad_(False)"


def trained_notes(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[str]:
    """What the training script has to do with the module."""
    trained = job.model.trained
    if trained is None and job.training.loss_tokens == 1:
        return
    quantised = trained is not None and trained.quantised
    load = " with quantization_config=trained.QUANTISATION" if quantised else ""
    yield f"train.py loads the model in 16 bits{load}, and trains trained.trained(model)"
    if _own_optimizer(job, layout, traits):
        yield "train.py takes its optimizer from trained.optimizer: no fp32 copy of the adapters"
