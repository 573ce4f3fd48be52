"""Rows of the vocabulary on tensor ranks, and the tokens that the output projection sees."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.runtimes.base import RuntimeTraits

VOCAB_MULTIPLE = 128
"""Megatron pads the vocabulary to a multiple of this times tp. Source: Megatron-LM,
`--make-vocab-size-divisible-by`, default 128."""


def padded_vocab(vocab_size: int, tp: IntColumn) -> FloatColumn:
    """Rows of the padded vocabulary.

    Source: Megatron-LM `vocab_utils`, padded to a multiple of 128 tp.
    """
    multiple = VOCAB_MULTIPLE * tp
    return np.ceil(vocab_size / multiple) * multiple


def projected_share(job: Job, traits: RuntimeTraits) -> float:
    """Share of the tokens that the output projection and the loss see.

    Source: `Kernels.skips_ignored_tokens`.
    """
    return job.training.loss_tokens if traits.kernels.skips_ignored_tokens else 1.0
