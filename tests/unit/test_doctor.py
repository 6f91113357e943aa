"""The doctor: every capability is one line with its cure, whatever is missing or broken."""

import importlib.metadata
import subprocess
import sys
from collections import namedtuple
from types import SimpleNamespace

import jupyter_client.kernelspec as kernelspec
import psutil
import pytest

from distgen_lab import doctor
from distgen_lab.cli import main
from distgen_lab.doctor import BROKEN, MISSING, OK, Finding, examine

STATES = {OK, MISSING, BROKEN}


def only(findings):
    """The one finding of a check, which must be one line."""
    (finding,) = list(findings)
    assert "\n" not in str(finding)
    return finding


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (Finding(OK, "numpy", "2.4", "cure"), "OK      numpy         2.4"),
        (Finding(MISSING, "mpiexec", "not found", "pip install mpich"),
         "missing mpiexec       not found  -> pip install mpich"),
        (Finding(BROKEN, "Gloo", "no answer"), "broken  Gloo          no answer"),
    ],
)  # fmt: skip
def test_a_finding_is_one_line_with_its_cure_only_when_needed(finding, line):
    assert str(finding) == line


def test_this_machine_is_examined_from_end_to_end(capsys):
    code = main(["doctor"])
    printed = capsys.readouterr()
    *lines, last = printed.out.splitlines()
    names = [line[8:].split()[0] for line in lines]
    assert names == ["Python", *doctor.PACKAGES, "kernel", "Gloo", "NCCL", "mpiexec", "cores", "memory", "sandbox"]
    assert {line[:8].strip() for line in lines} <= STATES and printed.err == ""
    to_mend = [line for line in lines if not line.startswith("OK") and line[8:].split()[0] != "NCCL"]
    assert code == (1 if to_mend else 0)
    assert last == (
        f"{len(to_mend)} to mend; the commands stand above." if to_mend else "Everything the course needs is here."
    )
    assert f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}" in lines[0]
    assert {line.split()[1]: line.split()[2] for line in lines[1:3]} == {
        name: importlib.metadata.version(name) for name in doctor.PACKAGES[:2]
    }


def test_every_check_that_fails_is_a_line_and_the_others_go_on(monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no such luck")

    for name in ("_ask", "quantity"):
        monkeypatch.setattr(doctor, name, fail)
    findings = {finding.name: finding for finding in examine()}
    assert {findings[name].state for name in ("gloo", "nccl", "mpi", "machine")} == {BROKEN}
    assert findings["gloo"].seen == "RuntimeError: no such luck" and "constraints.txt" in findings["gloo"].cure
    assert findings["numpy"].state == findings["Python"].state == OK


def test_an_error_of_several_lines_is_still_one_line(monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(doctor, "_ask", fail)
    assert all("\n" not in str(finding) for finding in examine())


def test_a_broken_need_gives_exit_code_one_and_an_absent_extra_does_not(monkeypatch, capsys):
    found = [Finding(OK, "a", "1"), Finding(MISSING, "NCCL", "0", needed=False)]
    monkeypatch.setattr(doctor, "examine", lambda: iter(found))
    assert main(["doctor"]) == 0
    assert "Everything the course needs is here." in capsys.readouterr().out
    found.append(Finding(BROKEN, "b", "2", "mend it"))
    assert main(["doctor"]) == 1
    assert "broken  b             2  -> mend it\n1 to mend" in capsys.readouterr().out


def test_an_old_python_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=(3, 10, 4), executable="/old/python"))
    found = only(doctor._python())
    assert (found.state, found.seen) == (BROKEN, "3.10.4 at /old/python") and "3.11" in found.cure


def test_a_package_that_is_not_installed_is_missing(monkeypatch):
    real = importlib.metadata.version

    def version(name):
        if name == "nbval":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    findings = {finding.name: finding for finding in doctor._packages()}
    assert str(findings["nbval"]) == f"missing nbval         not installed  -> {doctor.INSTALL}"
    assert {finding.state for name, finding in findings.items() if name != "nbval"} == {OK}


# ------------------------------------------------------------------------------------------------- kernel


def fake_kernel(monkeypatch, argv):
    def get(self, name):
        assert name == "python3"
        if argv is None:
            raise kernelspec.NoSuchKernel(name)
        return SimpleNamespace(argv=argv)

    monkeypatch.setattr(kernelspec.KernelSpecManager, "get_kernel_spec", get)


@pytest.mark.parametrize("program", [sys.executable, "python", "python3"])
def test_a_kernel_of_this_python_is_right(monkeypatch, program):
    fake_kernel(monkeypatch, [program, "-m", "ipykernel_launcher"])
    assert only(doctor._kernel()).state == OK


def test_a_kernel_of_another_python_is_broken(monkeypatch):
    fake_kernel(monkeypatch, ["/opt/conda/bin/python", "-m", "ipykernel_launcher"])
    found = only(doctor._kernel())
    assert (found.state, found.seen) == (BROKEN, "python3 runs /opt/conda/bin/python")
    assert found.cure == f"{sys.executable} -m ipykernel install --sys-prefix"


def test_no_kernel_is_missing(monkeypatch):
    fake_kernel(monkeypatch, None)
    found = only(doctor._kernel())
    assert (found.state, found.seen) == (MISSING, "no kernel named python3") and "ipykernel install" in found.cure


def test_another_name_of_this_python_is_this_python(monkeypatch, tmp_path):
    for name in ("python", "python3"):
        (tmp_path / name).symlink_to(sys.executable)
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(executable=str(tmp_path / "python")))
    fake_kernel(monkeypatch, [str(tmp_path / "python3"), "-m", "ipykernel_launcher"])
    assert only(doctor._kernel()).state == OK


def test_a_kernel_without_a_command_is_a_broken_line(monkeypatch):
    fake_kernel(monkeypatch, [])
    monkeypatch.setattr(doctor, "_ask", lambda *args, **kwargs: (1, "not asked"))
    findings = {finding.name: finding for finding in examine()}
    assert findings["kernel"].state == BROKEN and "IndexError" in findings["kernel"].seen


# ------------------------------------------------------------------------------------------- other Pythons


def test_a_fresh_python_is_asked_for_its_last_line():
    assert doctor._ask("print('first'); print('last')") == (0, "last")
    assert doctor._ask("pass") == (0, "no output")
    assert doctor._ask("import no_such_module") == (1, "ModuleNotFoundError: No module named 'no_such_module'")
    assert doctor._ask("import sys; sys.exit('sorry')") == (1, "sorry")


def test_a_python_that_hangs_is_given_up():
    assert doctor._ask("import os; os.read(os.pipe()[0], 1)", timeout=0.3) == (1, "no answer within 0.3 s")


@pytest.mark.parametrize(
    ("answer", "state", "seen"),
    [
        ((0, "4 True"), OK, "4 GPU(s)"),
        ((0, "0 True"), MISSING, "0 GPU(s), torch with NCCL; nothing in the course needs it"),
        ((0, "2 False"), MISSING, "2 GPU(s), torch without NCCL; nothing in the course needs it"),
        ((1, "ImportError: libcudart"), BROKEN, "ImportError: libcudart"),
    ],
)
def test_nccl_is_an_extra_but_a_broken_torch_is_not(monkeypatch, answer, state, seen):
    monkeypatch.setattr(doctor, "_ask", lambda *args: answer)
    found = only(doctor._nccl())
    assert (found.state, found.seen, found.needed) == (state, seen, state != MISSING)


def test_an_odd_answer_about_nccl_is_a_broken_line(monkeypatch):
    monkeypatch.setattr(doctor, "_ask", lambda *args, **kwargs: (0, "a warning of three words"))
    findings = {finding.name: finding for finding in examine()}
    assert findings["nccl"].state == BROKEN and findings["nccl"].cure == doctor.INSTALL


@pytest.mark.parametrize(("answer", "state"), [((0, "all-reduce ran"), OK), ((1, "no interface"), BROKEN)])
def test_gloo_is_what_its_process_says(monkeypatch, answer, state):
    monkeypatch.setattr(doctor, "_ask", lambda *args: answer)
    found = only(doctor._gloo())
    assert (found.state, found.seen) == (state, answer[1])


# ---------------------------------------------------------------------------------------------------- MPI


def fake_mpiexec(monkeypatch, tmp_path, script):
    """A launcher of the given shell text, which is all that is found."""
    path = tmp_path / "mpiexec"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path=None, found=str(path): found)
    return str(path)


def test_without_mpiexec_it_is_missing(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path=None: None)
    found = only(doctor._mpi())
    assert (found.state, found.name, found.seen) == (MISSING, "mpiexec", "not found")
    assert found.cure == "pip install -c constraints.txt mpi4py mpich"


def test_the_mpiexec_beside_this_python_comes_before_the_one_on_the_path(monkeypatch):
    asked = []

    def which(name, path=None):
        asked.append(path)
        return "/beside/mpiexec" if path else "/usr/bin/mpiexec"

    monkeypatch.setattr(doctor.shutil, "which", which)
    monkeypatch.setattr(doctor, "_ask", lambda code, *launcher: (0, "2" if launcher else "MPICH 5\0"[:-1]))
    assert only(doctor._mpi()).seen == "/beside/mpiexec, 2 ranks, MPICH 5"
    assert asked[0] == str(doctor.Path(sys.executable).parent)


def test_a_foreign_mpiexec_gives_ranks_that_are_alone(monkeypatch, tmp_path):
    path = fake_mpiexec(monkeypatch, tmp_path, 'shift 2\nexec "$@"')
    found = only(doctor._mpi())
    assert found.state == BROKEN and found.seen.startswith(f"{path} gives ranks that say '1'; mpi4py uses ")
    assert f"use the mpiexec beside {sys.executable}" in found.cure


@pytest.mark.parametrize("script", ["echo 'no slots' >&2; exit 1", "exit 0", "echo 2; exit 3"])
def test_an_mpiexec_that_fails_is_broken(monkeypatch, tmp_path, script):
    fake_mpiexec(monkeypatch, tmp_path, script)
    assert only(doctor._mpi()).state == BROKEN


def test_an_mpiexec_that_is_no_program_is_a_broken_line(monkeypatch, tmp_path):
    path = tmp_path / "mpiexec"
    path.write_bytes(b"\0\1")
    path.chmod(0o755)
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path=None, found=str(path): found)
    for name in ("_gloo", "_nccl"):
        monkeypatch.setattr(doctor, name, lambda: iter(()))
    findings = {finding.name: finding for finding in examine()}
    assert findings["mpi"].state == BROKEN and "mpiexec" in findings["mpi"].seen


# ------------------------------------------------------------------------------------------------ machine


def test_one_core_and_little_memory_are_broken(monkeypatch):
    memory = namedtuple("memory", "total available")
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [3])
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(8e9, 3.9e9))
    assert [(f.state, f.name, f.seen) for f in doctor._machine()] == [
        (BROKEN, "cores", "1"), (BROKEN, "memory", "8 GB, 3.9 GB free")
    ]  # fmt: skip
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [0, 1])
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(8e9, 4.1e9))
    assert [f.state for f in doctor._machine()] == [OK, OK]


@pytest.mark.parametrize("package", ["torch", "mpi4py", "matplotlib", "nbval", "jupyter_client"])
def test_the_doctor_runs_without_the_packages_it_looks_for(package):
    assert_doctor_survives(package)


def test_the_doctor_runs_without_psutil():
    assert_doctor_survives("psutil")


def assert_doctor_survives(package):
    """Run the doctor in a Python that cannot import the package; its fresh Pythons are answered for it."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from distgen_lab.cli import main\n"
        "from distgen_lab import doctor\n"
        "doctor._ask = lambda *args, **kwargs: (1, 'not asked')\n"
        "sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "" and done.returncode == 1
    assert done.stdout.endswith(" to mend; the commands stand above.\n")
    assert all(line[:8].strip() in STATES for line in done.stdout.splitlines()[:-1])
