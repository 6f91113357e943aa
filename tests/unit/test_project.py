"""The files around the library agree with each other and with the library."""

import re
import tomllib

import yaml

from distgen_lab.course import course_root

ROOT = course_root()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def bounds(lines):
    """Name and lower bound of each requirement; the conda name of matplotlib is matplotlib-base."""
    found = dict(re.match(r"([\w-]+)>=([\d.]+)", line).groups() for line in lines if ">=" in line)
    return {name.replace("matplotlib-base", "matplotlib"): bound for name, bound in found.items()}


def test_environment_agrees_with_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    conda = [line for line in environment["dependencies"] if isinstance(line, str)]
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    wanted = bounds(PROJECT["dependencies"])
    assert bounds(conda) | bounds(pip) == wanted | {"python": PROJECT["requires-python"].removeprefix(">=")}
    assert "-c constraints.txt" in pip
    assert "-e ." in pip


def test_constraints_pin_every_dependency_at_or_above_its_bound():
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pins = {name.lower(): version for name, version in pins.items()}
    assert pins["torch"] == "2.13.0"
    extra = PROJECT["optional-dependencies"]["test"]
    for name, bound in bounds([*PROJECT["dependencies"], *extra]).items():
        if name == "impi-rt":  # Windows only
            continue
        numbers = [tuple(map(int, re.findall(r"\d+", text))) for text in (pins[name.lower()], bound)]
        assert numbers[0] >= numbers[1], name


def test_readme_shows_both_commands_in_its_first_screen():
    first = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:40])
    assert "make lab" in first
    assert "make test" in first


def test_ci_calls_the_readmes_test_command():
    assert re.search(r"^make test\b", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)


def test_readme_names_only_targets_and_commands_that_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in set(re.findall(r"`make (\w+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    cli = (ROOT / "distgen_lab" / "cli.py").read_text("utf-8")
    for command in set(re.findall(r"`?distgen (\w+)", text)):
        assert f'"{command}"' in cli, command
