"""Device memory of libraries that exchange tokens of experts, outside the allocator."""

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.comm import group
from trainplan.costmodel.model import expert_hidden

ELEMENT, NUMBER = 2, 4
"""Bytes of an element of a token, sent in 16 bits, and of a probability, a scale or an index."""
PEERS = 8
"""Ranks that DeepEP joins over NVLink. Source: DeepEP @dd758ca `csrc/legacy`,
LEGACY_NUM_MAX_NVL_PEERS."""
CHANNELS, FORWARDED_TOKENS, MOST_CHOSEN, SCALED = 10, 128, 128, 128
"""Of DeepEP: pairs of the 20 multiprocessors that it takes, tokens in flight to another node, and
the experts and the scales of a token there is room for.

Source: DeepEP @dd758ca `deep_ep/buffers/legacy.py`, num_sms, get_dispatch_config and
get_combine_config; `csrc/legacy/config.hpp`, kNumMaxTopK and kNumMaxScales.
"""
RECEIVED_TOKENS = ((8, 256), (64, 288), (96, 480), (128, 560), (1 << 30, 720))
"""Ranks of a group up to which DeepEP has room for so many tokens of each peer and channel.

Source: as above, the second number of a configuration.
"""


def dispatch_buffer_bytes(candidates: Candidates, tokens: FloatColumn) -> FloatColumn:
    """Buffers that DeepEP or HybridEP allocates for one group of expert ranks; an all-to-all: none.

    Source: `hybridep_bytes` and `deepep_bytes`; NVIDIA/Megatron-LM @d98e8a64
    `core/transformer/moe/fused_a2a.py`, init_hybrid_ep_buffer and get_buffer.
    """
    job, table, experts = candidates.job, candidates.table, candidates.traits.experts
    moe, none = job.model.moe, np.zeros(len(table))
    ranks = table.ep * table.etp
    if moe is None:
        return none
    domains = np.maximum(1.0, group(candidates.machine, table.ep, table.etp).nodes)
    own = tokens / np.where(table.sequence_parallel == 1, table.tp, 1)
    hidden = expert_hidden(job.model)
    sizes = {
        "hybridep": hybridep_bytes(own, ranks, domains, hidden=hidden, experts=moe.num_experts),
        "deepep": deepep_bytes(ranks, hidden=hidden),
    }
    inside, across = (sizes.get(x, none) for x in (experts.dispatcher, experts.dispatcher_across))
    return np.where(ranks > 1, np.where(domains > 1, across, inside), 0.0)


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


def deepep_bytes(ranks: IntColumn, *, hidden: int) -> FloatColumn:
    """Rings of tokens for each peer over NVLink, and each way for each group of 8 over RDMA.

    Source: DeepEP @dd758ca `csrc/legacy/config.hpp`, get_nvl_buffer_size_hint and
    get_rdma_buffer_size_hint, whose counters of a few KiB are left out.
    """
    most, room = (np.array(column) for column in zip(*RECEIVED_TOKENS, strict=True))
    received = room[np.searchsorted(most, ranks)]
    token = ELEMENT * hidden + MOST_CHOSEN * (2 * NUMBER + NUMBER) + NUMBER * SCALED
    near = CHANNELS * np.minimum(ranks, PEERS) * received * token
    far = 2 * CHANNELS * (ranks / PEERS) * FORWARDED_TOKENS * token
    return np.asarray(near + np.where(ranks > PEERS, far, 0.0))
