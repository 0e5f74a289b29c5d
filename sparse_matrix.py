"""Sparse matrices times a few columns: the same bits from the same input, on a CPU and on a GPU.

Torch's own product adds up in no fixed order on a GPU, and on a CPU takes ten times as long as scipy's.
"""

import torch
from scipy.sparse import coo_matrix
from torch import Tensor


class SparseMatrix:
    """A matrix [P, T] on a device: `matrix @ columns` with columns [T, C] there is [P, C].

    On a CPU scipy's; on a GPU the entries lie row by row, and one thread a row and column adds them up.
    """

    def __init__(self, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        """From entries [N]: row, column, value. Those at one place add up; a place without any is 0."""
        self.shape = shape
        self.device = values.device
        if self.device.type == "cpu":
            self._csr = coo_matrix((values.numpy(), (rows.numpy(), columns.numpy())), shape).tocsr()
        else:
            order = rows.sort(stable=True).indices
            self._columns, self._values = columns[order], values[order, None]
            self._lengths = torch.bincount(rows, minlength=shape[0])

    def __matmul__(self, columns: Tensor) -> Tensor:
        if self.device.type == "cpu":
            return torch.from_numpy(self._csr @ columns.numpy())
        terms = self._values * columns[self._columns]  # [N, C]
        return torch.segment_reduce(terms, "sum", lengths=self._lengths, axis=0, unsafe=True, initial=0.0)
