"""Layouts near another one, of every kind of change a user could think of; most are not legal."""

from collections.abc import Callable
from random import Random

from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.layouts.even_split import EMPTY_ENDS
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.spec import Job, Layout
from trainplan.costmodel.spec.layout import OffloadSpec, stage_specs
from trainplan.planner.space import Space

DEGREES = ("tp", "cp", "pp", "dp")


def moved(job: Job, layout: Layout, random: Random, *, stages: bool) -> Layout | None:
    """A layout one change away; null where the change is none. `stages` may be uneven."""
    stages = stages and 1 < layout.pp * layout.vpp <= job.model.num_hidden_layers + EMPTY_ENDS
    moves = STAGE_MOVES if stages and random.random() < 0.6 else MOVES
    changes = random.choice(moves)(job, layout, random)
    try:
        return Layout.model_validate({**dict(layout), **changes}) if changes else None
    except ValueError:
        return None


def start(job: Job, random: Random) -> Layout:
    """Any layout: as many replicas as there are GPUs, moved a few times."""
    layout = Layout(dp=job.cluster.num_gpus)
    for _ in range(random.randint(0, 6)):
        layout = moved(job, layout, random, stages=False) or layout
    return layout


def _degrees(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    """A factor of one degree moves to another."""
    source, target = random.sample(DEGREES, 2)
    old = getattr(layout, source)
    factors = [factor for factor in (2, 3, 4, 5, 7, 8) if old % factor == 0]
    if not factors:
        return {}
    factor = random.choice(factors)
    changes: dict[str, object] = {
        source: old // factor,
        target: getattr(layout, target) * factor,
        "stages": None,
    }
    if changes.get("pp", layout.pp) == 1:
        changes |= {"vpp": 1, "schedule": "1f1b"}
    return changes


def _experts(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    name = random.choice(("ep", "etp"))
    return {name: random.choice(Space(job).expert_degrees)}


def _micro_batch(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    return {"micro_batch_size": random.choice(Space(job).micro_batches)}


def _staging(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    """Another number of virtual stages with a schedule that runs it, and another ZeRO stage."""
    vpp, schedule, zero_stage = random.choice(Space(job).stagings(layout.pp))
    changes = {"vpp": vpp, "zero_stage": zero_stage}
    name = Layout.model_fields["schedule"].annotation.__args__[schedule]
    return {**changes, "schedule": name, **({} if vpp == layout.vpp else {"stages": None})}


def _sequence(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    return {"sequence_parallel": not layout.sequence_parallel}


def _recompute(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    """None, some modules, or some layers in full."""
    off: dict[str, object] = {
        "recompute": "none",
        "recompute_modules": (),
        "recompute_method": None,
        "recompute_num_layers": None,
    }
    subsets = traits_of(job).recompute.subsets(job.model)
    kind = random.choice(("none", "selective", "full"))
    if kind == "selective" and subsets:
        return off | {"recompute": kind, "recompute_modules": random.choice(subsets)}
    if kind == "full":
        most = Space(job).largest_stage(layout.pp, layout.vpp)
        method, number = random.choice(("uniform", "block")), random.randint(1, most)
        return off | {"recompute": kind, "recompute_method": method, "recompute_num_layers": number}
    return off


def _offload(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    """Any fraction of the optimizer, to a thousandth."""
    fraction = random.choice((0.0, 0.25, 0.5, 0.75, 1.0, random.randint(1, 999) / 1000))
    return {"offload": OffloadSpec(optimizer=fraction)}


def _layer(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    """One layer goes from a stage to another."""
    layers = layers_of(job, layout)
    source, target = random.sample(range(len(layers)), 2)
    layers[source] -= 1
    layers[target] += 1
    return {"stages": stage_specs(layers)} if layers[source] >= 0 else {}


def _swap(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    """Two stages change places."""
    layers = layers_of(job, layout)
    one, other = random.sample(range(len(layers)), 2)
    layers[one], layers[other] = layers[other], layers[one]
    return {"stages": stage_specs(layers)}


def _shuffle(job: Job, layout: Layout, random: Random) -> dict[str, object]:
    """Any split: layers fall on stages at random, one at least on each that is not an end."""
    layers = layers_of(job, layout)
    spread = [0, *[1] * (len(layers) - 2), 0]
    for _ in range(sum(layers) - sum(spread)):
        spread[random.randrange(len(spread))] += 1
    return {"stages": stage_specs(spread)} if sum(spread) == sum(layers) else {}


def layers_of(job: Job, layout: Layout) -> list[int]:
    """Layers of every virtual stage."""
    if layout.stages is not None:
        return [stage.layers for stage in layout.stages]
    return list(layers_per_stage(job.model.num_hidden_layers, layout.pp * layout.vpp))


Move = Callable[[Job, Layout, Random], dict[str, object]]
MOVES: tuple[Move, ...] = (
    _degrees,
    _degrees,
    _experts,
    _micro_batch,
    _staging,
    _sequence,
    _recompute,
    _offload,
)
STAGE_MOVES: tuple[Move, ...] = (_layer, _layer, _layer, _swap, _shuffle)
