"""Keys of a config with their values, where each stands, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from trainplan.planner.runtimes.reading import Field, Origin
from trainplan.planner.runtimes.torchtitan.read.source import Made, Unread
from trainplan.planner.shell import Place, Problem, Verdict

T = TypeVar("T")

DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "training.num_tokens_per_microbatch_per_dp_rank": 16384,
        "training.num_tokens_per_train_step": -1,
        "training.max_context_length": 2048,
        "training.enable_cpu_offload": False,
        "training.disable_cuda_graphs": False,
        "training.dtype": "float32",
        "training.mixed_precision_param": "bfloat16",
        "parallelism.data_parallel_replicate_degree": 1,
        "parallelism.data_parallel_shard_degree": -1,
        "parallelism.fsdp_reshard_after_forward": "default",
        "parallelism.tensor_parallel_degree": 1,
        "parallelism.enable_sequence_parallel": True,
        "parallelism.spmd_backend": "spmd_types",
        "parallelism.pipeline_parallel_degree": 1,
        "parallelism.module_fqns_per_model_part": None,
        "parallelism.pipeline_parallel_first_stage_less_layers": 1,
        "parallelism.pipeline_parallel_last_stage_less_layers": 1,
        "parallelism.pipeline_parallel_layers_per_stage": None,
        "parallelism.pipeline_parallel_schedule": "1F1B",
        "parallelism.pipeline_parallel_schedule_csv": "",
        "parallelism.num_pp_microbatches": 1,
        "parallelism.context_parallel_degree": 1,
        "parallelism.expert_parallel_degree": 1,
        "compile.enable": False,
        "compile.components": ["model", "loss"],
        "compile.enable_async_tensor_parallel": False,
        "activation_checkpoint": Made("SelectiveAC.Config", 0),
    }
)
"""Source: torchtitan/config/configs.py and trainer.py, Trainer.Config."""


@dataclass(frozen=True, slots=True)
class Told:
    """One value and where it stands."""

    value: object
    written: str
    place: Place | None


@dataclass(slots=True)
class Config:
    """What a launch says, as keys of the current release."""

    told: dict[str, Told] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)

    def problem(
        self, cause: str, verdict: Verdict, says: str, key: str | Place | None = None
    ) -> None:
        """Note one."""
        place = self.told[key].place if isinstance(key, str) and key in self.told else key
        where = place if isinstance(place, Place) else None
        self.problems.append(Problem(cause, verdict, says, where))

    def of(self, key: str, kind: type[T]) -> T:
        """The value of a key, or its default; one of another kind is a problem."""
        default = DEFAULTS[key]
        told = self.told.get(key)
        if told is None or told.value is None:
            return default  # type: ignore[return-value]
        value = told.value
        if isinstance(value, Unread | Made):
            says = f"{key} is {shown(value)!r}, which only a run would tell: set it by hand"
            self.problem("unread_value", "unread", says, key)
            return default  # type: ignore[return-value]
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.problem(
            "wrong_kind",
            "illegal",
            f"{key} = {value!r} is no {kind.__name__}: correct it",
            key,
        )
        return default  # type: ignore[return-value]

    def count(self, key: str) -> int:
        """The value of a key that is 1 or more; -1 where its default is."""
        value, default = self.of(key, int), DEFAULTS[key]
        if value >= 1 or value == default:
            return value
        self.problem("not_positive", "illegal", f"{key} = {value} must be 1 or more", key)
        return 1

    def note(self, name: str, value: object, *keys: str) -> None:
        """A field of ours, from the first of the keys that is told, or from their defaults."""
        found = next((key for key in keys if key in self.told), None)
        if found is not None:
            told = self.told[found]
            self.fields.append(Field(name, value, "stated", told.written, told.place))
        else:
            default = next((key for key in keys if key in DEFAULTS), "")
            origin: Origin = "default" if default else "derived"
            self.fields.append(Field(name, value, origin, default))


def flattened(made: Made, file: str) -> Iterator[tuple[str, Told]]:
    """Keys of a `Trainer.Config` that is made: those of its sections one by one."""
    for name, value in made.named.items():
        line = made.lines.get(name, made.line)
        if isinstance(value, Made) and value.name.endswith(SECTIONS.get(name, "?")):
            for key, one in value.named.items():
                where = Place(file, value.lines.get(key, value.line) or None)
                yield f"{name}.{key}", Told(one, f"{name}.{key} = {shown(one)}", where)
        else:
            yield name, Told(value, f"{name} = {shown(value)}", Place(file, line or None))


SECTIONS: Mapping[str, str] = MappingProxyType(
    {"training": "TrainingConfig", "parallelism": "ParallelismConfig", "compile": "CompileConfig"}
)
"""Class of a section."""


def shown(value: object) -> str:
    """A value in a sentence."""
    if isinstance(value, Unread):
        return value.text
    if isinstance(value, Made):
        return f"{value.name}(...)"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."
