"""What a recipe of a checkout sets, read from the text of its functions; nothing is imported."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.families import model_from_config
from trainplan.costmodel.presets import preset_named
from trainplan.planner.runtimes.megatron_bridge.read_recipes import Recipe
from trainplan.planner.runtimes.python_source import (
    Found,
    Made,
    Module,
    Raised,
    Symbol,
    Unread,
    defaults,
    found_in,
    module_of,
    returned,
)

PACKAGE = "megatron.bridge"
FOLLOWED = tuple(
    f"{PACKAGE}.{name}"
    for name in (
        "recipes",
        "perf_recipes",
        "peft",
        "models",
        "training.comm_overlap",
        "training.config",
        "training.mixed_precision",
    )
)
"""Modules whose functions are followed: what recipes call, and no model."""
MODELS = f"{PACKAGE}.models"
"""Of which functions are followed, and no classes: what makes a model is known by its name."""
SECTIONS = (
    *("model", "train", "validation", "dataset", "ddp", "optimizer", "scheduler"),
    *("comm_overlap", "mixed_precision", "checkpoint", "rerun_state_machine"),
)
"""Of a configuration, those that the price and the verdict hang on."""
LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
"""Layers of a stage, as a layout of one text has them."""
PROVIDED = {"model.cross_entropy_loss_fusion": "true"}
"""What a model has where a recipe is silent.

Source: Megatron-Bridge @067f987d `src/megatron/bridge/models/conversion/model_bridge.py`."""
SETTERS = {
    f"{PACKAGE}.utils.cuda_graph": """
def set_cuda_graph_modules(config, modules):
    config.cuda_graph_modules = modules
    config.cuda_graph_scope = None
def clear_cuda_graph_modules(config):
    set_cuda_graph_modules(config, [])
def set_full_iteration_cuda_graph(config):
    config.cuda_graph_impl = "full_iteration"
    set_cuda_graph_modules(config, [])
""",
    f"{PACKAGE}.training.flex_dispatcher_backend": """
def apply_flex_dispatcher_backend(config, backend=None):
    if backend in ("deepep", "hybridep"):
        config.moe_token_dispatcher_type = "flex"
        config.moe_flex_dispatcher_backend = backend
        config.moe_shared_expert_overlap = False
""",
}
"""What functions set that ask the GPU or the release of Megatron-Core first, where both have it.

Source: Megatron-Bridge @067f987d `src/megatron/bridge/utils/cuda_graph.py` and
`src/megatron/bridge/training/flex_dispatcher_backend.py`."""
HUB = f"{PACKAGE}.AutoBridge.from_hf_pretrained"
FLAT = re.compile(r"_(pretrain|sft|peft)_([1-9]\d{0,6})gpu_([a-z]+\d+)_[a-z0-9_]*config$")
"""What a whole name says: the task, the GPUs and their kind.

Source: Megatron-Bridge @067f987d `scripts/training/recipe_metadata.py`."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Modules of a checkout, by the texts of its files."""

    text_of: Callable[[str], str | None]
    root: str = ""
    """Where the checkout stands, empty or with `/` at its end."""
    read: dict[str, Module | None] = field(default_factory=dict)

    def module(self, name: str) -> Module | None:
        """A module whose functions are followed; null: another, or none."""
        if name in SETTERS:
            return module_of(SETTERS[name], name)
        if name not in self.read:
            inside = any(name == one or name.startswith(f"{one}.") for one in FOLLOWED)
            found = self._parsed(name) if inside else None
            if found is not None and name.startswith(MODELS):
                found = replace(found, classes={})
            self.read[name] = found
        return self.read[name]

    def path(self, name: str) -> str:
        """Where a module stands, without its ending."""
        return f"{self.root}src/{name.replace('.', '/')}"

    def _parsed(self, name: str) -> Module | None:
        path = self.path(name)
        for file, package in ((f"{path}.py", False), (f"{path}/__init__.py", True)):
            text = self.text_of(file)
            if text is not None:
                try:
                    return module_of(text, name, package=package)
                except ValueError:
                    return None
        return None

    def recipe(self, name: str) -> Found | None:
        """The function of a recipe: of the benchmarks if they have it, else of the library.

        Source: Megatron-Bridge @067f987d `scripts/training/recipe_runner.py`, `load_recipe`.
        """
        family = next((one for prefix, one in FAMILIES if name.startswith(prefix)), None)
        places = [f"{PACKAGE}.perf_recipes.{family}"] if family and FLAT.search(name) else []
        for place in (*places, f"{PACKAGE}.recipes"):
            module = self.module(place)
            found = found_in(module, name, self.module) if module else None
            if found is not None:
                return found
        return None


FAMILIES = (
    ("qwen3_vl_", "qwen_vl"),
    ("qwen35_vl_", "qwen_vl"),
    ("deepseek_", "deepseek"),
    ("gpt_oss_", "gpt_oss"),
    ("nemotron", "nemotronh"),
    ("llama", "llama"),
    ("qwen", "qwen"),
    ("kimi_", "kimi"),
    ("glm5", "glm_moe_dsa"),
    ("wan_", "wan"),
)
"""Packages of benchmarks by the beginning of a name. Source: as for `FLAT`."""


def read_recipe(sources: Sources, name: str) -> Recipe | Unread | None:
    """What a recipe sets; null: there is none of that name."""
    found = sources.recipe(name)
    if found is None:
        return None
    made = returned(found.module, found.node.name, lambda name: None, sources.module)
    if isinstance(made, Raised):
        return made
    if not isinstance(made, Made) or not made.name.endswith("ConfigContainer"):
        says = made.text if isinstance(made, Unread) else f"{name} returns no ConfigContainer"
        return Unread(found.node.lineno, says)
    keys = dict(PROVIDED)
    unread: dict[str, Unread] = {}
    for section in SECTIONS:
        for key, value in _flat(section, made.named.get(section), sources):
            written = text_of(value)
            if written is not None:
                keys[key] = written
            elif section == "checkpoint":
                keys[key] = "a path"
            elif isinstance(value, Unread):
                unread[key] = value
            elif isinstance(value, Made) and value.kind is None:
                unread[key] = Unread(value.line, f"{value.name}(...)")
    model = made.named.get("model")
    hub = _hub(model)
    nested = isinstance(model, Made) and model.name.endswith(".get_model_config")
    known = preset_named(hub) if hub else None
    file = sources.path(found.module.name)
    variables = made.named.get("env_vars")
    environment = _texts(variables if isinstance(variables, dict) else {})
    shape = None if known else _hybrid(keys, name.partition("_pretrain")[0])
    trains, adapters = hub or _made(model), _adapters(made.named.get("peft"), sources)
    return Recipe(name, known, nested, keys, file, unread, trains, environment, shape, adapters)


def _adapters(peft: object, sources: Sources) -> str | None:
    """Adapters as our own recipes write them; null: none."""
    if not isinstance(peft, Made):
        return None if peft is None else "unread"
    given = defaults(peft, sources.module)
    modules = given.get("target_modules")
    names = [str(one) for one in modules] if isinstance(modules, list) else []
    kind = peft.name.rpartition(".")[2]
    return f"recipe.peft = {kind}(target_modules={names!r}, dim={given.get('dim')},"


HYBRID = {
    "hybrid_override_pattern": "hybrid_layer_pattern",
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "ffn_hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_query_groups",
    "head_dim": "kv_channels",
    "mamba_num_heads": "mamba_num_heads",
    "mamba_head_dim": "mamba_head_dim",
    "ssm_state_size": "mamba_state_dim",
    "n_groups": "mamba_num_groups",
    "max_position_embeddings": "seq_length",
    "n_routed_experts": "num_moe_experts",
    "moe_intermediate_size": "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size": "moe_shared_expert_intermediate_size",
    "num_experts_per_tok": "moe_router_topk",
    "routed_scaling_factor": "moe_router_topk_scaling_factor",
}
"""Fields of a `nemotron_h` configuration, and the key of a `HybridModelProvider` for each.

Source: Megatron-Bridge @067f987d `models/nemotronh/nemotron_h_bridge.py`."""
FIXED = {"model_type": "nemotron_h", "mlp_hidden_act": "relu2", "n_shared_experts": 1}
WITH_NOTHING = {"norm_topk_prob": True, "n_group": 1, "topk_group": 1, "mtp_hybrid_pattern": ""}
VOCABULARY = "131072"
"""Of the tokenizers of all of them, as the presets `nemotron-3-*` have it."""


def _hybrid(keys: Mapping[str, str], name: str) -> ModelSpec | None:
    """A model of Mamba layers, from the words of its provider."""
    if "model.hybrid_layer_pattern" not in keys:
        return None
    stated = {one: keys[f"model.{key}"] for one, key in HYBRID.items() if f"model.{key}" in keys}
    stated["vocab_size"] = keys.get("model.vocab_size", VOCABULARY)
    numbers = {one: _number(text) for one, text in stated.items()}
    width = numbers["hidden_size"]
    heads = numbers["num_attention_heads"]
    if isinstance(width, int) and isinstance(heads, int) and heads:
        numbers.setdefault("head_dim", width // heads)
    experts = "n_routed_experts" in stated
    config = FIXED | (WITH_NOTHING if experts else {}) | numbers
    try:
        return model_from_config(config, name)
    except PlanError:
        return None


def _number(text: str) -> object:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _texts(variables: Mapping[object, object]) -> dict[str, str]:
    texts = ((str(name), text_of(value)) for name, value in variables.items())
    return {name: text for name, text in texts if text is not None}


def _flat(section: str, value: object, sources: Sources) -> Iterator[tuple[str, object]]:
    if isinstance(value, Made):
        for key, one in defaults(value, sources.module).items():
            yield f"{section}.{key}", one
    elif value is not None:
        yield section, value


def text_of(value: object) -> str | None:
    """A value as a key of the command would write it; null: only a run would tell it."""
    if isinstance(value, list | tuple):
        nested = any(isinstance(one, list | tuple) for one in value)
        return _stages(value) if nested else _joined(value)
    if isinstance(value, Symbol):
        return value.text.removeprefix("torch.")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    plain = value is None or isinstance(value, str | int | float)
    return ("null" if value is None else str(value)) if plain else None


def _stages(value: Sequence[object]) -> str | None:
    """A list of layers of every stage, as one text."""
    parts = [part if isinstance(part, list | tuple) else ("?",) for part in value]
    stages = ["".join(LETTERS.get(str(one), "?") for one in part) for part in parts]
    return None if any("?" in one for one in stages) else "|".join(stages)


def _joined(value: Sequence[object]) -> str | None:
    parts = [text_of(one) for one in value]
    whole = [one for one in parts if one is not None]
    return f"[{','.join(whole)}]" if len(whole) == len(parts) else None


def _hub(model: object, depth: int = 0) -> str | None:
    if not isinstance(model, Made) or depth > 8:
        return None
    if model.name.endswith(HUB.rpartition(PACKAGE)[2]) and model.first:
        return model.first[0] if isinstance(model.first[0], str) else None
    return _hub(model.first[0], depth + 1) if model.first else None


def _made(model: object) -> str:
    if isinstance(model, Unread):
        return model.text
    return model.name if isinstance(model, Made) else repr(model)[:60]
