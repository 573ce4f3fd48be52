"""A batch that keeps data parallelism from a factor of the GPUs."""

from collections.abc import Iterator

from trainplan.costmodel.job import Job


def batch_notes(job: Job) -> Iterator[str]:
    """Which odd factor of the GPUs tp, cp or pp must take, and batches that leave it to dp.

    Powers of two are no matter: tp, cp and pp have some.
    """
    gpus, batch = job.cluster.num_gpus, job.training.global_batch_size
    odd = gpus // (gpus & -gpus)
    if batch % odd == 0:
        return
    unit = gpus if batch >= gpus else odd
    near = [unit * count for count in (batch // unit, batch // unit + 1) if count]
    yield (
        f"batch: {batch:,} sequences do not divide by {odd:,}, a factor of the {gpus:,} GPUs, so "
        f"tp, cp or pp must: {' or '.join(f'{one:,}' for one in near)} sequences leave it to dp"
    )
