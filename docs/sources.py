"""Gives each page a link to its source, and the text of the program that it begins with.

mkdocs calls it as a hook.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = re.compile(r"^```sh\npython -m (examples\.guide\.\w+)\b.*?^```\n", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The source is a file of the site. With `repo_url` and `edit_uri` in mkdocs.yml, it is in the repository."""
    if page.edit_url is None:
        name = f"sources/{page.file.src_uri}.txt"
        files.append(File.generated(config, name, content=markdown))
        page.edit_url = get_relative_url(name, page.url)
    return PROGRAM.sub(_with_text, markdown, count=1)


def _with_text(found: re.Match[str]) -> str:
    path = found[1].replace(".", "/") + ".py"
    text = textwrap.indent((ROOT / path).read_text(), "    ")
    return f'{found[0]}\n??? example "{path}"\n\n    ```python\n{text}    ```\n'
