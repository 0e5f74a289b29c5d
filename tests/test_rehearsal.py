"""The rehearsal of a fit leaves nothing behind but the prior."""

import sys
import threading
from dataclasses import replace

import pytest
import torch

import pipeline
import rehearsal
from config import load_config
from mesh_extract.uv import overlap_share
from prepare import prepare_image
from priors import make
from stages import StageTimes

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SMALL = ["fit.points=200", "fit.max_points=400", "fit.views=4", "fit.rounds=1", "fit.init_steps=4", "fit.round_steps=4"]


@pytest.fixture
def config(monkeypatch):
    monkeypatch.setattr(make, "_last", {})
    return load_config(None, SMALL)


def test_it_is_for_the_embedded_prior_on_a_gpu_alone(config, monkeypatch):
    monkeypatch.setattr(rehearsal, "rehearse", lambda config, device: None)
    other = replace(config, prior=replace(config.prior, name="mvdream"))
    unknown = replace(config, prior=replace(config.prior, name="nobody"))
    assert rehearsal.start(config, CPU) is None
    for without in (replace(config, load="a.ply"), replace(config, deterministic=True), other, unknown):
        assert rehearsal.start(without, GPU) is None
    thread = rehearsal.start(config, GPU)
    thread.join()
    assert isinstance(thread, threading.Thread) and not thread.daemon


def test_what_goes_wrong_in_it_is_left_to_the_run(config, monkeypatch):
    def fail(config, device):
        assert sys.getswitchinterval() < before
        raise RuntimeError("no memory")

    before = sys.getswitchinterval()
    monkeypatch.setattr(rehearsal, "rehearse", fail)
    rehearsal.start(config, GPU).join()
    assert sys.getswitchinterval() == before


def test_it_leaves_nothing_but_the_prior(config, caplog):
    prior = pipeline.make_prior(config.prior, CPU)
    numbers = torch.get_rng_state()
    rehearsal.rehearse(config, CPU)
    assert list(make._last.values()) == [prior]
    assert prior._source is None and prior._blank is None and prior._seen is None and prior._network.graphs == 0
    assert torch.equal(torch.get_rng_state(), numbers) and not torch.backends.cuda.matmul.allow_tf32
    assert [record.levelname for record in caplog.records if record.levelname != "INFO"] == []


def test_late_modules_are_imported_and_a_bad_one_stops_nothing(tmp_path, monkeypatch):
    (tmp_path / "bad_module_of_a_test.py").write_text("raise ValueError('no')")
    (tmp_path / "good_module_of_a_test.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("no_such_module_of_a_test", "bad_module_of_a_test", "good_module_of_a_test")
    monkeypatch.setattr(rehearsal, "_IMPORTED_LATE", names)
    checked = []
    monkeypatch.setattr("mesh_extract.uv.overlap_share", lambda *arguments: checked.append(overlap_share(*arguments)))
    assert rehearsal.start_late(CPU) is None
    rehearsal.start_late(GPU).join(60)
    assert sys.modules.pop("good_module_of_a_test") and "bad_module_of_a_test" not in sys.modules
    assert checked == [0.0]


def test_a_run_waits_for_its_end(config, tmp_path, monkeypatch):
    """Before it asks for the prior, lest both work on the GPU at a time when graphs are recorded."""

    class Done(Exception):
        pass

    def ask(*arguments):
        assert not thread.is_alive()
        raise Done

    late = []
    monkeypatch.setattr(pipeline, "start_late", late.append)
    monkeypatch.setattr(pipeline, "make_prior", ask)
    monkeypatch.setattr(pipeline, "prepare_image", lambda *arguments: release.set() or prepare_image(*arguments))
    release = threading.Event()
    thread = threading.Thread(target=lambda: release.wait(20))
    thread.start()
    with pytest.raises(Done):
        pipeline.run(replace(config, outdir=str(tmp_path)), CPU, False, None, thread)
    assert late == [CPU]


@pytest.mark.gpu
def test_a_rehearsed_fit_gives_the_bits_of_any_other(config, cuda):
    config = replace(config, deterministic=True)
    prepared = prepare_image(pipeline.SAMPLE_PICTURE, config.prepare)
    found = []
    for rehearsed in (False, True):
        make._last.clear()
        if rehearsed:
            rehearsal.rehearse(config, GPU)
        with StageTimes().stage("fit"):
            found.append(
                pipeline.fit_stage(prepared, config, GPU, torch.Generator().manual_seed(0), show_progress=False)
            )
    for name, value in found[0].tensors().items():
        assert torch.equal(value, getattr(found[1], name)), name
