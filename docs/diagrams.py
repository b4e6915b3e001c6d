"""Shows the Mermaid diagrams of the pages as the images that `python -m tools.diagrams` has drawn.

mkdocs calls it as a hook.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from tools.diagrams import file_of

FENCE = re.compile(r'<pre class="mermaid"><code>(.*?)</code></pre>', re.DOTALL)
SIZE = re.compile(r'viewBox="\S+ \S+ ([\d.]+) ([\d.]+)"')


def on_page_content(content: str, /, *, page: Page, **_: Any) -> str:
    """Raises PluginError for a diagram that is not drawn."""
    return FENCE.sub(lambda found: _image(html.unescape(found[1]), page), content)


def _image(source: str, page: Page) -> str:
    path: Path = file_of(source)
    size = SIZE.search(path.read_text()) if path.exists() else None
    if size is None:
        raise PluginError(f"{page.file.src_uri}: a diagram is not drawn: run `python -m tools.diagrams`\n{source}")
    width, height = (round(float(one)) for one in size.groups())
    where = get_relative_url(f"diagrams/{path.name}", page.url)
    alt = html.escape(" ".join(source.split()), quote=True)
    return f'<img class="drawn" src="{where}" width="{width}" height="{height}" loading="lazy" alt="{alt}">'
