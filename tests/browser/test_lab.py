"""JupyterLab as `make lab` starts it, in a real browser: notebooks run, demos answer, answers are folded."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import pytest

from distgen_lab.course import course_root

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
ROOT = course_root()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium"),
    pytest.mark.skipif(not shutil.which("make"), reason="make is not installed"),
]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
# Notebook, and the id of its demo cell. Every notebook with a demo joins here.
DEMOS = [
    ("01_scale_arithmetic", "ch01-three-walls"),
    ("02_gpu_hierarchy", "ch02-explorer"),
    ("02_gpu_hierarchy", "ch02-systolic"),
    ("03_topologies", "ch03-explorer"),
    ("04_alpha_beta", "ch04-explorer"),
    ("05_mpi", "ch05-flow-explorer"),
    ("06_nccl", "ch06-plan-demo"),
    ("07_communication_hiding", "ch07-explorer"),
    ("07_communication_hiding", "ch07-cg-demo"),
]
SECTIONS = sorted({section for section, _ in DEMOS})
PICTURES = Path(os.environ.get("DISTGEN_PICTURES", tempfile.gettempdir())) / "distgen-browser"
PIXELS = """async image => {
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL();
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start the server with the README's command on a copy of the notebooks; yield its address."""
    home = tmp_path_factory.mktemp("lab")
    for part in ("notebooks", "exercises"):
        shutil.copytree(ROOT / part, home / part)
    runtime, config = home / "runtime", home / "config"
    environment = os.environ | {"JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(config)}
    command = ["make", "-f", ROOT / "Makefile", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.installed", "lab"]
    with open(home / "log", "w") as log:
        process = subprocess.Popen(
            [*command, "ARGS=--no-browser --port=0 --expose-app-in-browser"],
            **{"cwd": home, "env": environment, "stdout": log, "stderr": log, "start_new_session": True},
        )
    try:
        yield address(process, runtime, home / "log")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


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


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


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


@pytest.fixture
def open_notebook(server, browser):
    """Return a function that opens a notebook of the course in JupyterLab."""
    pages = []

    def opener(path):
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        pages.append(page)
        page.goto("{0}lab/tree/{path}?token={1}&reset".format(*server, path=path))
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=90_000)
        page.wait_for_function("window.jupyterapp?.shell.currentWidget?.content?.widgets?.length > 3")
        opened = Page(page)
        opened.call("await panel.sessionContext.ready; await panel.revealed")
        return opened

    yield opener
    for page in pages:
        page.close()


def test_opens_without_dialog_warning_or_red(open_notebook):
    opened = open_notebook("notebooks/01_scale_arithmetic.ipynb")
    opened.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status='idle']", timeout=60_000)
    assert opened.page.locator(".jp-Dialog").count() == 0
    assert opened.page.locator(".Toastify__toast").count() == 0
    assert opened.page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert opened.call("return panel.sessionContext.kernelDisplayName") == "Python 3 (ipykernel)"
    opened.page.screenshot(path=PICTURES / "opened.png")


@pytest.mark.parametrize("section", SECTIONS)
def test_answers_are_folded_until_they_are_run(open_notebook, section):
    stored = nbformat.read(ROOT / "notebooks" / f"{section}.ipynb", as_version=4)
    answers = [c.id for c in stored.cells if "guesses.reveal(" in c.source]
    assert len(answers) >= 5
    opened = open_notebook(f"notebooks/{section}.ipynb")
    assert all(opened.hidden(answer) for answer in answers)
    place = opened.cell(answers[0])
    assert (
        place.locator(".jp-OutputArea-output").count() == 0 or not place.locator(".jp-OutputArea-output").is_visible()
    )
    assert place.locator(".jp-OutputPlaceholder, .jp-Placeholder").first.is_visible()
    assert opened.run(answers[0]) == []
    assert not opened.hidden(answers[0])
    assert place.locator(".jp-OutputArea-output").first.is_visible()


def test_a_whole_notebook_runs_without_red(open_notebook):
    opened = open_notebook("notebooks/01_scale_arithmetic.ipynb")
    assert opened.run_all() == []
    found = "c => c.model.sharedModel.source.includes('guesses.reveal(')"
    answers = opened.call(f"return notebook.widgets.filter({found}).map(c => c.outputHidden)")
    assert len(answers) >= 5
    assert not any(answers)


@pytest.mark.parametrize(("section", "demo"), DEMOS)
def test_moving_a_slider_changes_the_picture(open_notebook, section, demo):
    opened = open_notebook(f"notebooks/{section}.ipynb")
    setup = next(c.id for c in nbformat.read(ROOT / "notebooks" / f"{section}.ipynb", 4).cells if c.cell_type == "code")
    assert opened.run(setup) == []
    assert opened.run(demo, demo) == []
    place = opened.cell(demo)
    image, slider = place.locator("img.widget-image"), place.locator(".noUi-handle").first
    image.wait_for()
    place.screenshot(path=PICTURES / f"{demo}-before.png")
    before, box = image.get_attribute("src"), image.bounding_box()
    pixels = image.evaluate(PIXELS)
    slider.focus()
    at_its_end = slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax")
    slider.press("ArrowLeft" if at_its_end else "ArrowRight")
    opened.page.wait_for_function("([image, old]) => image.src !== old", arg=[image.element_handle(), before])
    assert image.evaluate(PIXELS) != pixels
    assert image.bounding_box() == box, "the picture moved: a flicker"
    place.screenshot(path=PICTURES / f"{demo}-after.png")
