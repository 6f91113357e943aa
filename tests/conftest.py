"""Fixtures of all tests: where things lie, and the rule that a test leaves no process behind."""

from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 5.0


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of published tables beside the repository; the test is skipped where it is not."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here: the published tables do not travel with the repository")
    return folder


@pytest.fixture(scope="module", autouse=True)
def no_process_left_behind():
    """Fail a module whose tests leave a process running, and end that process."""
    me = psutil.Process()
    before = set(me.children(recursive=True))
    yield
    started = [p for p in me.children(recursive=True) if p not in before and not _serves_multiprocessing(p, me)]
    _, left = psutil.wait_procs(started, timeout=PATIENCE) if started else ([], [])
    if left:
        names = [_describe(process) for process in left]
        for process in left:
            _end(process)
        psutil.wait_procs(left, timeout=PATIENCE)
        pytest.fail(f"{len(names)} process(es) left running: {'; '.join(names)}")


def _serves_multiprocessing(process: psutil.Process, me: psutil.Process) -> bool:
    """Whether it is multiprocessing's own server, which lives as long as pytest; what a server forks does count."""
    try:
        command = " ".join(process.cmdline())
        return process.ppid() == me.pid and any(
            f"multiprocessing.{name} import" in command for name in ("forkserver", "resource_tracker")
        )
    except psutil.Error:
        return False


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:120]}"
    except psutil.Error:
        return str(process.pid)


def _end(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
