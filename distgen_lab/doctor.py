"""``distgen doctor``: one line for each thing the course uses, and the command that mends what is missing."""

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from distgen_lab.units import quantity

__all__ = ["Finding", "examine"]

OK, MISSING, BROKEN = "OK", "missing", "broken"
PACKAGES = ("numpy", "matplotlib", "networkx", "ipywidgets", "jupyterlab", "nbval", "torch", "mpi4py")
INSTALL = "make lab, or: pip install -c constraints.txt -e ."
MIN_MEMORY = 4e9


@dataclass(frozen=True)
class Finding:
    """One capability: ``OK``, ``missing`` or ``broken``, what was seen, and the cure if it is not OK."""

    state: str
    name: str
    seen: str
    cure: str = ""
    needed: bool = True

    def __str__(self) -> str:
        cure = f"  -> {self.cure}" if self.cure and self.state != OK else ""
        return f"{self.state:<8}{self.name:<14}{self.seen}{cure}"


def examine() -> Iterator[Finding]:
    """Yield one finding a capability; a check that fails in an unforeseen way is a ``broken`` line, not an error."""
    for check in (_python, _packages, _kernel, _gloo, _nccl, _mpi, _machine, _sandbox):
        try:
            yield from check()
        except Exception as error:
            seen = " ".join(f"{type(error).__name__}: {error}".split())
            yield Finding(BROKEN, check.__name__.strip("_"), seen, INSTALL)


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    state = OK if sys.version_info >= (3, 11) else BROKEN
    yield Finding(state, "Python", f"{version} at {sys.executable}", "install Python 3.11 or newer")


def _packages() -> Iterator[Finding]:
    for name in PACKAGES:
        try:
            yield Finding(OK, name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(MISSING, name, "not installed", INSTALL)


def _kernel() -> Iterator[Finding]:
    """The kernel a notebook starts must be this Python."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    cure = f"{sys.executable} -m ipykernel install --sys-prefix"
    try:
        argv = KernelSpecManager().get_kernel_spec("python3").argv
    except NoSuchKernel:
        yield Finding(MISSING, "kernel", "no kernel named python3", cure)
        return
    same = argv[0] in ("python", "python3") or _same_python(Path(argv[0]), Path(sys.executable))
    yield Finding(OK if same else BROKEN, "kernel", f"python3 runs {argv[0]}", cure)


def _same_python(one: Path, two: Path) -> bool:
    """The same interpreter of the same environment, under whatever name."""
    return one.absolute().parent == two.absolute().parent and one.resolve() == two.resolve()


def _ask(code: str, *launcher: str, timeout: float = 60) -> tuple[int, str]:
    """Run ``code`` in a fresh Python (so that nothing it breaks is ours); return exit status and last line."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    process = subprocess.Popen([*launcher, sys.executable, "-c", code], **pipes)
    try:
        out, error = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # what it started included
        process.communicate()
        return 1, f"no answer within {timeout:g} s"
    lines = (error if process.returncode else out).strip().splitlines()
    return process.returncode, lines[-1] if lines else "no output"


_GLOO = """
import tempfile, torch, torch.distributed as dist
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    value = torch.ones(3); dist.all_reduce(value); dist.destroy_process_group()
print("all-reduce ran")
"""


def _gloo() -> Iterator[Finding]:
    status, line = _ask(_GLOO)
    yield Finding(BROKEN if status else OK, "Gloo", line, "pip install -c constraints.txt torch")


def _nccl() -> Iterator[Finding]:
    code = "import torch, torch.distributed as d; print(torch.cuda.device_count(), d.is_nccl_available())"
    status, line = _ask(code)
    if status:
        yield Finding(BROKEN, "NCCL", line, INSTALL)
        return
    gpus, nccl = line.split()
    if int(gpus) and nccl == "True":
        yield Finding(OK, "NCCL", f"{gpus} GPU(s)")
    else:
        seen = f"{gpus} GPU(s), torch {'with' if nccl == 'True' else 'without'} NCCL; nothing in the course needs it"
        yield Finding(MISSING, "NCCL", seen, "", needed=False)


def _mpi() -> Iterator[Finding]:
    """Two ranks started by the mpiexec beside this Python must see each other."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    mpiexec = beside or shutil.which("mpiexec")
    cure = "pip install -c constraints.txt mpi4py mpich"
    if mpiexec is None:
        yield Finding(MISSING, "mpiexec", "not found", cure)
        return
    _, library = _ask("from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0])")
    status, size = _ask("from mpi4py import MPI; print(MPI.COMM_WORLD.size)", mpiexec, "-n", "2")
    if status == 0 and size == "2":
        yield Finding(OK, "mpiexec", f"{mpiexec}, 2 ranks, {library.strip()}")
    else:
        seen = f"{mpiexec} gives ranks that say {size!r}; mpi4py uses {library.strip()}"
        yield Finding(BROKEN, "mpiexec", seen, f"{cure}; use the mpiexec beside {sys.executable}")


def _machine() -> Iterator[Finding]:
    import psutil

    cores = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else os.cpu_count() or 1
    yield Finding(OK if cores >= 2 else BROKEN, "cores", str(cores), "use a machine with 2 cores or more")
    memory = psutil.virtual_memory()
    seen = f"{quantity(memory.total, 'B')}, {quantity(memory.available, 'B')} free"
    yield Finding(
        OK if memory.available > MIN_MEMORY else BROKEN, "memory", seen, "close other programs: 4 GB are needed"
    )


def _sandbox() -> Iterator[Finding]:
    """Only grading needs it."""
    from distgen_lab.grading.sandbox import why_not

    if missing := why_not():
        yield Finding(MISSING, "sandbox", f"{missing}; only grading a class needs it", needed=False)
    else:
        yield Finding(OK, "sandbox", "students' code can be shut in (for grading)")
