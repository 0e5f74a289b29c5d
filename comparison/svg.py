"""Small pictures of lines and words as SVG text: a chart needs no plotting library, and stays sharp at any size."""

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

FONT = "'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
INK, MUTED, GRID, PAPER = "#1c2330", "#5c6675", "#e3e7ec", "#ffffff"
CHARACTER = 0.62  # width of a character, in font sizes: a mean of the widest of the fonts above


class Svg:
    """A drawing of width x height pixels on white; y points down."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []
        self.rect(0, 0, width, height, PAPER)

    def rect(self, x: float, y: float, width: float, height: float, fill: str, radius: float = 0) -> None:
        self._add("rect", x=x, y=y, width=max(width, 0), height=max(height, 0), fill=fill, rx=radius)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, color: str = GRID, width: float = 1, dash: str = ""
    ) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=color, stroke_width=width, stroke_dasharray=dash)

    def polyline(self, points: Iterable[tuple[float, float]], color: str, width: float = 2, dash: str = "") -> None:
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add(
            "polyline", points=text, fill="none", stroke=color, stroke_width=width, stroke_dasharray=dash,
            stroke_linejoin="round",
        )  # fmt: skip

    def circle(self, x: float, y: float, radius: float, fill: str, stroke: str = PAPER) -> None:
        self._add("circle", cx=x, cy=y, r=radius, fill=fill, stroke=stroke, stroke_width=2)

    def text(
        self, x: float, y: float, words: str, size: float = 14, color: str = INK, anchor: str = "start",
        bold: bool = False, halo: bool = False,
    ) -> None:  # fmt: skip
        """`y` is the baseline; anchor: start | middle | end; halo: paper around the letters, over lines."""
        outline = {"stroke": PAPER, "stroke_width": 4, "paint_order": "stroke"} if halo else {}
        self._add(
            "text", words, x=x, y=y, fill=color, font_size=size, text_anchor=anchor,
            font_weight="600" if bold else "", **outline,
        )  # fmt: skip

    def render(self) -> str:
        """The whole file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" height="{self.height:g}" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" font-family="{FONT}" role="img">'
        )
        return "\n".join([head, f"<title>{escape(self.title)}</title>", *self._parts, "</svg>", ""])

    def _add(self, tag: str, words: str | None = None, **attributes) -> None:
        written = " ".join(
            f"{name.replace('_', '-')}={quoteattr(f'{value:.1f}' if isinstance(value, float) else str(value))}"
            for name, value in attributes.items()
            if value != ""
        )
        self._parts.append(f"<{tag} {written}/>" if words is None else f"<{tag} {written}>{escape(words)}</{tag}>")


def text_width(words: str, size: float) -> float:
    """About how wide words are, in pixels."""
    return CHARACTER * size * len(words)
