"""What is fitted: every number as a logarithm relative to its prior."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fit_problem import EVIDENCE, SIGMA
from fit_rows import ATTENTION_PRIOR, Row, speed_key

from trainplan.costmodel import catalog
from trainplan.costmodel.documents.constants import Constants

CLASS_SPREAD, ARCHITECTURE_SPREAD, GPU_SPREAD = 0.18, 0.08, 0.08
ATTENTION_SPREAD = 0.12
CLASS_PRIOR = {"half": 0.85, "low": 0.85}
"""Sustained over burst speed before any run of a GPU is seen; `low` with the flop factors of
`gemm.fp8_training`, which are as much of bursts.

Source: the middle of what long loops of products reach of bursts: 0.70 on B200 and 1.0 on A10G, as
in `MEASURED_SPEED`; nobody measured low precisions so, hence the same.
"""
MEASURED_SPEED = {("b200", "bf16"): 0.70, ("a10g", "bf16"): 1.0}
"""Sustained over burst speed where somebody measured products in long loops.

Source: b200, 0.49 of peak over 514 shapes against 0.70 in bursts, MooreThreads/SimuMax@4dcaae51
configs/system/b200_bf16_ceperm.json; a10g, whose products were fitted on such loops.
"""
MEASURED_BY = {("b200", "bf16"): "simumax", ("a10g", "bf16"): "mist"}
"""Source whose authors measured them too: left out together with it."""
MEASURED_SPREAD = 0.05
SOURCE_SPREAD = 0.08
"""How far sources differ in the speed of one GPU, as a logarithm: runs of one agree by more.

Source: medians of sources about those of their GPU and precision, 0.06 to 0.1 (GB200 in fp8: -5,
-11 and -18 % in three of them).
"""
AUTHORS = {"simumax": "simumax", "mist": "mist", "sailor": "sailor", "papers": "korthikanti"}
"""What the source of a prior says where the authors of a source of runs measured it."""
VAGUE = 0.5
"""Least spread of such a prior where that source is left out: their number is not known then.

Source: assumed; a factor of 1.6 either way, as wide as the widest priors but three.
"""


@dataclass(frozen=True)
class Parameter:
    """One number to fit, as a logarithm relative to its prior."""

    name: str
    spread: float


def parameters(rows: Sequence[Row]) -> list[Parameter]:
    """Everything that is fitted."""
    constants = [Parameter(n, c.spread) for n, c in catalog.fitted_constants().items()]
    speeds = {speed_key(row.case) for row in rows}
    speeds |= {(gpu, "bf16") for gpu, precision in speeds if precision != "tf32"}
    architectures = sorted({catalog.gpu(gpu).architecture for gpu, _ in speeds})
    classes = [Parameter(f"class {c}", CLASS_SPREAD) for c in CLASS_PRIOR]
    families = [
        Parameter(f"architecture {a} {c}", ARCHITECTURE_SPREAD)
        for a in architectures
        for c in CLASS_PRIOR
    ]
    gpus = [Parameter(f"speed {g} {p}", speed_spread(rows, g, p)) for g, p in sorted(speeds)]
    attention = [Parameter(f"attention {a}", ATTENTION_SPREAD) for a in architectures]
    return constants + classes + families + gpus + attention


def speed_spread(rows: Sequence[Row], gpu: str, precision: str) -> float:
    """Spread of a GPU's speed about its architecture, or about what somebody measured of it.

    Source: derived; n sources that differ by SOURCE_SPREAD say as much as n / SOURCE_SPREAD^2,
    however many runs they have. What the weights of the runs say beyond that is taken from the
    prior, so that the most probable speed is that of a hierarchy with sources as its units.
    """
    own = [row for row in rows if speed_key(row.case) == (gpu, precision)]
    known = len({row.run.source_group for row in own}) / SOURCE_SPREAD**2
    counted = EVIDENCE / SIGMA**2 * sum(row.weight for row in own)
    spread = MEASURED_SPREAD if (gpu, precision) in MEASURED_SPEED else GPU_SPREAD
    return spread * math.sqrt(min(1.0, known / counted)) if counted else spread


def spreads_without(wanted: Sequence[str], spreads: Sequence[float], source: str) -> list[float]:
    """Spreads of the priors where what a source's authors measured is not known."""
    author = AUTHORS.get(source)
    constants = catalog.fitted_constants()
    return [
        max(spread, VAGUE)
        if author and name in constants and author in constants[name].source.lower()
        else spread
        for name, spread in zip(wanted, spreads, strict=True)
    ]


def sustained(
    theta: Mapping[str, float], gpu: str, precision: str, left_out: str | None = None
) -> float:
    """Sustained speed of a GPU in one precision under the parameters.

    What the authors of a source that is left out measured of it is not known.
    """
    name = f"speed {gpu} {precision}"
    known = (gpu, precision) in MEASURED_SPEED
    if known and (left_out is None or MEASURED_BY[gpu, precision] != left_out):
        return MEASURED_SPEED[gpu, precision] * math.exp(theta.get(name, 0.0))
    kind = "half" if precision in ("bf16", "tf32") else "low"
    architecture = catalog.gpu(gpu).architecture
    names = (f"class {kind}", f"architecture {architecture} {kind}", name)
    return CLASS_PRIOR[kind] * math.exp(sum(theta.get(name, 0.0) for name in names))


def value_of(name: str, theta: Mapping[str, float]) -> float:
    """A parameter in its own unit: a speed with its class and architecture, else over its prior."""
    kind, *words = name.split()
    if kind == "speed":
        return sustained(theta, words[0], words[1])
    constants = catalog.fitted_constants()
    prior = ATTENTION_PRIOR[words[0]] if kind == "attention" else 1.0
    return (constants[name].prior if name in constants else prior) * math.exp(theta[name])


def at_catalog(names: Sequence[str]) -> list[float]:
    """Where a fit begins: what the last one wrote, all of a speed with the GPU that has it."""
    return [_at_catalog(name) for name in names]


def _at_catalog(name: str) -> float:
    kind, *words = name.split()
    constant = catalog.fitted_constants().get(name)
    if constant:
        return math.log(constant.value / constant.prior)
    if kind == "speed" and words[1] in (known := catalog.fitted(words[0]).sustained):
        return math.log(known[words[1]].value / sustained({}, words[0], words[1]))
    return 0.0


def constants_at(theta: Mapping[str, float]) -> Constants:
    """Constants of the formulas under the parameters."""
    return Constants(
        **{
            name: entry.prior * math.exp(theta.get(name, 0.0))
            for name, entry in catalog.fitted_constants().items()
        }
    )
