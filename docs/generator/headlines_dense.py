"""Headlines of dense models: Megatron-LM of 2021, and selective recomputation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headlines_figure import Figure, Headline, Runs, estimates, fastest, place, rules, step_time

from trainplan.costmodel.base.units import MICROSECOND
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step import explicit, price
from trainplan.costmodel.validate.cases.cases import Case, case_of

SC21_TFLOPS = {"1.7b": 137, "3.6b": 138, "18b": 135, "145b": 148, "310b": 155, "1t": 163}
SC21_HELD = (
    "cp=1",
    "zero_stage=0",
    "sequence_parallel=false",
    "recompute=full",
    "recompute_method=uniform",
    "recompute_num_layers=1",
)
OF_2021 = RuntimeOptions(
    attention="unfused", dropout=True, overlap_grad_reduce=False, overlap_param_gather=False
)


def sc21(runs: Runs) -> Headline:
    """Weak scaling to a trillion parameters."""
    rows = {name: runs[f"sc21-t1-{name}"] for name in SC21_TFLOPS}
    return Headline(
        "sc21",
        "Megatron-LM up to a trillion parameters",
        """\
Narayanan et al., SC 2021, [arXiv:2104.04473](https://arxiv.org/abs/2104.04473), table 1: fp16,
A100 80 GB, everything recomputed, attention unfused, dropout, no sharding. Six of the ten rows are
in the data of this project. *Place* is that of the published `tp`, `pp` and `dp` when the planner
chooses these, the micro batch and the virtual stages; what Megatron-LM of 2021 lacked is kept
out. Interleaving is tried where the paper does (figure 12: 175B, 96 GPUs, `tp` 8, `pp` 12), with
two virtual stages and a micro batch of one sequence, neither of which is stated here.""",
        (
            *_throughputs(rows),
            step_time("1T on 3072 GPUs", rows["1t"], 0.10),
            *(_published_place(name, run) for name, run in rows.items()),
            *(_interleaving_gain(batch) for batch in (12, 24)),
        ),
    )


def _throughputs(rows: dict[str, MeasuredRun]) -> Iterator[Figure]:
    found = []
    for (name, run), estimate in zip(rows.items(), estimates(list(rows.values())), strict=True):
        measured, tflops = run.measured.step_time_s, SC21_TFLOPS[name]
        assert measured
        predicted = tflops * measured / estimate.step_time_s
        found.append(Figure(name.upper(), tflops, predicted, 0.10, "TFLOP/s"))
    yield from found
    mean = sum(abs(one.error_fraction) for one in found) / len(found)
    yield Figure("mean error of the six", 6, 100 * mean, unit="%", test="at most")


WHY_NOT_18B = """\
The planner prefers less tensor parallelism and an interleaved pipeline of a few ranks; the data
hold no run of such a layout to check it."""


def _published_place(name: str, run: MeasuredRun) -> Figure:
    case = _case(run)
    job, layout = case.job, case.layout
    machine = machine_of(job.cluster, job.training.precision)
    degrees = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp}
    found = place(fastest(job, machine, rules(SC21_HELD)), degrees)
    why = WHY_NOT_18B if name == "18b" else ""
    return Figure(f"place of the layout of {name.upper()}", 5, found, 0, "place", "at most", why)


def _case(run: MeasuredRun) -> Case:
    case = case_of(run)
    assert isinstance(case, Case)
    return case


def interleaving_gain(batch: int) -> float:
    """Throughput with two virtual stages over that with one, less one; GPT 175B on 96 A100."""
    job = Job(
        model=preset("gpt3-175b"),
        training=TrainingSpec(seq_length=2048, global_batch_size=batch, precision="fp16"),
        cluster=parse_cluster("12x8:a100-sxm-80gb"),
        options=OF_2021,
    )
    plain = Layout(
        tp=8,
        pp=12,
        zero_stage=0,
        recompute="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    )
    twice = plain.model_copy(update={"vpp": 2, "schedule": "interleaved"})
    machine = machine_of(job.cluster, job.training.precision)
    one, two = explicit(context_of(job, machine).with_table(LayoutTable.of([plain, twice])))
    return one.step_time_s / two.step_time_s - 1


def _interleaving_gain(batch: int) -> Figure:
    what, gain = f"interleaving, batch of {batch}", 100 * interleaving_gain(batch)
    return Figure(what, 10, gain, unit="%", test="at least")


@dataclass(frozen=True, slots=True)
class Gpt:
    """A model of Korthikanti et al. with everything recomputed and with little recomputed."""

    name: str
    shape: dict[str, object]
    layout: dict[str, object]
    num_gpus: int
    batch: int
    full_s: float
    selective_s: float
    mfu_percent: float
    """As printed."""
    why: str = ""

    def runs(self, runs: Runs) -> tuple[MeasuredRun, MeasuredRun]:
        """Both ways, as runs like those of 175B."""
        return self._run(runs, "full", self.full_s), self._run(runs, "seqsel", self.selective_s)

    def _run(self, runs: Runs, kind: str, seconds: float) -> MeasuredRun:
        return runs.changed(
            f"korthikanti-t5-175b-{kind}",
            model=self.shape,
            layout=self.layout,
            training={"global_batch_size": self.batch},
            cluster={"num_gpus": self.num_gpus},
            measured={"step_time_s": seconds},
        )


def _shape(layers: int, hidden: int, heads: int) -> dict[str, object]:
    return {
        "num_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
    }


KERNELS_OF_2022 = """\
Published MFU grows with the model; our products get less efficient, because reading their large
weights for only 2048 rows is charged on top of the arithmetic. The software was also faster than
that of 2021, by 8 % for 1T, and the model knows one set of kernels for both."""


def _pipeline(pp: int, vpp: int = 1, dp: int = 1) -> dict[str, object]:
    schedule = "interleaved" if vpp > 1 else "1f1b"
    return {"pp": pp, "vpp": vpp, "dp": dp, "schedule": schedule}


WHOLE_22B = {**_pipeline(1), "micro_batch_size": 4}
SHAPE_1T = _shape(128, 25600, 160)
SHAPE_530B = _shape(105, 20480, 128)
GPTS = (
    Gpt("22B", _shape(48, 6144, 64), WHOLE_22B, 8, 4, 1.42, 1.10, 41.5),
    Gpt("175B", _shape(96, 12288, 96), _pipeline(8, 3), 64, 64, 18.13, 13.75, 51.4),
    Gpt("530B", SHAPE_530B, _pipeline(35, 3), 280, 280, 49.05, 37.83, 56.0, KERNELS_OF_2022),
    Gpt(
        "1T", _shape(128, 25600, 160), _pipeline(64), 512, 512, 94.42, 71.49, 56.3, KERNELS_OF_2022
    ),
)
REPLICATED = Gpt("530B on 2240", SHAPE_530B, _pipeline(35, 3, 8), 2240, 2240, 0, 39.15, 54.2)


def selective(runs: Runs) -> Headline:
    """Sequence parallelism and recomputation of the attention core."""
    last, smallest = REPLICATED.runs(runs)[1], GPTS[0].runs(runs)
    return Headline(
        "selective",
        "Selective recomputation and sequence parallelism",
        """\
Korthikanti et al., MLSys 2023, [arXiv:2205.05198](https://arxiv.org/abs/2205.05198), tables 3 to
5: fp16, A100 80 GB, `tp` 8, a micro batch of one sequence (22B: four), attention unfused, dropout,
no sharding. *Full*: every layer recomputed, no sequence parallelism; *selective*: the attention
core recomputed, sequence parallelism. The layer of 22B is timed without any recomputation and
sequence parallelism, then with both. *Memory*: activations of 1T without both over those
with both.""",
        (
            *(figure for gpt in GPTS for figure in _both_ways(gpt, runs)),
            step_time("530B on 2240 GPUs, selective", last, 0.10),
            *_layer_times(smallest[1]),
            _memory_ratio(GPTS[-1].runs(runs)[1]),
        ),
    )


def _both_ways(gpt: Gpt, runs: Runs) -> Iterator[Figure]:
    full, some = gpt.runs(runs)
    figures = (
        step_time(f"{gpt.name}, full", full, 0.10, gpt.why),
        step_time(f"{gpt.name}, selective", some, 0.10, gpt.why),
    )
    yield from figures
    published = figures[0].published / figures[1].published
    predicted = figures[0].predicted / figures[1].predicted
    yield Figure(f"{gpt.name}, full / selective", published, predicted, 0.05, "times")


LAYER_MS = {"plain": (7.7, 11.9), "selective": (7.2, 13.1)}


def _layer_times(run: MeasuredRun) -> Iterator[Figure]:
    case = _case(run)
    job, some = case.job, case.layout
    plain = some.model_copy(
        update={"recompute": "none", "recompute_modules": (), "sequence_parallel": False}
    )
    machine = machine_of(job.cluster, job.training.precision)
    layer = price(
        context_of(job, machine).with_table(LayoutTable.of([plain, some]))
    ).seconds.layers[0]
    for row, (name, published) in enumerate(LAYER_MS.items()):
        for what, seconds, expected in zip(
            ("forward", "backward"), (layer.forward, layer.backward), published, strict=True
        ):
            milliseconds = float(seconds[row]) / (1000 * MICROSECOND)
            yield Figure(f"layer of 22B, {name}, {what}", expected, milliseconds, 0.10, "ms")


def _memory_ratio(run: MeasuredRun) -> Figure:
    case = _case(run)
    plain = {"recompute": "none", "recompute_modules": (), "sequence_parallel": False}
    table = LayoutTable.of([case.layout.model_copy(update=plain), case.layout])
    machine = machine_of(case.job.cluster, case.job.training.precision)
    more, less = explicit(context_of(case.job, machine).with_table(table))
    first, second = (one.memory.pipeline_ranks[0].activations_bytes for one in (more, less))
    return Figure("activation memory of 1T, ratio", 5, first / second, 0.05, "times")
