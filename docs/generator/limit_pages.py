"""The page of limits: how much each reader takes, out of the constants that it refuses by."""

from __future__ import annotations

from page_parts import Lines, table

from trainplan.cli.files import disk, documents
from trainplan.cli.options import names
from trainplan.cli.values import offers
from trainplan.costmodel.architecture.layers import MOST_LAYERS
from trainplan.costmodel.base import json_text
from trainplan.costmodel.families import reader
from trainplan.costmodel.hardware import cluster
from trainplan.planner.runtimes import keys

MB = 10**6


def limits_page() -> Lines:
    """What is refused before it is read, and the largest numbers."""
    yield from ("# Limits of what is read", "")
    yield "Files of users are opened by one function: regular files only, so that no pipe or device"
    yield "is waited for, and no more bytes than here. What is above a limit is refused in one"
    yield "line, before the work that it would take."
    yield ""
    nested = f"{json_text.MOST_NESTED} lists and mappings within each other"
    configuration = f"{disk.LARGEST_FILE_BYTES // MB} MB"
    launch, log = disk.LARGEST_LAUNCH_BYTES // MB, disk.LARGEST_LOG_BYTES // MB
    yaml = f"{documents.LARGEST_YAML_BYTES // MB} MB, {documents.MOST_YAML_NODES:,} keys and values"
    rows = [
        ("`config.json`, a plan, a profile, any other JSON", configuration, nested),
        ("a model, cluster or other document as YAML", yaml, nested),
        ("sequence lengths, offers, schedules as CSV", configuration, ""),
        ("`runs.jsonl`, routing, a training log", f"{log} MB", "a line of JSON as above"),
        ("a launch script, a configuration of a runtime", f"{launch} MB", ""),
        ("of these YAML", f"{keys.LARGEST_YAML // 1000} kB", ""),
    ]
    yield from table(("file", "at most", "and"), rows)
    yield "JSON is finite: NaN and Infinity are refused, but for `time_step_limit` of a"
    yield "`config.json`; no key is there twice. Numbers are numbers: `true` and `1_0` are"
    yield "none, and `yes` and 1 are no `true`. A field is null only where its description, or"
    yield "the class of the `model_type` in transformers, says so."
    yield ""
    rows = [
        ("layers of a model", f"{MOST_LAYERS:,}"),
        ("any other number of a `config.json`", _short(reader.LARGEST_NUMBER)),
        ("global batch, sequence, micro batch", f"{names.LARGEST_SIZE:,}"),
        ("tp, pp, cp, dp, ep and other degrees", f"{cluster.MOST_GPUS:,}"),
        ("nodes; GPUs of a cluster", f"{cluster.MOST_NODES:,}; {cluster.MOST_GPUS:,}"),
        ("GPUs of a node", f"{cluster.MOST_GPUS_PER_NODE:,}"),
        ("nodes with measured links", f"{cluster.MOST_LINKED_NODES:,}"),
        ("offers", f"{offers.MOST:,}"),
        ("any other number of a document of ours", _short(documents.LARGEST_NUMBER)),
    ]
    yield from table(("number", "at most"), rows)


def _short(number: float) -> str:
    return f"{number:.0e}".replace("e+", "e")
