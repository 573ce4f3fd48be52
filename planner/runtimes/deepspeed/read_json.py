"""Keys of a `ds_config.json`, flat, with where each stands and what the runtime makes of it.

Source: deepspeedai/DeepSpeed `runtime/config.py` (a key twice raises; top-level keys that it does
not know it never reads), `runtime/config_utils.py`, DeepSpeedConfigModel (sections refuse keys they
do not know).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.runtimes.compare import recorded_flags
from trainplan.planner.runtimes.deepspeed.write import DEEPSPEED, SEQUENCE_MESSAGES
from trainplan.planner.runtimes.ranks import LARGEST_WORLD
from trainplan.planner.runtimes.training_script.read import Notes, Said, Script
from trainplan.planner.shell import Place, Verdict

OFFLOAD = "zero_optimization.offload_optimizer"
MESSAGES = "communication_data_type"
SECTIONS = (
    "zero_optimization",
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_param",
    "tensor_parallel",
    "bf16",
    "fp16",
)
"""Those that refuse keys."""
UNMODELLED: Mapping[str, str] = {
    "zero_optimization.zero_hpz_partition_size": "a second copy of the weights on every node",
    "zero_optimization.mics_shard_size": "states sharded over groups of ranks (MiCS)",
    "zero_optimization.zero_quantized_weights": "weights gathered in 8 bits",
    "zero_optimization.zero_quantized_gradients": "gradients reduced in fewer bits",
    "zero_optimization.zenflow": "ZenFlow",
    "zero_optimization.offload_optimizer.super_offload": "SuperOffload",
    "expert_parallel": "expert parallelism of the engine",
    "torch_autocast": "autocast of torch",
    "amp": "Apex",
    "compression_training": "compression",
    "data_efficiency": "data that change from step to step",
    "curriculum_learning": "sequences that grow in training",
    "sparse_attention": "sparse attention",
    "progressive_layer_drop": "layers that are dropped",
}
"""What is priced as if it were not there."""
OFF = (0, 1, -1)
"""Sizes and degrees that mean nothing."""


class DuplicateError(ValueError):
    """A key stands twice."""


@dataclass(slots=True)
class Keys:
    """Flat keys of one file."""

    notes: Notes
    file: str
    told: Mapping[str, object]
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, key: str) -> Place:
        """Where a key stands."""
        return Place(self.file, self.lines.get(key))

    def problem(self, cause: str, verdict: Verdict, says: str, key: str | None = None) -> None:
        """Note one."""
        self.notes.problem(cause, verdict, says, self.place(key) if key else None)

    def said(self, value: object, *names: str) -> Said:
        """A value with the first of the keys that is told, or with their default."""
        found = next((name for name in names if name in self.told), None)
        if found is None:
            return Said(value, "default", names[0])
        return Said(value, "stated", f"{found} = {json.dumps(self.told[found])}", self.place(found))

    def _value(self, key: str, default: object) -> object:
        value = self.told.get(key)
        if value == "auto":
            says = f'{key} = "auto" is filled in by the Trainer, taken as {default!r}: write it'
            self.problem("auto_value", "unread", says, key)
            return default
        return default if value is None else value

    def _wrong(self, key: str, value: object, wanted: str) -> None:
        says = f"{key} = {json.dumps(value)[:60]} is no {wanted}: correct it"
        self.problem("wrong_kind", "illegal", says, key)

    def count(self, key: str, default: int, *, least: int = 1, most: int = LARGEST_WORLD) -> int:
        """A number, or its default."""
        value = self._value(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        plain = isinstance(value, int) and not isinstance(value, bool)
        if plain and (value == default or least <= value <= most):  # type: ignore[operator]
            return value  # type: ignore[return-value]
        self._wrong(key, value, f"number from {least} to {most}")
        return default

    def told_count(self, key: str) -> int | None:
        """A number of 1 or more; null: none, or `auto`."""
        if self.told.get(key) in (None, "auto"):
            return None
        return self.count(key, 0, most=1 << 40) or None

    def share(self, key: str, default: float) -> float:
        """A number from 0 to 1, or its default."""
        value = self._value(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        self._wrong(key, value, "number from 0 to 1")
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        """A flag, or its default."""
        value = self._value(key, default)
        if isinstance(value, bool):
            return value
        self._wrong(key, value, "true or false")
        return default

    def switch(self, key: str, script: Script, argument: str) -> bool:
        """A flag that is off by default; `auto` is what an argument of the script says."""
        if self.told.get(key) == "auto" and (said := script.switch(argument)) is not None:
            return bool(said.value)
        return self.flag(key, default=False)

    def text(self, key: str, default: str) -> str:
        """A text, or its default."""
        value = self._value(key, default)
        if isinstance(value, str):
            return value
        self._wrong(key, value, "text")
        return default


def keys_of(notes: Notes, text: str, file: str) -> Keys | None:
    """Keys of a file; null, with a problem: the runtime takes none of it."""
    where = Place(file, None)
    try:
        config = json.loads(text, object_pairs_hook=_once)
    except DuplicateError as error:
        says = f"{file}: {error} stands twice, which stops the engine: delete one"
        notes.problem("duplicate_key", "illegal", says, where)
        return None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else f"{error}"
        says = f"{file} is no plain JSON ({reason}): write it without comments and placeholders"
        notes.problem("unread_config", "unread", says, where)
        return None
    if not isinstance(config, dict):
        says = f"{file} holds no object of keys: write one"
        notes.problem("unread_config", "illegal", says, where)
        return None
    told = dict(_flat(config))
    return Keys(notes, file, told, _lines(text, told))


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise DuplicateError(repr(name[:60]))
        found[name] = value
    return found


def _flat(config: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in config.items():
        key = f"{before}{name}"
        if isinstance(value, dict) and value and (not before or key in SECTIONS):
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _lines(text: str, told: Mapping[str, object]) -> dict[str, int]:
    """Line of each key: the first of its name behind that of the key before it."""
    found: dict[str, int] = {}
    at = 0
    for key in told:
        for name in key.split(".")[-1:]:
            match = re.compile(re.escape(json.dumps(name)) + r"\s*:").search(text, at)
            if match:
                at = match.start()
                found[key] = text.count("\n", 0, at) + 1
    return found


def check_keys(keys: Keys) -> None:
    """What is refused, what is never read, and what is not priced."""
    known = {flag.removeprefix("--") for flag in recorded_flags(DEEPSPEED.runtime)}
    for key, value in keys.told.items():
        section, _, last = key.rpartition(".")
        top = key.partition(".")[0]
        if top not in known:
            says = f"{top} is no key of DeepSpeed, which never reads it: correct or delete it"
            keys.problem("unknown_key", "ignored", says, key)
        elif section in SECTIONS and key not in known:
            says = f"{section} has no key {last}, which stops the engine: correct or delete it"
            keys.problem("unknown_key", "illegal", says, key)
        _check_price(keys, key, value)


def _check_price(keys: Keys, key: str, value: object) -> None:
    top = key.partition(".")[0]
    name = key if key in UNMODELLED else top
    off = value in (None, False, "auto") if isinstance(value, (bool, str)) else value in OFF
    off = off or not value
    if name in UNMODELLED and not off and keys.told.get(f"{top}.enabled", True):
        says = f"{name}: {UNMODELLED[name]} is not priced: the price is without"
        keys.problem("not_priced", "unmodelled", says, key)


OPTIMIZER = "optimizer.type"
OPTIMIZERS: Mapping[str, str] = {
    "adam": "adamw",
    **{word.lower(): name for name, word in RUNTIMES[DEEPSPEED.runtime].optimizers},
}
"""Name of an optimizer, by the engine's word for it in small letters."""


def optimizer_of(keys: Keys) -> str:
    """The optimizer of the file, or of the script where the file names none.

    Source: runtime/config.py, get_optimizer_name, which takes names in any case.
    """
    word = keys.text(OPTIMIZER, "AdamW")
    name = OPTIMIZERS.get(word.lower(), "adamw")
    if word.lower() not in OPTIMIZERS and word != "auto":
        keys.problem("optimizer", "unmodelled", f"optimizer {word} is priced as AdamW", OPTIMIZER)
    keys.notes.note("training.optimizer", keys.said(name, OPTIMIZER))
    return name


def check_messages(keys: Keys, cp: int, gradients: str, precision: str) -> None:
    """Gradients travel as they are kept? Where sequences are cut the engine has a key apart."""
    kept, key, messages = gradients, MESSAGES, keys.text(MESSAGES, "")
    if cp > 1:
        kept = gradients or {"tf32": "fp32"}.get(precision, precision)
        key, messages = SEQUENCE_MESSAGES, keys.text(SEQUENCE_MESSAGES, "fp32")
    if messages != kept:
        says = (
            f"gradients kept in {kept or 'their own type'} travel as "
            f"{messages or 'the weights'}, which is priced as kept"
        )
        keys.problem("message_type", "unmodelled", f"{says}: set {key} alike", key)
