"""How a trial of `plan tune` is launched: in processes here, from exported files, or on paper."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from time import monotonic
from typing import ClassVar, Protocol

from trainplan.cli.files import Document, NewFile, read_document, write_folder
from trainplan.cli.terminal import remark
from trainplan.cli.trials.gpus import num_gpus
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import Measured
from trainplan.costmodel.documents import Outcome, Trial
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import runtime
from trainplan.planner.launchers import FOLDER, LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS, SHORT_RUNS, trial_launch
from trainplan.planner.tuning import SCHEMA, MachineDocument, SimulatedMachine, exports
from trainplan.planner.verification import of_torch
from trainplan.profiler.host import contention_now
from trainplan.profiler.launch import device_of
from trainplan.profiler.logs import StatedRun
from trainplan.profiler.task import Place
from trainplan.profiler.train import (
    TrainerName,
    Trainers,
    TrainingFailedError,
    TrainingRequest,
    refusal,
    slowest_seconds,
)
from trainplan.profiler.trials import (
    WARM_UP_STEPS,
    Backend,
    Limits,
    TrialRun,
    run_trial,
    steps_to_run,
)


class TrialLauncher(Protocol):
    """One way to run trials."""

    ran_by: ClassVar[str]
    """What runs them: times of one are not those of another."""

    def can_start(self, job: Job, layout: Layout) -> bool:
        """May the layout be a contender?"""
        ...

    def commands(self, trial: Trial) -> tuple[str, ...]:
        """What would be run, as text; nothing is run."""
        ...

    def launch(self, trial: Trial) -> Outcome:
        """Run it.

        Raises:
            PlanError: Nothing can be run that way.
        """
        ...


@dataclass(frozen=True, slots=True)
class InProcesses:
    """Training in processes of this machine, without launch files."""

    ran_by: ClassVar[str] = "processes of this machine"

    trainers: Trainers
    nproc: int
    steps: int
    timeout_s: float

    def _request(self, job: Job, layout: Layout) -> TrainingRequest:
        steps = WARM_UP_STEPS + self.steps
        trainer = self.trainers.trainer
        return TrainingRequest(trainer=trainer, job=job, layout=layout, steps=steps)

    def can_start(self, job: Job, layout: Layout) -> bool:
        """Does the trainer run all of it?"""
        return refusal(self._request(job, layout)) is None

    def commands(self, trial: Trial) -> tuple[str, ...]:
        """There is no command: what is trained."""
        request = self._request(trial.job, trial.layout)
        what = f"{request.steps} steps of {request.trainer}"
        return (f"{what} in {self.nproc} processes of this machine",)

    def launch(self, trial: Trial) -> Outcome:
        """Train it; of each step the slowest rank counts."""
        begin = monotonic()
        request = self._request(trial.job, trial.layout)
        try:
            reports = self.trainers.run(request, self.nproc, self.timeout_s)
        except TrainingFailedError as failed:
            seconds = monotonic() - begin
            return Outcome(ending=failed.ending, reason=failed.reason, seconds=seconds)
        timed = slowest_seconds(reports)[WARM_UP_STEPS:]
        return Outcome.of_steps(timed).model_copy(update={"seconds": monotonic() - begin})


@dataclass(frozen=True, slots=True)
class Exported:
    """Exported files, a folder for each trial, and a way to start them."""

    ran_by: ClassVar[str] = "launches"

    folder: Path
    launcher: str
    """Name of `LAUNCHERS`: which script is written."""
    backend: Backend
    steps: int
    timeout_s: float
    queue_s: float | None = None
    """Longest time that a batch job may wait; null: without end."""
    order: tuple[str, ...] = ()
    """Nodes in rank order, where links were measured."""
    elsewhere: bool = False
    """It is started where other variables are set than here."""

    def can_start(self, job: Job, layout: Layout) -> bool:
        """Can a launch of a few steps be written?"""
        return job.runtime in SHORT_RUNS and exports(job, layout)

    def check(self, job: Job, layout: Layout) -> None:
        """Is everything there that a trial needs?

        Raises:
            PlanError: No trials of that runtime are written, or a variable is not set.
        """
        self._files(Trial(number=1, job=job, layout=layout, why=""))

    def commands(self, trial: Trial) -> tuple[str, ...]:
        """The words of the way."""
        return tuple(shlex.join(words) for words in self.backend.commands(self._run(trial)))

    def launch(self, trial: Trial) -> Outcome:
        """Write the files, start them, watch, and end all processes.

        Raises:
            SpecError: A variable that the script needs is not set.
            FileError: The folder cannot be written.
            ProfilerError: As `run_trial`.
        """
        files, run = self._files(trial), self._run(trial)
        write_folder(run.folder, files, force=True)
        limits = Limits(deadline_s=self.timeout_s, queue_s=self.queue_s)
        found = run_trial(run, self.backend, limits)
        return found.model_copy(update={"log": f"{run.folder.name}/{run.log.name}"})

    def _run(self, trial: Trial) -> TrialRun:
        training = trial.job.training
        return TrialRun(
            folder=self.folder / FOLDER.format(trial.number),
            script=LAUNCHERS[self.launcher].file,
            stated=StatedRun(
                training.global_batch_size, training.seq_length, trial.job.cluster.num_gpus
            ),
            steps=self.steps,
        )

    def _files(self, trial: Trial) -> list[NewFile]:
        job, launcher = trial.job, LAUNCHERS[self.launcher]
        config = EXPORTERS[job.runtime](job, trial.layout)
        given = [name for name, value in os.environ.items() if value]
        config = trial_launch(config, steps_to_run(self.steps), given)
        for variable in config.required_environment:
            if variable.name not in given and not self.elsewhere:
                raise SpecError(f"set {variable.name} before you tune: {variable.sentence}")
        script = launcher(config, job.cluster, self.order)
        files = [NewFile(script.name, script.text, executable=script.executable)]
        if not launcher.carries_files:
            files += [NewFile(file.name, file.text) for file in config.files]
        return files


@dataclass(frozen=True, slots=True)
class OnPaper:
    """A simulated machine."""

    ran_by: ClassVar[str] = "a simulated machine"
    machine: SimulatedMachine

    def can_start(self, job: Job, layout: Layout) -> bool:
        """As where files are exported."""
        return exports(job, layout)

    def commands(self, trial: Trial) -> tuple[str, ...]:
        """Nothing is run."""
        return ("a simulated machine answers",)

    def launch(self, trial: Trial) -> Outcome:
        """Query the machine."""
        return self.machine.launch(trial)


def on_paper(path: Path, measured: Measured) -> OnPaper:
    """The machine of a file.

    Raises:
        FileError: It cannot be read, is no simulated machine, or a field of it is wrong.
    """
    document = read_document(path)
    values = dict(document.values)
    schema = values.pop("schema", None)
    if schema != SCHEMA:
        raise document.error(f"schema {str(schema)[:60]!r} is not {SCHEMA!r}: give that key")
    machine = Document(document.path, values, document.root).validated(MachineDocument)
    return OnPaper(SimulatedMachine(machine, measured))


def check_processes_stand_for(job: Job) -> None:
    """Do processes of this machine run what the job is for?

    Raises:
        SpecError: Its devices are of another kind, or its runtime has code of its own.
    """
    traits = runtime(job.runtime)
    if not (traits.on_megatron_core or traits.on_torch):
        raise SpecError(
            f"--nproc trains with megatron-core or torch, which {job.runtime} does not: use "
            "--launcher or --command"
        )
    on_cpu = [bool(one.device and one.device.vendor == "cpu") for one in job.cluster.groups]
    if not num_gpus() and not all(on_cpu):
        names = " and ".join(dict.fromkeys(group.gpu for group in job.cluster.groups))
        raise SpecError(
            f"the job is for {names} and this machine has no GPU, so its times would mean nothing: "
            "leave --cluster out and this machine is measured, or use --launcher or --command"
        )


def check_gpus_here(job: Job) -> None:
    """Are the GPUs of the job on this machine?

    Raises:
        SpecError: They are not.
    """
    devices = [group.device for group in job.cluster.groups]
    if all(device and device.vendor == "cpu" for device in devices):
        return
    wanted, there = job.cluster.num_gpus, num_gpus()
    if there < wanted:
        raise SpecError(
            f"the layouts need {wanted} GPUs and this machine has {there}: use --launcher slurm or "
            "--command, or --nproc for a model that trains in processes of this machine"
        )


def remark_load(processes: int) -> None:
    """Warn where others use what trials of this machine need, as `plan profile` does."""
    place = Place(device_of(num_gpus()), 0, processes, 0, processes)
    if sentence := contention_now(place, gethostname()):
        remark(sentence)


def trainer_of(job: Job) -> TrainerName:
    """What trains as the runtime of a plan does."""
    return "torch" if of_torch(job) else "megatron-core"
