"""Pictures of the course: one palette, one size, axes with units, legible on a light and on a dark page.

Each function draws into the axes it is given, and returns them.
"""

from distgen_lab.plots.canvas import *  # noqa: F403
from distgen_lab.plots.canvas import __all__ as _canvas
from distgen_lab.plots.cost import *  # noqa: F403
from distgen_lab.plots.cost import __all__ as _cost
from distgen_lab.plots.dataflow import *  # noqa: F403
from distgen_lab.plots.dataflow import __all__ as _dataflow
from distgen_lab.plots.hardware import *  # noqa: F403
from distgen_lab.plots.hardware import __all__ as _hardware
from distgen_lab.plots.machine import *  # noqa: F403
from distgen_lab.plots.machine import __all__ as _machine
from distgen_lab.plots.network import *  # noqa: F403
from distgen_lab.plots.network import __all__ as _network
from distgen_lab.plots.overlap import *  # noqa: F403
from distgen_lab.plots.overlap import __all__ as _overlap
from distgen_lab.plots.parallel import *  # noqa: F403
from distgen_lab.plots.parallel import __all__ as _parallel
from distgen_lab.plots.scale import *  # noqa: F403
from distgen_lab.plots.scale import __all__ as _scale
from distgen_lab.plots.spacetime import *  # noqa: F403
from distgen_lab.plots.spacetime import __all__ as _spacetime

__all__ = [*_canvas, *_cost, *_dataflow, *_hardware, *_machine, *_network, *_overlap, *_parallel, *_scale, *_spacetime]
