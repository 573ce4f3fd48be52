"""Public recipes of a checkout: which there are, and the launch that each is."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FLAT = re.compile(r"_(pretrain|sft|peft)_([1-9]\d*)gpu_([a-z]+\d+)_[a-z0-9_]*config$")
"""What the name of a recipe of Megatron-Bridge says: task, GPUs and their kind."""
KINDS = {"h100": "h100-sxm", "r100": "vr200"}
FOUR_A_NODE = ("gb", "vr", "r1")
TASKS = {"pretrain": "pretraining", "sft": "fine-tuning", "peft": "adapters"}
GPUS = ("mi300x", "mi325x", "mi355x")
TORCHTITAN = re.compile(r"debug|flux|sft_")
"""Configs that are for tests, or of what is no language model."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One recipe, as someone would launch it."""

    project: str
    path: str
    """Of the file that it stands in, within its repository."""
    name: str
    task: str
    words: tuple[str, ...]
    """What `plan check` is given, in the folder of the checkout."""
    cluster: str
    """GPUs that the recipe names; empty: it does not say how many."""
    gpu: str = ""
    """Of a recipe that says no number."""


class Project(NamedTuple):
    """A repository whose recipes are read."""

    repository: str
    licence: str
    recipes: Callable[[Path], Iterator[Recipe]]


def _functions(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def _bridge(root: Path) -> Iterator[Recipe]:
    """Of two with one name the benchmark, which `run_recipe.py` takes."""
    found: dict[str, Recipe] = {}
    for part in ("perf_recipes", "recipes"):
        for file in sorted((root / "src/megatron/bridge" / part).rglob("*.py")):
            for name in _functions(file):
                if said := FLAT.search(name):
                    path = str(file.relative_to(root))
                    found.setdefault(name, _of_bridge(name, path, *said.groups()))
    yield from found.values()


def _of_bridge(name: str, path: str, task: str, gpus: str, kind: str) -> Recipe:
    each = min(int(gpus), 4 if kind.startswith(FOUR_A_NODE) else 8)
    nodes = int(gpus) // each
    words = ("torchrun", f"--nnodes={nodes}", f"--nproc-per-node={each}")
    script = ("scripts/training/run_recipe.py", "--recipe", name)
    cluster = f"{nodes}x{each}:{KINDS.get(kind, kind)}"
    return Recipe("Megatron-Bridge", path, name, TASKS[task], (*words, *script), cluster)


def _megatron(root: Path) -> Iterator[Recipe]:
    for file in sorted((root / "examples").rglob("*.sh")):
        if re.search(r"pretrain_(gpt|mamba|hybrid)\.py", file.read_text("utf-8", "replace")):
            path = str(file.relative_to(root))
            yield Recipe("Megatron-LM", path, file.stem, "pretraining", (path,), "")


def _torchtitan(root: Path) -> Iterator[Recipe]:
    for file in sorted((root / "torchtitan/models").glob("*/config_registry.py")):
        module = file.parent.name
        for name in _functions(file):
            if not TORCHTITAN.search(f"{module}_{name}"):
                words = ("-m", "torchtitan.train", "--module", module, "--config", name)
                path = str(file.relative_to(root))
                launch = ("torchrun", "--nnodes=$NODES", "--nproc_per_node=8", *words)
                yield Recipe("torchtitan", path, name, "pretraining", launch, "", "h100-sxm")


def _primus(root: Path) -> Iterator[Recipe]:
    for file in sorted((root / "examples/megatron/configs").rglob("*.yaml")):
        path, gpu = str(file.relative_to(root)), file.parent.name.lower()
        task = "pretraining" if "pretrain" in file.stem else "fine-tuning"
        known = gpu if gpu in GPUS else "mi300x"
        yield Recipe("Primus", path, f"{file.parent.name}/{file.stem}", task, (path,), "", known)


def _maxtext(root: Path) -> Iterator[Recipe]:
    for file in sorted((root / "src/maxtext/configs/gpu/models").glob("*.yml")):
        path = str(file.relative_to(root))
        yield Recipe("MaxText", path, file.stem, "pretraining", (path,), "")


PROJECTS = {
    "bridge": Project("NVIDIA-NeMo/Megatron-Bridge", "Apache-2.0", _bridge),
    "megatron": Project("NVIDIA/Megatron-LM", "BSD-3-Clause and others", _megatron),
    "torchtitan": Project("pytorch/torchtitan", "BSD-3-Clause", _torchtitan),
    "primus": Project("AMD-AGI/Primus", "MIT", _primus),
    "maxtext": Project("AI-Hypercomputer/maxtext", "Apache-2.0", _maxtext),
}
"""By the option of the command that says where the checkout is."""
