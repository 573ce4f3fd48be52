"""Ranks along every dimension.

Source: torchtitan/distributed/parallel_dims.py.
"""

from typing import NamedTuple

from trainplan.planner.runtimes.torchtitan import keys as key
from trainplan.planner.runtimes.torchtitan.read.config import Config


class Degrees(NamedTuple):
    """Ranks along every dimension."""

    tp: int
    pp: int
    cp: int
    ep: int
    replicate: int
    shard: int

    @property
    def dp(self) -> int:
        """Replicas."""
        return self.replicate * self.shard


def parsed_degrees(config: Config) -> Degrees:
    """Degrees as they are set; the shard degree may be -1."""
    keys = (key.TP, key.PP, key.CP, key.EP, key.REPLICATE, key.SHARD)
    return Degrees(*map(config.degree, keys))


RANKS = (key.SHARD, key.REPLICATE, key.TP, key.PP, key.CP)


def filled(
    config: Config, parsed: Degrees, world: int | None, *, stated: bool = True
) -> Degrees | None:
    """Degrees that fill the world; null: the runtime stops, or it cannot be known.

    `stated`: does the launch, or the user, say how many ranks there are?
    """
    shard = parsed.shard
    rest = parsed.tp * parsed.pp * parsed.cp * parsed.replicate
    if shard == -1 and world is None:
        says = "the number of ranks is not stated, and the shard degree is what they leave: give it"
        config.problem("world_size", "unread", says)
        return None
    if shard == -1:
        shard = (world or 0) // rest
    if shard < 1 or (world is not None and rest * shard != world):
        product = (
            f"dp_replicate {parsed.replicate} * dp_shard {shard} * cp {parsed.cp} * tp {parsed.tp}"
        )
        says = f"{product} * pp {parsed.pp} is not the {world} ranks: change a degree or the ranks"
        cured = world is None or world % rest == 0  # by a degree that is not stated
        config.stops("world_size", says, *(RANKS if cured else ()), stated=stated)
        return None
    return parsed._replace(shard=shard)
