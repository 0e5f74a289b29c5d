"""What all tests share: the environment, devices, builders."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runtime_env import prepare_environment  # noqa: E402  (must run before torch and numba are imported)

prepare_environment()
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest  # noqa: E402
import torch  # noqa: E402


def pytest_addoption(parser):
    parser.addoption(
        "--require-gpu", action="store_true", help="fail, instead of skipping, where a GPU test finds no GPU"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU; skipped without one unless --require-gpu is given")


@pytest.fixture
def cuda(request) -> torch.device:
    """The GPU; without one the test is skipped, or fails under --require-gpu."""
    if not torch.cuda.is_available():
        reason = "no CUDA device: torch.cuda.is_available() is False"
        if request.config.getoption("--require-gpu"):
            pytest.fail(reason)
        pytest.skip(reason)
    return torch.device("cuda")


@pytest.fixture
def other_gpu(cuda) -> Iterator[torch.device]:
    """A GPU that is not the current one; where there is none the test is skipped. It stays not the current one."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    yield torch.device("cuda", 1)
    assert torch.cuda.current_device() == 0


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
