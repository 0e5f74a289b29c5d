"""The benchmark of first calls: its arguments, what its processes load, and its table, without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

import cuda_ext

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import bench_compile

SCRIPT = Path(bench_compile.__file__)


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--repeats", "0"], "error: --repeats 0: expected 1 or more"),
        (["--ops", "render", "smooth"], "error: --ops smooth: expected some of extract_fields, "),
    ],
)
def test_wrong_arguments_are_one_line(monkeypatch, capsys, arguments, complaint):
    monkeypatch.setattr(sys, "argv", ["bench_compile.py", *arguments])
    assert bench_compile.main() == 2
    error = capsys.readouterr().err
    assert error.startswith(complaint) and error.count("\n") == 1


def test_no_gpu_is_one_line():
    command = [sys.executable, str(SCRIPT)]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**bench_compile.os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )
    assert ended.returncode == 2 and ended.stderr.startswith("error: nothing to time: torch ")
    assert ended.stderr.count("\n") == 1


def test_every_file_of_kernels_is_made(monkeypatch):
    made = {}
    monkeypatch.setattr(cuda_ext, "load_module", lambda name, device, **macros: made.update({name: macros}))
    for load in bench_compile.file_loads(None).values():
        load()
    assert set(made) == set(cuda_ext.kernel_names())
    pytest.importorskip("cuda.core", reason="cuda-core and cuda-bindings are in requirements-dev.txt")
    for name, macros in made.items():  # a macro that is lacking would be an error of the compiler on a GPU
        cuda_ext.compile_kernels(name, 90, macros)


def test_what_is_late_is_marked(capsys):
    bench_compile.print_table({"a": {"compiled": [1.0, 2.0, 4.0], "cached": [0.1, 0.4, 0.5]}})
    row = capsys.readouterr().out.splitlines()[-1]
    assert "2.000 [1.000 4.000]  " in row and row.endswith("0.400 [0.100 0.500] !")
