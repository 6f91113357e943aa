"""What the tests in a browser share: where Chromium is, and a notebook open in JupyterLab as an object."""

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

import pytest

from distgen_lab.course import course_root

ROOT = course_root()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MARKS = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium"),
    pytest.mark.skipif(not shutil.which("make"), reason="make is not installed"),
]
LATENCIES = pytest.StashKey()  # milliseconds from a key to the new picture, by demo
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
PICTURES = Path(os.environ.get("DISTGEN_PICTURES", tempfile.gettempdir())) / "distgen-browser"
PIXELS = """async image => {
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL();
}"""


def table(latencies):
    """Milliseconds by demo as a table of text; demos without any are left out."""
    rows = {name: times for name, times in latencies.items() if len(times) > 1}
    rows["all"] = [time for times in rows.values() for time in times]
    head = "key to new picture in ms: demo, pictures, median, 95th percentile"
    return "\n".join(
        [head]
        + [
            f"{name:<22}{len(t):>4}{median(t):>7.0f}{quantiles(t, n=20, method='inclusive')[-1]:>7.0f}"
            for name, t in rows.items()
            if len(t) > 1
        ]
    )


def address(process, runtime, log):
    """Wait until the server has written its address; return its root URL and its token."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            if text := path.read_text():
                facts = json.loads(text)
                return facts["url"], facts["token"]
        time.sleep(0.2)
    raise AssertionError(f"make lab did not start:\n{log.read_text()[-2000:]}")


class Page:
    """A notebook open in JupyterLab: its cells by id."""

    def __init__(self, page):
        self.page = page

    def call(self, body, *arguments):
        """Run JavaScript with the notebook widget as ``notebook`` and the arguments as ``a``."""
        setup = "const app = window.jupyterapp, panel = app.shell.currentWidget, notebook = panel.content;"
        return self.page.evaluate(f"async (a) => {{ {setup} {body} }}", list(arguments))

    def cell(self, cell_id):
        """Scroll a cell into view and return its place in the page."""
        index = self.call("return notebook.widgets.findIndex(cell => cell.model.id === a[0])", cell_id)
        assert index >= 0, f"no cell {cell_id}"
        self.call("notebook.activeCellIndex = a[0]; await notebook.scrollToItem(a[0], 'center')", index)
        place = self.page.locator(f".jp-Notebook .jp-Cell[data-windowed-list-index='{index}']")
        place.wait_for()
        return place

    def run(self, last, first=None):
        """Run the code cells from ``first`` (the top) to ``last``; return the outputs that are errors."""
        self.call(
            "await panel.sessionContext.ready; const ids = notebook.widgets.map(c => c.model.id);"
            "const begin = a[1] ? ids.indexOf(a[1]) : 0, end = ids.indexOf(a[0]);"
            "for (let i = begin; i <= end; i++) { if (notebook.widgets[i].model.type !== 'code') continue;"
            "notebook.activeCellIndex = i; await app.commands.execute('notebook:run-cell'); }",
            last,
            first,
        )
        return self.errors()

    def run_all(self):
        """Run all cells and wait until the kernel is idle; return the outputs that are errors."""
        self.call("await panel.sessionContext.ready; await app.commands.execute('notebook:run-all-cells')")
        return self.errors()

    def errors(self):
        """The outputs that are errors."""
        return self.call(
            "return [...notebook.model.cells].filter(c => c.type === 'code').flatMap(c => c.outputs.toJSON())"
            ".filter(o => o.output_type === 'error' || o.name === 'stderr')"
        )

    def hidden(self, cell_id):
        """Whether the output of a cell is folded away."""
        return self.call("return notebook.widgets.find(c => c.model.id === a[0]).outputHidden", cell_id)


def open_page(browser, server, path):
    """Open a notebook of the course in a page of its own and wait until its kernel is there."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto("{0}lab/tree/{path}?token={1}&reset".format(*server, path=path))
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
    page.wait_for_function("window.jupyterapp?.shell.currentWidget?.content?.widgets?.length > 3")
    opened = Page(page)
    opened.call("await panel.sessionContext.ready; await panel.revealed")
    return opened
