"""Order of DualPipe in two directions, against the class of its authors with its work left out."""

import pytest

from trainplan.costmodel.program.ops import Op, Shape
from trainplan.costmodel.schedules import program_for

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
dualpipe = pytest.importorskip(
    "dualpipe.dualpipe", reason="pip install git+https://github.com/deepseek-ai/DualPipe"
)

pytestmark = pytest.mark.oracle
NAMES = {Op.FORWARD: "F", Op.BACKWARD: "I", Op.WEIGHT: "W", Op.WHOLE: "B"}


class Recorded(dualpipe.DualPipe):
    """One rank, which notes what its step would compute: kind, direction, number, is it paired?"""

    def __init__(self, pp, rank):
        torch.nn.Module.__init__(self)
        self.rank, self.num_ranks, self.batch_dim = rank, pp, 0
        self.is_first_rank, self.is_last_rank = rank == 0, rank == pp - 1
        self.is_in_second_half = rank >= pp // 2
        self.is_middle_rank = rank in {pp // 2 - 1, pp // 2}
        self.ops, self.counts, self.delayed = [], {}, []
        self.loss_chunks = [torch.zeros(())]

    def _note(self, kind, phase, *, paired=False):
        way = phase ^ self.is_in_second_half
        walked = "F" if kind == "F" else "B"
        number = self.counts.get((walked, way), 0)
        self.counts[walked, way] = number + 1
        self.ops.append((kind, way, number, paired))
        if kind == "I":
            self.delayed.append((way, number))

    def _forward_compute_chunk(self, phase):
        self._note("F", phase)

    def _backward_compute_chunk(self, phase, enable_zb=False):  # noqa: FBT002 (theirs)
        self._note("I" if enable_zb else "B", phase)

    def _forward_backward_compute_chunk(self, phase0, phase1):
        self._note("F", phase0, paired=True)
        self._note("B", phase1)

    def _weight_chunk(self):
        self.ops.append(("W", *self.delayed.pop(0), False))

    def _nothing(self, *phase):
        """Messages and buffers."""

    _reset_states = _recv_forward = _recv_backward = _nothing
    _send_forward = _send_backward = _commit_and_wait_comm = _nothing


def _theirs(pp, rank, m):
    one = Recorded(pp, rank)
    one.step(num_chunks=m, criterion=len)
    return one.ops


def _ours(pp, m):
    program = program_for("dualpipe", Shape(pp, 1, m))
    for rank in range(pp):
        way = program.stage[rank] // pp
        columns = (
            [NAMES.get(Op(kind)) for kind in program.kind[rank]],
            way.tolist(),
            (program.microbatch[rank] - m // 2 * way).tolist(),
            program.joint[rank].tolist(),
        )
        yield [op for op in zip(*columns, strict=True) if op[0]]


@pytest.mark.parametrize("pp", [2, 4, 6, 8, 16])
def test_every_rank_runs_in_the_order_of_the_authors(pp, monkeypatch):
    monkeypatch.setattr(dualpipe.comm, "TENSOR_SHAPES", [()])
    monkeypatch.setattr(dualpipe.comm, "TENSOR_DTYPE", torch.float32)
    for m in (2 * pp, 2 * pp + 2, 5 * pp):
        assert list(_ours(pp, m)) == [_theirs(pp, rank, m) for rank in range(pp)], m
