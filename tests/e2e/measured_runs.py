"""A small file of measured runs: one of everything `plan validate` can say."""

import json
from pathlib import Path

DATA = Path(__file__).parents[2] / "examples" / "accuracy"


def published(*names: str) -> list[dict]:
    """Records of the published data by id, or by the start of it."""
    records = [
        json.loads(line)
        for file in ("runs.jsonl", "fits.jsonl")
        for line in (DATA / file).read_text("utf-8").splitlines()
    ]
    return [one for one in records if one["id"].startswith(names)]


def own_run(**changes: object) -> dict:
    """A run as a user writes it down, with as few fields as it takes."""
    run = {
        "id": "llama3-8b on one node",
        "model": {
            "name": "llama3-8b",
            "num_layers": 32,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
        },
        "training": {"seq_length": 8192, "global_batch_size": 128, "precision": "bf16"},
        "cluster": {"gpu": "h100-sxm", "num_gpus": 8, "gpus_per_node": 8},
        "layout": {"tp": 2, "pp": 1, "micro_batch_size": 1, "recompute": "none"},
        "runtime": "megatron-lm",
        "measured": {"step_time_s": 12.0},
    }
    return run | changes


def write_runs(path: Path, records: list[object]) -> Path:
    """A JSON Lines file."""
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def sample(path: Path) -> Path:
    """Step times, an order of layouts, peaks, labels right and wrong, and odd records."""
    study = [one for one in published("vtrain-m-") if one["cluster"]["num_gpus"] == 512]
    out_of_memory = [one for one in published("nanotron-", "fit-") if "oom" in one["id"]]
    records = [
        *study,
        *published("simumax-")[:3],
        *published("fit-simumax-")[:2],
        *out_of_memory[:3],
        own_run(),
        own_run(id="no model", model=None),
        own_run(id="unknown machine", cluster={"gpu": "abacus", "num_gpus": 8}),
        ["not a run"],
    ]
    return write_runs(path, records)
