"""Helper library of DistGen Lab, the Jupyter companion to the chapter *Distributed Generative AI*."""

from typing import Any

from distgen_lab.course import sample

__all__ = ["__version__", "launch", "sample"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load ``launch`` when it is first asked for: importing the library stays fast."""
    if name == "launch":
        from distgen_lab.ranks import launch

        return launch
    raise AttributeError(f"module 'distgen_lab' has no attribute {name!r}")
