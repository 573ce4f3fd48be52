"""The GPUs a program of this user would see, asked of the drivers' own tools; nothing is loaded.

Source: NVIDIA, nvidia-smi documentation, `--query-gpu=name --format=csv,noheader`; ROCm, ROCm SMI
CLI, `--showproductname --json`, whose cards have a "Card Series".
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

NVIDIA = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
AMD = ("rocm-smi", "--showproductname", "--json")
SERIES = "card series"
CHOSEN = {NVIDIA[0]: "CUDA_VISIBLE_DEVICES", AMD[0]: "HIP_VISIBLE_DEVICES"}
"""Variables that show a program only some of the GPUs."""
PATIENCE_S = 20.0
"""Seconds after which a tool that does not answer has found nothing."""


@dataclass(frozen=True, slots=True)
class Visible:
    """What a tool said: one name for each GPU."""

    tool: str
    names: tuple[str, ...]


def visible_gpus() -> Visible | None:
    """The GPUs of this machine; null where no tool is installed or none names one."""
    for command, read in ((NVIDIA, _nvidia_names), (AMD, _amd_names)):
        names = _chosen(command[0], read(_answer(command)))
        if names:
            return Visible(command[0], names)
    return None


def _answer(command: Sequence[str]) -> str:
    tool = shutil.which(command[0])
    if tool is None:
        return ""
    with suppress(OSError, subprocess.SubprocessError, UnicodeDecodeError):
        done = subprocess.run(
            [tool, *command[1:]], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        return done.stdout if done.returncode == 0 else ""
    return ""


def _nvidia_names(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _amd_names(text: str) -> list[str]:
    try:
        cards = json.loads(text or "{}")
    except ValueError:
        return []
    every = cards.values() if isinstance(cards, dict) else ()
    entries = [card for card in every if isinstance(card, dict)]
    found = [{str(key).lower(): value for key, value in card.items()} for card in entries]
    return [str(card[SERIES]).strip() for card in found if SERIES in card]


def _chosen(tool: str, names: Sequence[str]) -> tuple[str, ...]:
    """Those that the user's variable leaves visible: by their numbers, else as many as it lists."""
    stated = os.environ.get(CHOSEN[tool])
    if stated is None:
        return tuple(names)
    listed = [one.strip() for one in stated.split(",") if one.strip()]
    if all(one.isdecimal() for one in listed):
        return tuple(names[int(one)] for one in listed if int(one) < len(names))
    return tuple(names[: len(listed)])
