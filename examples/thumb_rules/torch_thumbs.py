"""Advice for PyTorch's own runtimes, DeepSpeed and nanotron's readers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from thumb_jobs import Facts
from thumb_rule import Reading, Step, ThumbRule, among, at_least, at_most, only, powers, where

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.layouts.table import LayoutTable

LONG = 32768
"""Tokens of a sequence that these guides call long: they say no number; the longest of our jobs
that they could mean."""
SHARDED = Reading(zero_stages=(3,))
TITAN = Reading(zero_stages=(3, 1), recompute=("none", "selective", "full"))


def context(facts: Facts) -> Step:
    """Context parallelism for long sequences alone."""
    return () if facts.seq_length >= LONG else only(cp=1)


def _node(facts: Facts) -> int:
    return max(powers(1, min(8, max(facts.domain, facts.node))))


def playbook(facts: Facts) -> tuple[Step, ...] | None:
    """By parameters, then by GPUs; any of what it offers, in no order.

    Of more than 100 B it covers from 512 GPUs, and of experts it states no sizes.
    """
    if facts.experts:
        return None
    node, base = _node(facts), context(facts)
    if facts.gpus >= 1024:
        return ((*base, *only(tp=node), at_least("pp", 2)),)
    if facts.gpus >= 512:
        return ((*base, where("tp pp", lambda t: t.tp * t.pp > 1)),)
    if facts.billions < 10:
        one = where("tp zero_stage", lambda t: (t.tp == 1) | (t.zero_stage < 3))
        return ((*base, *only(pp=1), at_most("tp", node), one),)
    sharded = where("tp pp zero_stage", lambda t: _offered(t, node))
    if facts.billions < 100:
        return ((*base, sharded),)
    return None


def _offered(table: LayoutTable, node: int) -> BoolColumn:
    tensor, shards = table.tp == node, table.zero_stage == 3
    alone = (table.tp == 1) & (table.pp == 1)
    return np.asarray((tensor & (table.pp > 1)) | (tensor & shards) | (alone & shards))


def torchtitan(facts: Facts) -> tuple[Step, ...] | None:
    """FSDP alone up to 512 GPUs, then tensor ranks in the node, then a pipeline; not of experts."""
    if facts.experts:
        return None
    node, base = _node(facts), context(facts)
    alone = (*base, *only(tp=1, pp=1))
    tensor = (*base, *only(pp=1), among("tp", *powers(2, node)))
    stages = (*base, at_least("pp", 2), at_most("tp", node))
    return (alone, tensor, stages) if facts.gpus <= 512 else (tensor, stages)


def inter_host(facts: Facts) -> tuple[Step, ...] | None:
    """FSDP alone, then FSDP between nodes with tensor ranks over each of them; not of experts."""
    if facts.experts:
        return None
    alone, tensor = only(tp=1), only(tp=facts.node)
    few = facts.job.training.global_batch_size < facts.gpus
    if facts.gpus > 256 or few:
        return (tensor,)
    return (alone, tensor)


def stages_in_order(facts: Facts) -> tuple[Step, ...]:
    """ZeRO-1, 2, 3: the first that fits; context parallelism as for others."""
    ranks = (*only(tp=1, pp=1), *context(facts))
    return tuple((*ranks, *only(zero_stage=stage)) for stage in (1, 2, 3))


def sharded(facts: Facts) -> tuple[Step, ...] | None:
    """FULL_SHARD; not of experts."""
    return None if facts.experts else (only(zero_stage=3, dp_replicate=1),)


RULES = (
    ThumbRule(
        "playbook",
        "Ultra-Scale Playbook: fit, then scale",
        "torchtitan",
        "below 10 B one technique, tensor parallelism or ZeRO-3; 10 to 100 B tp 8 with a pipeline, "
        "tp 8 with ZeRO-3, or ZeRO-3 alone; from 512 GPUs not data parallelism alone; from 1,024 "
        "tp 8 with data and pipeline parallelism; context parallelism for very long sequences",
        "https://huggingface.co/spaces/nanotron/ultrascale-playbook, Finding the Best Training "
        "Configuration, step 1; read in copies of the page: only facts are used",
        playbook,
        TITAN,
    ),
    ThumbRule(
        "torchtitan-paper",
        "TorchTitan: FSDP first",
        "torchtitan",
        "FSDP alone up to 512 GPUs; beyond, and where it does not fit, tensor parallelism inside "
        "the node, then pipeline parallelism; context parallelism for long sequences",
        "arXiv:2410.06511, section 3.3",
        torchtitan,
        TITAN,
    ),
    ThumbRule(
        "pytorch-tensor-parallel",
        "PyTorch tutorial: FSDP between hosts",
        "fsdp2",
        "FSDP alone up to 128 or 256 GPUs; beyond, or where the batch has fewer sequences than "
        "there are GPUs, tensor parallelism over each host and FSDP between hosts",
        "pytorch/tutorials@434aee9e43c978f2dcb5385b3250eeb6b81e3027, intermediate_source/"
        "TP_tutorial.rst, When and Why you should apply Tensor Parallel; BSD-3",
        inter_host,
        SHARDED,
    ),
    ThumbRule(
        "deepspeed-stages",
        "DeepSpeed: least ZeRO stage that fits",
        "deepspeed",
        "ZeRO-1, then 2, then 3, the first that fits, recomputation on, then as large a micro "
        "batch as fits",
        "huggingface/transformers@019da1e8268a76436582cccc51c03638d267aa5b, docs/source/en/"
        "deepspeed.md, Select a ZeRO stage; Apache-2.0. The same order: "
        "deepspeedai/DeepSpeed@edaa7221, deepspeed/autotuning/README.md; Apache-2.0",
        stages_in_order,
        Reading(swept=False, zero_stages=(1, 2, 3), recompute=("full",)),
    ),
    ThumbRule(
        "llm-foundry",
        "LLM Foundry: full shards, large micro batches",
        "llm-foundry-fsdp",
        "FSDP with FULL_SHARD, the largest micro batch that fits; recomputation only where a micro "
        "batch of one does not fit without",
        "mosaicml/llm-foundry@8c8dd48f72168c5d51e2f7b151595892a8fba43d, TUTORIAL.md, FAQs, and "
        "scripts/train/README.md, Optimizing Performance; Apache-2.0",
        sharded,
        replace(SHARDED, swept=False),
    ),
)
