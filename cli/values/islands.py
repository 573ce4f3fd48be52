"""`--allow diloco` and the options of outer steps: a job on islands."""

from dataclasses import replace

from pydantic import ValidationError

from trainplan.cli.values.stated import Question
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.job import OuterSpec
from trainplan.costmodel.outer import island_count, island_job
from trainplan.costmodel.spec import first_complaint

FIELDS = {
    "islands": "islands",
    "outer_every": "every",
    "outer_dtype": "dtype",
    "outer_overlap": "overlap",
    "outer_fragments": "fragments",
}
"""Options, and the fields of `OuterSpec` that they state."""


def with_islands(question: Question, allow: tuple[str, ...], stated: dict[str, object]) -> Question:
    """The question with outer steps, where they are allowed.

    Raises:
        SpecError: They are stated and not allowed, or no equal islands can be made.
    """
    given = {name: value for name, value in stated.items() if value is not None}
    if "diloco" not in allow:
        if given:
            raise SpecError(
                f"--{next(iter(given)).replace('_', '-')} is of outer steps, which change the "
                "training: add --allow diloco, or leave it out"
            )
        return question
    try:
        outer = OuterSpec.model_validate(
            {FIELDS[name]: value for name, value in given.items() if value != "free"}
        )
    except ValidationError as error:
        raise SpecError(f"outer steps: {first_complaint(error).reason}") from None
    job = question.job.model_copy(update={"outer": outer})
    if outer.islands is not None or island_count(job.cluster) == 1:
        island_job(job)
    return replace(question, job=job)
