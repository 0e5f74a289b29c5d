"""The package cuda-core, imported by one thread at a time."""

import threading
from types import ModuleType

_importing = threading.Lock()


def import_cuda_core() -> ModuleType:
    """`cuda.core`; raises ImportError where it, or cuda-bindings, is not installed.

    Kernels are loaded side by side in threads. The package's own modules import each other while they are being set up,
    and a second thread that comes then finds it half made.
    """
    with _importing:
        import cuda.core

        return cuda.core
