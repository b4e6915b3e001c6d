"""The built site: nothing of it comes from elsewhere, each page has its source, and a browser cuts nothing off."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = sorted((ROOT / "docs/user").glob("*.md"))
# Everything that a browser fetches by itself. Links (`<a href>`) are not of this kind.
TAG = re.compile(r"<(?:script|img|iframe|link|source|video|audio|object|embed|image)\b[^>]*>", re.IGNORECASE)
FOREIGN = re.compile(r"""\b(?:src|srcset|href|data)=["']?(?:https?:)?//""", re.IGNORECASE)
CANONICAL = re.compile(r"""\brel=["']?(?:canonical|next|prev|license)\b""")
IN_STYLES = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//""", re.IGNORECASE)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WINDOW = 1280  # pixels
MEASURE = """<!doctype html><body><iframe width="%d" height="900" sandbox="allow-same-origin"></iframe><script>
const frame = document.querySelector("iframe"), found = {cut: [], broken: [], wide: [], blocks: 0};
async function measure(page) {
  await new Promise(done => { frame.onload = done; frame.src = page; });
  const inside = frame.contentDocument;
  for (const code of inside.querySelectorAll("pre > code")) {
    found.blocks++;
    if (code.scrollWidth > code.clientWidth + 1) found.cut.push(page + ": " + code.textContent.slice(0, 200));
  }
  for (const image of inside.querySelectorAll("img.drawn")) {
    image.loading = "eager";
    await image.decode().catch(() => found.broken.push(page + ": " + image.src));
  }
  if (inside.documentElement.scrollWidth > %d + 1) found.wide.push(page);
}
(async () => {
  for (const page of %s) await measure(page);
  document.body.innerHTML = "<pre id=found>" + JSON.stringify(found).replace(/[<&]/g, "?") + "</pre>";
})();
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages(site: Path) -> list[str]:
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    found = []
    for name in pages(site):
        text = (site / name).read_text()
        tags = [tag for tag in TAG.findall(text) if FOREIGN.search(tag) and not CANONICAL.search(tag)]
        found += [f"{name}: {one}" for one in tags + IN_STYLES.findall(text)]
        if 'class="mermaid"' in text:  # the theme would load the program that draws it
            found.append(f"{name}: a diagram that was not drawn")
    for path in (*site.rglob("*.css"), *site.rglob("*.svg")):
        text = path.read_text()
        tags = [tag for tag in TAG.findall(text) if FOREIGN.search(tag)]
        found += [f"{path.relative_to(site)}: {one}" for one in tags + IN_STYLES.findall(text)]
    assert found == []


def test_each_page_has_its_source(site: Path) -> None:
    for name in (name for name in pages(site) if name != "404.html"):
        link = re.search(r'href="([^"]+)" title="View source of this page"', (site / name).read_text())
        assert link is not None, name
        source = (site / name).parent / link[1]
        assert source.read_text().lstrip().startswith(("# ", "<!--")), source


def test_the_tabs_and_the_dark_mode_are_there(site: Path) -> None:
    text = (site / "index.html").read_text()
    tabs = re.search(r'<ul class="md-tabs__list">.*?</ul>', text, re.DOTALL)
    assert tabs is not None
    assert re.sub(r"<[^>]+>", " ", tabs[0]).split() == ["Use", "Operate", "Reference", "Design"]
    assert re.findall(r'data-md-color-scheme="(\w+)"[^>]*aria-label', text) == ["default", "slate"]
    assert 'src="kill-and-move.svg"' in text


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.name)
def test_a_page_of_the_guide_begins_with_a_program(page: Path) -> None:
    first = re.search(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert first is not None
    named = re.match(r"python -m (examples[\w.]+)", first[2])
    assert named is not None, f"{page.name} begins with {first[2]!r}"
    path = ROOT / named[1].replace(".", "/")
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_the_text_of_a_program_is_on_its_page(site: Path) -> None:
    text = unescape(re.sub(r"<[^>]+>", "", (site / "user/branch/index.html").read_text()))
    assert (ROOT / "examples/guide/branch.py").read_text().strip() in text


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")
def test_no_code_is_cut_off_and_no_picture_is_missing(site: Path, address: str, tmp_path: Path) -> None:
    (site / "measure.html").write_text(MEASURE % (WINDOW, WINDOW, json.dumps(pages(site))))
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command += ["--window-size=1400,1000", "--virtual-time-budget=600000", "--dump-dom", f"{address}/measure.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    (site / "measure.html").unlink()
    measured = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert measured is not None, done.stdout[-1000:] + done.stderr[-2000:]
    found = json.loads(unescape(measured[1]))
    assert found["blocks"] > 100
    assert found | {"blocks": 0} == {"cut": [], "broken": [], "wide": [], "blocks": 0}
