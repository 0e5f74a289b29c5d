import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

import run_record
from config import Config, load_config
from stages import StageTimes

ROOT = Path(run_record.__file__).resolve().parent


def a_record(config: Config | None = None, times: StageTimes | None = None) -> dict:
    return run_record.describe_run(
        config or Config(), "é テスト.png", {"prior": "cpu"}, times or StageTimes(), {"iso": 0.2}, ["a.obj", "a.glb"]
    )


def test_the_record_holds_what_is_needed_to_repeat_and_to_judge_a_run(tmp_path):
    config = load_config(None, ["seed=7", "mesh.resolution=32", "elevation=12"])
    run_record.write_json(a_record(config), tmp_path / "run.json")
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert record["config"] == asdict(config)
    assert (record["seed"], record["source"], record["files"]) == (7, "é テスト.png", ["a.obj", "a.glb"])
    assert record["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["versions"]["torch"] == torch.__version__
    assert record["versions"]["numpy"] == np.__version__
    assert record["machine"]["cpus"] >= 1 and record["machine"]["threads"] == torch.get_num_threads()
    assert (record["machine"]["gpu"] is None) == (not torch.cuda.is_available())
    assert record["ran_on"] == {"prior": "cpu"} and record["mesh"] == {"iso": 0.2}


def test_the_recorded_configuration_gives_the_same_run_again(tmp_path):
    """run.json's config, saved as it is, is a --config file: JSON is YAML."""
    config = load_config(None, ["elevation=5", "mesh.iso=0.3", "fit.views=4", "save_path=é #1: x"])
    (tmp_path / "c.yaml").write_text(json.dumps(a_record(config)["config"]), encoding="utf-8")
    assert load_config(tmp_path / "c.yaml") == config


def test_seconds_are_complete_and_add_up():
    times = StageTimes(started_s=time.perf_counter() - 2.0)
    times.add("start", times.total_s)
    for name in ("first", "second"):
        with times.stage(name):
            time.sleep(0.02)
    record = a_record(times=times)
    assert list(record["seconds"]) == ["start", "first", "second"]
    assert 2.0 <= record["seconds"]["start"] < 3.0
    assert 2.04 <= record["total_seconds"]
    assert sum(record["seconds"].values()) == pytest.approx(record["total_seconds"], abs=0.2)


def test_names_that_are_no_utf_8_survive(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    run_record.write_json({"source": name, "save_path": "テ"}, tmp_path / "run.json")
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"source": name, "save_path": "テ"}
    assert "テ" in text  # for people


def test_the_commit_is_that_of_the_checkout_and_none_outside_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(run_record, "ROOT", tmp_path)
    assert run_record.commit() is None
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        if command == ["add", "."]:
            (tmp_path / "a.txt").write_text("a")
        done = subprocess.run(["git", "-C", str(tmp_path), *command], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"git does not work here: {done.stderr}")
    commit = run_record.commit()
    assert len(commit) == 40
    (tmp_path / "a.txt").write_text("b")
    assert run_record.commit() == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")  # no git at all
    assert run_record.commit() is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_that_of_the_process_or_of_a_larger_child():
    grow = "x = bytearray({mb} << 20); x[::4096] = b'1' * len(x[::4096])\n"
    spawn = "import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)\n"
    measure = "import run_record; print(run_record.peak_memory_mb(), flush=True)\n"

    def peaks(code: str) -> list[float]:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
        return [float(line) for line in done.stdout.splitlines()]

    mb = 1.048576  # of 10^6 bytes
    alone, own, child = peaks(
        measure + grow.format(mb=300) + "del x\n" + measure + spawn.format(code=grow.format(mb=800)) + measure
    )
    assert own == pytest.approx(alone + 300 * mb, rel=0.1)  # though it was given back
    assert child == pytest.approx(800 * mb, rel=0.1)
    # A process is not charged with the memory of the one that started it.
    (started,) = peaks(grow.format(mb=800) + spawn.format(code=measure))
    assert started == pytest.approx(alone, rel=0.1)


def test_a_missing_package_has_no_version(monkeypatch):
    monkeypatch.setattr(run_record, "PACKAGES", ("torch", "no-such-package"))
    versions = a_record()["versions"]
    assert versions["no-such-package"] is None and versions["torch"]
