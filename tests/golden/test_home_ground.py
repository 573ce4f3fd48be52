"""The problems of other planners, from the few of their numbers that each needs."""

import json
import random
from itertools import pairwise, product

import numpy as np
import pytest

from tests import examples
from tests.budgets import Steps
from trainplan.planner.solvers import layer_assignment as milp
from trainplan.planner.work import Deadline

examples.on_path("home_ground")

import alpa  # noqa: E402
import answer_zero_bubble  # noqa: E402
import answers  # noqa: E402
import galvatron  # noqa: E402
import metis  # noqa: E402
import piper  # noqa: E402
import piper_search  # noqa: E402
import sailor  # noqa: E402
import zero_bubble  # noqa: E402
from galvatron_costs import Ends, Line, Measured, Transfer, ends_seconds, layer_seconds  # noqa: E402
from relaxed import Best, Case, best_of, relaxed_value  # noqa: E402

PROCESS = answers.Process(0.25, 0.5)
LAYERS = 32
NO_LINE = Line(0.0, float("nan"))
"""Every message of the problems was measured."""


def best(cases: list[Case]) -> Best:
    limit: Deadline = Steps()
    return best_of(cases, milp.solve, limit)


def shared(*values: float) -> dict[int, float]:
    return dict(zip((1, 2, 4, 8), values, strict=True))


def transfers(*rows: tuple[float, ...]) -> dict[int, Transfer]:
    """Milliseconds of 16 to 1024 MiB over 2, 4 and 8 ranks."""
    sizes = [float(2**k) for k in range(4, 11)]
    return {
        ranks: Transfer(dict(zip(sizes, row, strict=True)), NO_LINE)
        for ranks, row in zip((2, 4, 8), rows, strict=True)
    }


# Source: PKU-DAIR/Hetu-Galvatron (Apache-2.0) at commit cea12ff, galvatron/models/gpt/configs/
# computation_profiling_bf16_llama2-7b_all.json (lines of least squares through its 12 points),
# memory_profiling_bf16_llama2-7b_all.json, and galvatron/profile_hardware/hardware_configs.
LLAMA = Measured(
    num_layers=LAYERS,
    hidden_size=4096,
    seq_length=2048,
    layer=Line(3.8590168994623446, 0.8329851396156022),
    ends=Line(2.6803283231241712, 2.3548992445974584),
    parameter_mib=778.2236328125,
    activation_mib=shared(514.5634765625, 273.28173828125, 136.885498046875, 68.3204345703125),
    checkpoint_mib=32.0,
    whole=Ends(
        shared(4130.34765625, 2321.640625, 1289.1015625, 771.869140625),
        shared(841.58203125, 358.83984375, 163.58642578125, 78.13916015625),
    ),
    first=Ends(
        shared(2021.0048828125, 1266.76806640625, 775.68310546875, 387.841552734375),
        shared(198.7357177734375, 83.90301513671875, 51.85565185546875, 25.927825927734375),
    ),
    last=Ends(
        shared(2021.0673828125, 1266.83056640625, 775.74560546875, 387.872802734375),
        shared(717.560302734375, 343.3006591796875, 171.1177978515625, 85.55889892578125),
    ),
    reduce_ms_per_mib={
        **{(1, in_a_row): 0.0 for in_a_row in (True, False)},
        **{(8, in_a_row): 1 / 154.203 for in_a_row in (True, False)},
        (4, True): 1 / 159.119,
        (4, False): 1 / 155.815,
        (2, True): 1 / 138.156,
        (2, False): 1 / 151.344,
    },
    p2p_ms_per_mib={2: 1 / 163.671, 4: 1 / 138.581, 8: 1 / 109.45},
    gather=transfers(
        (0.0717, 0.11405, 0.1962, 0.37085, 0.69435, 1.3443, 2.5797),
        (0.10915, 0.16025, 0.2924, 0.53625, 1.03545, 1.8676, 3.5937),
        (0.14705, 0.20785, 0.32595, 0.6413, 1.1792, 2.3384, 4.07045),
    ),
    exchange=transfers(
        (0.1203, 0.1788, 0.2928, 0.4756, 0.8806, 1.7752, 3.4954),
        (0.1514, 0.2237, 0.3654, 0.6439, 1.1567, 2.1003, 4.0389),
        (0.2003, 0.243, 0.3997, 0.7135, 1.2981, 2.4822, 4.8151),
    ),
    slowdown=1.125552573612729,
)


@pytest.mark.parametrize(
    ("question", "theirs", "ours"),
    [
        (galvatron.Question(36), 4.189589479605564, 4.189589479605564),
        (galvatron.Question(24, chunks=8), 5.289000, 5.289000),
        (galvatron.Question(16, chunks=16), 5.873279, 5.805473),
        (galvatron.Question(24, chunks=16), 5.221965, 5.221651),
    ],
)
def test_galvatrons_problem_is_solved_with_proof_and_never_worse_than_by_itself(
    question, theirs, ours
):
    found = best(galvatron.cases(LLAMA, question))
    assert found.value == pytest.approx(ours, abs=1e-6)
    assert found.value <= theirs + 1e-6
    assert found.lower_bound == pytest.approx(found.value, rel=1e-9)


def test_the_answer_to_galvatrons_shipped_problem_is_the_one_its_search_prints():
    found = best(galvatron.cases(LLAMA, galvatron.Question(36)))
    assert found.case.text(found.counts).endswith("5 dp8 recompute + 27 dp8 zero3 recompute")


def seconds_by_galvatrons_formula(frame: galvatron.Frame, counts: np.ndarray) -> float:
    """Its formula once more, as galvatron/core/cost_model/cost_model_handler.py has it."""
    pp, chunks = frame.pp, frame.run.chunks
    layer = [layer_seconds(LLAMA, frame.run, way) for way in frame.ways]
    stage = counts @ [each.alone for each in layer]
    stage = stage + [ends_seconds(LLAMA, frame.run, frame.ends, i) for i in range(pp)]
    synced = counts @ [each.synced for each in layer]
    first = stage.sum() + stage[-1] * (chunks - 1)
    fill = max(min(pp - 1, chunks - 1) * stage[0], stage[1:].sum())
    late = max(0.0, *(synced - stage.cumsum()))
    return max(first, fill + stage[0] * max(0, chunks + 1 - pp)) + late


def test_the_rows_of_a_filling_say_what_galvatrons_formula_says():
    draw = random.Random(0)
    frames = list(galvatron.frames(galvatron.Question(36)))
    for frame in draw.sample(frames, 40):
        problem = galvatron.filling(LLAMA, frame, 10**6)
        counts = np.zeros(problem.costs.shape[1:], np.int64)
        for stage, layers in enumerate(problem.least):
            for _ in range(layers):
                counts[stage, draw.randrange(counts.shape[1])] += 1
        assert problem.value(counts) == pytest.approx(seconds_by_galvatrons_formula(frame, counts))
        assert (problem.costs >= 0).all()


def test_no_bound_in_closed_form_is_above_the_best_answer():
    for question in (galvatron.Question(16, chunks=16), galvatron.Question(20, chunks=4)):
        cases = random.Random(1).sample(galvatron.cases(LLAMA, question), 8)
        for case in cases:
            found = milp.solve(case.filling, Steps())
            assert relaxed_value(case.filling) <= found.value * (1 + 1e-9)


def test_more_memory_never_makes_galvatrons_step_longer():
    values = [
        best(galvatron.cases(LLAMA, galvatron.Question(gib, chunks=16))).value
        for gib in (12, 16, 18)
    ]
    assert values[0] == np.inf
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[-2] < np.inf


def layers(first: float, block: float, last: float) -> np.ndarray:
    return np.array([first, *[block] * 24, last])


def timed(first: float, second: float, block: float, last: float, update: float) -> sailor.Timed:
    return sailor.Timed(np.array([first, second, *[block] * 23, last]), np.full(26, update))


# Source: eth-easl/sailor (MIT) at commit cf2c8e3, sailor/Planner/llm_info.json (OPT-350),
# sailor/Planner/simulations/profiles_tmp.json (OPT-350 on A100-40, micro batches of 4 and 8) and
# sailor/providers/multizone_bandwidths_het.json (us-central1-a).
OPT = sailor.Measured(
    batch=1024,
    layers={
        tp: sailor.Layers(layers(*parameters), layers(*activation), layers(*output))
        for tp, parameters, activation, output in (
            (
                1,
                (53608448, 12596224, 51513344),
                (2097152, 90181632, 208673536),
                (2097152, 2097152, 103022593),
            ),
            (
                2,
                (27918336, 6301184, 25823232),
                (2101760, 48238592, 105913088),
                (2097152, 2097152, 51642369),
            ),
            (
                4,
                (15073280, 3153664, 12978176),
                (2101760, 27398144, 54532864),
                (2097152, 2097152, 25952257),
            ),
        )
    },
    timed={
        sailor.Key(4, 1): timed(0.000511, 0.031314, 0.030919, 0.030984, 0.002941),
        sailor.Key(4, 2): timed(0.001022, 0.017305, 0.017032, 0.016333, 0.001512),
        sailor.Key(4, 4): timed(0.001049, 0.010169, 0.009855, 0.009218, 0.000955),
        sailor.Key(8, 1): timed(0.000688, 0.061583, 0.061165, 0.061986, 0.002947),
        sailor.Key(8, 2): timed(0.001441, 0.03347, 0.033165, 0.031901, 0.001515),
        sailor.Key(8, 4): timed(0.001563, 0.019267, 0.019017, 0.017037, 0.000938),
    },
    link={
        1: (-0.0024414231124647644, 0.1408627339370467, 1.116822757126346),
        2: (-0.007196511652909052, 0.2316852991952904, 2.1127137995063974),
        4: (-0.03667895496478979, 0.4773282044079026, 4.5592610071684785),
    },
)


def test_sailors_plan_takes_what_its_simulator_prints():
    assert 1 / sailor.step_seconds(OPT, sailor.Grid(1, 8, 8, 32), 4) == pytest.approx(
        0.12511, abs=5e-6
    )
    assert 1 / sailor.step_seconds(OPT, sailor.Grid(1, 32, 8, 128), 4) == pytest.approx(
        0.41753, abs=5e-6
    )


@pytest.mark.parametrize(
    ("gpus", "theirs", "ours"), [(32, 0.12511, 0.1297), (128, 0.41752, 0.41752)]
)
def test_sailors_problem_is_solved_with_proof_and_fits_every_gpu(gpus, theirs, ours):
    found = best(sailor.cases(OPT, gpus))
    assert 1 / found.value >= max(theirs, ours)
    assert found.lower_bound == pytest.approx(found.value, rel=1e-9)
    degree = sailor.DEGREES[int(found.counts[0].argmax())]
    grid = next(g for g in sailor.grids(OPT, gpus) if g.text == found.case.name)
    assert sailor.stage_bytes(OPT, grid, 0, degree) <= 40 * 2**30


def test_a_promise_to_the_solver_is_never_above_what_sailors_step_takes():
    draw = random.Random(2)
    slower = 0
    for _ in range(30):
        grid = sailor.Grid(draw.randint(2, 6), 4, draw.choice((4, 8)), 128)
        counts = np.eye(3, dtype=np.int64)[[draw.randrange(3) for _ in range(grid.pp)]]
        promised, true = sailor.filling(OPT, grid).value(counts), sailor.seconds(OPT, grid, counts)
        assert promised <= true * (1 + 1e-12)
        slower += true > promised * (1 + 1e-9)
    assert slower > 0


def chain(draw: random.Random, length: int) -> tuple[piper.Layer, ...]:
    """Layers in a row, made up; making activations again takes longer and holds less."""
    found = []
    for number in range(length):
        ways = {}
        for tp in (1, 2):
            seconds, each = draw.uniform(1, 3) / tp, draw.choice((1.0, 2.0))
            ways[tp] = (
                piper.Way(seconds, 0.0, 1.0 / tp, each, 1.0),
                piper.Way(seconds * draw.uniform(1.1, 1.5), 0.0, 1.0 / tp, each / 4, 1.0),
            )
        before = {number - 1: 0.1} if number else {}
        after = {number + 1: 0.1} if number < length - 1 else {}
        extra = dict.fromkeys((*before, *after), 0.05)
        found.append(piper.Layer(ways, before, after, {1: (extra, extra), 2: (extra, extra)}))
    return tuple(found)


def load_by_hand(model, cut, degrees, question: piper.Question) -> float:
    """Least largest load of given stages, over all ways of all layers."""
    largest, later = 0.0, 0
    for (low, high), (tp, dp) in reversed(list(zip(cut, degrees, strict=True))):
        later += dp
        own = frozenset(range(low, high))
        loads = [np.inf]
        for chosen in product(*(model[v].at(tp, own) for v in own)):
            need = sum(w.per_sample * -(-later // dp) + w.fixed for w in chosen)
            if need <= question.memory_bytes:
                n = question.num_microbatches
                loads.append(
                    sum(
                        w.seconds / dp
                        + (w.cut_bytes / dp + 4 * (dp - 1) * w.weight_bytes / (dp * n))
                        / question.bandwidth
                        for w in chosen
                    )
                )
        largest = max(largest, min(loads))
    return largest


def least_load_by_hand(model, question: piper.Question) -> float:
    options = [
        (tp, dp)
        for tp in (1, 2)
        for dp in range(1, question.devices + 1)
        if question.num_microbatches % dp == 0 and tp * dp <= question.devices
    ]
    least = np.inf
    for borders in product((False, True), repeat=len(model) - 1):
        marks = [0, *(i + 1 for i, cut in enumerate(borders) if cut), len(model)]
        cut = list(pairwise(marks))
        for degrees in product(options, repeat=len(cut)):
            if sum(tp * dp for tp, dp in degrees) <= question.devices:
                least = min(least, load_by_hand(model, cut, degrees, question))
    return least


@pytest.mark.parametrize("seed", range(4))
def test_pipers_problem_is_solved_as_well_as_by_trying_everything(seed):
    model = chain(random.Random(seed), 4)
    for memory in (4.0, 6.0, 9.0, 100.0):
        question = piper.Question(4, 4, memory, 1.0)
        found = piper_search.solve(model, question)
        assert found.seconds == pytest.approx(least_load_by_hand(model, question))
        if found.stages:
            held = [layer for stage in found.stages for layer in stage.layers]
            assert held == [0, 1, 2, 3]


def made_up_sample() -> metis.Measured:
    """Three layers whose memory of one GPU grows with the samples; nobody's measurements."""
    profiles = {
        metis.Key(tp, samples): metis.Profile(
            np.array([1.0, 4.0, 4.0, 1.0]) * samples**0.8 / tp**0.9,
            np.array([2.0, 5.0, 5.0, 2.0]) * samples / tp,
            0.1,
        )
        for tp in (1, 2)
        for samples in (1, 2, 4)
    }
    return metis.Measured(profiles, np.full(4, 8.0), 1.0, 0.1, 1, 4, 100.0, 12.0, 5.0)


def test_a_plan_that_only_fits_the_memory_of_a_group_is_refused_on_a_gpu():
    of = made_up_sample()
    theirs = best(metis.cases(of, metis.Question(8, 16, by_group=True)))
    ours = best(metis.cases(of, metis.Question(8, 16)))
    assert metis.most_mib(theirs) > of.device_mib >= metis.most_mib(ours)
    assert theirs.value < ours.value == pytest.approx(ours.lower_bound)


def test_without_time_there_is_a_bound_and_no_answer():
    cases = galvatron.cases(LLAMA, galvatron.Question(16, chunks=16))
    found = best_of(cases, milp.solve, Steps(0))
    assert found.counts is None
    assert 0 < found.lower_bound <= 5.805473 < found.value == np.inf


def answer(ours: float | None, bound: float | None) -> object:
    return answers.Row(
        "peer", "a problem", "a step", 2.0, ours, bound, 3.0, 0.1, 0.2, "plan " * 40, "!"
    )


def test_an_answer_is_shown_with_what_is_known_of_better_ones():
    shown = [
        "\n".join(answers.text([answer(*pair)], PROCESS)) for pair in ((1.0, 0.9), (None, 0.9))
    ]
    assert "theirs 2.000000 s, ours 1.000000 s, no less than 0.900000 s, gap 10.00%" in shown[0]
    assert "solved in 0.20 CPU-seconds, the peer's program in 3 CPU-seconds" in shown[0]
    assert "whole process: 0.50 CPU-seconds, 0.25 of them its start" in shown[0]
    assert "ours: none in time, no less than 0.900000 s" in shown[1]
    assert "ours: nothing fits" in "\n".join(answers.text([answer(None, None)], PROCESS))
    assert max(len(line) for text in shown for line in text.splitlines()) <= 100


def test_the_keys_of_the_document_are_stable():
    document = json.loads(answers.document([answer(1.0, 0.9), answer(None, None)], PROCESS))
    assert document["process"] == {"start_s": 0.25, "whole_s": 0.5}
    assert document["schema"] == "trainplan/home-ground/v1"
    assert set(document["answers"][0]) == {
        "peer", "problem", "unit", "theirs_s", "ours_s", "lower_bound_s", "gap_fraction",
        "theirs_cpu_s", "solver_s", "solver_cpu_s", "plan", "note",
    }  # fmt: skip
    assert document["answers"][1]["gap_fraction"] is None


def test_metis_layers_are_placed_as_well_as_by_trying_everything():
    of, question = made_up_sample(), metis.Question(4, 8)
    least = np.inf
    for frame in metis.frames(of, question):
        problem = metis.filling(of, frame)
        for borders in product(range(1, 4), repeat=len(frame.stages) - 1):
            marks = [0, *borders, 4]
            if marks != sorted(set(marks)):
                continue
            counts = np.zeros(problem.costs.shape[1:], np.int64)
            for stage, (low, high) in enumerate(pairwise(marks)):
                for layer in range(low, high):
                    counts[stage, problem.layers[layer]] += 1
            if (np.einsum("jsw,sw->j", problem.needs, counts) <= problem.capacities).all():
                least = min(least, metis.seconds(of, frame, counts))
    assert best(metis.cases(of, question)).value == pytest.approx(least)


def drawn_stages(seed: int) -> alpa.Problem:
    """Five layers on four devices, with memory that forbids some stages before others."""
    draw = np.random.RandomState(seed)
    shape = (5, 5, 3, 2)
    after = draw.randint(-1, 6, shape)
    return alpa.Problem(draw.random_sample(shape), after, (1, 2, 4), 4, int(draw.randint(1, 20)))


def least_step_by_hand(of: alpa.Problem) -> float:
    """Over all cuts, submeshes and shardings."""
    least, layers = np.inf, len(of.costs)
    for borders in product((False, True), repeat=layers - 1):
        marks = [0, *(i + 1 for i, cut in enumerate(borders) if cut), layers]
        cut = list(pairwise(marks))
        for ways in product(product(range(3), range(2)), repeat=len(cut)):
            stages = [
                alpa.Stage(low, high - 1, *way) for (low, high), way in zip(cut, ways, strict=True)
            ]
            room = [int(of.after[s.first, s.last, s.submesh, s.sharding]) for s in stages]
            later = range(len(stages) - 1, -1, -1)
            if sum(of.devices[s.submesh] for s in stages) == of.num_devices and all(
                number <= most for number, most in zip(later, room, strict=True)
            ):
                least = min(least, alpa.step_seconds(of, stages))
    return least


@pytest.mark.parametrize("seed", range(4))
def test_alpas_stages_are_solved_as_well_as_by_trying_everything(seed):
    of = drawn_stages(seed)
    found = alpa.solve(of, 60.0)
    assert found.seconds == pytest.approx(least_step_by_hand(of), rel=1e-9)
    assert found.lower_bound == pytest.approx(found.seconds, rel=1e-9)


def test_alpas_problem_is_the_one_of_its_test_and_solved_no_worse(tmp_path):
    file = tmp_path / alpa.FILE
    file.parent.mkdir(parents=True)
    numbers = zip(alpa.NUMBERS, (8, 1, 8, 16), strict=True)
    lines = [*(f"{name} = {number}" for name, number in numbers), "np.random.seed(42)"]
    file.write_text("\n".join(lines), "utf-8")
    found = alpa.solve(alpa.read(tmp_path), 60.0)
    assert found.seconds == pytest.approx(0.29528505, rel=1e-6)
    assert [(s.first, s.last, s.submesh, s.sharding) for s in found.stages] == [
        (0, 3, 2, 2), (4, 7, 2, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("shape", answer_zero_bubble.THEIRS)
def test_the_zero_bubble_schedulers_problems_are_solved_with_proof(shape):
    for times, theirs in zip((1, 2), answer_zero_bubble.THEIRS[shape], strict=True):
        problem = zero_bubble.Problem(*shape, times * shape[0])
        found = zero_bubble.solve(problem)
        assert found.span == problem.lower_bound == theirs


def test_no_schedule_has_a_shorter_span_than_the_bound():
    draw = random.Random(3)
    for _ in range(20):
        stages, microbatches = draw.randint(2, 5), draw.randint(1, 9)
        passes = (draw.randint(1, 5), draw.randint(1, 5), draw.randint(1, 5))
        problem = zero_bubble.Problem(stages, microbatches, draw.randint(1, 9), *map(float, passes))
        for _, program in zero_bubble.programs(problem):
            if (zero_bubble.peak_activations(program) <= problem.memory).all():
                timeline = zero_bubble.run(program, problem.passes, 0.0)
                assert timeline.max_stage_span >= problem.lower_bound - 1e-9
