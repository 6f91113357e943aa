"""The lecture demos as `make demos` serves them: a page without code whose controls work."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from lab import MARKS, PICTURES, PIXELS, ROOT

from distgen_lab import demos

pytestmark = [
    *MARKS,
    pytest.mark.skipif(importlib.util.find_spec("voila") is None, reason="voila is not installed: make demos adds it"),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(address, process, log):
    """Wait until the server takes connections."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            return urlopen(f"{address}voila/static/not-there", timeout=5)
        except URLError as error:
            if hasattr(error, "code"):  # it answered
                return error
        time.sleep(0.2)
    raise AssertionError(f"make demos did not start:\n{log.read_text()[-2000:]}")


@pytest.fixture
def address(tmp_path):
    """Start `make demos` on a copy of the notebook; yield where it is."""
    (tmp_path / "notebooks").mkdir()
    shutil.copy(ROOT / "notebooks" / "lecture_demos.ipynb", tmp_path / "notebooks")
    there, log = f"http://127.0.0.1:{free_port()}/", tmp_path / "log"
    built = [flag for mark in (".installed", ".installed-demos") for flag in ("-o", f"{sys.prefix}/{mark}")]
    command = ["make", "-f", ROOT / "Makefile", f"VENV={sys.prefix}", *built, "demos"]
    options = f"ARGS=--no-browser --Voila.ip=127.0.0.1 --port={there.split(':')[-1][:-1]}"
    environment = os.environ | {"JUPYTER_RUNTIME_DIR": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path)}
    with open(log, "w") as file:
        where = {"cwd": tmp_path, "env": environment, "stdout": file, "stderr": file, "start_new_session": True}
        process = subprocess.Popen([*command, options], **where)
    try:
        answers(there, process, log)
        yield there
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def test_the_page_shows_every_demo_and_no_code_and_a_slider_works(address, browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(address, timeout=180_000)
    images = page.locator(".distgen-demo img.widget-image")
    images.nth(len(demos.__all__) - 1).wait_for(timeout=120_000)
    assert images.count() == len(demos.__all__)
    assert not page.get_by_text("large=True").is_visible() and page.get_by_text("Traceback").count() == 0
    before, first = images.first.evaluate(PIXELS), images.first.get_attribute("src")
    slider = page.locator(".distgen-demo").first.locator("[role=slider]").first
    slider.focus()
    slider.press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('.distgen-demo img.widget-image').src !== before", arg=first
    )
    assert images.first.evaluate(PIXELS) != before
    page.screenshot(path=PICTURES / "voila.png")
    page.close()
