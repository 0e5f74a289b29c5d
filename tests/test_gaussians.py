import pytest
import torch

from gaussians import Gaussians, concatenate, rotation_matrices
from scenes import shell


def test_created_gaussians_give_their_activated_values_back(generator):
    means = torch.randn(7, 3, generator=generator)
    scales = torch.rand(7, 3, generator=generator) + 0.01
    opacities = torch.tensor([0.0, 0.1, 0.2, 0.5, 0.9, 0.99, 1.0])
    rgb = torch.rand(7, 3, generator=generator)
    gaussians = Gaussians.create(means, scales, opacities, rgb)
    torch.testing.assert_close(gaussians.scales, scales)
    torch.testing.assert_close(gaussians.opacities, opacities, atol=2e-6, rtol=0)  # logits stop at 1e-6
    torch.testing.assert_close(gaussians.rgb, rgb)
    assert gaussians.sh_degree == 0
    assert all(value.isfinite().all() for value in gaussians.tensors().values())


def test_a_wrong_shape_names_the_parameter():
    good = Gaussians.create(torch.zeros(2, 3), torch.ones(2, 3), torch.ones(2)).tensors()
    with pytest.raises(ValueError, match=r"quats must be \[2, 4\], got \[3, 4\]"):
        Gaussians(**{**good, "quats": torch.zeros(3, 4)})
    with pytest.raises(ValueError, match="shN must hold"):
        Gaussians(**{**good, "shN": torch.zeros(2, 5, 3)})


def test_selecting_and_joining_are_inverse(generator):
    gaussians = shell(20, generator)
    mask = torch.arange(20) < 8
    again = concatenate([gaussians[mask], gaussians[~mask]])
    for name, value in gaussians.tensors().items():
        torch.testing.assert_close(getattr(again, name), value)


def test_rotations_are_orthonormal_whatever_the_quaternion(generator):
    quats = torch.randn(50, 4, generator=generator, dtype=torch.float64) * 10
    quats[0] = 0
    rotations = rotation_matrices(quats)
    torch.testing.assert_close(rotations @ rotations.transpose(1, 2), torch.eye(3).double().expand(50, 3, 3))
    torch.testing.assert_close(rotations[0], torch.eye(3).double())
    torch.testing.assert_close(rotation_matrices(-quats), rotations)


def test_a_quarter_turn_about_z_takes_x_to_y():
    half = 0.5**0.5
    turned = rotation_matrices(torch.tensor([[half, 0, 0, half]])) @ torch.tensor([1.0, 0, 0])
    torch.testing.assert_close(turned[0], torch.tensor([0.0, 1, 0]), atol=1e-6, rtol=0)


def test_the_zero_quaternion_has_finite_gradients():
    quats = torch.zeros(1, 4, requires_grad=True)
    rotation_matrices(quats).sum().backward()
    assert quats.grad.isfinite().all()
