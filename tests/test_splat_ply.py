import logging
import math

import numpy as np
import pytest
import torch
from plyfile import PlyData, PlyElement

from errors import UserError
from gaussians import SH_C0
from scenes import shell
from splat_ply import read_gaussians, write_gaussians

CORE = ["x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", "opacity", *(f"scale_{i}" for i in range(3))]
CORE += [f"rot_{i}" for i in range(4)]


def save(path, columns: dict, kind="f4", **options):
    """A .ply with these columns in this order."""
    count = len(next(iter(columns.values())))
    table = np.zeros(count, dtype=[(name, kind) for name in columns])
    for name, values in columns.items():
        table[name] = values
    PlyData([PlyElement.describe(table, "vertex")], **options).write(str(path))
    return path


def sample(count=3) -> dict:
    """The 14-float layout without normals, every value different."""
    return {name: 0.25 * np.arange(count) + index + 1 for index, name in enumerate(CORE)}


def assert_is_sample(gaussians, count=3):
    columns = {name: torch.from_numpy(values).float() for name, values in sample(count).items()}
    for name, value in (
        ("means", torch.stack([columns[n] for n in "xyz"], 1)),
        ("quats", torch.stack([columns[f"rot_{i}"] for i in range(4)], 1)),
        ("log_scales", torch.stack([columns[f"scale_{i}"] for i in range(3)], 1)),
        ("logit_opacities", columns["opacity"]),
        ("sh0", torch.stack([columns[f"f_dc_{i}"] for i in range(3)], 1)[:, None]),
    ):
        assert torch.equal(getattr(gaussians, name), value), name
    assert gaussians.sh_degree == 0 and gaussians.means.dtype == torch.float32


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_round_trip_is_exact(tmp_path, degree):
    gaussians = shell(7, torch.Generator().manual_seed(0), sh_degree=degree)
    write_gaussians(gaussians, tmp_path / "a.ply")
    back = read_gaussians(tmp_path / "a.ply")
    assert all(torch.equal(value, getattr(back, name)) for name, value in gaussians.tensors().items())


def test_written_layout_is_the_one_of_viewers(tmp_path):
    gaussians = shell(2, torch.Generator().manual_seed(0), sh_degree=1)
    write_gaussians(gaussians, tmp_path / "a.ply", sh_degree=3)
    head, _, body = (tmp_path / "a.ply").read_bytes().partition(b"end_header\n")
    names = [line.split()[-1] for line in head.decode().splitlines() if line.startswith("property")]
    rest = [f"f_rest_{i}" for i in range(45)]
    assert names == ["x", "y", "z", "nx", "ny", "nz", *CORE[3:6], *rest, *CORE[6:]]
    assert b"format binary_little_endian 1.0" in head and len(body) == 2 * 248
    row = dict(zip(names, np.frombuffer(body, "<f4").reshape(2, -1)[1], strict=True))
    # By channel: red's 15 coefficients, then green's, then blue's; those of degree 2 and 3 are padding.
    assert [row["f_rest_0"], row["f_rest_2"]] == [gaussians.shN[1, 0, 0], gaussians.shN[1, 2, 0]]
    assert [row["f_rest_15"], row["f_rest_32"]] == [gaussians.shN[1, 0, 1], gaussians.shN[1, 2, 2]]
    assert row["f_rest_3"] == row["f_rest_44"] == row["nx"] == 0
    assert row["opacity"] == gaussians.logit_opacities[1] and row["scale_2"] == gaussians.log_scales[1, 2]
    assert row["rot_0"] == gaussians.quats[1, 0]
    assert 0.5 + SH_C0 * row["f_dc_1"] == pytest.approx(gaussians.rgb[1, 1].item(), abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("f4", {"text": True}),
        ("f4", {"byte_order": ">"}),
        ("f4", {"byte_order": "<"}),
        ("f8", {"byte_order": "<"}),
        ("f8", {"byte_order": ">"}),
        ("f8", {"text": True}),
    ],
)
@pytest.mark.parametrize("order", ["given", "shuffled"])
def test_any_encoding_and_order_reads_the_same(tmp_path, kind, options, order):
    columns = sample()
    if order == "shuffled":
        names = np.random.default_rng(0).permutation(list(columns))
        columns = {name: columns[name] for name in names} | {"red": np.arange(3), "nx": np.zeros(3)}
    assert_is_sample(read_gaussians(save(tmp_path / "a.ply", columns, kind, **options)))


def test_other_elements_and_a_comment_do_not_disturb(tmp_path):
    columns = sample()
    table = np.zeros(3, dtype=[(name, "f4") for name in columns])
    for name, values in columns.items():
        table[name] = values
    other = PlyElement.describe(np.zeros(2, dtype=[("x", "f4")]), "camera")
    PlyData([other, PlyElement.describe(table, "vertex")], comments=["by hand"]).write(str(tmp_path / "a.ply"))
    assert_is_sample(read_gaussians(tmp_path / "a.ply"))


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (["opacity"], "opacity are missing.*point cloud"),
        (CORE[3:], "f_dc_0, f_dc_1, f_dc_2, opacity, scale_0"),
        (["scale_2", "rot_3"], "scale_2, rot_3 are missing"),
    ],
)
def test_missing_properties_are_named(tmp_path, missing, said):
    columns = {name: values for name, values in sample().items() if name not in missing}
    with pytest.raises(UserError, match=said):
        read_gaussians(save(tmp_path / "a.ply", columns))


@pytest.mark.parametrize("count", [1, 3, 12, 46])
def test_wrong_numbers_of_harmonics_are_refused(tmp_path, count):
    columns = sample() | {f"f_rest_{i}": np.zeros(3) for i in range(count)}
    with pytest.raises(UserError, match=f"has {count} f_rest properties"):
        read_gaussians(save(tmp_path / "a.ply", columns))


def test_no_vertices_no_file_no_ply(tmp_path):
    with pytest.raises(UserError, match="holds no splats"):
        read_gaussians(save(tmp_path / "a.ply", sample(0)))
    with pytest.raises(UserError, match="no such file"):
        read_gaussians(tmp_path / "none.ply")
    for content in (b"", b"ply\n", b"solid cube\n", b"\x89PNG\r\n\x1a\n" + bytes(range(256))):
        (tmp_path / "b.ply").write_bytes(content)
        with pytest.raises(UserError, match="not a complete .ply") as caught:
            read_gaussians(tmp_path / "b.ply")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"text": True}])
def test_a_truncated_file_is_one_line(tmp_path, options):
    path = save(tmp_path / "a.ply", sample(50), **options)
    content = path.read_bytes()
    for keep in (len(content) - 30, len(content) // 2, 40):
        path.write_bytes(content[:keep])
        with pytest.raises(UserError, match="not a complete .ply") as caught:
            read_gaussians(path)
        assert "\n" not in str(caught.value)


def test_bad_splats_are_dropped_with_a_warning(tmp_path, caplog):
    columns = sample(6)
    columns["x"][1] = math.nan
    columns["rot_2"][2] = math.inf
    columns["scale_1"][3] = 200.0  # exp overflows
    with caplog.at_level(logging.WARNING):
        gaussians = read_gaussians(save(tmp_path / "a.ply", columns))
    assert gaussians.means[:, 1].tolist() == [2.0, 3.0, 3.25] and "dropped 3 of 6" in caplog.text
    columns["x"][:] = math.nan
    with pytest.raises(UserError, match="none of the 6"):
        read_gaussians(save(tmp_path / "a.ply", columns))


def test_infinite_logits_and_zero_quaternions_are_read(tmp_path):
    columns = sample()
    columns["opacity"][:2] = math.inf, -math.inf
    for i in range(4):
        columns[f"rot_{i}"][1] = 0
    gaussians = read_gaussians(save(tmp_path / "a.ply", columns))
    assert gaussians.opacities[:2].tolist() == pytest.approx([1, 0], abs=1e-6)
    assert gaussians.quats[1].tolist() == [1, 0, 0, 0] and gaussians.quats[0].tolist() == [11, 12, 13, 14]


def test_activated_values_are_suspected(tmp_path, caplog):
    columns = sample() | {"opacity": np.array([0.1, 0.5, 0.9])}
    with caplog.at_level(logging.WARNING):
        read_gaussians(save(tmp_path / "a.ply", columns))
    assert "activated" in caplog.text


def test_nothing_unsound_is_written(tmp_path):
    gaussians = shell(3, torch.Generator().manual_seed(0))
    with pytest.raises(UserError, match="no Gaussians"):
        write_gaussians(gaussians[:0], tmp_path / "a.ply")
    gaussians.sh0[1, 0, 2] = math.nan
    with pytest.raises(UserError, match="gaussians.sh0"):
        write_gaussians(gaussians, tmp_path / "a.ply")
    with pytest.raises(UserError, match="sh_degree=4"):
        write_gaussians(gaussians, tmp_path / "a.ply", sh_degree=4)
    assert not list(tmp_path.iterdir())
