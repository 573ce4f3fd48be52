"""Which known name someone meant by one that is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from types import MappingProxyType

ALIKE = 0.75
"""Least share of letters in common, in order, of two names that are taken for one another.

Source: derived; two letters swapped, added or left out in a name of four are above it, and names of
other families (`minimax_m2`, `gemma2`) are below.
"""
BEGINS = 0.9
"""Likeness of a name and its beginning. Source: as `ALIKE`; names of one family are likelier."""
LEAST_BEGINNING, LEAST_NAME = 4, 6
"""Letters with which a name has to begin to be suggested for them, and letters of a name that is
suggested for what begins with it."""
LONGEST = 60
"""Characters of a name that a message repeats."""

MEANT: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "runtime": {
            "hf": ("accelerate",),
            "huggingface": ("accelerate",),
            "transformers": ("accelerate",),
            "trainer": ("accelerate",),
            "trl": ("accelerate",),
            "axolotl": ("accelerate",),
            "megatron": ("megatron-lm", "megatron-bridge"),
            "mcore": ("megatron-lm", "megatron-bridge"),
            "megatroncore": ("megatron-lm", "megatron-bridge"),
            "bridge": ("megatron-bridge",),
            "nvidia": ("megatron-lm", "megatron-bridge"),
            "fsdp": ("fsdp2", "accelerate"),
            "torch": ("torchtitan", "fsdp2"),
            "pytorch": ("torchtitan", "fsdp2"),
            "titan": ("torchtitan",),
            "zero": ("deepspeed",),
            "ds": ("deepspeed",),
            "arctic": ("arctic-training",),
        },
        "launcher": {
            "sbatch": ("slurm",),
            "srun": ("slurm",),
            "mpirun": ("mpi",),
            "openmpi": ("mpi",),
            "k8s": ("kubernetes",),
            "kubectl": ("kubernetes",),
            "kubeflow": ("kubernetes", "pytorchjob"),
            "trainjob": ("kubernetes",),
            "sky": ("skypilot",),
            "torch": ("torchrun",),
            "local": ("torchrun",),
        },
        "precision": {
            "bfloat16": ("bf16",),
            "float16": ("fp16",),
            "half": ("fp16",),
            "float32": ("fp32",),
            "float": ("fp32",),
            "float8": ("fp8",),
            "fp4": ("nvfp4",),
        },
        "optimizer": {
            "adam": ("adamw",),
            "adamwtorch": ("adamw",),
            "adamwfused": ("adamw",),
            "adam8bit": ("adamw8bit",),
            "pagedadamw8bit": ("adamw8bit",),
        },
        "layout field": {
            "tpsize": ("tp",),
            "tensor": ("tp",),
            "tensorparallel": ("tp",),
            "tensorparallelsize": ("tp",),
            "tensorparalleldegree": ("tp",),
            "tensormodelparallelsize": ("tp",),
            "ppsize": ("pp",),
            "pipeline": ("pp",),
            "pipelineparallel": ("pp",),
            "pipelineparallelsize": ("pp",),
            "pipelineparalleldegree": ("pp",),
            "pipelinemodelparallelsize": ("pp",),
            "vp": ("vpp",),
            "virtualpipelinemodelparallelsize": ("vpp",),
            "cpsize": ("cp",),
            "context": ("cp",),
            "contextparallel": ("cp",),
            "contextparallelsize": ("cp",),
            "contextparalleldegree": ("cp",),
            "dpsize": ("dp",),
            "data": ("dp",),
            "dataparallel": ("dp",),
            "dataparallelsize": ("dp",),
            "dpshard": ("dp", "dp_replicate"),
            "hsdp": ("dp_replicate",),
            "dataparallelreplicatedegree": ("dp_replicate",),
            "epsize": ("ep",),
            "expert": ("ep",),
            "expertparallel": ("ep",),
            "expertmodelparallelsize": ("ep",),
            "expertparalleldegree": ("ep",),
            "experttensorparallelsize": ("etp",),
            "zero": ("zero_stage",),
            "fsdp": ("zero_stage",),
            "microbatchsize": ("micro_batch_size",),
            "microbatch": ("micro_batch_size",),
            "localbatchsize": ("micro_batch_size",),
            "perdevicetrainbatchsize": ("micro_batch_size",),
            "activationcheckpointing": ("recompute",),
            "gradientcheckpointing": ("recompute",),
            "recomputegranularity": ("recompute",),
            "ac": ("recompute",),
        },
        "option": {
            "flashattention": ("attention",),
            "flashattn": ("attention",),
            "cudagraphs": ("cuda_graph",),
            "torchcompile": ("compile",),
            "dispatcher": ("moe_dispatcher",),
            "gradreduceinbf16": ("gradient_dtype",),
            "tpcommoverlap": ("overlap_tp_comm",),
        },
        "command option": {
            "tp": ("--fix tp=8",),
            "pp": ("--fix pp=4",),
            "mbs": ("--fix mbs=1",),
            "microbatchsize": ("--fix mbs=1",),
            "gbs": ("--global-batch-size",),
            "batch": ("--global-batch-size",),
            "batchsize": ("--global-batch-size",),
            "globalbatch": ("--global-batch-size",),
            "seqlen": ("--seq-length",),
            "seq": ("--seq-length",),
            "sequencelength": ("--seq-length",),
            "contextlength": ("--seq-length",),
            "modelpath": ("--model",),
            "system": ("--cluster",),
            "hardware": ("--cluster",),
            "numnodes": ("--nodes",),
            "nnodes": ("--nodes",),
            "numgpus": ("--gpus",),
            "totalgpus": ("--gpus",),
            "ngpus": ("--gpus",),
            "gpuspernode": ("--gpus",),
            "gputype": ("--gpu",),
            "dtype": ("--precision",),
            "framework": ("--runtime",),
            "backend": ("--runtime",),
            "bandwidth": ("--nic",),
            "cost": ("--price",),
            "savedir": ("--output",),
            "out": ("--output",),
        },
        "objective": {
            "speed": ("time",),
            "fastest": ("time",),
            "throughput": ("time",),
            "money": ("cost",),
            "price": ("cost",),
            "cheapest": ("cost",),
            "power": ("energy",),
            "sequence": ("context",),
        },
        "command": {
            "plan": ("search",),
            "run": ("search", "tune"),
            "price": ("estimate",),
            "predict": ("estimate",),
            "generate": ("export",),
            "launch": ("export",),
            "list": ("catalog",),
            "models": ("catalog models",),
            "gpus": ("catalog gpus",),
            "clusters": ("catalog clusters",),
            "hosts": ("catalog hosts",),
            "lint": ("check",),
            "diff": ("compare",),
            "measure": ("profile",),
            "bench": ("profile",),
            "whynot": ("why-not",),
        },
    }
)
"""What other projects call it, letters and digits alone, by the kind of name: what it is here."""


def plain(name: str) -> str:
    """Letters and digits of a name, in small letters."""
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def near(kind: str, name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """The known names that someone may have meant, the likeliest first; empty where none is alike.

    A name of another project for the same thing counts before letters in common.
    """
    typed, names = name[: 2 * LONGEST].lower(), sorted(known)
    meant = MEANT.get(kind, {}).get(plain(typed))
    if meant:
        return meant
    likeness = {one: _likeness(typed, one.lower()) for one in names}
    alike = [one for one in names if likeness[one] >= ALIKE]
    return tuple(sorted(alike, key=lambda one: -likeness[one])[:most])


def _likeness(typed: str, known: str) -> float:
    """From 0 to 1, which are the same letters."""
    letters = plain(typed), plain(known)
    share = max(_in_common(typed, known), _in_common(*letters))
    begins = (letters, LEAST_BEGINNING), (letters[::-1], LEAST_NAME)
    longer = any(len(short) >= least and long.startswith(short) for (short, long), least in begins)
    return max(share, BEGINS) if longer else share


def _in_common(typed: str, known: str) -> float:
    return SequenceMatcher(None, typed, known, autojunk=False).ratio()


def did_you_mean(kind: str, name: str, known: Iterable[str]) -> str:
    """`did you mean 'tp'?`, or nothing."""
    names = near(kind, name, known)
    return f"did you mean {' or '.join(map(repr, names))}?" if names else ""


def shortened(text: str, most: int = LONGEST) -> str:
    """A text a message may repeat: the middle of a long one is left out."""
    if len(text) <= most:
        return text
    begin = most * 2 // 3
    return f"{text[:begin]}...{text[len(text) - (most - begin) :]}"
