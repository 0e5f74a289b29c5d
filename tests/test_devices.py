"""Which device is taken, and what is said where it cannot be."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import devices
from devices import choose_device, enough_memory, reproducible, require_backend
from errors import BackendUnavailable, UserError

ROOT = Path(devices.__file__).parent


@pytest.fixture
def missing(monkeypatch):
    """Sets what keeps kernels from running here: None is nothing."""

    def set_reason(reason: str | None, gpu: bool = True) -> None:
        monkeypatch.setattr(devices, "why_unavailable", lambda: reason)
        monkeypatch.setattr(torch, "empty", lambda *size, device: None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)

    return set_reason


def test_auto_takes_the_gpu_only_where_kernels_run_and_says_why_not(missing, caplog):
    caplog.set_level(logging.INFO)
    missing(None)
    assert choose_device("auto").type == choose_device("cuda").type == "cuda"
    assert choose_device("cpu").type == "cpu"
    caplog.clear()
    missing("no compiler")
    assert choose_device("auto").type == "cpu"
    assert caplog.messages == ["the GPU is not used: no compiler", "device: cpu"]
    caplog.clear()
    missing("no GPU", gpu=False)
    assert choose_device("auto").type == "cpu"
    assert caplog.messages == ["device: cpu"]


def test_what_is_missing_is_named(missing):
    missing("the driver is too old")
    with pytest.raises(BackendUnavailable, match="^--device cuda: the driver is too old$"):
        choose_device("cuda")
    for backend in ("cuda", "cuda-coeff", "cuda-fused"):
        with pytest.raises(BackendUnavailable, match=f"^mesh.backend={backend}: the driver is too old$"):
            require_backend(backend)
    for backend in ("auto", "cpu", "numba"):
        require_backend(backend)


def test_a_gpu_that_does_not_start_is_named(missing, monkeypatch):
    missing(None)

    def fail(*size, device):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate ...")

    monkeypatch.setattr(torch, "empty", fail)
    with pytest.raises(BackendUnavailable, match="^--device cuda: the GPU does not start: CUDA out of memory.$"):
        choose_device("cuda")
    assert choose_device("auto").type == "cpu"


def test_lack_of_memory_is_one_line():
    with pytest.raises(UserError, match="^the mesh needs more memory than cuda:1 has; try less$"):
        with enough_memory("the mesh", torch.device("cuda", 1), "try less"):
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate ...")


def test_reproducible_leaves_no_trace(monkeypatch, caplog):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    torch.backends.cudnn.benchmark = True
    try:
        with pytest.raises(KeyError), reproducible(True, torch.device("cuda")):
            assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
            raise KeyError
        assert not torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.benchmark = False
    assert "CUBLAS_WORKSPACE_CONFIG=:4096:8" in caplog.text
    for wanted, device in ((False, "cuda"), (True, "cpu")):
        with reproducible(wanted, torch.device(device)):
            assert not torch.are_deterministic_algorithms_enabled()


def test_the_environment_makes_cublas_reproducible_unless_the_user_chose():
    code = "import os, runtime_env; runtime_env.prepare_environment(); print(os.environ['CUBLAS_WORKSPACE_CONFIG'])"
    for given, expected in ((None, devices.CUBLAS_WORKSPACE), (":16:8", ":16:8")):
        variables = {k: v for k, v in os.environ.items() if k != "CUBLAS_WORKSPACE_CONFIG"}
        variables |= {} if given is None else {"CUBLAS_WORKSPACE_CONFIG": given}
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=variables, capture_output=True, text=True)
        assert done.stdout.strip() == expected, done.stderr
