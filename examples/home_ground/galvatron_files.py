"""What a checkout of Galvatron ships of Llama-2-7B and of a machine with 8 GPUs.

Source of the keys and units: galvatron/core/search_engine/search_engine.py (time_profile_mode
`batch`, sequence parallel) and galvatron/utils/config_utils.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from checkout import json_of, text_of
from galvatron_costs import WORLD_SIZE, Ends, Line, Measured, Transfer

from trainplan.costmodel.base.entries import Entry
from trainplan.costmodel.base.errors import SpecError

MODEL = "galvatron/models/gpt/configs"
MACHINE = "galvatron/profile_hardware/hardware_configs"
SHAPE = "galvatron/models/model_configs/llama2-7b.yaml"
SEQ_LENGTH = 2048
"""The one length that the shipped profile has."""
TIME = re.compile(r"layertype_(?P<kind>0|other)_bsz(?P<samples>\d+)_seq2048")
MESSAGE = re.compile(r"(?P<kind>allreduce|all2all)_size_(?P<ranks>\d+)_(?P<mib>\d+)MB_time")
REDUCE = re.compile(r"allreduce_size_(?P<ranks>\d+)_consec_(?P<in_a_row>[01])")


def read(checkout: Path) -> Measured:
    """The problem's numbers."""
    times = json_of(checkout, f"{MODEL}/computation_profiling_bf16_llama2-7b_all.json")
    memory = json_of(checkout, f"{MODEL}/memory_profiling_bf16_llama2-7b_all.json")
    table = json_of(checkout, f"{MACHINE}/sp_time_1nodes_8gpus_per_node.json")
    shape = text_of(checkout, SHAPE)
    layer = memory["layertype_0_sp"][str(SEQ_LENGTH)]
    activation = layer["tp_activation_per_bsz_dict"]
    return Measured(
        num_layers=_field(shape, "num_layers"),
        hidden_size=_field(shape, "hidden_size"),
        seq_length=SEQ_LENGTH,
        layer=forward_line(times, "0"),
        ends=forward_line(times, "other"),
        parameter_mib=layer["parameter_size"].positive(),
        activation_mib=_by_degree(activation),
        checkpoint_mib=activation["checkpoint"].positive(),
        whole=_ends(memory["other_memory_pp_off_sp"]),
        first=_ends(memory["other_memory_pp_on_first_sp"]),
        last=_ends(memory["other_memory_pp_on_last_sp"]),
        reduce_ms_per_mib=_reduce(checkout),
        p2p_ms_per_mib=_p2p(checkout),
        gather=transfers(table, "allreduce", 0.5),
        exchange=transfers(table, "all2all", 1.0),
        slowdown=json_of(checkout, f"{MACHINE}/overlap_coefficient.json")["overlap_coe"].positive(),
    )


def fitted(points: dict[float, float]) -> Line:
    """The line of least squares. Source: `curve_fit` of a line, search_engine.py."""
    slope, intercept = np.polyfit(list(points), list(points.values()), 1)
    return Line(float(slope), float(intercept))


def forward_line(times: Entry, kind: str) -> Line:
    """Milliseconds of a forward by samples; the file has milliseconds of one sample."""
    points = {}
    for key, entry in times.items():
        match = TIME.fullmatch(key)
        if match and match["kind"] == kind:
            samples = int(match["samples"])
            points[float(samples)] = entry.positive() * samples
    return fitted(points)


def transfers(table: Entry, kind: str, part: float) -> dict[int, Transfer]:
    """Milliseconds by MiB for each number of ranks; an all-gather is half an all-reduce."""
    points: dict[int, dict[float, float]] = {}
    for key, entry in table.items():
        match = MESSAGE.fullmatch(key)
        if match and match["kind"] == kind:
            of = points.setdefault(int(match["ranks"]), {})
            of[float(match["mib"])] = entry.positive() * part
    return {ranks: Transfer(of, fitted(of)) for ranks, of in points.items()}


def _by_degree(entry: Entry) -> dict[int, float]:
    return {int(key): value.positive() for key, value in entry.items() if key.isdigit()}


def _ends(entry: Entry) -> Ends:
    of = entry[str(SEQ_LENGTH)]
    return Ends(_by_degree(of["model_states"]), _by_degree(of["activation"]))


def _reduce(checkout: Path) -> dict[tuple[int, bool], float]:
    """By ranks and whether they are in a row; all ranks are in a row either way."""
    found = {(1, True): 0.0, (1, False): 0.0}
    file = f"{MACHINE}/allreduce_bandwidth_1nodes_8gpus_per_node.json"
    for key, entry in json_of(checkout, file).items():
        if match := REDUCE.fullmatch(key):
            found[int(match["ranks"]), match["in_a_row"] == "1"] = 1 / entry.positive()
    return found | {(WORLD_SIZE, False): found[WORLD_SIZE, True]}


def _p2p(checkout: Path) -> dict[int, float]:
    entries = json_of(checkout, f"{MACHINE}/p2p_bandwidth_1nodes_8gpus_per_node.json").items()
    return {int(key.rsplit("_", 1)[1]): 1 / entry.positive() for key, entry in entries}


def _field(yaml: str, name: str) -> int:
    """A whole number at the top of a YAML file."""
    found = re.search(rf"^{name}: (\d+)", yaml, re.MULTILINE)
    if found is None:
        raise SpecError(f"{SHAPE}: {name} is missing: is this the right file?")
    return int(found[1])
