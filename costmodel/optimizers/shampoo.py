"""Shampoo and SOAP: a preconditioner of the rows and one of the columns of a matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import OptimizerSpec
from trainplan.costmodel.optimizers.base import Matrix, Multiplied, Optimizer, adam_bytes

ROOT_PERIOD = 50
"""Steps between two inverse roots of Shampoo. Source: Shi et al., Distributed Shampoo,
arXiv:2309.06497, section 4 (precondition_frequency)."""
BASIS_PERIOD = 10
"""Steps between two eigenbases of SOAP. Source: Vyas et al., arXiv:2409.11321, section 5."""
LARGEST = 10_000
"""Size from which on SOAP leaves a side alone. Source: Vyas et al., arXiv:2409.11321, its public
code, max_precond_dim."""
EIGEN_FLOP, QR_FLOP = 9, 8 / 3
"""FLOPs over the cube of the size: all eigenvectors of a symmetric matrix, and an orthogonal factor
that is written out. Source: Golub and Van Loan, Matrix Computations, sections 8.3 and 5.2, 2013."""


def _sides(one: Matrix) -> FloatColumn:
    """Elements of one square matrix for each side. Source: as `Shampoo.state_bytes`."""
    return np.asarray(one.rows**2 + one.columns**2)


@dataclass(frozen=True, slots=True)
class Shampoo(Optimizer):
    """Statistics of both sides, their inverse roots, and momentum."""

    def state_bytes(self, one: Matrix, request: OptimizerSpec, width: float) -> FloatColumn:
        """Bytes of the state of one tensor; tables at the ends and vectors are Adam's.

        Source: Gupta et al., arXiv:1802.09568, algorithm 1; roots are kept between two updates.
        """
        if one.role != "hidden":
            return adam_bytes(one, width)
        return np.asarray(width * (one.elements + 2 * _sides(one)) * (one.elements > 0))

    def products(self, one: Matrix, request: OptimizerSpec) -> Sequence[Multiplied]:
        """Statistics G G' and G' G, and the gradient between both roots."""
        if one.role != "hidden":
            return ()
        return _both_sides(one, 2)

    def decomposition_flop(self, one: Matrix, request: OptimizerSpec) -> FloatColumn:
        """Inverse roots by eigenvectors, mean over steps. Source: EIGEN_FLOP and ROOT_PERIOD."""
        cubes = one.rows**3 + one.columns**3
        return np.asarray(EIGEN_FLOP * cubes / ROOT_PERIOD * (one.role == "hidden"))


def _both_sides(one: Matrix, times: float) -> tuple[Multiplied, ...]:
    """A product with a square matrix on either side, so many times."""
    m, n = one.rows, one.columns
    return Multiplied(m, n, m, times), Multiplied(m, n, n, times)


@dataclass(frozen=True, slots=True)
class Soap(Optimizer):
    """Adam in the eigenbasis of Shampoo's statistics."""

    def state_bytes(self, one: Matrix, request: OptimizerSpec, width: float) -> FloatColumn:
        """Bytes of the state of one tensor: Adam's, statistics and basis of both sides.

        Source: Vyas et al., arXiv:2409.11321, section 4 and algorithm 3; LARGEST.
        """
        adam = adam_bytes(one, width)
        if one.role != "hidden":
            return adam
        return np.asarray(adam + 2 * width * _sides(_preconditioned(one)) * (one.elements > 0))

    def products(self, one: Matrix, request: OptimizerSpec) -> Sequence[Multiplied]:
        """Statistics, the gradient into the basis and the update back; at times a power step."""
        if one.role != "hidden":
            return ()
        part = _preconditioned(one)
        m, n = part.rows, part.columns
        power = (Multiplied(m, m, m, 1 / BASIS_PERIOD), Multiplied(n, n, n, 1 / BASIS_PERIOD))
        left = Multiplied(m, one.columns, m, 3)
        return left, Multiplied(one.rows, n, n, 3), *power

    def decomposition_flop(self, one: Matrix, request: OptimizerSpec) -> FloatColumn:
        """One factorization of each basis, mean over steps. Source: QR_FLOP and BASIS_PERIOD."""
        part = _preconditioned(one)
        cubes = part.rows**3 + part.columns**3
        return np.asarray(QR_FLOP * cubes / BASIS_PERIOD * (one.role == "hidden"))


def _preconditioned(one: Matrix) -> Matrix:
    """The sides that are not too long; others have size 0."""
    rows, columns = (np.where(side > LARGEST, 0.0, side) for side in (one.rows, one.columns))
    return Matrix(rows, columns)


SHAMPOO = Shampoo(
    name="shampoo",
    says="momentum, statistics and inverse roots of both sides: m n + 2 (m m + n n)",
    source="Gupta et al., arXiv:1802.09568, algorithm 1; Shi et al., arXiv:2309.06497, section 4",
    moments=None,
    whole_matrices=True,
    work="4 (m m n + m n n) FLOPs; every 50 steps 9 (m m m + n n n) for eigenvectors",
)
SOAP = Soap(
    name="soap",
    says="2 moments, statistics and basis of both sides: 2 m n + 2 (m m + n n), sides to 10,000",
    source="Vyas et al., arXiv:2409.11321, section 4 and algorithm 3",
    moments=None,
    whole_matrices=True,
    work="6 (m m n + m n n) FLOPs; every 10 steps 14/3 (m m m + n n n) for the bases",
)
