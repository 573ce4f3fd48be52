"""Real processes over gloo: what they measure, and what is left when one of them dies or hangs."""

import os
import re
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.profiles.profile import Host
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.host.machine import this_software
from trainplan.profiler.journal.file import JournalFile
from trainplan.profiler.journal.records import RECORDS, Done, Header, Start, line_of, unsealed
from trainplan.profiler.launch.launch import run
from trainplan.profiler.launch.loop import _opened
from trainplan.profiler.launch.paths import Files, Launch
from trainplan.profiler.launch.scheduler import Budget
from trainplan.profiler.task import Place, Request
from trainplan.profiler.train.megatron.micro_batch import is_installed
from trainplan.profiler.watch.lock import only_run

pytest.importorskip("torch")

HERE = Path(__file__).parent
MODEL = ModelSpec(
    name="tiny",
    num_hidden_layers=2,
    hidden_size=64,
    intermediate_size=256,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=16,
    vocab_size=512,
    max_position_embeddings=128,
)


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """(item, processes) -> content of the journal, from the modules of this folder."""
    paths = [str(HERE.parents[1] / ".editable"), str(HERE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    def request(*only, seq_length=128, quick=True, runtimes=("torch-eager",)):
        return Request(
            model=MODEL,
            tensor_parallel=(1,),
            micro_batch_sizes=(1,),
            seq_length=seq_length,
            precision="fp32",
            quick=quick,
            only=only,
            runtimes=runtimes,
            scratch=str(tmp_path),
        )

    def start(
        *only,
        processes=2,
        restart=False,
        timeout=60.0,
        module="profiler_items",
        budget=None,
        **question,
    ):
        where, files = Launch(processes, timeout_seconds=timeout, budget=budget), start.files
        start.seen = []
        wanted = request(*only, **question)
        return run(wanted, where, files, start.seen.append, module, restart=restart)

    start.request = request
    start.files = Files.of_output(tmp_path / "profile.json")
    return start


def starts(files, key):
    """How often a task began."""
    return files.journal.read_text().count(f'"record":"start","item":"faulty","key":"{key}"')


def done(files):
    """Records of the tasks that ended well."""
    lines = unsealed(files.journal.read_text(), "the journal", "", "")
    records = [RECORDS.validate_json(line) for line in lines]
    return [record for record in records if isinstance(record, Done)]


def processes_left(files):
    """Processes that still run of a session with this journal; other tests may have some, too."""
    found, journal = [], os.fsencode(files.journal)
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = command.read_bytes().split(b"\0")
            found += [words] if journal in words else []
    return found


def header_of(request, processes):
    """First record of a run on processes of this machine."""
    return Header(
        created="2026-01-01T00:00:00+00:00",
        request=request,
        software=this_software(Place("cpu", 0, processes, 0, processes)),
        hosts=(Host(name="before", num_gpus=processes),),
    )


def test_a_refusal_of_the_processes_leaves_the_journal_of_something_else(measure):
    before = line_of(header_of(measure.request("plain", seq_length=64), 1))
    measure.files.journal.write_text(before)
    refusal = _opened(JournalFile(measure.files.journal), header_of(measure.request("plain"), 1))
    assert re.search(r"another seq_length.*--restart", refusal)
    with pytest.raises(SpecError, match=r"'nothing'.*plain"):
        measure("nothing", processes=1)
    assert measure.files.journal.read_text() == before
    assert not measure.files.lock.exists()


def test_two_ranks_measure_also_layers_and_list_what_they_cannot(measure):
    runtimes = ("megatron-lm",) if is_installed() else ()
    measure.files.journal.write_text(line_of(header_of(measure.request(seq_length=64), 1)))
    budget = Budget(600.0, monotonic() + 600.0)
    content = measure("plain", "layer", restart=True, budget=budget, runtimes=runtimes)
    assert content.left_out is None
    assert content.header.request.seq_length == 128
    copied, summed, *others = content.points
    assert [copied.kind, summed.kind] == ["stream", "collective"]
    assert summed.time.slowest_rank in (0, 1)
    layers = [p for p in others if p.kind == "layer"]
    assert [(p.tp, p.sequence_parallel, p.collectives_inside) for p in layers] == (
        [(1, False, False), (2, True, True)] if runtimes else []
    )
    assert [p.saved_bytes for p in layers] == sorted(
        {p.saved_bytes for p in layers}, reverse=True
    )  # each rank keeps its part
    assert [(f.detail, f.rank) for f in content.failures] == [
        ("unsupported: unsupported: no such kernel on this device", 0),
        ("not a number: ValueError: the product is not finite", 0),
    ]
    assert content.header.software.backend == "gloo"
    assert [host.num_gpus for host in content.header.hosts] == [2]
    number = 4 + len(layers)
    assert (measure.seen[-1].done, measure.seen[-1].total) == (number, number)
    first, second, *_ = done(measure.files)
    assert len(first.samples[0].seconds) == copied.time.repeats
    assert set(second.samples[0].slowest_ranks) <= {0, 1}
    for record in (first, second):
        assert [one.time() for one in record.samples] == [p.time for p in record.points]


def test_after_an_error_on_one_rank_fresh_processes_go_on_and_one_that_hangs_is_named_and_ended(
    measure,
):
    start = Start(item="faulty", key="after")
    header = header_of(measure.request("faulty"), 2)
    measure.files.journal.write_text("".join(map(line_of, (header, start, start))))
    with pytest.raises(ProfilerError) as error:
        measure("faulty", timeout=6.0)
    assert re.search("item faulty, task hang: rank 1 on .* hangs", str(error.value))
    assert not processes_left(measure.files)
    content = JournalFile(measure.files.journal).content()
    passed_over, raised = content.failures
    assert (raised.detail, raised.rank) == ("fault: out of memory: one rank has no room", 1)
    assert passed_over.detail == "after: stopped the run 2 times and is passed over"
    assert len(content.points) == 1
    keys = ("before", "fault", "after", "hang")
    assert [starts(measure.files, key) for key in keys] == [1, 1, 2, 1]


def test_a_second_run_on_one_output_is_refused_and_leaves_the_journal_of_the_first(measure):
    measure.files.journal.write_text("what the first one measured")
    with only_run(measure.files.lock), pytest.raises(ProfilerError, match="another run"):
        measure("plain", restart=True)
    assert measure.files.journal.read_text() == "what the first one measured"


def test_four_ranks_measure_collectives_messages_and_links(measure):
    items = ("collectives", "p2p", "links")
    content = measure(*items, processes=4, module="profiler_collectives", quick=False)
    assert content.failures == ()
    shapes = {(p.operation, p.ranks, p.stride) for p in content.points if p.kind == "collective"}
    operations = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
    groups = {(o, *shape) for o in operations for shape in ((2, 1), (4, 1), (2, 2))}
    assert shapes == groups | {("p2p", 2, 1), ("p2p", 2, 2)}
    links = {(p.source[-1], p.target[-1]) for p in content.points if p.kind == "link"}
    assert len(links) == 6
