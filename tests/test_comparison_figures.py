"""Figures and tables: valid, complete, legible."""

import re
from xml.etree import ElementTree

import pytest

from comparison import report
from comparison.accounts import AmdahlAccount
from comparison.axes import Scale, log_range
from comparison.figures import COLORS, figure_amdahl, figure_gustafson, figure_times, place_labels
from comparison.svg import Svg, text_width

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = "NVIDIA H200, Intel(R) Xeon(R) Platinum 8480 with 16 threads, torch 2.13.0"
TIMES = {"cpu": 7.2, "cpu on GPU": 3.65, "numba": 0.11, "cuda-coeff": 3.1, "cuda-fused": 0.0222, "cuda": 1.42e-4}


def timing(median_s: float) -> dict:
    return {"median_s": median_s, "lowest_s": 0.9 * median_s, "highest_s": 1.2 * median_s, "repeats": 5}


def field_rows(times=TIMES) -> list[dict]:
    error = {"same_cutoff": 2e-6, "no_cutoff": 2e-4, "excess": 0.1}
    return [
        {
            "name": name, "backend": name.split()[0], "device": "cpu" if name in ("cpu", "numba") else "cuda",
            "timing": timing(median_s), "error": error, "vertices": 5000, "faces": 9996,
            "distance": None if index == 0 else {"hausdorff": 1e-6, "mean": 1e-7},
        }
        for index, (name, median_s) in enumerate(times.items())
    ]  # fmt: skip


def scaling_rows() -> list[dict]:
    return [
        {
            "name": name, "resolution": size, "nodes": size**3, "slabs": 1, "left_out": "",
            "timing": timing(median_s * (size / 128) ** 2.5), "error": {"same_cutoff": 2e-6},
        }
        for name, median_s in TIMES.items()
        for size in (128, 512, 1024)
        if size == 128 or median_s < 1
    ]  # fmt: skip


def runs() -> dict[str, dict]:
    fields_s = {"cpu": 3.9, "numba": 0.09, "cuda-fused": 0.03, "cuda": 0.0003}
    common = {"field_device": "cpu", "stages": {"fit": 4.0, "texture": 1.4}}
    return {
        name: {"backend": name, "total_s": 5.4 + field_s, "field_s": field_s, **common}
        for name, field_s in fields_s.items()
    }


def accounts() -> list[dict]:
    found = runs()
    slow = found["cpu"]
    return [
        AmdahlAccount.of("cpu", name, slow["total_s"], slow["field_s"], run["total_s"], run["field_s"]).to_dict()
        for name, run in found.items()
        if name != "cpu"
    ]


def drawn(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def words(root: ElementTree.Element) -> list[str]:
    return [element.text for element in root.iter(f"{SVG}text")]


def assert_legible(root: ElementTree.Element) -> None:
    """Every word lies inside the picture, and none on another one's baseline."""
    width, height = float(root.get("width")), float(root.get("height"))
    boxes = []
    for element in root.iter(f"{SVG}text"):
        size, x, y = (float(element.get(key)) for key in ("font-size", "x", "y"))
        long = text_width(element.text, size)
        left = x - {"start": 0, "middle": long / 2, "end": long}[element.get("text-anchor")]
        assert -1 <= left and left + long <= width + 1 and size < y <= height, element.text
        boxes.append((left, y - 0.75 * size, left + 0.9 * long, y, element.text))
    for index, a in enumerate(boxes):
        for b in boxes[:index]:
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]), (a[4], b[4])


@pytest.mark.parametrize("names", [tuple(TIMES), ("cpu", "numba"), ("numba",)])
def test_figure_6_shows_every_backend_with_its_time(names):
    rows = field_rows({name: TIMES[name] for name in names})
    root = drawn(figure_times(rows, "20,000 Gaussians, a bumpy shell; 128 x 128 x 128 nodes", MACHINE))
    assert_legible(root)
    assert set(names) <= set(words(root))
    bars = [e for e in root.iter(f"{SVG}rect") if e.get("fill") in COLORS.values()]
    lengths = [float(bar.get("width")) for bar in bars]
    assert len(bars) == len(names) and min(lengths) > 10
    by_time = sorted(range(len(names)), key=lambda k: TIMES[names[k]])
    assert by_time == sorted(range(len(names)), key=lambda k: lengths[k]), "the longest bar is the slowest backend"


def test_figure_6_counts_from_the_loops_on_the_gpu_and_leaves_wrong_fields_out():
    rows = field_rows()
    rows[3]["timing"] = None
    found = words(drawn(figure_times(rows, "a shell", MACHINE)))
    assert "cuda-coeff" not in found and "164x" in found  # 3.65 s / 22.2 ms
    assert "extract_fields: 3.65 s by Python loops on the GPU, 0.142 ms by cuda (25,704x)" in found


def test_figure_7_shows_what_was_foretold_and_what_was_measured():
    root = drawn(figure_amdahl(accounts()[-1], runs(), accounts(), MACHINE))
    assert_legible(root)
    found = words(root)
    assert {"cpu", "numba", "cuda-fused", "cuda", "predicted", "measured", "9.30 s"} <= set(found)
    assert "limit 1 / (1 - P) = 1.72x" in found
    circles = [e for e in root.iter(f"{SVG}circle") if float(e.get("r")) == 7]
    assert len(circles) == 3
    # The runs' rest was equal: every point lies on the curve.
    line = next(e for e in root.iter(f"{SVG}polyline"))
    curve = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    for circle in circles:
        x, y = float(circle.get("cx")), float(circle.get("cy"))
        assert min(abs(x - cx) + abs(y - cy) for cx, cy in curve) < 12


def test_figure_7_does_not_claim_what_the_load_of_the_machine_did():
    """The fast run's rest was faster, too: the whole gained more than the law allows."""
    account = accounts()[-1] | {"measured": 2.5, "rest_ratio": 1.45}
    root = drawn(figure_amdahl(account, runs(), [account], MACHINE))
    assert_legible(root)
    headline, second, *_ = words(root)
    assert "is 1.72x in all" in headline and "their rest differed 1.45x" in second


def test_figure_8_has_a_line_for_every_backend_on_both_sides():
    root = drawn(figure_gustafson(scaling_rows(), "20,000 Gaussians, a bumpy shell", MACHINE))
    assert_legible(root)
    assert len(list(root.iter(f"{SVG}polyline"))) == 2 * len(TIMES)
    assert {"128³", "512³", "1,024³"} <= set(words(root))
    for element in root.iter(f"{SVG}circle"):
        assert 0 < float(element.get("cx")) < 940 and 150 < float(element.get("cy")) < 530


def test_labels_of_points_side_by_side_do_not_overlap():
    points = {name: (100.0 + 6 * k, 50.0) for k, name in enumerate(TIMES)}
    placed = place_labels(points, 400)
    boxes = [(x, y - 13, x + text_width(name, 13), y + 3) for name, (x, y) in placed.items()]
    for index, a in enumerate(boxes):
        for b in boxes[:index]:
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])


def test_scales():
    scale = Scale(1e-4, 10, 100, 600, log=True)
    assert scale(1e-4) == pytest.approx(100) and scale(10) == pytest.approx(600) and scale(0.1) == pytest.approx(400)
    assert scale.ticks() == pytest.approx([1e-4, 1e-3, 1e-2, 0.1, 1, 10])
    assert Scale(1, 1.8, 0, 1).ticks() == pytest.approx([1, 1.2, 1.4, 1.6, 1.8])
    assert Scale(0, 9.6, 0, 1).ticks() == pytest.approx([0, 2, 4, 6, 8])
    assert log_range([0.02, 3.0]) == pytest.approx((0.01, 10)) and log_range([1.0]) == pytest.approx((1, 10))


def test_words_are_escaped():
    svg = Svg(100, 50, "a < b & c")
    svg.text(5, 20, '<script> & "quoted"')
    root = drawn(svg.render())
    assert words(root) == ['<script> & "quoted"'] and root.find(f"{SVG}title").text == "a < b & c"


def a_record(**changes) -> dict:
    return {
        "machine": {"cpu": "AMD EPYC", "threads": 2, "gpu": None, "versions": {"torch": "2.13.0"}},
        "scene": "a bumpy shell", "gaussians": 20000, "iso": 0.3, "command": "python x.py",
        "missing": {"cuda": "no GPU"},
        "resolution": 128, "shape": [128] * 3, "voxel_size": 2 / 127, "fields": field_rows(), "scaling": scaling_rows(),
        "runs": runs(), "accounts": accounts(),
    } | changes  # fmt: skip


def test_the_report_is_tables_of_equal_columns_with_all_that_was_measured():
    text = report.markdown(a_record())
    for block in re.split(r"\n\n", text):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in rows}) <= 1
    assert "- `cuda` was left out: no GPU" in text and "`python x.py`" in text
    row = next(line for line in text.splitlines() if line.startswith("| `cuda` |"))
    assert "0.142 ms" in row and "50,704x" in row and "25,704x" in row, "over the loops on either device"
    assert "1.72x" in text  # Amdahl
    # Gustafson at 128^3 alone, where the loops were timed: 5.4 s of rest and 0.142 ms of field against 7.2 s.
    assert re.search(r"\| 128 \|.*\| 50,704x \| 2.33x \|", text) and not re.search(r"^\| 512 \|", text, re.M)


def test_a_wrong_field_is_said_to_be_wrong():
    rows = field_rows({"cpu": 1.0, "numba": 0.5})
    rows[1]["timing"] = None
    text = report.markdown(a_record(fields=rows, scaling=[], accounts=[]))
    assert "| wrong: not timed |" in text


def test_what_was_left_out_of_the_growing_grid_is_said():
    rows = scaling_rows()[:1]
    rows.append({**rows[0], "resolution": 512, "timing": None, "error": None, "left_out": "would take about 230 s"})
    assert "left out: would take about 230 s" in report.markdown(a_record(scaling=rows))
