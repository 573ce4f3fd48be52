"""What was tried is kept, whenever it is cut off, and only for the job it was tried for."""

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.documents.calibration import Outcome, Trial
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.profiler.journal.records import sealed
from trainplan.profiler.trials.journal import TrialJournal


def job_of(model="llama3-8b", batch=64):
    return Job(
        model=preset(model),
        training=TrainingSpec(seq_length=4096, global_batch_size=batch),
        cluster=parse_cluster("1x8:h100-sxm"),
    )


def trial(number):
    return Trial(number=number, job=job_of(), layout=Layout(tp=number, dp=8), why="é: near the top")


SLOW = Outcome(ending="measured", step_time_s=1.25, lowest_s=1.2, highest_s=1.5, steps=5)
FULL = Outcome(ending="out_of_memory", reason="CUDA out of memory\u2028\x85 tried 2 GiB")
"""A log may hold what some programs take for the end of a line."""


@pytest.fixture
def journal(tmp_path):
    made = TrialJournal(tmp_path / "trials.jsonl")
    made.begin(job_of(), "launches")
    return made


def tried(journal):
    return [(one.trial, one.outcome) for one in journal.read(job_of(), "launches")]


def test_trials_come_back_in_their_order(journal):
    journal.append(trial(1), SLOW)
    journal.append(trial(2), FULL)
    assert tried(journal) == [(trial(1), SLOW), (trial(2), FULL)]


def test_nothing_begun_is_not_nothing_tried(journal, tmp_path):
    assert tried(journal) == []
    assert TrialJournal(tmp_path / "other.jsonl").read(job_of(), "launches") is None


@pytest.mark.parametrize("cut", [1, 30, 2])
def test_a_line_that_was_cut_off_is_forgotten_and_written_over(journal, tmp_path, cut):
    path = tmp_path / "trials.jsonl"
    journal.append(trial(1), SLOW)
    whole = path.read_bytes()
    journal.append(trial(2), FULL)
    path.write_bytes(path.read_bytes()[:-cut])
    assert tried(journal) == [(trial(1), SLOW)]
    journal.append(trial(3), FULL)
    assert tried(journal) == [(trial(1), SLOW), (trial(3), FULL)]
    assert path.read_bytes().startswith(whole)


@pytest.mark.parametrize(
    ("other", "field"),
    [({"model": "llama3-70b"}, "model"), ({"batch": 32}, "training")],
)
def test_a_journal_of_another_job_is_refused(journal, other, field):
    with pytest.raises(SpecError, match=rf"trials\.jsonl is of a job with another {field}: remove"):
        journal.read(job_of(**other), "launches")


def test_a_journal_that_is_broken_in_its_middle_is_refused(journal, tmp_path):
    path = tmp_path / "trials.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"record": "trial"}\n')
    with pytest.raises(
        SpecError, match=r"line 2 of .*trials\.jsonl .* checksum is missing: remove"
    ):
        journal.read(job_of(), "launches")
    path.write_text(whole.replace("64", "65") + "\n")
    with pytest.raises(SpecError, match=r"line 1 of .*checksum is wrong: remove the file"):
        journal.read(job_of(), "launches")
    path.write_text(whole + sealed('{"record":"trial"}') + "\n")
    with pytest.raises(SpecError, match=r"line 2 of .*trials\.jsonl is no record .*trial.*missing"):
        journal.read(job_of(), "launches")
    path.write_text("{}\n")
    with pytest.raises(SpecError, match=r"line 1 of .*is no record of trainplan/trials/v1"):
        journal.read(job_of(), "launches")


def test_a_journal_without_its_job_is_refused(journal, tmp_path):
    path = tmp_path / "trials.jsonl"
    journal.append(trial(1), SLOW)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(SpecError, match="does not begin with a header"):
        journal.read(job_of(), "launches")


def test_beginning_anew_forgets(journal):
    journal.append(trial(1), SLOW)
    journal.begin(job_of(), "launches")
    assert tried(journal) == []


def test_trials_that_something_else_ran_are_refused(journal):
    with pytest.raises(SpecError, match="ran by launches, not by a simulated machine: remove"):
        journal.read(job_of(), "a simulated machine")
