"""JupyterLab as `make lab` starts it, in a real browser: notebooks run, demos answer, answers are folded."""

import nbformat
import pytest
from lab import MARKS, PICTURES, PIXELS, ROOT

pytestmark = MARKS
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
