"""The process's environment: what has to be set before torch and numba are imported, and where caches lie.

Imports nothing heavy, so that main.py, scripts and tests can call it first.
"""

import ctypes
import gc
import importlib.util
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from errors import UserError

logger = logging.getLogger(__name__)

CUBLAS_WORKSPACE = ":4096:8"  # with it cuBLAS gives the same bits from run to run; read when torch first uses it
_APP = "turbodreamer"
_LONGEST_START_S = 3600.0  # a process that says it is older did not start for this run, or its clock is wrong


def cache_directory(cache_dir: str | Path | None = None) -> Path:
    """Folder of all caches (JIT code, later kernels and weights), made if need be.

    The first of these that can be written: `cache_dir`, $TURBODREAMER_CACHE_DIR, $XDG_CACHE_HOME/turbodreamer,
    ~/.cache/turbodreamer, and a folder of this user in the temporary directory. Never beside the source. A place that
    was asked for and cannot be written is named in a warning.

    Raises:
        UserError: none of them can be written.
    """
    home_cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    asked_for = [cache_dir or None, os.environ.get("TURBODREAMER_CACHE_DIR") or None]
    candidates = [*asked_for, os.path.join(home_cache, _APP)]
    for candidate in candidates:
        if candidate is None:
            continue
        expanded = os.path.expanduser(candidate)
        path = Path(expanded).absolute()
        # A user without a home (containers) keeps the `~`, which would become a folder of that name.
        if not expanded.startswith("~") and _writable(path):
            return path
        if candidate in asked_for:
            logger.warning("cache folder %s cannot be written: looking for another one", path)
    try:
        path = Path(tempfile.gettempdir()).absolute() / f"{_APP}-{user}"
        return path if _writable(path) else Path(tempfile.mkdtemp(prefix=f"{_APP}-"))
    except OSError as error:
        raise UserError(f"cache_dir: no folder for caches can be written; set cache_dir= to one ({error})") from error


def prepare_environment(cache_dir: str | Path | None = None) -> Path:
    """Set the variables that torch and numba read when they are imported; return the cache folder.

    Two OpenMP pools (torch's and numba's) that spin while they wait for work slow each other 4 to 10 times on a
    busy machine, so waiting threads sleep. What the user has set already stays as it is, but for a NUMBA_CACHE_DIR
    that cannot be written: numba would end the program.

    Raises:
        UserError: there is no folder that can be written.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
    caches = cache_directory(cache_dir)
    for variable, folder in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ.setdefault(variable, str(caches / folder))  # of prior.compile, minutes of work
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if cache_dir is not None or not chosen:
        os.environ["NUMBA_CACHE_DIR"] = str(caches / "numba")
    elif not _writable(Path(chosen)):
        logger.warning("NUMBA_CACHE_DIR=%s cannot be written: using %s", chosen, caches / "numba")
        os.environ["NUMBA_CACHE_DIR"] = str(caches / "numba")
    return caches


@contextmanager
def without_collection() -> Iterator[None]:
    """Within it Python does not look for cyclic garbage: among what imports make that takes a seventh of their time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def start_driver() -> threading.Thread | None:
    """Let CUDA's driver make the first GPU's context in the background: a second or more that torch then finds done.

    None where torch has no CUDA or there is no driver; what is wrong with a GPU says torch later.
    """
    torch = importlib.util.find_spec("torch")  # not imported
    if torch is None or not (Path(torch.origin).parent / "lib" / "libtorch_cuda.so").is_file():
        return None

    def work() -> None:
        try:
            driver = ctypes.CDLL("libcuda.so.1")
            context = ctypes.c_void_p()
            # The primary context, which the CUDA runtime uses too; kept until the process ends, as torch does.
            if driver.cuInit(0) == 0:
                driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)  # device 0 has the handle 0
        except (OSError, AttributeError) as error:
            logger.debug("CUDA's driver does not start: %s", error)

    thread = threading.Thread(target=work, name="driver", daemon=True)
    thread.start()
    return thread


def usable_cpus() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_started_s() -> float:
    """When this process began, on the clock of time.perf_counter(); now, where the system does not tell."""
    now_s = time.perf_counter()
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # the name in () may hold anything
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since the machine started: field 22, `starttime`
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    except (OSError, ValueError, IndexError, AttributeError):  # no Linux
        return now_s
    return now_s - age_s if 0 <= age_s < _LONGEST_START_S else now_s


def _writable(path: Path) -> bool:
    """Whether files can be made in `path`: tried, since root passes permission checks on read-only mounts."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False
