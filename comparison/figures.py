"""The article's figures 6, 7 and 8, drawn from what was measured."""

from collections.abc import Sequence

from comparison import numbers
from comparison.accounts import amdahl, work_rate
from comparison.axes import Scale, draw_x_axis, draw_y_axis, log_range
from comparison.backends import LOOPS_ON_GPU
from comparison.svg import INK, MUTED, Svg, text_width

# By backend, the same in every figure; told apart by people who see no red or green (after Okabe and Ito).
COLORS = {
    "cpu": "#8a93a1",
    "cpu on GPU": "#5b6472",
    "numba": "#e69f00",
    "cuda-coeff": "#cc79a7",
    "cuda-fused": "#0072b2",
    "cuda": "#009e73",
}
_OTHER = "#56b4e9"
KINDS = {
    "cpu": "Python loops, torch on the CPU",
    "cpu on GPU": "Python loops, torch on the GPU",
    "numba": "compiled loops on the CPU",
    "cuda-coeff": "Python loops, coefficient kernel",
    "cuda-fused": "a thread a voxel, all Gaussians",
    "cuda": "tiles of nodes, culled Gaussians",
}
_WIDTH = 940
# Where what two runs took besides the field differs by more, the machine was busy, and the headline is the prediction.
_EQUAL_RESTS = 0.05


def color_of(name: str) -> str:
    return COLORS.get(name, _OTHER)


def _in_words(name: str) -> str:
    return {"cpu": "Python loops", LOOPS_ON_GPU: "Python loops on the GPU"}.get(name, name)


def base_row(rows: Sequence[dict]) -> dict:
    """What speed-ups count from: the loops on the GPU, as in the article, where they ran; else the first row."""
    return next((row for row in rows if row["name"] == LOOPS_ON_GPU), rows[0])


def figure_times(rows: Sequence[dict], scene: str, machine: str) -> str:
    """Figure 6 of the article: time of extract_fields by backend, bars on a logarithmic scale.

    Args:
        rows: as FieldResult.to_dict(); those without a timing are left out.
        scene, machine: what was computed, and on what, for the second and third line.
    """
    rows = [row for row in rows if row["timing"]]
    row_height, left, top = 62, 252, 128
    right, bottom = _WIDTH - 150, top + row_height * len(rows)
    times = [row["timing"]["median_s"] for row in rows]
    base = base_row(rows)["timing"]["median_s"]
    fastest = min(range(len(rows)), key=lambda k: times[k])
    headline = f"extract_fields: {numbers.seconds(base)} by {_in_words(base_row(rows)['name'])}"
    if times[fastest] < base:
        gain = numbers.ratio(base / times[fastest])
        headline += f", {numbers.seconds(times[fastest])} by {rows[fastest]['name']} ({gain})"
    svg = Svg(_WIDTH, bottom + 64, headline)
    _heading(svg, headline, scene, machine)
    low, high = log_range(times)
    low = low if min(times) > 1.5 * low else low / 10  # a bar must have a length
    scale = Scale(low, high, left, right, log=True)
    draw_x_axis(svg, scale, top - 8, bottom, "median time, logarithmic scale", _short_seconds)
    for index, (row, median) in enumerate(zip(rows, times, strict=True)):
        y = top + row_height * index
        svg.text(left - 14, y + 22, row["name"], 15, INK, "end", bold=True)
        svg.text(left - 14, y + 40, KINDS.get(row["name"], ""), 11.5, MUTED, "end")
        svg.rect(left, y + 8, scale(median) - left, 34, color_of(row["name"]), 3)
        _spread(svg, scale, row["timing"], y + 25)
        beside = max(scale(median), scale(min(row["timing"]["highest_s"], high))) + 10
        svg.text(beside, y + 23, numbers.seconds(median), 15, INK, bold=True, halo=True)
        svg.text(beside, y + 40, numbers.ratio(base / median), 12.5, MUTED, halo=True)
    return svg.render()


def figure_amdahl(account: dict, runs: dict[str, dict], others: Sequence[dict], machine: str) -> str:
    """Figure 7 of the article: what a faster field does to a whole run.

    Args:
        account: as AmdahlAccount.to_dict(), of the two runs that are drawn.
        runs: WholeRun as a dict, by backend.
        others: accounts of the same slow run, as points on the curve; `account` may be among them.
        machine: for the third line.
    """
    slow, fast = account["slow"], account["fast"]
    equal_rests = abs(account["rest_ratio"] - 1) < _EQUAL_RESTS
    in_all = account["measured"] if equal_rests else account["predicted"]
    headline = (
        f"The field takes {account['share']:.0%} of the run: {numbers.ratio(account['speedup'])} there "
        f"is {numbers.ratio(in_all)} in all"
    )
    svg = Svg(_WIDTH, 520, headline)
    law = f"Amdahl: 1 / ((1 - P) + P / S), P = {account['share']:.3f}, S = {numbers.ratio(account['speedup'])}"
    second = f"{law}, predicted {numbers.ratio(account['predicted'])}"
    if not equal_rests:
        second += f"; their rest differed {numbers.ratio(account['rest_ratio'])}"
    _heading(svg, headline, second, machine)
    _stacked_runs(svg, runs, slow, fast, account)
    _amdahl_curve(svg, account, others)
    return svg.render()


def _stacked_runs(svg: Svg, runs: dict[str, dict], slow: str, fast: str, account: dict) -> None:
    """Left half: the seconds of both runs, and of the one that the law foretells."""
    left, right, top, bottom = 64, 430, 160, 420
    slow_run, fast_run = runs[slow], runs[fast]
    slow_rest_s = slow_run["total_s"] - slow_run["field_s"]
    bars = [
        (slow, "measured", slow_rest_s, slow_run["field_s"], color_of(slow)),
        (fast, "predicted", slow_rest_s, slow_run["field_s"] / account["speedup"], color_of(fast)),
        (fast, "measured", fast_run["total_s"] - fast_run["field_s"], fast_run["field_s"], color_of(fast)),
    ]
    highest = max(rest + part for _, _, rest, part, _ in bars)
    scale = Scale(0, 1.12 * highest, bottom, top)
    draw_y_axis(svg, scale, left, right, "seconds of the whole run", lambda v: f"{v:g}")
    width = (right - left) / len(bars)
    for index, (name, kind, rest, part, color) in enumerate(bars):
        x = left + width * (index + 0.5)
        svg.rect(x - 38, scale(rest), 76, bottom - scale(rest), "#cfd5dd")
        svg.rect(x - 38, scale(rest + part), 76, scale(rest) - scale(rest + part), color)
        svg.text(x, scale(rest + part) - 8, numbers.seconds(rest + part), 14, INK, "middle", bold=True, halo=True)
        if scale(rest) - scale(rest + part) > 18:
            middle = (scale(rest) + scale(rest + part)) / 2
            svg.text(x, middle + 5, numbers.seconds(part), 12.5, "#ffffff", "middle", bold=True)
        svg.text(x, bottom + 20, name, 14, INK, "middle", bold=True)
        svg.text(x, bottom + 38, kind, 12, MUTED, "middle")
    svg.line(left, bottom, right, bottom, MUTED)
    svg.rect(left, 476, 14, 14, color_of(slow), 2)
    svg.rect(left + 18, 476, 14, 14, color_of(fast), 2)
    svg.text(left + 40, 488, "density field", 13, INK)
    svg.rect(left + 150, 476, 14, 14, "#cfd5dd", 2)
    svg.text(left + 172, 488, "everything else", 13, INK)


def _amdahl_curve(svg: Svg, account: dict, others: Sequence[dict]) -> None:
    """Right half: the law's curve, its limit, and the measured runs."""
    left, right, top, bottom = 520, _WIDTH - 36, 160, 420
    accounts = [account, *(other for other in others if other != account)]
    _, highest = log_range([max(other["speedup"] for other in accounts), 10.0])
    x_scale = Scale(1, highest * 3, left, right, log=True)
    tallest = max(account["limit"], *(other["measured"] for other in accounts), 1.0)
    y_scale = Scale(1, 1 + 1.25 * max(tallest - 1, 0.05), bottom, top)
    draw_y_axis(svg, y_scale, left, right, "speed-up of the whole run", lambda v: f"{v:.3g}x")
    draw_x_axis(svg, x_scale, bottom, bottom, "speed-up of the field, S (logarithmic)", _short_ratio)
    for tick in x_scale.ticks():
        svg.line(x_scale(tick), bottom, x_scale(tick), bottom + 5, MUTED)
    limit_y = y_scale(account["limit"])
    svg.line(left, limit_y, right, limit_y, MUTED, 1.5, "6 5")
    limit = f"limit 1 / (1 - P) = {numbers.ratio(account['limit'])}"
    svg.text(left + 8, limit_y - 8, limit, 12.5, MUTED)
    limit_box = (left + 8, limit_y - 20, left + 8 + text_width(limit, 12.5), limit_y - 4)
    samples = [10 ** (k / 60 * (len(str(int(highest * 3))) - 0.5)) for k in range(61)]
    curve = [(x_scale(s), y_scale(amdahl(account["share"], s))) for s in samples if s <= highest * 3]
    svg.polyline(curve, INK, 2)
    points = {
        other["fast"]: (x_scale(max(other["speedup"], 1)), y_scale(max(other["measured"], 1))) for other in accounts
    }
    for name, (x, y) in points.items():
        svg.circle(x, y, 7, color_of(name))
    for name, (x, y) in place_labels(points, right, [limit_box]).items():
        svg.text(x, y, name, 13, INK, bold=True, halo=True)
    svg.line(left, bottom, right, bottom, MUTED)
    svg.polyline([(left, 483), (left + 26, 483)], INK, 2)
    svg.text(left + 34, 488, "predicted", 13, INK)
    svg.circle(left + 126, 483, 6, MUTED)
    svg.text(left + 140, 488, "measured", 13, INK)


def figure_gustafson(rows: Sequence[dict], scene: str, machine: str) -> str:
    """Figure 8 of the article: the problem grows; time on the left, work done per time on the right.

    Args:
        rows: as ScalingResult.to_dict(), the first backend at the smallest size being the base.
    """
    rows = [row for row in rows if row["timing"]]
    base = base_row([row for row in rows if row["resolution"] == rows[0]["resolution"]])
    names = list(dict.fromkeys(row["name"] for row in rows))
    rates = {
        (row["name"], row["resolution"]): work_rate(
            row["nodes"], row["timing"]["median_s"], base["nodes"], base["timing"]["median_s"]
        )
        for row in rows
    }
    best = max(rows, key=lambda row: rates[row["name"], row["resolution"]])
    gain = numbers.ratio(rates[best["name"], best["resolution"]])
    headline = f"{best['name']} does {gain} the work a second at {_cube(best['resolution'])} nodes"
    svg = Svg(_WIDTH, 560, headline)
    _heading(
        svg,
        headline,
        f"{scene}; compared with {_in_words(base['name'])} at {_cube(base['resolution'])}: scaled speed-up",
        machine,
    )
    sizes = sorted({row["resolution"] for row in rows})
    top, bottom = 160, 440
    times = [row["timing"]["median_s"] for row in rows]
    for left, right, label, values, name, value_of in (
        (80, 440, "median time, logarithmic", times, _short_seconds, lambda row: row["timing"]["median_s"]),
        (
            550, _WIDTH - 40, f"nodes a second, {base['name']} at {_cube(base['resolution'])} = 1",
            list(rates.values()), _short_ratio, lambda row: rates[row["name"], row["resolution"]],
        ),
    ):  # fmt: skip
        low, high = log_range(values)
        y_scale = Scale(low, high, bottom, top, log=True)
        x_scale = Scale(sizes[0] / 1.15, sizes[-1] * 1.15 if len(sizes) > 1 else sizes[0] * 2, left, right, log=True)
        draw_y_axis(svg, y_scale, left, right, label, name)
        for size in sizes:
            svg.text(x_scale(size), bottom + 20, _cube(size), 13, MUTED, "middle")
            svg.line(x_scale(size), bottom, x_scale(size), bottom + 5, MUTED)
        svg.text((left + right) / 2, bottom + 44, "nodes", 13, MUTED, "middle")
        svg.line(left, bottom, right, bottom, MUTED)
        for backend in names:
            points = [(x_scale(row["resolution"]), y_scale(value_of(row))) for row in rows if row["name"] == backend]
            svg.polyline(points, color_of(backend), 2.5)
            for x, y in points:
                svg.circle(x, y, 6, color_of(backend))
    _legend(svg, names, 80, 524)
    return svg.render()


def place_labels(
    points: dict[str, tuple[float, float]], right: float, taken: Sequence[tuple[float, float, float, float]] = ()
) -> dict[str, tuple[float, float]]:
    """Where names start (left end, baseline) so that they stand beside their points, within `right`, on nothing else.

    taken: boxes (left, top, right, bottom) of other things.
    """
    size, placed = 13, {}
    taken = [*taken, *((x - 8, y - 8, x + 8, y + 8) for x, y in points.values())]
    for name, (x, y) in points.items():
        width = text_width(name, size)
        places = [
            (start, y + drop)
            for drop in (22, -14, 38, -30, 54, 70, 86)
            for start in (x + 8, x - width / 2, x - 8 - width)
        ]
        free = (
            place
            for place in places
            if place[0] + width <= right
            and not any(
                place[0] < box[2] and place[0] + width > box[0] and place[1] - size < box[3] and place[1] + 3 > box[1]
                for box in taken
            )
        )
        left, baseline = next(free, places[0])
        taken.append((left, baseline - size, left + width, baseline + 3))
        placed[name] = (left, baseline)
    return placed


def _heading(svg: Svg, headline: str, second: str, third: str) -> None:
    """The message, then what was measured."""
    size = min(22.0, (_WIDTH - 64) / text_width(headline, 1))  # a long one is written smaller
    svg.text(32, 44, headline, size, INK, bold=True)
    svg.text(32, 70, second, 14, MUTED)
    svg.text(32, 91, third, 12.5, MUTED)


def _spread(svg: Svg, scale: Scale, timing: dict, y: float) -> None:
    """From the fastest to the slowest repeat, a thin line on the bar's end."""
    low, high = scale(max(timing["lowest_s"], scale.low)), scale(min(timing["highest_s"], scale.high))
    if high - low > 2:
        svg.line(low, y, high, y, INK, 1.5)
        for x in (low, high):
            svg.line(x, y - 5, x, y + 5, INK, 1.5)


def _legend(svg: Svg, names: Sequence[str], x: float, y: float) -> None:
    for name in names:
        svg.circle(x + 6, y, 6, color_of(name))
        svg.text(x + 20, y + 5, name, 13.5, INK)
        x += 46 + text_width(name, 13.5)


def _short_seconds(value: float) -> str:
    """Ticks: powers of ten."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("\u00b5s", 1e6)):
        if value * factor >= 0.999:
            return f"{value * factor:,.0f} {unit}"
    return f"{value * 1e9:.0f} ns"


def _short_ratio(value: float) -> str:
    return f"{value:,.0f}x" if value >= 0.999 else f"{value:g}x"


def _cube(size: int) -> str:
    return f"{size:,}\u00b3"
