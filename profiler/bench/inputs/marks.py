"""Numbers that tell what every rank sent, and whose sums are exact in whatever order they are made.

A sum rounds where it needs more bits than the format has, and each algorithm adds in its own order:
a ring one rank after the other, a tree in pairs, a switch all of a node at once. Here the numbers
of one element are whole, of one sign and together at most `largest`, so every partial sum is stored
as it is, and the result is compared bit for bit.
Source: derived; NVIDIA/nccl @5067397c `src/device/all_reduce.h` (runRing, runTreeSplit, NVLS),
`src/device/reduce_kernel.h` (multimem.ld_reduce, `.acc::f32`): all of them add, in T or in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

PERIOD = 1021
SCALES = 1031
"""Elements after which numbers, and their signs and powers of two, come again.

Source: primes, so that together they come again after a million elements, and never after a
power of two, by which blocks that a library may swap are apart.
"""
POWERS = 4
"""Numbers are times 1, 2, 4 or 8, which changes no rounding and stays below fp16's 65504."""
LEAST_CHOICE = 2
"""Numbers to draw from: with one alone, a rank in another's place would go unseen."""
PIECE = PERIOD * SCALES
"""Elements that are made or compared at once, some MiB beside the buffer: all that differ."""
MOST_ADDERS = 1024
"""Ranks that are part of an element in one round, where the format takes more: it bounds the work
of knowing the sum, at 8 MiB of whole numbers."""
HASH_BITS = 0xFFFFFFFF
HASH_FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x45D9F3B)
"""Source: primes of Cyan4973/xxHash `doc/xxhash_spec.md` for what is mixed; the last one of T.
Mueller, stackoverflow.com/questions/664014: shift, exclusive or, multiply."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a block of rows should hold."""

    numbers: Tensor
    """(row, PERIOD): repeated along each row."""
    scales: Tensor
    """(SCALES,): times these, repeated too."""
    first: int = 0
    """Element of the whole tensor that the block begins with."""

    def after(self, first: int) -> Pattern:
        """The same from another element on."""
        return replace(self, first=first)

    def write(self, block: Tensor) -> None:
        """Fill a tensor; its rows are those of the pattern, one after the other."""
        for piece, right, _ in self._pieces(block):
            piece.copy_(right)

    def fault(self, block: Tensor) -> str:
        """How a tensor differs from the pattern, every element compared; empty where it does not.

        The device counts, and the process waits for it once.
        """
        wrong = [torch.count_nonzero(piece != right) for piece, right, _ in self._pieces(block)]
        count = int(torch.stack(wrong).sum())
        if not count:
            return ""
        found, right, row, index = next(
            (float(piece[row, at]), float(right[row, at]), row, start + at)
            for piece, right, start in self._pieces(block)
            for row, at in torch.nonzero(piece != right)[:1].tolist()
        )
        where = f"element {index} of block {row}, {count} of {block.numel()} are wrong"
        return f"{found:.9g} where {right:.9g} is right ({where})"

    def _pieces(self, block: Tensor) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Some columns of the block, what they should hold, and the first of them."""
        rows = block.view(len(self.numbers), -1)
        width = max(1, PIECE // len(rows))
        for start in range(0, rows.shape[1], width):
            piece = rows[:, start : start + width]
            if not start or width < PIECE:
                right = self._right(start, piece.shape[1])
            yield piece, right[:, : piece.shape[1]], start

    def _right(self, start: int, count: int) -> Tensor:
        numbers = self._repeated(self.numbers, PERIOD, start, count)
        return numbers * self._repeated(self.scales, SCALES, start, count)

    def _repeated(self, table: Tensor, period: int, start: int, count: int) -> Tensor:
        begin = (self.first + start) % period
        times = (begin + count - 1) // period + 1
        return table.repeat(*[1] * (table.dim() - 1), times)[..., begin : begin + count]


@dataclass(frozen=True, slots=True)
class Marks:
    """Makes the patterns of a collective, one for each round of it.

    In a round a rank is part of the sums of some elements and zero in the others, so that sums of
    many ranks stay small; in as many rounds as `rounds` says, every rank is part of every element
    once. A rank left out, or added twice, in one element is seen for sure; one in the place of
    another with a chance of one half at least in that element, hence in a block of some.
    """

    summed: int
    """Ranks that are added up; 1 where numbers are only moved."""
    dtype: torch.dtype
    device: str = "cpu"

    @property
    def largest(self) -> int:
        """All whole numbers up to it are stored exactly: 256 in bf16, 2048 in fp16, 2^24 in fp32.

        Source: derived; a significand of p bits, one of them before the point, holds every whole
        number up to 2^p, and eps is 2^(1 - p).
        """
        return int(2 / torch.finfo(self.dtype).eps)

    @property
    def rounds(self) -> int:
        """Collectives until every rank has been part of every element."""
        return ceil(self.summed / min(self.largest // LEAST_CHOICE, MOST_ADDERS))

    @property
    def choice(self) -> int:
        """Numbers from 1 to it are drawn: those of one element are together at most `largest`."""
        return self.largest // ceil(self.summed / self.rounds)

    def of(self, senders: Tensor, turn: int) -> Pattern:
        """What some senders give in a round, a row each."""
        return self._pattern(self._numbers(senders[:, None], self._elements(), turn), turn)

    def sums(self, turn: int) -> Pattern:
        """What all of them give together, of which only those that are not zero are added."""
        elements, step = self._elements(), self.rounds
        first = (-elements - turn) % step
        adders = first + step * torch.arange(ceil(self.summed / step))[:, None]
        numbers = self._numbers(adders, elements, turn) * (adders < self.summed)
        return self._pattern(numbers.sum(0, keepdim=True), turn)

    def _elements(self) -> Tensor:
        return torch.arange(PERIOD)

    def _numbers(self, senders: Tensor, elements: Tensor, turn: int) -> Tensor:
        drawn = 1 + _mixed(senders, elements, turn) % self.choice
        return drawn * ((senders + elements + turn) % self.rounds == 0)

    def _pattern(self, numbers: Tensor, turn: int) -> Pattern:
        drawn = _mixed(torch.arange(SCALES), torch.tensor(0), turn)
        scales = (1 - 2 * (drawn % 2)) * 2 ** (drawn // 2 % POWERS)
        return Pattern(numbers.to(self.device, self.dtype), scales.to(self.device, self.dtype))


def _mixed(one: Tensor, other: Tensor, turn: int) -> Tensor:
    """Numbers below 2^32 that look random, the same on every device and version.

    Source: as HASH_FACTORS.
    """
    first, second, third, factor = HASH_FACTORS
    mixed = (one * first + other * second + turn * third) & HASH_BITS
    for _ in range(2):
        mixed = ((mixed ^ (mixed >> 16)) * factor) & HASH_BITS
    return mixed ^ (mixed >> 16)
