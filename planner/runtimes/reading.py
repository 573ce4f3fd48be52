"""What was read of someone's launch: job, layout, where each field stood, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.catalog import release_of
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.shell import Launch, Place, Problem

OF_RECIPE = Place("recipe", None)
"""Where what no line of a launch states stands: a recipe of the runtime sets it."""
NOT_STATED = "not stated in what was read: "
"""Beginning of what is wrong only where no line that was not read says otherwise."""
Origin = Literal["stated", "default", "derived", "assumed"]
"""Written in the launch; what the runtime takes where nothing is; computed from others, such as dp;
taken by us because nothing says it, such as the GPU, and named so."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user says beside the launch."""

    cluster: ClusterSpec | None = None
    model: ModelSpec | None = None
    """For launches that name no shape."""
    seq_length: int | None = None
    global_batch_size: int | None = None
    model_of: Callable[[str], ModelSpec | None] = lambda name: None
    """The model of a name that stands in the launch: a preset, a name of Hugging Face that stands
    for one, or a folder beside the launch; null: it is none of these."""
    train: str | None = None
    """What is trained, in place of what the launch says: as `--train` of `plan search` takes it."""
    release: str | None = None
    """Of the software that runs, as `--runtime-version` takes it."""
    strict: bool = False
    """Is what is not stated what this release takes without it, and what it does not know wrong?"""
    text_of: Callable[[str], str | None] = lambda path: None
    """Text of a file that the launch names, beside it; null: there is none."""

    def over(self, launch: Launch) -> Request:
        """With the files that the launch writes by itself."""

        def text_of(path: str) -> str | None:
            return launch.files.get(path.rpartition("/")[2]) or self.text_of(path)

        return replace(self, text_of=text_of) if launch.files else self


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the job or the layout, and where it comes from."""

    name: str
    """`layout.tp`, `training.seq_length`, `model.hidden_size`, `options.moe_dispatcher`,
    `cluster.num_nodes`, `job.release`: names of the specifications."""
    value: object
    """As in JSON."""
    origin: Origin
    written: str = ""
    """The runtime's own words: `--tensor-model-parallel-size 8`; of a default, its option."""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A launch as a question and an answer of ours."""

    runtime: str
    runtime_version: str
    """Release whose rules were applied."""
    job: Job | None
    """Null: too little could be read; `problems` says what."""
    layout: Layout | None
    fields: tuple[Field, ...]
    problems: tuple[Problem, ...]
    own_name: Callable[[str], str] = str
    """The launch's name of a setting, by that which our exporter writes: a recipe may have its keys
    elsewhere."""

    @property
    def legal(self) -> bool | None:
        """Would the runtime start it? Null: too little was read to say."""
        verdicts = {problem.verdict for problem in self.problems}
        absent = any(problem.absent for problem in self.problems)
        whole = self.job is not None and self.layout is not None and not absent
        return (
            False if "illegal" in verdicts else True if whole or "unread" not in verdicts else None
        )

    def of_release(self, launch: Launch, stated: str | None) -> Reading:
        """The same with the release that is stated, or that the container of the launch names.

        Where neither is, the newest is assumed; experts alone hang on it.
        """
        if self.job is None:
            return self
        image = launch.container
        release = stated or (image and image.text.rpartition("/")[2])
        job = self.job.model_copy(update={"release": release})
        fields, known = self.fields, RUNTIMES.get(job.runtime)
        if image and not stated:
            fields = (*fields, Field("job.release", release, "stated", image.text, image.place))
        elif not release and job.model.moe and known and known.on_megatron_core:
            fields = (*fields, Field("job.release", release_of(None).container, "assumed"))
        return replace(self, job=job, fields=fields)


@dataclass(frozen=True, slots=True)
class Reader:
    """One runtime: which launches are its own, and what they say."""

    runtime: str
    recognises: Callable[[Launch], bool]
    """Is it a launch of this runtime? Seen from the program and its arguments alone."""
    read: Callable[[Launch, Request], Reading]
    """Raises a `PlanError` only where nothing can be said at all."""
