"""Helper library of DistGen Lab, the Jupyter companion to the chapter *Distributed Generative AI*."""

from distgen_lab.course import sample

__all__ = ["__version__", "sample"]
__version__ = "0.1.0"
