import os
import subprocess
import sys
from pathlib import Path

from runtime_env import cache_directory, prepare_environment

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
    monkeypatch.setenv("NUMBA_CACHE_DIR", "mine")
    prepare_environment()
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]) == ("ACTIVE", "0")
    assert os.environ["NUMBA_CACHE_DIR"] == "mine"
    prepare_environment(tmp_path)
    assert os.environ["NUMBA_CACHE_DIR"] == str(tmp_path / "numba")


def test_the_command_line_sets_the_environment_before_torch_is_there():
    code = "import main, sys; assert 'torch' not in sys.modules and 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
