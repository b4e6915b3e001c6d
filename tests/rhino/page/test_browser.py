"""The page in a real browser: what a person sees, with mouse and keys, and how fast it is with 1000 workers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from rhino.page.model import document
from rhino.page.samples import Samples
from tests.rhino.page.browser import ABSENT, Browser, browser, is_absent
from tests.rhino.page.imagined import BAD_NAME, large, load, small
from tests.rhino.page.served import Served, served
from tests.rhino_core.support.metrics import free_port

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300), pytest.mark.skipif(is_absent(), reason=ABSENT)]
TAB, ENTER, ESCAPE = "\ue004", "\ue007", "\ue00c"


@pytest.fixture
def page() -> Iterator[Served]:
    """Its threads are not started: it shows what a test gives it."""
    with served(f"127.0.0.1:{free_port()}") as found:
        found.page.watcher.stop()
        yield found


@pytest.fixture
def window() -> Iterator[Browser]:
    with browser() as found:
        yield found


def opened(window: Browser, page: Served) -> None:
    for number in range(5):
        page.page.watcher._samples.logged(load(number), 1000 + number)
    page.page.watcher.show(small())
    window.open(page.page.address)
    window.until("document.querySelectorAll('#worker-table tbody tr').length == 4", "the page is drawn")


def test_it_shows_the_cluster_and_names_are_only_texts(page: Served, window: Browser) -> None:
    opened(window, page)
    assert window.run("return location.hash + location.search") == "", "the token has left the address bar"
    assert window.run("return document.querySelector('#verdict h1').textContent") == "CRITICAL"
    assert "1 of 4 workers lost: c" in window.run("return document.querySelector('#verdict').textContent")
    assert BAD_NAME in window.run("return document.querySelector('#query-cards').textContent")
    assert window.run("return document.querySelectorAll('main img, main script').length") == 0
    assert window.run("return document.title") == "CRITICAL · Rhino"
    assert "Not safe yet, because:2 groups lack copies" in window.run(
        "return document.querySelector('#moves').textContent"
    )
    assert window.run("return document.querySelectorAll('#map [data-worker]').length") == 4
    assert window.log() == [], "nothing violates the content security policy"


def test_keys_reach_everything_and_focus_stays_when_figures_change(page: Served, window: Browser) -> None:
    opened(window, page)
    window.run("document.querySelector('[data-act=drain]').focus()")
    drawn = int(window.run("return document.documentElement.dataset.drawn"))
    page.page.watcher.show(small())
    window.until(f"document.documentElement.dataset.drawn > {drawn}", "it is drawn again")
    assert window.run("return document.activeElement.dataset.act") == "drain"
    window.press(ENTER)
    window.until("document.getElementById('dialog').open", "the plan")
    window.until(
        "document.getElementById('dialog-error').textContent.includes('manager')", "the manager does not answer"
    )
    window.press(ESCAPE)
    window.until("!document.getElementById('dialog').open", "Escape closes it")
    assert window.run("return document.activeElement.dataset.act") == "drain", "the focus is back"
    window.run("document.querySelector('[data-sort=runs]').focus()")
    window.press(ENTER)
    window.until("document.querySelector('[aria-sort=descending] [data-sort=runs]')", "sorted")
    window.run("document.querySelector('#worker-table [data-worker=a]').focus()")
    window.press(ENTER)
    window.until("document.getElementById('chosen').textContent.includes('0/0-1')", "its virtual nodes")


def test_a_worker_whose_virtual_nodes_cannot_be_asked_for_says_why(page: Served, window: Browser) -> None:
    opened(window, page)
    window.run("window.fetch = () => Promise.reject(new Error('nobody answers'))")
    window.run("document.querySelector('#worker-table [data-worker=a]').click()")
    window.until("document.getElementById('chosen').textContent.includes('nobody answers')", "the reason")


def test_without_the_token_there_is_a_form_for_it(page: Served, window: Browser) -> None:
    page.page.watcher.show(small())
    window.open(f"{page.origin}/")
    window.until("document.activeElement.id == 'token'", "the form")
    assert window.run("return document.getElementById('content').hidden") is True
    window.press(f"wrong{ENTER}")
    window.until("document.getElementById('login-why').textContent.includes('not valid')", "a wrong token")
    window.press(f"{page.token}{ENTER}")
    window.until("!document.getElementById('content').hidden", "the page")


def test_it_fits_a_phone(page: Served) -> None:
    with browser(width=390, height=844, phone=True) as window:
        opened(window, page)
        assert window.run("return document.documentElement.scrollWidth") <= 390


def test_colours_have_enough_contrast(page: Served) -> None:
    """Texts against what is behind them: WCAG AA, 4.5 to 1."""
    for dark in (False, True):
        with browser(dark=dark) as window:
            opened(window, page)
            assert window.run(CONTRAST) == []


CONTRAST = """
const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
  .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
  .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
const behind = (one) => { for (; one; one = one.parentElement) {
  const found = getComputedStyle(one).backgroundColor;
  if (!found.endsWith(", 0)")) return found; } return "rgb(255,255,255)"; };
return [...document.querySelectorAll("main *, header *")]
  .filter((one) => one.namespaceURI.endsWith("xhtml") && one.offsetParent
  && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).filter((one) => {
  const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05) < 4.5; }).map((one) => one.outerHTML.slice(0, 200));
"""


def test_figures_of_a_thousand_workers(page: Served, window: Browser) -> None:
    """Prints them (`pytest -s`): the aims are 1 s for the first paint, and 200 ms for an update."""
    answers, samples = large(), Samples()
    for query in range(20):
        for number in range(120):
            samples.logged(load(number, job_id=f"job-{query}"), 1000 + number)
    page.page.watcher._samples = samples
    began = time.perf_counter()
    size = len(json.dumps(document(answers, samples), separators=(",", ":")))
    model_s = time.perf_counter() - began
    page.page.watcher.show(answers)
    window.open(page.page.address)
    drawn = int(window.until("document.documentElement.dataset.drawn", "it is drawn"))
    paint = window.run("return performance.getEntriesByType('paint').map((one) => [one.name, one.startTime])")
    first_ms = window.run("return performance.now()")
    updates, travels = [], []
    for number in range(5):
        for at, worker in enumerate(page.page.watcher._document["workers"]):  # each one has other figures
            worker["runs"] += (at + number) % 50
            worker["stored_bytes"] += 10**6 * at
        sent = time.perf_counter()
        page.page.watcher._publish("")
        drawn += 1
        window.until(f"document.documentElement.dataset.drawn >= {drawn}", "an update")
        travels.append(time.perf_counter() - sent)
        updates.append(float(window.run("return document.documentElement.dataset.drawMs")))
    elements = window.run("return document.querySelectorAll('*').length")
    assert window.run("return document.querySelectorAll('#map [data-worker]').length") == 1000
    told = f"model and JSON {model_s:.2f} s, {size / 1e3:.0f} kB, {elements} elements"
    print(f"\n1000 workers, 100 000 virtual nodes: {told}")
    print(f"first paint {dict(paint)} ms; figures drawn within {first_ms:.0f} ms of the navigation")
    middle_ms, travel_s = sorted(updates)[2], sorted(travels)[2]
    print(f"an update: script and layout {middle_ms:.0f} ms, from the server on {travel_s * 1e3:.0f} ms")
