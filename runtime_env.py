"""The process's environment: what has to be set before torch and numba are imported, and where caches lie.

Imports nothing heavy, so that main.py, scripts and tests can call it first.
"""

import os
import tempfile
from pathlib import Path

_APP = "turbodreamer"


def cache_directory(cache_dir: str | Path | None = None) -> Path:
    """Folder of all caches (JIT code, later kernels and weights), made if need be.

    The first of these that can be written: `cache_dir`, $TURBODREAMER_CACHE_DIR, $XDG_CACHE_HOME/turbodreamer,
    ~/.cache/turbodreamer, and a folder of this user in the temporary directory. Never beside the source.
    """
    home_cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    candidates = [
        cache_dir or None,
        os.environ.get("TURBODREAMER_CACHE_DIR") or None,
        os.path.join(home_cache, _APP),
        os.path.join(tempfile.gettempdir(), f"{_APP}-{user}"),
    ]
    for candidate in candidates:
        if candidate is None:
            continue
        path = Path(candidate).expanduser().absolute()
        if _writable(path):
            return path
    return Path(tempfile.mkdtemp(prefix=f"{_APP}-"))


def prepare_environment(cache_dir: str | Path | None = None) -> Path:
    """Set the variables that torch and numba read when they are imported; return the cache folder.

    Two OpenMP pools (torch's and numba's) that spin while they wait for work slow each other 4 to 10 times on a
    busy machine, so waiting threads sleep. What the user has set already stays as it is.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    caches = cache_directory(cache_dir)
    if cache_dir is not None or "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = str(caches / "numba")
    return caches


def _writable(path: Path) -> bool:
    """Whether files can be made in `path`: tried, since root passes permission checks on read-only mounts."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False
