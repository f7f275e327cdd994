"""Draw the pictures and formulas of the documentation when the site is built, so that a reader's browser asks nobody.

Formulas become MathML, which browsers draw without a script or a font. Mermaid's pictures become SVG, by the layout of the
reports. Examples that a page names stand on it. Links to other files outside of the pages become their paths, since the site
ships without the sources. A picture that no page shows, and a measured figure without its bench, end a strict build.
"""

from __future__ import annotations

import html
import logging
import posixpath
import re
import runpy
from pathlib import Path
from typing import Any, Final

from latex2mathml.converter import convert
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.release.report.layout import arrange

_LOG: Final = logging.getLogger("mkdocs.hooks.verticil")
_FORMULA: Final = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_MERMAID: Final = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
_LINK: Final = re.compile(r"(?<!!)\[([^\]\n]+)\]\(((?:\.\./)+[^)\s#]+)(?:#[^)]*)?\)")
_FEATURES: Final = "developer/features.md"
_BOOSTS: Final = {
    "developer/decisions.md": 0.3,
    "start/glossary.md": 4.0,
    "reference/changelog.md": 0.3,
    "reference/errors.md": 1.0,
    "reference/party-toml.md": 2.0,
    "reference/study-toml.md": 1.0,
    "developer/": 0.5,
    "reference/": 0.6,
    "theory/": 0.8,
}
"""How much of its weight a page has in a search, by the beginning of its path: guides that say what to do come first."""
_NEEDLESS: Final = ("**/*.map", "assets/javascripts/lunr/**/*", "search/search_index.json", "sitemap*")
"""Files that only a debugger, other languages than English, or a server need."""
_SEARCH: Final = ("assets/javascripts/workers/search.*.js", "search(e){if(e=e.replace(")
"""The program that searches, and where it gets a query, which it would search for words like `a` and `to`, too."""
_WITHOUT_STOP_WORDS: Final = (
    'search(e){e=e.split(" ").filter(word=>lunr.stopWordFilter(word.toLowerCase().replace(/\\W+$/,""))).join(" ")||e;'
    "if(e=e.replace("
)
_PRE: Final = re.compile(r"(<pre.*?</pre>|<script.*?</script>)", re.DOTALL)
_SPACES: Final = re.compile(r"\s*\n\s*")
_LETTER: Final = 8.2
"""Width of a letter in a picture, in drawing units."""
_LEAST_WIDTH: Final = 600
"""Of a picture in pixels: on a narrower screen it is scrolled, since its letters would be too small to read."""
_EXAMPLE: Final = re.compile(r"^\[[^\]]+\]\((?:\.\./)+(examples/[\w/-]+\.(patch|py))\).*$", re.MULTILINE)
"""A line that begins with a link to an example: the site shows the example below it."""
_LANGUAGES: Final = {"patch": "text", "py": "text"}
_used: set[str] = set()
_figures: Final = runpy.run_path(str(Path(__file__).with_name("figures.py")))["figures_without_bench"]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page with its pictures drawn and its links to sources as paths."""
    folder = posixpath.dirname(page.file.src_uri)
    for line, text in _figures(markdown):
        _LOG.warning("deploy/docs/%s:%d: a measured figure without its bench: %s", page.file.src_uri, line, text)
    page.meta["search"] = {
        "boost": next((boost for start, boost in _BOOSTS.items() if page.file.src_uri.startswith(start)), 2.0)
    }
    if page.file.src_uri == _FEATURES:
        page.meta["search"] = {"exclude": True}
    _used.update(
        posixpath.normpath(posixpath.join(folder, target))
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s#]+)", markdown)
    )

    def path_of(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("deploy/docs", folder, link[2]))
        if target.startswith("deploy/docs/") and not target.endswith(".ipynb"):
            return link[0]
        return f"`{target}`" if link[1].strip("`") in target else f"{link[1]} (`{target}`)"

    markdown = _EXAMPLE.sub(
        lambda found: f"{found[0]}\n\n```{_LANGUAGES[found[2]]}\n{_example(found[1])}```\n", markdown
    )
    return _LINK.sub(path_of, _MERMAID.sub(lambda block: draw_picture(block[1]), markdown))


def on_page_content(content: str, **_: Any) -> str:
    """Return a page whose formulas are MathML; one that is wider than a telephone is scrolled by itself."""
    return _FORMULA.sub(
        lambda found: (
            convert(html.unescape(found[2]), display="inline")
            if found[1] == "span"
            else f'<div style="overflow-x:auto">{convert(html.unescape(found[2]), display="block")}</div>'
        ),
        content,
    )


def _example(path: str) -> str:
    return (Path(__file__).parents[1] / path).read_text(encoding="utf-8")


def on_post_page(output: str, **_: Any) -> str:
    """Return a page without the spaces between its tags."""
    parts = _PRE.split(output)
    return "".join(part if number % 2 else _SPACES.sub("\n", part) for number, part in enumerate(parts))


@event_priority(-200)  # after the plugin `offline` has copied the index
def on_post_build(config: Any, **_: Any) -> None:
    """Remove what no reader of these pages needs, so that the wheel stays small, and stop words from queries."""
    site = Path(config.site_dir)
    for path in (path for pattern in _NEEDLESS for path in site.glob(pattern) if path.is_file()):
        path.unlink()
    for worker in site.glob(_SEARCH[0]):
        program = worker.read_text(encoding="utf-8")
        if _SEARCH[1] not in program:
            _LOG.warning("%s: the query of a search is not where it was", worker.name)
        worker.write_text(program.replace(_SEARCH[1], _WITHOUT_STOP_WORDS), encoding="utf-8")


def on_files(files: Any, *, config: Any, **_: Any) -> Any:
    """Forget the pictures of the build before, and add the page of features."""
    _used.clear()
    page = runpy.run_path(str(Path(__file__).with_name("features.py")))["features_page"]()
    files.append(File.generated(config, _FEATURES, content=page))
    return files


def on_env(env: Any, *, files: Any, **_: Any) -> Any:
    """Warn of each picture that no page shows; a strict build ends then."""
    for file in files.media_files():
        if file.src_uri.startswith("pictures/") and file.src_uri not in _used:
            _LOG.warning("deploy/docs/%s: no page shows this picture", file.src_uri)
    return env


def draw_picture(text: str) -> str:
    """Return the SVG of a Mermaid flowchart of boxes (`a["words"]`) and arrows (`a --> b`)."""
    labels = dict(re.findall(r'^\s*(\w+)\["([^"]+)"\]$', text, re.MULTILINE))
    names = list(labels)
    parents: list[list[int]] = [[] for _ in names]
    for upper, lower in re.findall(r"^\s*(\w+) --> (\w+)$", text, re.MULTILINE):
        parents[names.index(lower)].append(names.index(upper))
    picture = arrange(
        Dag(parents=tuple(tuple(sorted(set(row))) for row in parents)),
        [_LETTER * len(label) + 20 for label in labels.values()],
    )
    lines = [
        f'<path d="{curve.path}" fill="none" stroke="currentColor" marker-end="url(#tip)"/>' for curve in picture.curves
    ]
    for box, label in zip(picture.boxes, labels.values(), strict=True):
        corner = f'x="{box.x - box.width / 2:.0f}" y="{box.y - box.height / 2:.0f}"'
        size = f'width="{box.width:.0f}" height="{box.height:.0f}"'
        lines += [
            f'<rect {corner} {size} rx="6" fill="none" stroke="currentColor"/>',
            f'<text x="{box.x:.0f}" y="{box.y + 5:.0f}" text-anchor="middle" font-size="15" fill="currentColor">'
            f"{html.escape(label)}</text>",
        ]
    tip = '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    tip += '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>'
    words = "; ".join(f"{labels[a]} to {labels[b]}" for a, b in re.findall(r"^\s*(\w+) --> (\w+)$", text, re.MULTILINE))
    opening = (
        f'<svg viewBox="0 0 {picture.width:.0f} {picture.height:.0f}" role="img" aria-label="{html.escape(words)}"'
    )
    size = f"width:{picture.width:.0f}px;max-width:100%;min-width:{min(picture.width, _LEAST_WIDTH):.0f}px"
    return f'<div style="overflow-x:auto">{opening} style="{size}">{tip}{"".join(lines)}</svg></div>\n'
