"""Device memory of a library that exchanges tokens of experts, outside the allocator."""

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.comm import group
from trainplan.costmodel.model import expert_hidden

ELEMENT, NUMBER = 2, 4
"""Bytes of an element of a token, sent in 16 bits, and of a probability, a scale or an index.

Source, of these and of SCALED: `hybridep_bytes`."""
SCALED = 128
"""Numbers of a token that share a scale."""


def dispatch_buffer_bytes(candidates: Candidates, tokens: FloatColumn) -> FloatColumn:
    """Buffers that HybridEP allocates for one group of expert ranks, and NCCL's on its kernels.

    DeepEP's rings, of a fixed number of tokens for each peer, are as the connections of NCCL that
    they replace: `COMMUNICATOR_BYTES`.
    Source: `hybridep_bytes`; NVIDIA/Megatron-LM @d98e8a64 `core/transformer/moe/fused_a2a.py`,
    init_hybrid_ep_buffer; DeepEP @dd758ca `csrc/legacy/config.hpp`, get_nvl_buffer_size_hint.
    """
    job, table, experts = candidates.job, candidates.table, candidates.traits.experts
    moe, none = job.model.moe, np.zeros(len(table))
    ranks = table.ep * table.etp
    if moe is None:
        return none
    domains = np.maximum(1.0, group(candidates.machine, table.ep, table.etp).nodes)
    own = tokens / np.where(table.sequence_parallel == 1, table.tp, 1)
    hidden = expert_hidden(job.model)
    held = hybridep_bytes(own, ranks, domains, hidden=hidden, experts=moe.num_experts)
    names = (experts.dispatcher, experts.dispatcher_across)
    inside, across = (one in ("hybridep", "ncclep") for one in names)
    return np.where((ranks > 1) & np.where(domains > 1, across, inside), held, 0.0)


def hybridep_bytes(
    tokens: FloatColumn, ranks: IntColumn, domains: FloatColumn, *, hidden: int, experts: int
) -> FloatColumn:
    """One buffer for both ways, of all tokens of the group: they may all choose one rank.

    Each with a probability for every expert of its domain, and with its scales. Between domains
    the own tokens wait to be sent, those of the others after the dispatch and twice in the combine.
    Source: DeepEP @94a9f8f6 (branch hybrid-ep) `csrc/hybrid_ep/buffer/intranode.cu`,
    NVLCoordinator (use_shared_buffer), and `internode_doca.cu`, RDMACoordinator.
    """
    near = experts / domains
    received = ELEMENT * hidden + NUMBER * near + NUMBER * hidden / SCALED
    sent = ELEMENT * hidden + NUMBER * experts
    between = sent + (domains - 1) * 3 * (ELEMENT * hidden + NUMBER * near)
    return np.asarray(tokens * (ranks * received + np.where(domains > 1, between, 0.0)))
