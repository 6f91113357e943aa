"""Every lecture demo in a real browser: moved by keyboard it shows another picture, and nothing on the page jumps."""

import json
from itertools import pairwise

import nbformat
import pytest
from lab import LATENCIES, MARKS, PICTURES, PIXELS, ROOT, open_page, table

from distgen_lab import demos

pytestmark = MARKS
NOTEBOOK = "notebooks/lecture_demos.ipynb"
PRESSES = 2  # of each control, each to a picture not seen before
# Controls that the first picture does not depend on, and the button that brings a picture that does.
CONTEXT = {
    ("topology_explorer", "path from"): "a fat-tree",
    ("topology_explorer", "path to"): "a fat-tree",
    ("topology_explorer", "all-reduce"): "near first",
    ("topology_explorer", "round"): "near first",
    ("recorded_run", "beside it"): "one node, two nodes",
}
# From the key to the frame after the picture is there. What is refused shows a sentence in bold instead.
WATCH = """demo => {
    const image = demo.querySelector("img.widget-image");
    window.moved = [];
    new PerformanceObserver(list => list.getEntries().forEach(entry => entry.sources.forEach(source => {
        if (source.node && demo.contains(source.node)) window.moved.push(source.node.outerHTML?.slice(0, 80) ?? "text");
    }))).observe({type: "layout-shift"});
    demo.addEventListener("keydown", () => { window.pressed ??= performance.now(); }, true);
    const shown = () => window.seen?.(performance.now() - window.pressed);
    image.addEventListener("load", () => requestAnimationFrame(shown));
}"""
PAINTED = """async image => {
    const frame = () => new Promise(requestAnimationFrame);
    await image.decode();
    await frame();
    await frame();
}"""
ARM = """() => {
    window.pressed = null;
    window.answer = new Promise(seen => { window.seen = seen; setTimeout(seen, 3000, null); });
}"""


@pytest.fixture(scope="module")
def lecture(server, browser):
    """The notebook of the demos, all of it run."""
    opened = open_page(browser, server, NOTEBOOK)
    assert opened.run_all() == []
    yield opened
    opened.page.close()


@pytest.fixture(scope="module")
def latencies(request):
    """Milliseconds by demo, filled by the tests; the terminal's summary shows them as a table."""
    found = request.config.stash.setdefault(LATENCIES, {})
    yield found
    (PICTURES / "latency.txt").write_text(table(found) + "\n", encoding="utf-8")


class Demo:
    """A demo on the page."""

    def __init__(self, lecture, name):
        self.lecture, self.page = lecture, lecture.page
        self.cell = lecture.cell(f"lecture-{name.replace('_', '-')}")
        self.place = self.cell.locator(".distgen-demo")
        self.place.wait_for()
        self.image = self.place.locator("img.widget-image")
        self.place.evaluate(WATCH)

    def controls(self):
        """Each control's label and what takes the keys."""
        rows = self.place.locator(".widget-hslider").all()
        return [(r.locator(".widget-label").first.inner_text(), r.locator("[role=slider]")) for r in rows]

    def press(self, control, key):
        """Press a key and return the milliseconds until the new picture was there, None if none came."""
        self.page.evaluate(ARM)
        control.press(key)
        return self.page.evaluate("window.answer")

    def button(self, name):
        """Press a button with the space bar."""
        button = self.place.get_by_role("button", name=name, exact=True)
        button.focus()
        return self.press(button, "Space")

    def screenshot(self, name):
        """Take a picture of the cell as soon as all of it is painted."""
        self.image.evaluate(PAINTED)
        self.cell.screenshot(path=PICTURES / f"{name}.png")

    def pixels(self):
        return self.image.evaluate(PIXELS)

    def boxes(self):
        """Where picture, caption and the end of the cell are."""
        parts = (self.image, self.place.locator(".widget-html-content").first, self.cell)
        return [part.bounding_box() for part in parts]


def way(slider):
    """The key that leads away from the nearer end, and how often it can be pressed."""
    at, low, high = (float(slider.get_attribute(f"aria-value{name}")) for name in ("now", "min", "max"))
    return ("ArrowRight", int(high - at)) if at - low <= high - at else ("ArrowLeft", int(at - low))


def test_the_notebook_holds_every_demo():
    cells = nbformat.read(ROOT / NOTEBOOK, as_version=4).cells
    shown = {cell.source for cell in cells if cell.cell_type == "code"}
    assert shown == {"from distgen_lab import demos", *(f"demos.{name}(large=True)" for name in demos.__all__)}
    for before, cell in pairwise(cells):
        assert cell.cell_type == "markdown" or before.cell_type == "markdown", cell.id


@pytest.mark.parametrize("name", demos.__all__)
def test_every_control_answers_to_the_keyboard_and_nothing_jumps(lecture, latencies, name):
    demo = Demo(lecture, name)
    demo.screenshot(name)
    first, boxes, times = demo.pixels(), demo.boxes(), latencies.setdefault(name, [])
    for label, control in demo.controls():
        if (name, label) in CONTEXT:
            demo.button(CONTEXT[name, label])
        before = demo.pixels()
        control.focus()
        there, room = way(control)
        found = [demo.press(control, there) for _ in range(min(PRESSES, room))]
        times += [milliseconds for milliseconds in found if milliseconds is not None]
        assert demo.pixels() != before, f"{label}: {there} changed nothing"
        assert demo.boxes() == boxes, f"{label}: the page moved"
        demo.button("start")
        assert demo.pixels() == first, f"{label}: start does not lead back"
    demo.press(demo.place.locator(".distgen-buttons button").nth(2), "Space")
    demo.screenshot(f"{name}-preset")
    assert demo.boxes() == boxes
    assert lecture.errors() == [] and json.loads(demo.page.evaluate("JSON.stringify(window.moved)")) == []
