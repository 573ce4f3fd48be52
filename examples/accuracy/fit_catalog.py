"""Fitted values into the files of the catalog, nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fit_parameters import constants_at, sustained
from fit_rows import ATTENTION_PRIOR, Row, speed_key

from trainplan.costmodel import catalog

CATALOG = Path(catalog.__file__).parent


def write(theta: Mapping[str, float], rows: Sequence[Row]) -> None:
    """Put the fitted values into the catalog's files, nothing else."""
    path = CATALOG / "constants.toml"
    text = path.read_text(encoding="utf-8")
    for name, value in constants_at(theta).model_dump().items():
        text = re.sub(rf"(\[{name}\]\nvalue = )\S+", rf"\g<1>{value:.4g}", text)
    path.write_text(text, encoding="utf-8")
    path = CATALOG / "fitted.toml"
    text = path.read_text(encoding="utf-8")
    for name in theta:
        kind, *words = name.split()
        if kind == "speed":
            gpu, precision = words
            value = sustained(theta, gpu, precision)
            source = origin(rows, name)
            count = len(own_sources(rows, name))
            kind = f", sources = {count}" if count else ', kind = "stand-in"'
            text = with_speed(text, gpu, f"{precision} = {{ value = {value:.3f}{kind}", source)
        if kind == "attention":
            value = ATTENTION_PRIOR[words[0]] * math.exp(theta[name])
            for gpu in catalog.gpu_names():
                if catalog.gpu(gpu).architecture == words[0]:
                    pattern = rf"(\[gpu\.{gpu}\]\nattention = {{ max_efficiency = )[0-9.]+"
                    text = re.sub(pattern, rf"\g<1>{value:.3f}", text)
    path.write_text(text, encoding="utf-8")


def own_sources(rows: Sequence[Row], name: str) -> set[str]:
    """Sources of the runs of a GPU and precision whose speed it is."""
    return {
        row.run.source_group for row in rows if name == "speed {} {}".format(*speed_key(row.case))
    }


def origin(rows: Sequence[Row], name: str) -> str:
    """How many runs stand behind a sustained speed."""
    own = [row for row in rows if name == "speed {} {}".format(*speed_key(row.case))]
    if not own:
        return "inferred from its architecture by examples/accuracy/fit.py, no run of its own"
    sources = len(own_sources(rows, name))
    return f"fitted on {len(own)} published runs of {sources} sources, examples/accuracy/fit.py"


def with_speed(text: str, gpu: str, start: str, source: str) -> str:
    """The text of `fitted.toml` with one sustained speed replaced or added."""
    line = f'{start}, source = "{source}" }}'
    precision = start.split(maxsplit=1)[0]
    head = f"[gpu.{gpu}.sustained]\n"
    if head not in text:
        return text.rstrip("\n") + f"\n\n{head}{line}\n"
    begin = text.index(head) + len(head)
    end = text.find("\n[", begin)
    end = len(text) if end < 0 else end
    body = text[begin:end]
    if re.search(rf"^{precision} = ", body, re.M):
        body = re.sub(rf"^{precision} = .*$", line, body, flags=re.M)
    else:
        body = line + "\n" + body
    return text[:begin] + body + text[end:]
