"""Pictures of the course: one palette, one size, axes with units, legible on a light and on a dark page.

Each function draws into the axes it is given, and returns them.
"""

from distgen_lab.plots.canvas import *  # noqa: F403
from distgen_lab.plots.canvas import __all__ as _canvas
from distgen_lab.plots.scale import *  # noqa: F403
from distgen_lab.plots.scale import __all__ as _scale
from distgen_lab.plots.spacetime import *  # noqa: F403
from distgen_lab.plots.spacetime import __all__ as _spacetime

__all__ = [*_canvas, *_scale, *_spacetime]
