"""How islands that train alone are joined: local steps, and an outer step among all of them."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from trainplan.costmodel.spec import Amount, AmountOrZero, Spec

OuterType = Literal["fp32", "bf16", "fp16", "fp8", "int8"]
OuterOverlap = Literal["none", "eager"] | PositiveInt
MOST_ISLANDS, MOST_STEPS = 1 << 16, 1_000_000


class OuterSpec(Spec):
    """Islands, each with a whole model and its share of the batch and the cluster.

    After so many local steps their weights are joined: the mean of what moved is the gradient of an
    outer optimizer. Source: Douillard et al., DiLoCo, arXiv:2311.08105, algorithm 1.
    """

    islands: int | None = Field(default=None, ge=2, le=MOST_ISLANDS)
    """Replicas that take local steps; null: as many as the cluster has equal groups."""
    every: PositiveInt | None = Field(default=None, le=MOST_STEPS)
    """Local steps between two outer steps; null: the fewest that keep the islands busy."""
    dtype: OuterType = "fp32"
    """Of the outer gradients on the wire."""
    overlap: OuterOverlap = "none"
    """Local steps behind which a sync may hide: none, so many, or all until the next (eager)."""
    fragments: PositiveInt = Field(default=1, le=MOST_STEPS)
    """Parts of the model that are joined one after the other, each once in `every` steps."""
    gb_per_s: Amount | None = None
    """GB/s of one node towards nodes of other islands, in one direction: `cluster` and
    `global_batch_size` of the job are then of one of them; null: of all, to be parted."""
    latency_us: AmountOrZero = 0.0
    """Of a message between islands."""

    @property
    def is_parted(self) -> bool:
        """Is the job that of one island?"""
        return self.gb_per_s is not None

    @model_validator(mode="after")
    def _parts_take_turns(self) -> Self:
        if self.is_parted and self.islands is None:
            raise ValueError("gb_per_s is of a known number of islands: give that, too")
        if self.every is None:
            return self
        if self.every % self.fragments:
            raise ValueError(
                f"fragments = {self.fragments} does not divide every = {self.every}: give a "
                f"multiple of {self.fragments} steps, or another number of fragments"
            )
        between = self.every // self.fragments
        if isinstance(self.overlap, int) and self.overlap >= between:
            raise ValueError(
                f"overlap = {self.overlap} steps, but a sync starts every {between}: give fewer, "
                "or overlap = eager for all of them"
            )
        return self
