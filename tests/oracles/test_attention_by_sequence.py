"""Bytes of attention by sequence and by tensor parallelism, as Megatron Core hands them out.

Source: megatron.core.tensor_parallel.mappings: all_to_all_sp2hp and all_to_all_hp2sp exchange
sequence for heads; the sequence is gathered and reduce-scattered around tensor parallelism.
"""

import pytest

from trainplan.costmodel.blocks.attention import context
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.model import query_columns, value_columns
from trainplan.planner.questions import estimate

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
mappings = pytest.importorskip("megatron.core.tensor_parallel.mappings")
FakeStore = pytest.importorskip("torch.testing._internal.distributed.fake_pg").FakeStore

pytestmark = pytest.mark.oracle
RANKS, TOKENS, BYTES = 4, 64, 2


@pytest.fixture(name="group")
def _group():
    torch.distributed.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield torch.distributed.group.WORLD
    torch.distributed.destroy_process_group()


@pytest.fixture(name="handed")
def _handed(monkeypatch):
    """Elements of the whole tensors that collectives are given, in order."""
    found = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")

    def whole(output, given, **others):
        found.append(max(output.numel(), given.numel()))

    for holder, name in (
        (torch.distributed, "all_to_all_single"),
        (mappings, "dist_all_gather_func"),
        (mappings, "dist_reduce_scatter_func"),
    ):
        monkeypatch.setattr(holder, name, whole)
    return found


def test_exchanged_heads_are_the_bytes_that_are_priced(group, handed, make_job, monkeypatch):
    job = make_job("mixtral-8x7b", "1x4:h100-sxm", 1, RANKS * TOKENS)
    model, share = job.model, torch.zeros(TOKENS, 1)
    widths = model.hidden_size, value_columns(model) // 4, value_columns(model) // 4
    assert query_columns(model) == model.hidden_size
    for width in widths:
        mappings.all_to_all_sp2hp(share.expand(-1, width), group)
    mappings.all_to_all_hp2sp(torch.zeros(RANKS * TOKENS, value_columns(model) // RANKS), group)
    priced, seconds = [], context.collective_seconds

    def noted(machine, kind, sent, links):
        priced.append((kind, sent[0]))
        return seconds(machine, kind, sent, links)

    monkeypatch.setattr(context, "collective_seconds", noted)
    options = RuntimeOptions(cp_comm_type="a2a")
    estimate(job.model_copy(update={"options": options}), Layout(cp=RANKS, ep=RANKS))
    assert {kind for kind, _ in priced} == {"alltoall"}
    assert sum(sent for _, sent in priced[:2]) == BYTES * sum(handed)
    exchanged = sum(handed)
    handed.clear()
    rows = torch.zeros(TOKENS, model.hidden_size)
    mappings.gather_from_sequence_parallel_region(rows, group=group)
    whole = torch.zeros(RANKS * TOKENS, model.hidden_size)
    mappings.reduce_scatter_to_sequence_parallel_region(whole, group=group)
    grouped = (2 + 2 * model.num_key_value_heads / model.num_attention_heads) / (2 * RANKS)
    assert exchanged / sum(handed) == pytest.approx(grouped)
