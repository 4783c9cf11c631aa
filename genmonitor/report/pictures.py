# SPDX-License-Identifier: Apache-2.0
"""Pictures: figures as PNG, strips of images as WebP, and small ones on the page, as many as fit."""

from __future__ import annotations

import base64
import io
import re
import signal
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from PIL import Image

from genmonitor._io import signals_deferred
from genmonitor.evaluation.results import ShownImages
from genmonitor.plotting.style import INK
from genmonitor.report.run import MonitorRun, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from genmonitor.plotting.style import Drawing

MAX_BYTES = 1_000_000
"""Size of all pictures of a page, which need a third more in its text. Beyond it, fewer evaluations are shown."""
MAX_SHOWN = 24
OWN = ("clusters", "samples", "diagnosis", "single_samples")
"""Figures that the page draws itself, from data and images."""
DARK = {INK: "#e8e8e8", "#555555": "#b0b0b0"}
"""Colors of text, and those on a dark page."""
QUALITY = 80
"""Quality of larger pictures, on Pillow's scale to 100."""


class Pictures:
    """Embeds pictures in a page.

    Args:
        runs: Runs of the monitors that share the page.
    """

    def __init__(self, runs: Sequence[MonitorRun]) -> None:
        dated = [found for run in runs for found in _figures(run, dated=True).values()]
        dated += [run.strips.get(name, []) for run in runs for name in ("images", "diagnosis")]
        fixed = [_encode(x[-1].path)[0] for run in runs for x in _figures(run, dated=False).values()]
        fixed += [x.path.read_bytes() for run in runs for x in run.strips.get("real", [])]
        left = self._part = max(MAX_BYTES - sum(map(len, fixed)), MAX_BYTES // 2)
        needs = sorted(len(some[:MAX_SHOWN]) * _largest(some) for some in dated if some)
        for number, need in enumerate(needs):  # what the small ones leave is for the large ones
            self._part = left // (len(needs) - number)
            left -= min(need, self._part)

    def latest(self, run: MonitorRun) -> list[dict[str, Any]]:
        """Return the figures of which only the latest is kept."""
        latest = _figures(run, dated=False)
        return [{"name": kind.replace("_", " "), **_shown(found[-1].path)} for kind, found in latest.items()]

    def sliders(self, run: MonitorRun) -> list[dict[str, Any]]:
        """Return the figures that each evaluation has, for some evaluations."""
        found = {name.replace("_", " "): pictures for name, pictures in _figures(run, dated=True).items()}
        chosen = {name: self._chosen(pictures) for name, pictures in found.items()}
        shown = {name: [{**_moment(x), **_shown(x.path)} for x in some] for name, some in chosen.items()}
        return [{"name": name, "of": len(found[name]), "pictures": pictures} for name, pictures in shown.items()]

    def images(self, run: MonitorRun) -> dict[str, Any] | None:
        """Return the images to show one by one, real ones and those of some evaluations; None if there are none."""
        generated = run.strips.get("images", [])
        if not generated:
            return None
        real = [_strip(x) for x in run.strips.get("real", [])[-1:]]
        other = [_strip(x) for x in run.strips.get("other_images", [])[-1:]]
        strips = [_strip(x) for x in self._chosen(generated)]
        captions = generated[-1].about["captions"]
        return {"real": real, "other": other, "strips": strips, "of": len(generated), "captions": captions}

    def diagnoses(self, run: MonitorRun) -> list[dict[str, Any]]:
        """Return the examples of faults, for some evaluations."""
        strips = run.strips.get("diagnosis", [])
        return [_strip(x) for x in self._chosen(strips)] if strips else []

    def _chosen(self, pictures: Sequence[Picture]) -> list[Picture]:
        """Choose pictures spread evenly over the evaluations, including the first and the last, as many as fit."""
        count = max(2, min(MAX_SHOWN, len(pictures), self._part // _largest(pictures)))
        last = len(pictures) - 1
        return [pictures[i] for i in sorted({round(i * last / (count - 1)) for i in range(count)})]


def _figures(run: MonitorRun, *, dated: bool) -> dict[str, list[Picture]]:
    """Return the figures of each evaluation, or of the last, without those that the page draws itself."""
    strips = run.strips
    own = run.partition is not None, "images" in strips, "diagnosis" in strips, "diagnosis" in strips
    drawn = dict(zip(OWN, own, strict=True))
    shown = {kind: found for kind, found in run.pictures.items() if not drawn.get(kind)}
    return {kind: found for kind, found in shown.items() if (found[-1].epoch is not None) is dated}


def _largest(pictures: Sequence[Picture]) -> int:
    """Return the size of the largest picture on the page, by three of them; a strip is there as it is."""
    some = {pictures[0], pictures[len(pictures) // 2], pictures[-1]}
    return max(1, *(x.path.stat().st_size if x.about else len(_encode(x.path)[0]) for x in some))


def _moment(picture: Picture) -> dict[str, int | None]:
    return {"epoch": picture.epoch, "step": picture.step}


def _strip(strip: Picture) -> dict[str, Any]:
    return {**_moment(strip), **strip.about, "source": _uri(strip.path.read_bytes(), "webp")}


def _shown(path: Path) -> dict[str, Any]:
    content, width = _encode(path)
    return {"source": _uri(content, "svg+xml" if content.startswith(b"<?xml") else "png"), "width": width}


def _uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _encode(path: Path) -> tuple[bytes, int]:
    """Return a picture, as an SVG file if there is one, and its width in pixels."""
    at = path.stat()
    return _encoded(path, at.st_mtime_ns, at.st_size)


@lru_cache(maxsize=256)  # the page is written from scratch at each evaluation, with nearly the same pictures
def _encoded(path: Path, modified: int, size: int) -> tuple[bytes, int]:
    content, vector = path.read_bytes(), path.with_suffix(".svg")
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            width = picture.width
        if vector.is_file():
            content = re.sub(rb"data:image/png;base64,([^\"]+)", _smaller, vector.read_bytes())
    except (OSError, ValueError):  # not a picture
        return content, 0
    return content, width


def _webp(pixels: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    pixels.save(file, "WEBP", **options)
    return file.getvalue()


def render(given: Figure | Drawing, form: str = "png", **options: Any) -> bytes:
    """Return the file of a figure, or of a function that draws one, at its own resolution."""
    buffer = io.BytesIO()
    # matplotlib's C++ code turns a KeyboardInterrupt into a ValueError, or drops it
    with signals_deferred(signal.SIGINT):
        figure = given() if callable(given) else given
        figure.savefig(buffer, format=form, dpi=figure.dpi, **options)
    return buffer.getvalue()


def as_svg(given: Figure | Drawing) -> bytes:
    """Return the SVG file of a figure, whose text is light where the page around it is dark."""
    with rc_context({"svg.fonttype": "none"}):  # letters as text, a tenth of their outlines
        text = render(given, "svg", transparent=True, metadata={"Date": None}).decode()
    for number, light in enumerate(DARK):  # of styles, since a prompt may name a color too
        text = re.sub(rf'(style="[^"]*){light}', rf"\1var(--c{number})", text)
    light, dark = ("".join(f"--c{i}:{color};" for i, color in enumerate(colors)) for colors in (DARK, DARK.values()))
    style = f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    return text.replace("</style>", style, 1).encode()


def _smaller(match: re.Match[bytes]) -> bytes:
    """Return a picture within an SVG file, where letters are apart, as a small WebP file."""
    with Image.open(io.BytesIO(base64.b64decode(match[1])), formats=["PNG"]) as picture:
        return _uri(_webp(picture.convert("RGB"), quality=50), "webp").encode()


def encode_strip(shown: ShownImages) -> bytes:
    """Return images below each other as a WebP file, with the nearest real image at the right of each."""
    sides = [shown.tiles] if shown.nearest is None else [shown.tiles, shown.nearest]
    tiles = np.concatenate(sides, axis=2)
    pixels = np.round(255 * tiles.reshape(-1, *tiles.shape[2:])).astype(np.uint8)
    small = max(shown.tiles.shape[1:3]) <= 32  # the blocks of a lossy file would show
    return _webp(Image.fromarray(pixels), lossless=small, quality=100 if small else QUALITY)


def describe_strip(shown: ShownImages) -> dict[str, Any]:
    """Return the data for a reader of the file: the height of an image, captions and distances."""
    words = {"captions": list(shown.captions), "distances": [round(distance, 3) for distance in shown.distances]}
    return {"height": shown.tiles.shape[1], "nearest": shown.nearest is not None, **words}
