"""Islands that outer steps join, as a config of torchtitan's experiment with torchft states them.

Source of the rules: torchtitan/experiments/torchft manager.py and trainer.py; torchft
`torchft/local_sgd.py` @73dafea, DiLoCo.
"""

from pydantic import ValidationError

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.job import Job, OuterSpec
from trainplan.costmodel.outer import island_job
from trainplan.costmodel.spec import first_complaint
from trainplan.planner.runtimes.keys import Name
from trainplan.planner.runtimes.ranks import ranks_of
from trainplan.planner.runtimes.reading import Request
from trainplan.planner.runtimes.torchtitan import keys as key
from trainplan.planner.runtimes.torchtitan.read.config import Config
from trainplan.planner.shell import Launch

METHODS = ("", "local_sgd", "diloco")


def outer_of(config: Config) -> OuterSpec | None:
    """Islands of whose links nothing is known; null: there are none, or they are not priced."""
    method, islands = config.of(key.METHOD), config.of(key.ISLANDS)
    if not config.of(key.JOINS) or islands < 2:
        return None
    if method not in METHODS:
        says = f"{key.METHOD} = {method!r}: use diloco or local_sgd"
        config.problem("semi_sync_method", "illegal", says, key.METHOD)
    if method != "diloco":
        how = "by the mean of their weights" if method else "each step"
        says = f"{islands} replicas are joined {how}, which is not priced: the price is of one"
        config.problem("joined_replicas", "unmodelled", says, key.METHOD)
        return None
    every, fragments, delay = map(config.of, (key.EVERY, key.FRAGMENTS, key.DELAY))
    if min(every, fragments) < 1 or every % fragments or not 0 <= delay < every // fragments:
        says = (
            f"{every} local steps, {fragments} fragments and a delay of {delay}: torchft takes a "
            "multiple of the fragments, and a delay below it"
        )
        config.stops("outer_steps_take_turns", says, key.EVERY, key.FRAGMENTS, key.DELAY)
        return None
    if delay and not config.of(key.MIXED):
        says = (
            f"the {delay} local steps during a sync are taken back at {key.MIXED} = 0, as if they "
            "were not: set 0.5; they are priced as kept"
        )
        config.problem("outer_steps_take_back", "unmodelled", says, key.MIXED)
    stored = "bf16" if config.of(key.STORED) == "bfloat16" else "fp32"
    try:
        spec = OuterSpec(
            islands=islands,
            every=every,
            dtype="fp8" if config.of(key.QUANTIZES) else stored,
            overlap=delay or "none",
            fragments=fragments,
        )
    except ValidationError as error:
        config.problem("outer_steps", "unmodelled", first_complaint(error).reason, key.EVERY)
        return None
    keys: dict[str, Name] = {
        "islands": key.ISLANDS, "every": key.EVERY, "dtype": key.QUANTIZES,
        "overlap": key.DELAY, "fragments": key.FRAGMENTS,
    }  # fmt: skip
    for name, of in keys.items():
        config.note(f"job.outer.{name}", getattr(spec, name), of)
    return spec


def states_links(launch: Launch, request: Request, outer: OuterSpec | None) -> bool:
    """Is the cluster asked about that of all islands, so that their links are known?"""
    if outer is None or outer.islands is None or request.cluster is None:
        return False
    alone = ranks_of(launch, Request(None))
    ranks, rest = divmod(request.cluster.num_gpus, outer.islands)
    return not rest and alone in (None, ranks)


def joined(config: Config, job: Job, outer: OuterSpec, *, links: bool) -> Job:
    """The job of one of the islands, of a job that has the batch of them all.

    Without `links` its cluster is of one, and what joins them is assumed.
    """
    cluster = job.cluster
    if not links:
        says = (
            "what joins the islands is not stated: priced by the adapters of their nodes; give "
            "--cluster a file of them all, with equal groups and between_groups"
        )
        config.problem("outer_links", "unread", says, key.ISLANDS)
        cluster = cluster.model_copy(update={"groups": cluster.groups * (outer.islands or 1)})
    try:
        return island_job(job.model_copy(update={"outer": outer, "cluster": cluster}))
    except SpecError as error:
        says = f"priced without outer steps: {error}"
        config.problem("outer_steps", "unmodelled", says, key.ISLANDS)
    return job
