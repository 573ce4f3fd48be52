"""Causal attention over context ranks: keys and values travel a ring of sends and receives."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainplan.profiler.train.torch_native.kernels import Context


@dataclass(frozen=True, slots=True)
class Ring:
    """The context ranks of one sequence, in order."""

    ranks: tuple[int, ...]
    """Global ranks."""
    place: int
    """Which of them this process is."""
    group: Any
    """Their process group; not used by one rank alone."""

    def positions(
        self, seq_length: int, place: int | None = None, device: torch.device | None = None
    ) -> Tensor:
        """Positions of the tokens of a rank: a chunk from each end, so that all do as much work.

        Source: Liu et al., Ring Attention, arXiv:2310.01889; Megatron-LM `training/utils.py`,
        get_batch_on_this_cp_rank.
        """
        place, cp = self.place if place is None else place, len(self.ranks)
        chunks = torch.arange(seq_length, device=device).chunk(2 * cp)
        return torch.cat((chunks[place], chunks[2 * cp - 1 - place]))

    def passed(self, tensor: Tensor, by: int) -> Tensor:
        """What the rank `by` places before this one has; each gives its own to the one behind."""
        to, source = (self.ranks[(self.place + d) % len(self.ranks)] for d in (by, -by))
        got = torch.empty_like(tensor)
        operations = [
            dist.P2POp(dist.isend, tensor, to, self.group),
            dist.P2POp(dist.irecv, got, source, self.group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return got


def scores_of(query: Tensor, key: Tensor, ring: Ring, place: int) -> Tensor:
    """Scaled products of this rank's queries with keys of another, minus infinity ahead.

    Queries are (batch, groups, heads of a group, tokens, width), keys without heads of a group.
    """
    length = query.shape[-2] * len(ring.ranks)
    at, of = (ring.positions(length, one, query.device) for one in (ring.place, place))
    products = query.float() @ key.float().unsqueeze(2).transpose(-1, -2)
    return (products * query.shape[-1] ** -0.5).masked_fill(at[:, None] < of, float("-inf"))


class RingAttention(torch.autograd.Function):  # type: ignore[misc]
    """Attention of a rank's queries to the keys and values of all ranks of the ring.

    Forward, keys and values go round in the order of the ranks, and parts are merged by their
    log-sum-exp; a rank ends with those of the one behind it. Backward, they and their gradients go
    the other way from there, so both take cp - 1 messages and the gradients end at home.
    Kept are queries, the keys and values a rank ends with, output and log-sum-exp.
    Source: Liu et al., arXiv:2310.01889, section 3; Dao, arXiv:2307.08691, section 3.1.
    """

    @staticmethod
    def forward(ctx: Context, query: Tensor, key: Tensor, value: Tensor, ring: Ring) -> Tensor:
        """Heads are the second dimension; queries may have more of them."""
        grouped = query.unflatten(1, (key.shape[1], -1))
        both = torch.stack((key, value))
        out = torch.zeros(grouped.shape, dtype=torch.float32, device=query.device)
        total = torch.full(grouped.shape[:-1], float("-inf"), device=query.device)
        for step in range(len(ring.ranks)):
            both = ring.passed(both, 1) if step else both
            scores = scores_of(grouped, both[0], ring, (ring.place - step) % len(ring.ranks))
            merged = torch.logaddexp(total, scores.logsumexp(-1))
            part = (scores - merged.unsqueeze(-1)).exp() @ both[1].float().unsqueeze(2)
            out = out * (total - merged).exp().unsqueeze(-1) + part
            total = merged
        out = out.flatten(1, 2).transpose(1, 2).to(query.dtype).contiguous().transpose(1, 2)
        ctx.aside = ring
        ctx.save_for_backward(query, both, out, total)
        return out

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of queries, keys and values."""
        (query, both, out, total), ring = ctx.saved_tensors, ctx.aside
        grouped, groups = query.unflatten(1, (both.shape[2], -1)), (both.shape[2], -1)
        of_out = gradient.unflatten(1, groups).float()
        inner = (of_out * out.unflatten(1, groups).float()).sum(-1, keepdim=True)
        cp, scale = len(ring.ranks), query.shape[-1] ** -0.5
        of_query = torch.zeros(grouped.shape, dtype=torch.float32, device=query.device)
        of_both = torch.zeros_like(both)
        for step in range(cp):
            if step:
                both, of_both = ring.passed(torch.stack((both, of_both)), -1)
            key, value = both.float().unsqueeze(3)
            scores = scores_of(grouped, both[0], ring, (ring.place + 1 + step) % cp)
            share = (scores - total.unsqueeze(-1)).exp()
            of_scores = share * (of_out @ value.transpose(-1, -2) - inner) * scale
            of_query += of_scores @ key
            new = (of_scores.transpose(-1, -2) @ grouped.float(), share.transpose(-1, -2) @ of_out)
            of_both = of_both + torch.stack([one.sum(2) for one in new]).to(both.dtype)
        of_query = of_query.flatten(1, 2).to(query.dtype)
        return of_query, of_both[0], of_both[1], None
