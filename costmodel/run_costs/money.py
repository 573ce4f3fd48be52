"""Money: what a second of a cluster costs, and how long a run is."""

from trainplan.costmodel.base import SECONDS_PER_DAY, SECONDS_PER_HOUR, SpecError
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.lengths import real_tokens_per_step
from trainplan.costmodel.run_costs.goodput import stretch_of


def paid_gpus(job: Job) -> float:
    """GPUs of all islands and of their spare nodes, each of which is as the mean node.

    Source: derived: nodes are rented for the whole time, so a spare is paid as one that computes;
    a spare has the mean GPUs of a node, so the spares are that share of all GPUs.
    """
    return job.num_gpus * (1 + _spare_share(job.cluster))


def hourly_price(cluster: ClusterSpec) -> float | None:
    """Money an hour of a cluster and its spare nodes costs, in its currency; null: no price.

    Source: derived, the sum over node groups of GPUs x `price_per_gpu_hour`; as `paid_gpus`.
    """
    prices = [(group.num_gpus, group.price_per_gpu_hour) for group in cluster.groups]
    if any(price is None for _, price in prices):
        return None
    return sum(n * (price or 0.0) for n, price in prices) * (1 + _spare_share(cluster))


def _spare_share(cluster: ClusterSpec) -> float:
    return cluster.failures.spare_nodes / cluster.num_nodes if cluster.failures else 0.0


def price_per_second(cluster: ClusterSpec) -> float:
    """Money a second of the whole cluster costs, in `cluster.currency`: every GPU at its price.

    Source: derived, `hourly_price` / 3600.

    Raises:
        SpecError: A group has no price, or all are 0.
    """
    for index, group in enumerate(cluster.groups):
        if group.price_per_gpu_hour is None:
            raise SpecError(
                f"groups[{index}] ({group.gpu}) of cluster {cluster.name!r} has no price: give "
                "--price, or `price_per_gpu_hour` in a cluster file (`plan catalog clusters "
                "--template` prints one); the catalog holds no prices"
            )
    hourly = hourly_price(cluster) or 0.0
    if hourly <= 0:
        raise SpecError(
            f"every price of cluster {cluster.name!r} is 0, so all layouts cost the same: give "
            "--price, or `price_per_gpu_hour` in a cluster file, or choose another --objective"
        )
    return hourly / SECONDS_PER_HOUR


def run_steps(job: Job) -> int | None:
    """Optimizer steps of the whole run; null where its tokens are not given.

    Source: each step takes `tokens_per_step` of the run's `tokens`, and the last step counts as a
    whole one, so the quotient is rounded up; all islands step at once.
    """
    tokens = job.training.tokens
    at_once = job.islands * real_tokens_per_step(job.training)
    return None if tokens is None else -(-tokens // at_once)


def longest_step_seconds(job: Job, deadline_days: float) -> float:
    """Seconds a step may take so that the run ends in time.

    Source: the run is `run_steps` steps of equal length, so each may take the seconds of the
    deadline over their number; with failures, of those the share that trains.

    Raises:
        SpecError: The tokens of the run are not given.
    """
    steps = run_steps(job)
    if steps is None:
        raise SpecError("a deadline needs the length of the run: give --tokens, such as 15T")
    return deadline_days * SECONDS_PER_DAY / steps / stretch_of(job)
