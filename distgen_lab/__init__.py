"""Helper library of DistGen Lab, the Jupyter companion to the chapter *Distributed Generative AI*."""

__version__ = "0.1.0"
