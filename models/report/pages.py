"""Self-contained HTML pages: templates with every value escaped, without scripts and external resources."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from models.readable import readable

if TYPE_CHECKING:
    import jinja2

_TEMPLATES = Path(__file__).parent / "templates"
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
DARK = {
    "#ffffff": "#14181c", "#1f2933": "#e4e8ec", "#5f6b76": "#9aa6b2", "#e3e7eb": "#333b44", "#767676": "#9aa6b2",
    "#0072b2": "#6cb6f0", "#d55e00": "#f0915a", "#009e73": "#52c9a0", "#cc79a7": "#e29ac8", "#7a5195": "#c4a3dd",
    "#444444": "#c0c8d0",
}  # fmt: skip
"""The colours of a figure (`models/report/style.py`) and those in the dark, as in the pages' stylesheet."""
_RULES = "".join(
    f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
    for light, dark in DARK.items()
    for kind in ("fill", "stroke")
)
_DARK_STYLE = f"<style>@media (prefers-color-scheme:dark){{{_RULES}}}</style>".encode()
_SAFE_LINKS = ("http://", "https://", "file:///", "#", "./", "../")


def render(template: str, filters: Mapping[str, Callable[..., Any]] | None = None, **values: Any) -> str:
    """Fill a template of `models/report/templates/` with values; `filters` are added to the standard ones."""
    return environment(tuple((filters or {}).items())).get_template(template).render(**values)


@functools.lru_cache(maxsize=4)
def environment(filters: tuple[tuple[str, Callable[..., Any]], ...] = ()) -> jinja2.Environment:
    """Return the environment of the templates, which keeps what it compiled: to fill it is quick."""
    import jinja2  # imported here, so that users of `show` do not wait for it

    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {"show": show, "interval": interval, "safe_link": safe_link, "data_uri": data_uri}
    jinja.filters |= dict(filters)
    return jinja


def show(value: Any) -> str | Markup:
    """Return a value for display: 4 significant digits, thousands separated, `–` for nothing, a blank in quotes."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return (f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)).replace("-", "−")
    if isinstance(value, float):
        return _decimal(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {show(element)}" for key, element in value.items()) or "–"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(str(show(element)) for element in value) or "–"
    text = str(value)
    return repr(text) if text.isspace() else text


def interval(low: float | None, high: float | None) -> str:
    """Return `0.742 to 0.751`, or `–` if there is no interval."""
    return "–" if low is None or high is None else f"{_decimal(low)} to {_decimal(high)}"


def ago(seconds: float, now: float) -> str:
    """Return `3 h ago`, `in 2 d` or `now`, in the largest unit of which there are at least 1.5."""
    apart = abs(now - seconds)
    if apart < 1:
        return "now"
    size, unit = next((pair for pair in UNITS if apart >= 1.5 * pair[0]), UNITS[-1])
    text = f"{apart / size:.0f} {unit}"
    return f"{text} ago" if seconds < now else f"in {text}"


def safe_link(address: str) -> str:
    """Return the address if it is a safe link, else `#`: it could run code, or leads to another server unseen."""
    is_ours = address.startswith("/") and address[1:2] not in ("/", "\\")  # `//x` and `/\x` are other servers
    return address if is_ours or address.startswith(_SAFE_LINKS) else "#"


def data_uri(image: bytes) -> str:
    """Return a PNG or SVG as an address that contains the image itself.

    The pages put figures into `img`, where a script inside an SVG never runs and its ids cannot clash with another's.
    In the dark an SVG is dark too, but one that contains a map of colours, on which texts are light or dark.
    """
    kind = "png" if image.startswith(b"\x89PNG") else "svg+xml"
    if kind != "png" and b"<image" not in image:
        image = re.sub(rb"<svg[^>]*[^/]>", lambda start: start[0] + _DARK_STYLE, image, count=1)
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def _decimal(value: float) -> str:
    return readable(value).replace(",", "\u202f")
