"""The run-time compiler of kernels, its cache and its messages. No GPU needed but for the tests that say so."""

import logging
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import cuda_ext
from cuda_ext import availability, launch
from cuda_ext import compile as compiler
from errors import BackendUnavailable, UserError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import bench_compile  # noqa: E402


def constants(name: str) -> dict[str, float]:
    """The macros of a file of kernels, with the app's values, harmonics of the highest degree."""
    degree = {"SH_COUNT": 16} if name.startswith("rasterize_") else {}
    return {**degree, **bench_compile.macros(name)}


SOURCE = """
extern "C" __global__ void fill(int count, long long offset, float factor, double precise, const float* source,
                                const float* missing, double* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && missing == nullptr) out[i] = SCALE * (double)factor * source[i] + (double)offset + precise;
}
"""


@pytest.fixture
def nvrtc():
    """Skipped where requirements-dev.txt is not installed."""
    pytest.importorskip("cuda.core", reason="cuda-core and cuda-bindings are in requirements-dev.txt")
    try:
        return compiler.compiler_version()
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def own_kernels(tmp_path, monkeypatch):
    """A folder of kernels and a cache of the test's own: probe.cu with `SOURCE`."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "probe.cu").write_text(SOURCE)
    monkeypatch.setattr(compiler, "KERNELS", folder)
    monkeypatch.setenv("TURBODREAMER_CACHE_DIR", str(tmp_path / "cache"))
    compiler._headers.cache_clear()
    launch._load_module.cache_clear()
    yield folder
    compiler._headers.cache_clear()
    launch._load_module.cache_clear()


@pytest.fixture
def compilations(monkeypatch):
    """A list that grows by a name with every real compilation."""
    names = []
    compile_now = compiler._compile

    def counted(name, *arguments):
        names.append(name)
        return compile_now(name, *arguments)

    monkeypatch.setattr(compiler, "_compile", counted)
    return names


def cached_files(tmp_path) -> list[Path]:
    return sorted((tmp_path / "cache" / "cuda").iterdir())


@pytest.mark.parametrize("name", cuda_ext.kernel_names())
def test_every_kernel_compiles_for_every_architecture(nvrtc, name):
    """For want of a macro: add it to `constants`. From the cache where source, macros and compiler are the same."""
    macros = constants(name)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        codes = list(pool.map(lambda number: cuda_ext.compile_kernels(name, number, macros), cuda_ext.ARCHITECTURES))
    assert all(code.startswith(b"\x7fELF") for code in codes) and len(set(codes)) == len(cuda_ext.ARCHITECTURES)


@pytest.mark.parametrize("name", cuda_ext.kernel_names())
def test_kernels_need_no_system_headers(name):
    """NVRTC finds none on a user's machine; here they might be there by chance."""
    text = (compiler.KERNELS / f"{name}.cu").read_text(encoding="utf-8")
    includes = [line.split('"')[1] for line in text.splitlines() if line.startswith("#include")]
    assert all((compiler.KERNELS / header).is_file() for header in includes)
    assert "#include <" not in text and 'extern "C" __global__' in text


@pytest.mark.parametrize("path", sorted(compiler.KERNELS.iterdir()), ids=lambda path: path.name)
def test_kernels_keep_the_line_length_of_the_rest(path):
    """ruff sees to it in Python."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120] == []


def test_the_cache_is_used(nvrtc, own_kernels, compilations, tmp_path):
    first = cuda_ext.compile_kernels("probe", 90, {"SCALE": 2})
    assert compilations == ["probe"] and len(cached_files(tmp_path)) == 1
    assert cuda_ext.compile_kernels("probe", 90, {"SCALE": 2}) == first
    assert compilations == ["probe"]
    # A file cut short, as by a crash of the machine, is made again.
    cached_files(tmp_path)[0].write_bytes(b"")
    assert cuda_ext.compile_kernels("probe", 90, {"SCALE": 2}) == first
    assert compilations == ["probe"] * 2 and cached_files(tmp_path)[0].read_bytes() == first


def test_whatever_changes_the_code_changes_the_key(nvrtc, own_kernels, compilations, tmp_path, monkeypatch):
    cuda_ext.compile_kernels("probe", 90, {"SCALE": 2})
    cuda_ext.compile_kernels("probe", 90, {"SCALE": 3})
    cuda_ext.compile_kernels("probe", 90, {"SCALE": 2.0})  # equal to 2, another macro
    cuda_ext.compile_kernels("probe", 80, {"SCALE": 2})
    (own_kernels / "probe.cu").write_text(SOURCE + "// longer\n")
    cuda_ext.compile_kernels("probe", 90, {"SCALE": 2})
    (own_kernels / "shared.cuh").write_text("#pragma once\n")
    compiler._headers.cache_clear()
    cuda_ext.compile_kernels("probe", 90, {"SCALE": 2})
    monkeypatch.setattr(compiler, "compiler_identity", lambda: "99.0")
    cuda_ext.compile_kernels("probe", 90, {"SCALE": 2})
    assert len(compilations) == len(cached_files(tmp_path)) == 7


def test_what_is_cached_needs_no_compiler(nvrtc, own_kernels, monkeypatch):
    """Not even a look at it: loading NVRTC takes longer than reading a cubin."""
    if compiler._packaged_compiler() is None:
        pytest.skip("NVRTC is of no package here: its version is known only once it is loaded")
    code = cuda_ext.compile_kernels("probe", 90, {"SCALE": 2})

    def loaded():
        pytest.fail("NVRTC was loaded")

    monkeypatch.setattr(compiler, "compiler_version", loaded)
    monkeypatch.setattr(compiler, "supported_architectures", loaded)
    assert compiler.nearest_architecture(90) == 90
    assert cuda_ext.compile_kernels("probe", 90, {"SCALE": 2}) == code


def test_without_a_package_of_the_compiler_itself_is_asked(nvrtc, monkeypatch):
    versions = {"cuda-bindings": "13.5.0", "nvidia-cuda-nvrtc": "13.0.88"}

    def installed(name):
        try:
            return versions[name]
        except KeyError:
            raise compiler.importlib.metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(compiler.importlib.metadata, "version", installed)
    unsure = compiler._packaged_compiler.__wrapped__
    assert unsure() == "13.0.88"
    versions["nvidia-cuda-nvrtc"] = "14.0.1"  # not the one that these bindings load
    assert unsure() is None
    del versions["nvidia-cuda-nvrtc"]
    assert unsure() is None
    versions |= {"cuda-bindings": "12.9.1", "nvidia-cuda-nvrtc-cu12": "12.9.86"}
    assert unsure() == "12.9.86"
    monkeypatch.setattr(compiler, "_packaged_compiler", lambda: None)
    assert compiler.compiler_identity() == compiler.compiler_version()


@pytest.mark.parametrize("obstacle", ["a file where the folder goes", "no folder at all"])
def test_a_cache_that_cannot_be_written_costs_a_warning(
    nvrtc, own_kernels, compilations, monkeypatch, caplog, obstacle
):
    if obstacle == "no folder at all":

        def nowhere():
            raise UserError("cache_dir: no folder for caches can be written")

        monkeypatch.setattr(compiler, "cache_directory", nowhere)
    else:
        folder = compiler.cache_directory()
        (folder / "cuda").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        code = cuda_ext.compile_kernels("probe", 90, {"SCALE": 2})
    assert code.startswith(b"\x7fELF") and "the kernels probe are not kept for later runs" in caplog.text
    assert cuda_ext.compile_kernels("probe", 90, {"SCALE": 2}) == code and len(compilations) == 2


def test_macros_are_single_precision_literals():
    assert [compiler.macro_text(value) for value in (3, True, 2**40, -1)] == ["3", "1", "1099511627776", "(-1)"]
    floats = (1e-5, 0.5, 1.0, -2.5, 1e20, np.float64(0.1))
    assert [compiler.macro_text(v) for v in floats] == ["1e-05f", "0.5f", "1.0f", "(-2.5f)", "1e+20f", "0.1f"]
    with pytest.raises(AssertionError, match="inf has no literal"):
        compiler.macro_text(float("inf"))


def test_an_architecture_that_the_compiler_does_not_know(nvrtc, own_kernels):
    with pytest.raises(BackendUnavailable, match=r"^NVRTC [\d.]+ compiles for .*90.*, not for sm_30$"):
        cuda_ext.compile_kernels("probe", 30, {"SCALE": 2})


def test_the_nearest_architecture(nvrtc, monkeypatch):
    monkeypatch.setattr(compiler, "_packaged_compiler", lambda: None)
    monkeypatch.setattr(compiler, "supported_architectures", lambda: (75, 80, 86, 89, 90, 100, 120))
    assert [compiler.nearest_architecture(c) for c in (75, 80, 87, 89, 90, 103, 121)] == [75, 80, 86, 89, 90, 100, 120]
    with pytest.raises(BackendUnavailable, match=r"compute capability 6\.1; the kernels need 7\.5 or later"):
        compiler.nearest_architecture(61)
    with pytest.raises(BackendUnavailable, match=r"NVRTC .* does not know compute capability 13: pip install"):
        compiler.nearest_architecture(130)


def test_this_compiler_knows_what_we_promise(nvrtc):
    assert set(cuda_ext.ARCHITECTURES) <= set(compiler.supported_architectures())


def run_python(code: str, tmp_path: Path) -> subprocess.CompletedProcess:
    """In a process of its own: what is imported once cannot be taken away again."""
    environment = {**os.environ, "TURBODREAMER_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == HIDDEN or name.startswith(HIDDEN + "."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
"""


@pytest.mark.parametrize("hidden", ["cuda", "cuda.bindings"])
def test_without_the_packages_all_imports_work_and_one_line_names_them(tmp_path, hidden):
    code = f"""
HIDDEN = {hidden!r}{HIDE}
import main, pipeline, mesh_extract, rasterize, cuda_ext, cuda_ext.report
from errors import BackendUnavailable
try:
    cuda_ext.compile_kernels("probe", 90)
except (BackendUnavailable, FileNotFoundError) as error:
    print(type(error).__name__)
try:
    cuda_ext.compile.compiler_version()
except BackendUnavailable as error:
    print(error)
lines, missing = cuda_ext.report.describe(__import__("pathlib").Path("caches"))
print("reported", missing is not None, any("not found: CUDA kernels need cuda-core" in line for line in lines))
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and lines[2] == "reported True True"
    assert lines[1].startswith("CUDA kernels need cuda-core and cuda-bindings (")
    assert lines[1].endswith("): pip install cuda-core cuda-bindings")


def test_nvrtc_missing_is_one_line(monkeypatch):
    bindings = pytest.importorskip("cuda.bindings", reason="cuda-bindings is in requirements-dev.txt")
    from cuda.bindings import nvrtc as real

    class Missing:
        @staticmethod
        def nvrtcVersion():
            raise RuntimeError("Failure finding libnvrtc.so\nsearched in many places\n")

    monkeypatch.setattr(bindings, "nvrtc", Missing)
    compiler.compiler_version.cache_clear()
    try:
        with pytest.raises(BackendUnavailable) as caught:
            compiler.compiler_version()
    finally:
        monkeypatch.setattr(bindings, "nvrtc", real)
        compiler.compiler_version.cache_clear()
    expected = (
        "CUDA kernels need the compiler library NVRTC (Failure finding libnvrtc.so): pip install nvidia-cuda-nvrtc"
    )
    assert str(caught.value) == expected


def test_module_report_says_what_is_missing_and_exits_with_1(tmp_path):
    environment = {**os.environ, "TURBODREAMER_CACHE_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", "cuda_ext"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["torch", "driver", "device"]
    assert any(line.startswith("kernels") and "sm_75" in line for line in lines)
    assert any(line.startswith("cache") and str(tmp_path) in line for line in lines)
    assert lines[-1].startswith("CUDA kernels cannot run here: torch ")


def test_no_gpu_is_an_error_that_says_who_asked(monkeypatch):
    with pytest.raises(BackendUnavailable, match="^CUDA kernels probe: expected tensors on a CUDA device, got cpu$"):
        cuda_ext.load_module("probe", torch.device("cpu"))
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(BackendUnavailable, match="^backend=cuda: torch .* is a CPU build: install the CUDA build"):
        cuda_ext.require_device(torch.device("cuda"), "backend=cuda")


@pytest.mark.parametrize(
    "said",
    [
        "Found no NVIDIA driver on your system.",
        "The NVIDIA driver on your system is too old (found version 12020).",
        "CUDA driver initialization failed, you might not have a CUDA gpu.",
    ],
)
def test_a_driver_that_is_missing_or_too_old_is_one_line_in_torch_s_words(monkeypatch, said):
    def init():
        raise RuntimeError(f"{said}\nPlease check that you have an NVIDIA GPU and installed a driver")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    assert availability.why_unavailable() == f"torch {torch.__version__} finds no CUDA device: {said}"
    with pytest.raises(BackendUnavailable, match=rf"^backend=cuda: [^\n]*{re.escape(said)}$"):
        cuda_ext.require_device(torch.device("cuda"), "backend=cuda")


def test_check_tensor_names_argument_expected_and_found():
    cpu, field = torch.device("cpu"), torch.zeros(2, 3)
    cuda_ext.check_tensor("means", field, (None, 3), torch.float32, cpu)
    with pytest.raises(UserError, match=r"^means must be \[\*, 4\], got \[2, 3\]$"):
        cuda_ext.check_tensor("means", field, (None, 4), torch.float32, cpu)
    with pytest.raises(UserError, match=r"^means must be \[2\], got \[2, 3\]$"):
        cuda_ext.check_tensor("means", field, (2,), torch.float32, cpu)
    with pytest.raises(UserError, match="^means must be torch.float32, got torch.float64$"):
        cuda_ext.check_tensor("means", field.double(), (2, 3), torch.float32, cpu)
    with pytest.raises(UserError, match="^means must be on cpu, got meta$"):
        cuda_ext.check_tensor("means", field.to("meta"), (2, 3), torch.float32, cpu)


class CoreDouble:
    """Stands for cuda-core: what was made and launched."""

    def __init__(self) -> None:
        self.made, self.launched = [], []
        self.ObjectCode = self.Stream = self

    def from_cubin(self, machine_code: bytes, name: str):
        return self

    def get_kernel(self, name: str) -> str:
        self.made.append(name)
        return name

    def from_handle(self, handle: int) -> str:
        self.made.append(f"stream {handle}")
        return f"stream {handle}"

    def LaunchConfig(self, grid, block, shmem_size):
        self.made.append((grid, block, shmem_size))
        return grid, block, shmem_size

    def launch(self, *call) -> None:
        self.launched.append(call)


def test_what_a_launch_needs_beside_its_arguments_is_made_once(monkeypatch):
    core, cpu = CoreDouble(), torch.device("cpu")
    monkeypatch.setattr(launch, "import_cuda_core", lambda: core)
    monkeypatch.setattr(launch, "compile_kernels", lambda name, architecture, constants: b"")
    monkeypatch.setattr(launch, "device_architecture", lambda device: 90)
    monkeypatch.setattr(launch, "_bind_context", lambda index: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: cpu.index)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 7, raising=False)
    module, out = launch.KernelModule("probe", cpu, {}), torch.zeros(3)
    for grid in (0, (2, 0), 5, 5, (2, 3)):
        module.launch("fill", grid, 64, 1, 0.1, np.float64(0.1), np.float32(0.2), None, out)
    module.launch("drain", 5, 64, shared_bytes=16)
    config = (5, 64, 0)
    assert core.made == ["fill", config, "stream 7", ((2, 3), 64, 0), "drain", (5, 64, 16)]
    values = (1, np.float32(0.1), np.float64(0.1), np.float32(0.2), 0, out.data_ptr())
    assert core.launched[:2] == [("stream 7", config, "fill", *values)] * 2
    assert [type(value) for value in core.launched[0][3:]] == [int, np.float32, np.float64, np.float32, int, int]
    assert core.launched[2:] == [
        ("stream 7", ((2, 3), 64, 0), "fill", *values), ("stream 7", (5, 64, 16), "drain"),
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="fill: argument 1 is not contiguous"):
        module.launch("fill", 5, 64, 1, torch.zeros(4)[::2])


def launch_probe(module, source: torch.Tensor, out: torch.Tensor, factor: float = 0.1) -> None:
    count = len(out)
    arguments = (count, 2**33, factor, np.float64(0.1), source, None, out)
    module.launch("fill", -(-count // 64), 64, *arguments)


@pytest.mark.gpu
def test_arguments_arrive_on_the_current_stream(cuda, own_kernels):
    module = cuda_ext.load_module("probe", cuda, SCALE=3)
    assert cuda_ext.load_module("probe", torch.device("cuda", torch.cuda.current_device()), SCALE=3) is module
    assert cuda_ext.load_module("probe", cuda, SCALE=3.0) is not module
    source = torch.arange(1000, dtype=torch.float32, device=cuda)
    expected = 3 * float(np.float32(0.1)) * source.double() + 2**33 + 0.1
    out = torch.zeros(1000, dtype=torch.float64, device=cuda)
    launch_probe(module, source, out)
    close = {"rtol": 0, "atol": 1e-5}  # a rounding of 2^33 in double is 2e-6, and the kernel may use FMA
    assert torch.allclose(out, expected, **close)
    launch_probe(module, source[:0], out[:0])  # no blocks: nothing to do
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.zeros_like(out)
        torch.cuda._sleep(10_000_000)
        late_source = source + 1  # the kernel must wait for it
        launch_probe(module, late_source, late)
    stream.synchronize()
    assert torch.allclose(late, expected + 3 * float(np.float32(0.1)), **close)
    with pytest.raises(AssertionError, match="fill: argument 4 is not contiguous"):
        launch_probe(module, source[::2], out[:500])
    with pytest.raises(AssertionError, match="fill: argument 4 is on cpu"):
        launch_probe(module, source.cpu(), out)


@pytest.mark.gpu
def test_launches_are_captured_into_a_graph(cuda, own_kernels):
    module = cuda_ext.load_module("probe", cuda, SCALE=3)
    source = torch.zeros(1000, device=cuda)
    out = torch.zeros(1000, dtype=torch.float64, device=cuda)
    launch_probe(module, source, out)  # loads the kernel, which a capture must not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch_probe(module, source, out)
    source.fill_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(out, torch.full_like(out, 6 * float(np.float32(0.1)) + 2**33 + 0.1), rtol=0, atol=1e-5)
