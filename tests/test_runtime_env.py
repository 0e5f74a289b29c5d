import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from errors import UserError
from runtime_env import cache_directory, prepare_environment, start_driver, without_collection

ROOT = Path(__file__).parent.parent


def test_the_option_wins_over_the_variable_and_the_variable_over_xdg(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("TURBODREAMER_CACHE_DIR", raising=False)
    assert cache_directory() == tmp_path / "xdg" / "turbodreamer"
    monkeypatch.setenv("TURBODREAMER_CACHE_DIR", str(tmp_path / "variable"))
    assert cache_directory() == tmp_path / "variable"
    assert cache_directory(tmp_path / "option") == tmp_path / "option"


def test_a_place_that_cannot_be_written_falls_back_to_the_temporary_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # a file in the way: refused even for root
    monkeypatch.delenv("TURBODREAMER_CACHE_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = cache_directory()
    assert found.parent == tmp_path and found.is_dir()


def test_waiting_threads_sleep_unless_the_user_said_otherwise(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "mine"))
    prepare_environment()
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]) == ("ACTIVE", "0")
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "mine")
    prepare_environment(tmp_path)
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "numba")


def test_what_was_asked_for_and_cannot_be_written_is_replaced_with_a_warning(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("TURBODREAMER_CACHE_DIR", raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "numba"))
    assert prepare_environment() == tmp_path / "xdg" / "turbodreamer"
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "xdg" / "turbodreamer" / "numba")
    prepare_environment(tmp_path / "file" / "cache")
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "xdg" / "turbodreamer" / "numba")
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 2 and "NUMBA_CACHE_DIR" in warned[0] and "file/cache cannot be written" in warned[1]


def test_a_user_without_a_home_gets_a_folder_in_the_temporary_one(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("TURBODREAMER_CACHE_DIR", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # what it does where it finds none
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert cache_directory().parent == tmp_path
    assert not (tmp_path / "~").exists()


def test_without_any_folder_there_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("TURBODREAMER_CACHE_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cache_dir: no folder"):
        cache_directory()


def test_the_age_of_a_process_counts_what_came_before_the_first_line():
    code = "import time; from runtime_env import process_started_s; print(time.perf_counter() - process_started_s())"
    started_s = time.perf_counter()
    age = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    # The system counts in hundredths of a second.
    assert (0.005 if sys.platform == "linux" else 0) <= float(age) <= time.perf_counter() - started_s + 0.02


def test_the_command_line_sets_the_environment_before_torch_is_there():
    code = "import main, sys; assert 'torch' not in sys.modules and 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_driver_is_started_only_where_torch_has_cuda(tmp_path, monkeypatch):
    class Spec:
        origin = str(tmp_path / "__init__.py")

    called = []

    class Driver:
        def __init__(self, name):
            called.append(name)

        def cuInit(self, flags):
            called.append(flags)
            return 100  # no device: nothing more is asked for

    monkeypatch.setattr("runtime_env.importlib.util.find_spec", lambda name: Spec)
    monkeypatch.setattr("runtime_env.ctypes.CDLL", Driver)
    assert start_driver() is None
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cuda.so").touch()
    start_driver().join()
    assert called == ["libcuda.so.1", 0]


def test_no_driver_is_no_error(tmp_path, monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cuda.so").touch()
    monkeypatch.setattr("runtime_env.importlib.util.find_spec", lambda name: type("", (), {"origin": tmp_path / "a"}))
    monkeypatch.setattr("runtime_env.ctypes.CDLL", missing)
    start_driver().join()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_afterwards_as_it_was(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ZeroDivisionError), without_collection():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
