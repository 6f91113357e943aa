"""JupyterLab as `make lab` starts it, and a browser to look at it."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from lab import CHROMIUM, FLAGS, LATENCIES, ROOT, address, open_page, table


def pytest_terminal_summary(terminalreporter, config):
    """Print how long the demos took, also with -q."""
    if latencies := config.stash.get(LATENCIES, None):
        terminalreporter.write_line("\n" + table(latencies))


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


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_notebook(server, browser):
    """Return a function that opens a notebook of the course in JupyterLab."""
    pages = []

    def opener(path):
        opened = open_page(browser, server, path)
        pages.append(opened.page)
        return opened

    yield opener
    for page in pages:
        page.close()
