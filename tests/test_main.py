"""The command line as users meet it: what is wrong is one line and exit code 2, and nothing is left behind."""

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import ROOT, TINY, TINY_FIT, contents, environment, files_of, write_splats
from PIL import Image

import main
from config import Config, describe_keys

SAMPLE = ROOT / "assets" / "sample.png"


@pytest.fixture(scope="module")
def splats(tmp_path_factory) -> Path:
    return write_splats(tmp_path_factory.mktemp("splats") / "shell.ply")


@pytest.fixture
def place(tmp_path, splats, monkeypatch) -> Path:
    """A working folder with good and bad inputs; the run's files would go to `out` in it."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(splats, "good.ply")
    ply = splats.read_bytes()
    header, end, body = ply.partition(b"end_header\n")
    Path("cut.ply").write_bytes(ply[: len(ply) // 2])
    Path("cut_header.ply").write_bytes(ply[:100])
    Path("none.ply").write_bytes(header.replace(b"vertex 400", b"vertex 0") + end)
    Path("nan.ply").write_bytes(header + end + np.full(len(body) // 4, np.nan, "<f4").tobytes())
    axes = "".join(f"property float {axis}\n" for axis in "xyz")
    Path("cloud.ply").write_text(f"ply\nformat ascii 1.0\nelement vertex 1\n{axes}end_header\n0 0 0\n")
    picture = SAMPLE.read_bytes()
    Path("cut.png").write_bytes(picture[: len(picture) // 3])
    Path("text.png").write_text("this is no picture")
    Path("empty.png").write_bytes(b"")
    Image.new("RGBA", (64, 64)).save("transparent.png")
    Image.new("RGB", (64, 64), (90, 90, 90)).save("flat.png")
    Path("folder").mkdir()
    Path("broken.yaml").write_text("mesh: [\n")
    Path("bytes.yaml").write_bytes(b"\xff\xfe\x00")
    Path("misspelt.yaml").write_text("mesh: {resolutoin: 64}\n")
    weights = {"a": torch.zeros(2)}
    from safetensors.torch import save_file

    save_file(weights, "other.safetensors")
    for name, metadata in {
        "damaged": "{", "bare": '{"format": "tiny-zero123/1"}',
        "foreign": '{"format": "tiny-zero123/1", "config": {"depth_of_sea": 3}}',
        "unfit": '{"format": "tiny-zero123/1", "config": {}}',
    }.items():  # fmt: skip
        save_file(weights, f"{name}.safetensors", {"tiny_zero123": metadata})
    return tmp_path


@pytest.fixture
def call(capsys, monkeypatch):
    """main.main, in this process: (exit code, stdout, stderr)."""
    # What the command line sets for its process must not outlive the test.
    for name in ("NUMBA_CACHE_DIR", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, os.environ[name])

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def mesh_of_splats(splats):
    """What the mesh stage gives for `splats`, computed once."""
    import pipeline
    from config import load_config
    from splat_ply import read_gaussians
    from stages import StageTimes

    return pipeline.mesh_stage(read_gaussians(splats), load_config(None, [*TINY, "mesh.pixel=0"]), None, StageTimes())


@pytest.fixture
def meshed(mesh_of_splats, monkeypatch):
    """Spares tests of what comes after it the mesh stage."""
    monkeypatch.setattr("pipeline.mesh_stage", lambda *arguments: mesh_of_splats)


def assert_one_line(code: int, stdout: str, stderr: str, *complaints: str) -> None:
    assert code == 2
    assert stdout == ""
    assert stderr.startswith("error: ") and stderr.endswith("\n") and stderr.count("\n") == 1, stderr
    for complaint in complaints:
        assert complaint in stderr


@pytest.mark.parametrize(
    "arguments, complaints",
    [
        # the picture
        (["input=nowhere.png"], ["nowhere.png", "found no such file"]),
        (["input=folder"], ["folder", "found a folder"]),
        (["input=text.png"], ["text.png", "expected a picture", "found a text file"]),
        (["input=cut.png"], ["cut.png", "damaged"]),
        (["input=empty.png"], ["empty.png", "found an empty file"]),
        (["input=transparent.png"], ["transparent.png", "expected an object", "fully transparent"]),
        (["input=flat.png"], ["flat.png", "expected an object", "pass a picture with a transparent background"]),
        (["input=good.ply"], ["good.ply", "expected a picture"]),
        (["input=flat.png", "load=good.ply"], ["input=flat.png", "load=good.ply", "expected one of them"]),
        # the Gaussians
        (["load=nowhere.ply"], ["nowhere.ply: no such file"]),
        (["load=folder"], ["folder: a folder"]),
        (["load=cloud.ply"], ["cloud.ply", "f_dc_0", "opacity", "rot_3 are missing", "plain point cloud"]),
        (["load=cut.ply"], ["cut.ply: not a complete .ply"]),
        (["load=cut_header.ply"], ["cut_header.ply: not a complete .ply"]),
        (["load=none.ply"], ["none.ply", "0 vertices"]),
        (["load=nan.ply"], ["nan.ply: none of the 400 splats is finite"]),
        (["load=text.png"], ["text.png: not a complete .ply"]),
        # names
        (["prior.name=no-such"], ["prior.name='no-such' is unknown; choose from ", "embedded"]),
        (["load=good.ply", "--backend", "gpu"], ["mesh.backend='gpu' is unknown; choose from auto, cpu, numba"]),
        (["load=good.ply", "mesh.method=poisson"], ["mesh.method='poisson' is unknown", "marching_cubes"]),
        (["load=good.ply", "--device", "tpu"], ["--device", "'tpu'", "auto", "cuda"]),
        # keys and values
        (["mesh.resolutoin=64"], ["mesh.resolutoin", "resolution"]),
        (["mesh.resolution=high"], ["mesh.resolution", "'high'"]),
        (["mesh.resolution=1"], ["mesh.resolution=1 is out of range"]),
        (["elevation=90"], ["elevation=90.0 is out of range", "from -89 to 89"]),
        (["seed=1.5"], ["seed"]),
        (["cat.png"], ["'cat.png' is not an override; expected key=value"]),
        (["load=good.ply", "mesh.iso=0"], ["mesh.iso=0 is out of range"]),
        # flags
        (["--nonsense"], ["--nonsense", "--help"]),
        (["--config"], ["--config", "expected one argument", "--help"]),
        (["--config", "nowhere.yaml"], ["--config nowhere.yaml: no such file"]),
        (["--config", "folder"], ["--config folder: a folder"]),
        (["--config", "broken.yaml"], ["--config broken.yaml: not valid YAML"]),
        (["--config", "bytes.yaml"], ["--config bytes.yaml: not valid YAML"]),
        (["--config", "misspelt.yaml"], ["mesh.resolutoin"]),
        # the prior's weights
        (["prior.weights=nowhere"], ["prior.weights=nowhere: no such file"]),
        (["prior.weights=folder"], ["prior.weights=folder"]),
        (["prior.weights=text.png"], ["text.png: expected a safetensors file"]),
        (["prior.weights=other.safetensors"], ["other.safetensors: expected format tiny-zero123/1, found none"]),
        (["prior.weights=damaged.safetensors"], ["damaged.safetensors: its metadata is damaged"]),
        (["prior.weights=bare.safetensors"], ["bare.safetensors: tensors do not fit"]),
        (["prior.weights=foreign.safetensors"], ["foreign.safetensors: tensors do not fit"]),
        (["prior.weights=unfit.safetensors"], ["unfit.safetensors: tensors do not fit"]),
        # the mesh
        (["load=good.ply", *TINY, "mesh.iso=50"], ["no surface at mesh.iso=50", "ranges from 0 to", "try mesh.iso=0."]),
        # places
        (["load=good.ply", "outdir=text.png"], ["cannot write text.png"]),
        (["load=good.ply", "outdir=text.png/below"], ["cannot write text.png"]),
        (["load=good.ply", "save_path=" + "x" * 300], ["cannot write out/xxx", "too long"]),
        (["load=good.ply", "save_path=" + "x" * 250], ["cannot write out/xxx", "too long"]),  # the files' names alone
        (["load=good.ply", "save_path=.."], ["save_path='..': expected a name"]),
        (["load=good.ply", "save_path=cat/.."], ["save_path='cat/..': expected a name"]),
        (["load=good.ply", "save_path=."], ["save_path='.': expected a name"]),
        (["load=good.ply", "save_path=a\nb"], [r"save_path='a\nb': expected a name"]),
    ],
)
def test_what_is_wrong_is_one_line_and_leaves_nothing(place, call, arguments, complaints):
    before = contents(place)
    # Before the arguments, so that those may say otherwise; `--config` at the end takes no value.
    assert_one_line(*call("outdir=out", *arguments), *complaints)
    assert contents(place) == before


def test_a_grid_beyond_the_memory_is_one_line(place, call, monkeypatch):
    monkeypatch.setattr("memory.available_memory", lambda: 4_000_000_000)
    complaints = ["mesh.resolution=4096", "GB of memory", "try a smaller one"]
    assert_one_line(*call("load=good.ply", "outdir=out", "mesh.resolution=4096", "--device", "cpu"), *complaints)


def test_a_gpu_asked_for_and_absent_is_named_with_the_build_of_torch(place, call, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    before = contents(place)
    reason = "finds no CUDA device" if torch.version.cuda else "is a CPU build"
    assert_one_line(*call("--device", "cuda"), f"--device cuda: torch {torch.__version__} {reason}")
    assert_one_line(
        *call("load=good.ply", "--backend", "cuda", "--device", "cpu"), f"mesh.backend=cuda: torch {torch.__version__}"
    )
    assert contents(place) == before


def test_a_film_without_its_encoder_is_refused_before_any_work(place, call, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("pipeline.read_gaussians", lambda path: pytest.fail("work was done"))
    assert_one_line(*call("load=good.ply", "output.turntable=mp4"), "needs imageio-ffmpeg")


def test_a_folder_in_the_way_of_a_file_is_found_before_any_work(place, call, monkeypatch):
    monkeypatch.setattr("pipeline.read_gaussians", lambda path: pytest.fail("work was done"))
    (place / "out" / "good" / "good.glb").mkdir(parents=True)
    before = contents(place)
    assert_one_line(*call("load=good.ply", "outdir=out"), "cannot write out/good/good.glb: there is a folder")
    assert contents(place) == before


@pytest.mark.parametrize(
    "writer",
    [
        "pipeline.write_gaussians", "mesh_extract.export._png_bytes", "trimesh.exchange.gltf.export_glb",
        "pipeline.views_sheet", "pipeline.write_json",
    ],
)  # fmt: skip
def test_a_full_disk_is_one_line_and_leaves_nothing(place, call, meshed, monkeypatch, writer):
    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, fail)
    before = contents(place)
    assert_one_line(*call("load=good.ply", "outdir=out", *TINY), "No space left on device")
    assert contents(place) == before


@pytest.mark.parametrize("largest_kb", [4, 60, 170])  # reached by the first file, by one in between, by the last ones
def test_files_that_the_system_cuts_short_are_one_line_and_leave_nothing(place, call, meshed, largest_kb):
    resource = pytest.importorskip("resource")
    before = contents(place)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_kb * 1000, limits[1]))
        result = call("load=good.ply", "outdir=out", *TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_one_line(*result, "cannot write ", "File too large")
    assert contents(place) == before


def test_a_run_that_fails_keeps_the_files_of_the_one_before(place, call, meshed, monkeypatch):
    assert call("load=good.ply", "outdir=out", *TINY)[0] == 0
    before = contents(place)

    def fail(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pipeline.write_json", fail)
    assert_one_line(*call("load=good.ply", "outdir=out", *TINY, "mesh.resolution=20"))
    assert contents(place) == before


@pytest.mark.parametrize("name", ["two words", "é テスト", "a#1", "photo.v2.final", "-dash", "100%"])
def test_names_of_all_kinds_serve_for_inputs_folders_and_files(place, call, meshed, name):
    source = f"in {name}/{name}.ply"
    (place / f"in {name}").mkdir()
    (place / "good.ply").rename(source)
    code, stdout, stderr = call(f"load={source}", f"outdir=runs {name}", "--quiet", *TINY)
    assert (code, stdout, stderr) == (0, "", "")
    assert os.listdir(f"in {name}") == [f"{name}.ply"]  # nothing is written beside the input
    folder = place / f"runs {name}" / name
    assert sorted(p.name for p in folder.iterdir()) == files_of(name)
    assert f"mtllib {name}.mtl\n" in (folder / f"{name}.obj").read_text(encoding="utf-8")
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["source"] == source


def test_a_path_as_save_path_names_folder_and_files(place, call, meshed):
    assert call("load=good.ply", "outdir=out", "save_path=../up/é #1.v2", *TINY)[0] == 0
    assert not (place / "out" / "good").exists()
    assert sorted(p.name for p in (place / "up" / "é #1.v2").iterdir()) == files_of("é #1.v2")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
def test_a_name_that_is_no_utf_8_is_read_and_replaced(place, call, meshed):
    odd = os.fsdecode(b"caf\xe9.ply")
    (place / "good.ply").rename(odd)
    assert call(f"load={odd}", "outdir=out", *TINY)[0] == 0
    assert sorted(p.name for p in (place / "out" / "caf_").iterdir()) == files_of("caf_")
    assert json.loads((place / "out" / "caf_" / "run.json").read_text(encoding="utf-8"))["source"] == odd


def test_flags_and_keys_come_in_any_order_and_the_flag_wins(place, call):
    Path("c.yaml").write_text("seed: 3\nmesh: {backend: numba, resolution: 20}\n")
    arguments = ["load=good.ply", "--backend", "cpu", "mesh.backend=numba", "--config", "c.yaml", *TINY[1:], "--quiet"]
    for order in (arguments, [*arguments[3:], *arguments[:3]]):
        assert call(*order, "outdir=out")[0] == 0
        record = json.loads((place / "out" / "good" / "run.json").read_text())
        assert record["mesh"]["backend"] == "cpu"
        assert (record["config"]["seed"], record["config"]["mesh"]["resolution"]) == (3, 20)


@pytest.mark.parametrize(
    "error, complaint",
    [
        (OSError(errno.ENOSPC, "No space left on device", "/cache/x.nbi"), "No space left on device: '/cache/x.nbi'"),
        (RuntimeError("DefaultCPUAllocator: can't allocate\nmemory"), "not enough memory (DefaultCPUAllocator: can't"),
        (MemoryError("Unable to allocate\n4 GiB"), "not enough memory (Unable to allocate 4 GiB); try a smaller mesh."),
    ],
)
def test_what_the_system_refuses_anywhere_else_is_one_line_too(call, monkeypatch, error, complaint):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("pipeline.run", fail)
    assert_one_line(*call(), complaint)


def test_an_interrupted_run_leaves_nothing(place, call, meshed, monkeypatch):
    def fail(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("pipeline.write_json", fail)
    before = contents(place)
    assert call("load=good.ply", "outdir=out", *TINY) == (130, "", "interrupted\n")
    assert contents(place) == before


def test_an_earlier_turntable_does_not_stay_beside_a_run_without_one(place, call, meshed):
    folder = place / "out" / "good"
    folder.mkdir(parents=True)
    for name in ("good_turntable.gif", "good_turntable.mp4", "notes.txt"):
        (folder / name).touch()
    assert call("load=good.ply", "outdir=out", *TINY)[0] == 0
    assert sorted(contents(folder)) == sorted([*files_of("good"), "notes.txt"])


def test_what_can_begin_before_the_imports_does(call, monkeypatch):
    begun, given = [], []
    monkeypatch.setattr("main.start_driver", lambda: begun.append("driver"))
    monkeypatch.setattr("rehearsal.start", lambda config, device: begun.append(device.type) or "rehearsed")
    monkeypatch.setattr("pipeline.run", lambda *arguments: given.append(arguments))
    assert call("--device", "cpu")[0] == 0
    assert begun == ["cpu"] and given[0][-1] == "rehearsed"
    monkeypatch.setattr("devices.choose_device", lambda name: torch.device("cuda"))
    assert call("--device", "cuda")[0] == 0
    assert begun == ["cpu", "driver", "cuda"]


def test_a_fault_of_the_program_is_not_hidden(call, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("a bug")

    monkeypatch.setattr("pipeline.run", fail)
    with pytest.raises(ValueError, match="a bug"):
        call()


def test_help_shows_every_key_with_its_default(capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main(["--help"])
    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    assert describe_keys() in shown
    assert "  elevation=null " in shown and f"  seed={Config().seed} " in shown
    assert all(flag in shown for flag in ("--config", "--backend", "--device", "--quiet"))


def test_progress_goes_to_the_log_and_nothing_to_stdout(place, call, caplog):
    caplog.set_level(logging.INFO)
    assert call("load=good.ply", "outdir=out", "--device", "cpu", *TINY)[1] == ""
    logged = "\n".join(record.getMessage() for record in caplog.records)
    for stage in ("start", "load", "density field", "isosurface", "clean mesh", "texture", "previews", "write files"):
        assert f"{stage}: " in logged
    assert "backend auto takes numba" in logged
    assert "good_gaussians.ply" in logged and "run.json" in logged and "total: " in logged


def start(arguments: list[str], folder: Path, **changes: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "main.py"), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(**changes), capture_output=True, text=True, timeout=300, check=False
    )


def test_the_same_seed_gives_the_same_bytes_in_another_process(tmp_path, call, monkeypatch):
    """The sample picture with the embedded prior's real weights, in this process and in a fresh, quiet one."""
    monkeypatch.chdir(tmp_path)
    arguments = [*TINY, *TINY_FIT, "--device", "cpu"]
    assert call(*arguments, "outdir=here")[:2] == (0, "")
    # The number of threads is part of the promise: torch splits its sums by it. With one instead of two, splats are
    # measured to differ in the sixth digit.
    ended = start([*arguments, "outdir=there", "--quiet"], tmp_path, OMP_NUM_THREADS=str(torch.get_num_threads()))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    here, there = contents(tmp_path / "here" / "sample"), contents(tmp_path / "there" / "sample")
    assert sorted(here) == sorted(there) == files_of("sample")
    records = [json.loads(files.pop("run.json")) for files in (here, there)]
    assert {name: here[name] == there[name] for name in here} == dict.fromkeys(here, True)

    for record in records:
        assert record["config"]["elevation"] == 10.0  # the sample's own
        assert sum(record["seconds"].values()) == pytest.approx(record["total_seconds"], rel=0.05)
        assert record["config"]["refine"] is True and record["seconds"]["refine texture"] > 0
    assert records[1]["seconds"]["start"] > 0.2  # importing torch alone takes longer
    for record in records:
        del record["config"]["outdir"]
        for name in ("seconds", "total_seconds", "peak_memory_mb"):  # those of a run alone differ
            del record[name]
    assert records[0] == records[1]


def test_a_machine_without_writable_places_still_ends_in_one_line(place):
    """Home and the cache of the environment are files: even root cannot write below them."""
    (place / "home").write_text("")
    (place / "tmp").mkdir()
    changes = {"HOME": str(place / "home"), "XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": "", "TURBODREAMER_CACHE_DIR": ""}
    before = contents(place)
    ended = start(["load=cloud.ply", "--quiet"], place, **changes, TMPDIR=str(place / "tmp"))
    assert_one_line(ended.returncode, ended.stdout, ended.stderr, "plain point cloud")
    after = contents(place)
    made = [name for name in after if name not in before]
    assert all(Path(name).parts[0] == "tmp" for name in made), made  # the cache went to the temporary folder
    assert any(Path(name).name.startswith("turbodreamer-") for name in made)


@pytest.mark.gpu
def test_a_run_on_the_gpu_says_so_and_repeats_its_bytes(cuda, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = [*TINY, *TINY_FIT, "--device", "cuda", "deterministic=true"]
    for name in ("first", "second"):
        assert call(*arguments, f"outdir={name}")[:2] == (0, "")
    first, second = (contents(tmp_path / name / "sample") for name in ("first", "second"))
    assert sorted(first) == sorted(second) == files_of("sample")
    record = json.loads(first.pop("run.json"))
    second.pop("run.json")
    assert {name: first[name] == second[name] for name in first} == dict.fromkeys(first, True)
    on_gpu = ("prior", "fit", "rasteriser", "density field", "isosurface", "texture", "refine texture", "previews")
    assert {record["ran_on"][part] for part in on_gpu} == {"cuda"}
    assert record["mesh"]["backend"] == "cuda" and record["mesh"]["closed"]
    assert record["peak_gpu_memory_mb"] > 0


@pytest.mark.gpu
def test_the_field_alone_runs_on_the_gpu(cuda, place, call):
    assert call("load=good.ply", "outdir=out", "--backend", "cuda", "--device", "cpu", *TINY)[0] == 0
    record = json.loads((place / "out" / "good" / "run.json").read_text())
    assert record["mesh"]["backend"] == record["ran_on"]["density field"] == "cuda"
    assert record["ran_on"]["rasteriser"] == record["ran_on"]["texture"] == "cpu"


def test_two_config_files_are_refused(capsys):
    assert main.main(["--config", "configs/image.yaml", "--config", "configs/mesh.yaml"]) == 2
    expected = "error: --config is given twice: configs/image.yaml and configs/mesh.yaml"
    assert capsys.readouterr().err.startswith(expected)
