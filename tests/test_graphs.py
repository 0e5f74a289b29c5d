"""CUDA graphs of calls: what is recorded when, and that replays give what plain calls give."""

import pytest
import torch

from cuda_ext import graphs
from cuda_ext.graphs import GraphedCall


class ReplayedOnCpu:
    """Stands for a CUDA graph: runs the recorded function again and writes where its first results were."""

    def __init__(self, function):
        self.function = function
        self.outputs = function()

    def replay(self):
        for name, value in self.function().items():
            self.outputs[name].copy_(value)


@pytest.fixture
def recorded(monkeypatch):
    """A GraphedCall on the CPU whose recordings are doubles; yields a maker and the list of recordings."""
    made = []

    def capture(function, device, pool=None):
        made.append(ReplayedOnCpu(function))
        return made[-1], made[-1].outputs

    monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)

    def make(function, **options):
        call = GraphedCall(function, torch.device("cpu"), **options)
        call.enabled = True
        return call

    return make, made


def weighted(x, *, factor=2.0, extra=None):
    return {"sum": x * factor + (0 if extra is None else extra[0]), "shape": torch.tensor(x.shape)}


def test_first_call_is_plain_the_second_records_and_results_agree(recorded):
    make, made = recorded
    call = make(weighted)
    results = []
    for k in range(4):
        x = torch.full((2, 3), float(k))
        results.append(call(x, extra=[torch.ones(2, 3)])["sum"])
        assert len(made) == (0 if k == 0 else 1)
    for k, result in enumerate(results):  # each the caller's own: no later replay wrote over it
        assert torch.equal(result, torch.full((2, 3), 2.0 * k + 1))


def test_every_shape_dtype_and_constant_has_its_own_recording(recorded):
    make, made = recorded
    call = make(weighted, max_graphs=16)
    variants = [
        lambda: call(torch.ones(2)), lambda: call(torch.ones(3)), lambda: call(torch.ones(2).double()),
        lambda: call(torch.ones(2), factor=3.0), lambda: call(torch.ones(2), extra=[torch.ones(2)]),
    ]  # fmt: skip
    for variant in variants * 3:
        variant()
    assert len(made) == call.graphs == len(variants)
    assert torch.equal(call(torch.ones(2), factor=3.0)["sum"], torch.full((2,), 3.0))


def test_tensor_changed_in_place_is_copied_again_and_an_unchanged_one_is_not(recorded):
    make, made = recorded
    call = make(weighted)
    x = torch.ones(2)
    call(x), call(x)
    (static,) = next(iter(call._recordings.values())).inputs
    static.add_(10)  # shows that the next call leaves it alone
    assert torch.equal(call(x)["sum"], torch.full((2,), 22.0))
    x.mul_(5)
    assert torch.equal(call(x)["sum"], torch.full((2,), 10.0))


def test_no_more_graphs_than_allowed(recorded):
    make, made = recorded
    call = make(weighted, max_graphs=2)
    for n in (1, 2, 3):
        for _ in range(2):
            call(torch.ones(n))
    assert call.graphs == 2 and len(made) == 3
    call(torch.ones(1))  # dropped: plain again
    assert len(made) == 3


def test_failed_recording_warns_once_and_calls_go_on(recorded, monkeypatch, caplog):
    make, _ = recorded

    def fail(function, device, pool=None):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(graphs, "capture", fail)
    call = make(weighted)
    for _ in range(4):
        assert torch.equal(call(torch.ones(2))["sum"], torch.full((2,), 2.0))
    assert len(caplog.records) == 1 and "\n" not in caplog.records[0].getMessage()


def test_a_compiled_function_is_not_compiled_again_while_it_is_recorded(recorded):
    """Compiled code is guarded by the state of autocast, and to compile while recording ends the recording."""
    make, made = recorded
    compilations = []

    def backend(module, example_inputs):
        compilations.append(module)
        return module.forward

    call = make(torch.compile(torch.no_grad()(lambda x: {"twice": x * 2}), backend=backend, dynamic=False))
    for k in range(3):
        assert torch.equal(call(torch.full((2,), float(k)))["twice"], torch.full((2,), 2.0 * k))
    assert (len(compilations), len(made)) == (1, 1)


def test_without_a_gpu_calls_are_plain():
    call = GraphedCall(weighted, torch.device("cpu"))
    assert not call.enabled
    assert torch.equal(call(torch.ones(2))["sum"], torch.full((2,), 2.0)) and call.graphs == 0


@pytest.mark.gpu
def test_replays_equal_plain_calls_on_a_gpu(cuda):
    layer = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).to(cuda)
    call = GraphedCall(layer, cuda)
    for rows in (4, 7, 4, 7, 4, 7):
        x = torch.randn(rows, 64, device=cuda)
        with torch.no_grad():
            assert torch.equal(call(x), layer(x))
    assert call.graphs == 2


@pytest.mark.gpu
def test_function_that_waits_for_the_device_runs_plainly_on_a_gpu(cuda, caplog):
    call = GraphedCall(lambda x: x * float(x.sum()), cuda)
    for _ in range(3):
        assert torch.equal(call(torch.ones(2, device=cuda)), torch.full((2,), 2.0, device=cuda))
    assert call.graphs == 0 and len(caplog.records) == 1
