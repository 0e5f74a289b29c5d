"""Kernels on several threads.

Plain threads around numba functions that release the lock, rather than numba's own parallel loops: those compile every
kernel three times over, and bring a second pool of OpenMP threads that gets in the way of torch's.
"""

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_CHUNKS_PER_THREAD = 8  # so that a thread with heavy jobs does not keep the others waiting


def run_jobs(kernel: Callable, count: int, *arguments) -> None:
    """Call kernel(first, last, *arguments) for ranges that make up 0 to count, on as many threads as torch uses.

    The kernel has to release the interpreter's lock, and its jobs must not depend on each other.
    """
    threads = min(torch.get_num_threads(), count)
    size = max(1, count // max(1, threads * _CHUNKS_PER_THREAD))
    firsts = itertools.count(0, size)  # next() is atomic under the interpreter's lock

    def work() -> None:
        while (first := next(firsts)) < count:
            kernel(first, min(first + size, count), *arguments)

    others = [_pool(threads - 1).submit(work) for _ in range(threads - 1)]
    work()
    for other in others:
        if not other.cancel():  # one that has not begun finds nothing left to do
            other.result()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="rasterize")
