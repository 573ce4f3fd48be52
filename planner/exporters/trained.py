"""What is trained, for runtimes whose files have no key for it: a module beside the script.

Source: huggingface/peft @5d602fdb `tuners/lora/config.py`, LoraConfig, and `mapping_func.py`,
get_peft_model; transformers `utils/quantization_config.py`, BitsAndBytesConfig, and
`modeling_utils.py`, enable_input_require_grads; bitsandbytes `optim/adamw.py`, PagedAdamW32bit.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.spec import Job, Layout, ModelSpec
from trainplan.costmodel.spec.trained import Projection, Trained, adapted
from trainplan.planner.exporters.config import ConfigFile

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
}
"""Modules of a layer. Source: transformers `models/llama/modeling_llama.py`, and
`models/deepseek_v3/modeling_deepseek_v3.py`; families of OTHER_NAMES have others."""
OTHER_NAMES = ("gpt2", "gpt_neox", "opt", "phi3", "glm4")
"""Families that join these matrices, or call them something else.
Source: transformers `models/gpt2/modeling_gpt2.py` (c_attn), `models/gpt_neox/modeling_gpt_neox.py`
(query_key_value), `models/opt/modeling_opt.py` (fc1), `models/phi3/modeling_phi3.py` (qkv_proj) and
`models/glm4/modeling_glm4.py` (gate_up_proj)."""

HEAD = '''\
"""What train.py trains. Written by `plan export`: {text}."""

'''
ADAPTERS = '''\
from peft import LoraConfig, get_peft_model

ADAPTERS = LoraConfig(
    r={rank},
    lora_alpha={alpha},
    lora_dropout=0.0,
    bias="none",
    task_type="CAUSAL_LM",
    target_modules={modules},
)


def trained(model):
    """The model that train.py loaded, its weights frozen, with adapters of 16 bits."""
    model.enable_input_require_grads()
    return get_peft_model(model, ADAPTERS, autocast_adapter_dtype=False)
'''
QUANTISED = """\
import torch
from transformers import BitsAndBytesConfig

QUANTISATION = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.{dtype},
)
"""
OPTIMIZER = '''

def optimizer(model, lr):
    """Moments in fp32 of adapters in 16 bits."""
    from bitsandbytes.optim import PagedAdamW32bit

    return PagedAdamW32bit([one for one in model.parameters() if one.requires_grad], lr=lr)
'''
FROZEN = '''\
FROZEN = range({first}, {end})


def trained(model):
    """The model that train.py loaded, with these layers frozen."""
    for number in FROZEN:
        model.get_decoder().layers[number].requires_grad_(False)
{embedding}    return model
'''
EMBEDDING = "    model.get_input_embeddings().requires_grad_(False)\n"
ALPHA_OVER_RANK = 2
"""Source: Megatron-Bridge `recipes/llama/h100/llama3.py`, dim 16 and alpha 32; free to change."""
TYPES = {"bf16": "bfloat16", "fp16": "float16"}


def trained_file(job: Job, layout: Layout) -> ConfigFile | None:
    """The module that says what is trained; null: every weight.

    Raises:
        UnsupportedError: The family calls its matrices something else.
    """
    trained, model = job.model.trained, job.model
    if trained is None:
        return None
    head = HEAD.format(text=trained.text)
    if not trained.adapts:
        return ConfigFile(FILE, head + _frozen(trained))
    if model.model_type in OTHER_NAMES:
        raise UnsupportedError(
            f"{job.runtime}: matrices of {model.model_type} have names of their own, which are not "
            "written: adapt a model with q_proj to down_proj, or export to megatron-bridge"
        )
    quantised = QUANTISED.format(dtype=TYPES[job.training.precision]) if trained.quantised else ""
    rank = trained.rank or 0
    text = ADAPTERS.format(rank=rank, alpha=ALPHA_OVER_RANK * rank, modules=_modules(model))
    own = OPTIMIZER if layout.zero_stage == 0 else ""
    imports, _, rest = text.partition("\n\n")
    lines = "\n".join((imports, quantised.rstrip())) if quantised else imports
    return ConfigFile(FILE, f"{head}{_sorted(lines)}\n\n{rest}{own}")


def _sorted(lines: str) -> str:
    """Imports before what they are for."""
    every = lines.split("\n")
    imports = [line for line in every if line.startswith(("import", "from"))]
    rest = [line for line in every if line not in imports]
    return "\n".join((*sorted(imports, key=lambda line: line.startswith("from")), *rest))


def _modules(model: ModelSpec) -> list[str]:
    """Names of the matrices with adapters, of all layers."""
    there = (name for kind in model.kinds for name in adapted(kind))
    return list(dict.fromkeys(_name(model, one) for one in there))


def _name(model: ModelSpec, one: Projection) -> str:
    uncompressed = one == "q_up" and model.mla is not None and model.mla.q_lora_rank is None
    return NAMES["q"] if uncompressed else NAMES[one]


def _frozen(trained: Trained) -> str:
    assert trained.layers is not None
    first, last = trained.layers
    embedding = EMBEDDING if trained.freezes_embedding else ""
    return FROZEN.format(first=first, end=last + 1, embedding=embedding)


def trained_notes(job: Job, layout: Layout) -> Iterator[str]:
    """What the training script has to do with the module."""
    trained = job.model.trained
    if trained is None:
        return
    load = " with quantization_config=trained.QUANTISATION" if trained.quantised else ""
    yield f"train.py loads the model in 16 bits{load}, and trains trained.trained(model)"
    if trained.adapts and layout.zero_stage == 0:
        yield "train.py takes its optimizer from trained.optimizer: no fp32 copy of the adapters"
