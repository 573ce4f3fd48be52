"""Layers of every virtual stage: the inverse of the exporter's `pipeline`.

Source: Megatron-LM `megatron/core/transformer/pipeline_parallel_layer_layout.py`, and
`transformer_block.py`, get_num_layers_to_build.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments

LONGEST = 1 << 16
"""Characters of a written-out pipeline, and stages; no run has so many."""
DIGITS = 6
"""Of how often something is repeated."""
REPEATED_GROUP, REPEATED = re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)")


@dataclass(frozen=True, slots=True)
class Stages:
    """Virtual stages in pipeline order."""

    text: tuple[str, ...]
    """`E` embedding, `t` decoder layer, `m` multi-token prediction, `L` head and loss."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Decoder layers of each."""
        return tuple(stage.count("t") for stage in self.text)

    def wrong(self, layers: int, predictions: int, pp: int) -> str | None:
        """What of the model they miss, as the runtime asks it; null: nothing."""
        flat = "".join(self.text)
        where = [place for place, stage in enumerate(self.text) if "m" in stage]
        if not re.fullmatch(r"Et*m*L", flat):
            return "E comes first and L last, once each, and every m behind the last t"
        if flat.count("t") != layers:
            return f"it has {flat.count('t')} layers t and the model {layers}"
        if flat.count("m") != predictions:
            return f"it has {flat.count('m')} layers m and --mtp-num-layers is {predictions}"
        if len(where) > 1:
            return "all m belong into one stage"
        if where and where[0] < len(self.text) - pp:
            return "m belongs into the last stage of a rank"
        return None


def layout_stages(text: str) -> Stages:
    """Virtual stages of `--pipeline-model-parallel-layout`.

    Raises:
        ValueError: It has a letter that means nothing, or is too long.
    """
    if len(text) > LONGEST:
        raise ValueError(f"it has more than {LONGEST:,} letters")
    plain = text.replace(",", "")
    for repeated in (REPEATED_GROUP, REPEATED):
        found = repeated.findall(plain)
        long = any(len(times) > DIGITS for _, times in found)
        if long or sum(len(some) * int(times) for some, times in found) > LONGEST:
            raise ValueError(f"it writes out to more than {LONGEST:,} letters")
        plain = repeated.sub(lambda one: one[1] * int(one[2]), plain)
    if unknown := sorted(set(plain) - set("EtmL|")):
        raise ValueError(f"{unknown[0]!r} is none of E, t, m, L and |")
    return Stages(tuple(plain.split("|")))


def virtual_stages(arguments: Arguments, layers: int) -> int:
    """Virtual stages of a rank; the even part of layers that do not divide is the rules' matter."""
    pp = max(1, arguments.count(keys.PP, 1))
    each = arguments.whole("num_layers_per_virtual_pipeline_stage")
    if text := arguments.text(keys.STAGES):
        try:
            return max(1, len(layout_stages(text).text) // pp)
        except ValueError:
            return 1
    if each:
        return max(1, (layers + _accounted(arguments)) // pp // each)
    return max(1, arguments.count(keys.VPP, 1))


def stage_layers(arguments: Arguments, layers: int) -> tuple[int, ...] | None:
    """Decoder layers of every virtual stage; null: they cannot be dealt out so."""
    pp = max(1, arguments.count(keys.PP, 1))
    if text := arguments.text(keys.STAGES):
        try:
            counts = layout_stages(text).layers
        except ValueError:
            return None
        return counts if len(counts) % pp == 0 and sum(counts) == layers else None
    vpp = virtual_stages(arguments, layers)
    if pp * vpp > LONGEST:
        return None
    ranks = _rank_layers(arguments, layers, pp)
    if ranks is None or any(count % vpp for count in ranks):
        return None
    stages = [count // vpp for _ in range(vpp) for count in ranks]
    stages[0] -= arguments.on("account_for_embedding_in_pipeline_split")
    stages[-1] -= arguments.on("account_for_loss_in_pipeline_split")
    return tuple(stages) if sum(stages) == layers and min(stages) >= 0 else None


def _accounted(arguments: Arguments) -> int:
    """Layers that embedding and loss stand for."""
    names = ("embedding", "loss")
    return sum(arguments.on(f"account_for_{name}_in_pipeline_split") for name in names)


def _rank_layers(arguments: Arguments, layers: int, pp: int) -> Sequence[int] | None:
    """Layers of every rank, embedding and loss counted where the launch says so."""
    first, last = (
        arguments.whole(f"decoder_{end}_pipeline_num_layers") for end in ("first", "last")
    )
    middle = pp - (first is not None) - (last is not None)
    rest = layers + _accounted(arguments) - (first or 0) - (last or 0)
    if middle < 0 or rest < 0 or (rest % middle if middle else rest):
        return None
    ends = [] if first is None else [first], [] if last is None else [last]
    return [*ends[0], *([rest // middle] * middle if middle else []), *ends[1]]
