"""Draws the Mermaid diagrams while the site is built, so no reader's browser loads a program for it.

mkdocs calls it as a hook.
"""

from __future__ import annotations

import hashlib
import html
import re
from typing import Any

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

FENCE = re.compile(r'<pre class="mermaid"><code>(.*?)</code></pre>', re.DOTALL)
SIZE = re.compile(r'viewBox="\S+ \S+ ([\d.]+) ([\d.]+)"')
# Labels as text of the SVG. HTML in them would need fonts and styles of the page, and an image has none.
OPTIONS: dict[str, Any] = {"htmlLabels": False, "flowchart": {"htmlLabels": False}}


def on_page_content(content: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replaces each diagram by an image. Raises MermaidRenderError for a diagram that cannot be read."""

    def image(found: re.Match[str]) -> str:
        source = html.unescape(found[1])
        name = f"diagrams/{hashlib.sha256(source.encode()).hexdigest()[:16]}.svg"
        drawing = mermaidx.render(source, theme="neutral", config=OPTIONS).svg()
        size = SIZE.search(drawing)
        if size is None:
            raise ValueError(f"{page.file.src_uri}: a diagram without a size: {source}")
        files.append(File.generated(config, name, content=drawing))
        width, height = (round(float(one)) for one in size.groups())
        where = get_relative_url(name, page.url)
        alt = html.escape(" ".join(source.split()), quote=True)
        return f'<img class="drawn" src="{where}" width="{width}" height="{height}" loading="lazy" alt="{alt}">'

    return FENCE.sub(image, content)
