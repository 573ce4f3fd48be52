"""Megatron-LM: from the arguments of `pretrain_gpt.py` back to a job and a layout."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

from trainplan.planner.runtimes.megatron_lm.read.programs import (
    is_deepspeed,
    is_of_fork,
    read_of_fork,
    read_own,
)
from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM as EXPORTER
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.shell import Launch

NOT_WRITTEN: Mapping[str, str] = MappingProxyType(
    {
        "cluster": "how many ranks is stated, not on which GPUs, over what network, at what price",
        "training.tokens": "whole steps are stated, and some number of them where the job has none",
        "model.name": "of a model that is no preset and that the user does not give",
        "model.model_type": "as the name; gpt_oss, which has an activation of its own, is read",
        "model.head_dim": "of latent attention, which has others",
        "model.max_position_embeddings": "below the sequence length, which is stated instead",
        "model.activation": "gelu_tanh without biases, which the runtime computes as gelu",
        "model.rope_scaling": "numbers that no option sets; the runtime has its own",
        "model.moe.norm_topk_prob": "of one expert per token, where it means nothing",
        "options": "of a stated default nothing is left: null means the same",
        "layout.stages": "where they spell out the even split: null means the same",
        "may_offload_activations": "what a search may try is no part of a launch",
    }
)
"""Fields of a job or layout that an exported launch does not bring back, and why."""
PROGRAMS = frozenset({"pretrain_gpt.py"})


def recognises(launch: Launch) -> bool:
    """Is it the program that trains such models, or one of a fork with its options?"""
    return not launch.is_module and (
        PurePosixPath(launch.program.text).name in PROGRAMS or is_of_fork(launch)
    )


def read_any(launch: Launch, request: Request) -> Reading:
    """A launch of this release, of a fork's program, or of Megatron-DeepSpeed."""
    if PurePosixPath(launch.program.text).name in PROGRAMS and not is_deepspeed(launch):
        return read_own(launch, request)
    return read_of_fork(launch, request)


MEGATRON_LM = Reader(EXPORTER.runtime, recognises, read_any)
