"""Conjugate gradients, classic and reordered so that fewer reductions stand in the way, or none.

Every variant computes the same iterates in exact arithmetic; they differ in how many global sums (all-reduces) an
iteration needs, in what runs beside them, and in how rounding errors grow. Each is written once, on a *space* that
multiplies by the matrix, applies the preconditioner and sums dot products: one process here, ranks in ``labs.cg``.

Symbols follow the course: vectors x, r, p; alpha_cg and beta_cg are the step length and the direction coefficient.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np

from distgen_lab.alphabeta import Cost, Link
from distgen_lab.alphabeta import cost as collective

__all__ = [
    "VARIANTS", "BreakdownError", "Machine", "NotPositiveDefiniteError", "Pending", "Poisson", "Solution", "Space",
    "Variant", "crossover", "iteration_time", "run", "solve", "spread_spectrum", "watched",
]  # fmt: skip


class NotPositiveDefiniteError(ValueError):
    """The matrix or the preconditioner is not symmetric positive definite."""


class BreakdownError(ValueError):
    """Rounding errors have made a recurrence useless; ``solution`` holds what was reached before."""

    solution: "Solution | None" = None


class Pending(Protocol):
    """Dot products on their way."""

    def wait(self) -> tuple[float, ...]:
        """Return the sums over all ranks."""


class Space(Protocol):
    """Where vectors live: in one process, or cut into pieces over ranks."""

    def multiply(self, v: np.ndarray) -> np.ndarray:
        """Return this rank's piece of A v."""

    def precondition(self, v: np.ndarray) -> np.ndarray:
        """Return this rank's piece of M v."""

    def dots(self, *pairs: tuple[np.ndarray, np.ndarray]) -> Pending:
        """Start one reduction of the dot products of all pairs."""


@dataclass(frozen=True)
class _Done:
    """Dot products that are there."""

    values: tuple[float, ...]

    def wait(self) -> tuple[float, ...]:
        return self.values


class _OneProcess:
    """The whole vectors in this process; counts what ranks would have to do."""

    def __init__(self, matrix: Any, preconditioner: Any, size: int) -> None:
        self.products = self.reductions = 0
        self._multiply = _operator("matrix", matrix, size)
        self._precondition = _operator("preconditioner", preconditioner, size) if preconditioner is not None else None

    def multiply(self, v: np.ndarray) -> np.ndarray:
        self.products += 1
        return self._multiply(v)

    def precondition(self, v: np.ndarray) -> np.ndarray:
        return v if self._precondition is None else self._precondition(v)

    def dots(self, *pairs: tuple[np.ndarray, np.ndarray]) -> _Done:
        self.reductions += 1
        return _Done(tuple(float(np.vdot(a, b)) for a, b in pairs))


# -------------------------------------------------------------------------------------------------- the variants

_State = tuple[np.ndarray, np.ndarray, float]
"""Iterate, residual of the recurrence, and its squared norm."""


def _classic(space: Space, x: np.ndarray, r: np.ndarray, refresh: "_Refresh") -> Iterator[_State]:
    """Two reductions an iteration, each waited for at once (Hestenes and Stiefel 1952)."""
    u = p = space.precondition(r)
    gamma, rho = space.dots((r, u), (r, r)).wait()
    while True:
        yield x, r, rho
        s = space.multiply(p)
        (delta,) = space.dots((s, p)).wait()
        alpha = _positive(gamma, "r.Mr") / _curvature(delta, delta)
        x, r = x + alpha * p, r - alpha * s
        if refresh.due():
            r = refresh.residual(x)
        u = space.precondition(r)
        before, (gamma, rho) = gamma, space.dots((r, u), (r, r)).wait()
        p = u + gamma / before * p


def _chronopoulos_gear(space: Space, x: np.ndarray, r: np.ndarray, refresh: "_Refresh") -> Iterator[_State]:
    """One reduction an iteration, waited for at once (Chronopoulos and Gear 1989)."""
    u = space.precondition(r)
    w = space.multiply(u)
    p = s = np.zeros_like(r)
    alpha = before = math.inf
    while True:
        gamma, delta, rho = space.dots((r, u), (w, u), (r, r)).wait()
        yield x, r, rho
        beta = gamma / before
        p, s = u + beta * p, w + beta * s
        alpha = _step(space, gamma, delta, beta, alpha, p)
        x, r, before = x + alpha * p, r - alpha * s, gamma
        if refresh.due():
            r, s = refresh.residual(x), space.multiply(p)
        u = space.precondition(r)
        w = space.multiply(u)


def _gropp(space: Space, x: np.ndarray, r: np.ndarray, refresh: "_Refresh") -> Iterator[_State]:
    """Two reductions an iteration, one beside the preconditioner and one beside the product (Gropp 2010)."""
    u = p = space.precondition(r)
    s = space.multiply(p)
    gamma, rho = space.dots((r, u), (r, r)).wait()
    while True:
        yield x, r, rho
        pending = space.dots((p, s))
        q = space.precondition(s)
        (delta,) = pending.wait()
        alpha = _positive(gamma, "r.Mr") / _curvature(delta, delta)
        x, r, u = x + alpha * p, r - alpha * s, u - alpha * q
        if refresh.due():
            r = refresh.residual(x)
            u, s = space.precondition(r), space.multiply(p)
        pending = space.dots((r, u), (r, r))
        w = space.multiply(u)
        before, (gamma, rho) = gamma, pending.wait()
        beta = gamma / before
        p, s = u + beta * p, w + beta * s


def _pipelined(space: Space, x: np.ndarray, r: np.ndarray, refresh: "_Refresh") -> Iterator[_State]:
    """One reduction an iteration, beside preconditioner and product (Ghysels and Vanroose 2014, algorithm 4)."""
    u = space.precondition(r)
    w = space.multiply(u)
    p = s = q = z = np.zeros_like(r)
    alpha = before = math.inf
    while True:
        pending = space.dots((r, u), (w, u), (r, r))
        m = space.precondition(w)
        n = space.multiply(m)
        gamma, delta, rho = pending.wait()
        yield x, r, rho
        beta = gamma / before
        z, q, s, p = n + beta * z, m + beta * q, w + beta * s, u + beta * p
        alpha = _step(space, gamma, delta, beta, alpha, p)
        x, r, u, w, before = x + alpha * p, r - alpha * s, u - alpha * q, w - alpha * z, gamma
        if refresh.due():
            r, s = refresh.residual(x), space.multiply(p)
            u, q = space.precondition(r), space.precondition(s)
            w, z = space.multiply(u), space.multiply(q)


def _step(space: Space, gamma: float, delta: float, beta: float, alpha: float, p: np.ndarray) -> float:
    """alpha_cg from quantities at hand: p.Ap = delta - beta gamma / (the alpha_cg before)."""
    curvature = delta - beta * gamma / alpha
    if not curvature > 0:
        (true,) = space.dots((p, space.multiply(p))).wait()
        _curvature(curvature, true)
    return _positive(gamma, "r.Mr") / curvature


def _positive(value: float, what: str) -> float:
    if value > 0 or math.isnan(value):
        return value
    raise NotPositiveDefiniteError(f"{what} is {value:.3g}; the preconditioner is not symmetric positive definite")


def _curvature(value: float, true: float) -> float:
    """p.Ap by a recurrence, if it is positive; else say whether the matrix or rounding is to blame."""
    if value > 0:
        return value
    if true <= 0:
        raise NotPositiveDefiniteError(
            f"p.Ap is {true:.3g}; the matrix is not positive definite, and conjugate gradients need one that is"
        )
    raise BreakdownError(f"the recurrence gives {value:.3g} for p.Ap, which is {true:.3g}: rounding errors have won")


class _Refresh:
    """Residual replacement: every so many iterations the residual is computed anew, b - A x."""

    def __init__(self, space: Space, b: np.ndarray, every: int) -> None:
        self.space, self.b, self.every, self.count = space, b, every, 0

    def due(self) -> bool:
        self.count += 1
        return bool(self.every) and self.count % self.every == 0

    def residual(self, x: np.ndarray) -> np.ndarray:
        return self.b - self.space.multiply(x)


@dataclass(frozen=True)
class Variant:
    """One way to order conjugate gradients, and what an iteration costs.

    Attributes:
        name: as in ``VARIANTS``.
        reductions: all-reduces in an iteration.
        hidden: whether work runs beside them.
        axpys, dots: vector updates and dot products in an iteration, after Ghysels and Vanroose 2014, table 1 (a test
            of convergence by the residual's norm adds a dot product to a preconditioned variant).
        vectors: vectors in memory beside the matrix's and the preconditioner's own.
        formula: time of an iteration from G (a reduction), SPMV (product) and PC (preconditioner).
        time: the same as a function of (G, SPMV, PC).
        iterate: the algorithm.
    """

    name: str
    reductions: int
    hidden: bool
    axpys: int
    dots: int
    vectors: int
    formula: str
    time: Callable[[float, float, float], float] = field(repr=False)
    iterate: Callable[..., Iterator[_State]] = field(repr=False)

    @property
    def flops_per_row(self) -> int:
        """FLOP per row of all vector updates and dot products of an iteration: 2 each."""
        return 2 * (self.axpys + self.dots)


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        Variant("classic", 2, False, 3, 2, 4, "2G + SPMV + PC", lambda g, a, m: 2 * g + a + m, _classic),
        Variant("Chronopoulos-Gear", 1, False, 4, 2, 5, "G + SPMV + PC", lambda g, a, m: g + a + m, _chronopoulos_gear),
        Variant("Gropp", 2, True, 5, 2, 6, "max(G, SPMV) + max(G, PC)", lambda g, a, m: max(g, a) + max(g, m), _gropp),
        Variant("pipelined", 1, True, 8, 2, 9, "max(G, SPMV + PC)", lambda g, a, m: max(g, a + m), _pipelined),
    )
}
"""The variants by name."""


# --------------------------------------------------------------------------------------------------- solving


@dataclass(frozen=True)
class Solution:
    """What a solver reached.

    Attributes:
        variant: its name.
        x: the last iterate (this rank's piece).
        iterations: steps taken.
        converged: whether the residual of the recurrence fell to ``rtol`` times the norm of b.
        residuals: norm of the recurrence's residual over that of b, for iterate 0, 1, ...
        true_residuals: norm of b - A x over that of b, for the same iterates; empty unless watched.
        reductions, products: global sums and products with the matrix, from the first to the last (0 on ranks: count
            their recording).
    """

    variant: str
    x: np.ndarray = field(repr=False)
    iterations: int
    converged: bool
    residuals: tuple[float, ...] = field(repr=False)
    true_residuals: tuple[float, ...] = field(repr=False, default=())
    reductions: int = 0
    products: int = 0

    @property
    def drift(self) -> float:
        """How much larger the true residual is than the one the recurrence shows at the end; needs watching."""
        return self.true_residuals[-1] / self.residuals[-1] if self.residuals[-1] else math.inf

    @property
    def attained(self) -> float:
        """The smallest true residual that was seen; needs watching."""
        return min(self.true_residuals)


def solve(
    matrix: Any,
    b: Any,
    variant: str = "classic",
    preconditioner: Any = None,
    x0: Any = None,
    rtol: float = 1e-8,
    most: int | None = None,
    replace_every: int = 0,
    watch: bool = False,
) -> Solution:
    """Solve A x = b for a symmetric positive definite A in this process.

    Args:
        matrix: a square array, or a function that multiplies a vector.
        b: right-hand side.
        variant: a name of ``VARIANTS``.
        preconditioner: an array of the inverse diagonal, a matrix, or a function; symmetric positive definite.
        x0: first iterate; zeros if None.
        rtol: stop when the recurrence's residual is at most rtol times the norm of b.
        most: iterations at most; 10 times the size if None.
        replace_every: after so many iterations, again and again, the residual and what follows from it are computed
            anew; 0 never.
        watch: also compute b - A x for every iterate (one more product each, not counted).

    Raises:
        NotPositiveDefiniteError: if the matrix is not symmetric, or an iteration meets a direction without curvature.
        BreakdownError: if rounding errors ruin a recurrence, or a number overflows.
        ValueError: for shapes that do not fit, an unknown variant, or a bad limit.

    >>> solve(np.diag([1.0, 2.0, 4.0]), np.ones(3)).iterations
    3
    """
    b = _vector("b", b)
    start = None if x0 is None else _vector("x0", x0, len(b))
    space = _OneProcess(matrix, preconditioner, len(b))
    _check_symmetry(space, matrix, len(b))
    most = 10 * len(b) if most is None else most
    true = space._multiply if watch else None
    return run(space, b, variant, start, rtol, most, replace_every, true)


def run(
    space: Space,
    b: np.ndarray,
    variant: str,
    x0: np.ndarray | None = None,
    rtol: float = 1e-8,
    most: int = 1000,
    replace_every: int = 0,
    watch: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Solution:
    """Run a variant on any space; arguments as in :func:`solve`, ``b`` and ``x0`` are this rank's pieces.

    ``watch`` multiplies by A outside the count, in one process only.
    """
    chosen = _variant(variant)
    _check_limits(rtol, most, replace_every)
    x, r = (np.zeros_like(b), b.copy()) if x0 is None else (x0, b - space.multiply(x0))
    states = chosen.iterate(space, x, r, _Refresh(space, b, replace_every))
    (squared,) = space.dots((b, b)).wait()
    norm = math.sqrt(squared) or 1.0
    residuals: list[float] = []
    true: list[float] = []
    try:
        for x, _, rho in states:
            residuals.append(_norm(rho) / norm)
            if watch is not None:
                true.append(float(np.linalg.norm(b - watch(x))) / norm)
            if residuals[-1] <= rtol or not residuals[-1] or len(residuals) > most:
                break
    except BreakdownError as error:
        error.solution = _solution(space, chosen.name, x, rtol, residuals, true)
        raise
    return _solution(space, chosen.name, x, rtol, residuals, true)


def _solution(
    space: Space, name: str, x: np.ndarray, rtol: float, residuals: list[float], true: list[float]
) -> Solution:
    done = bool(residuals) and residuals[-1] <= rtol
    counts = (getattr(space, "reductions", 0), getattr(space, "products", 0))
    return Solution(name, x, max(0, len(residuals) - 1), done, tuple(residuals), tuple(true), *counts)


def _norm(squared: float) -> float:
    if not math.isfinite(squared) or squared < 0:
        raise BreakdownError(f"the squared residual is {squared}: numbers have overflowed, or the matrix holds NaN")
    return math.sqrt(squared)


def watched(loop: Callable[..., Any], matrix: Any, b: Any, steps: int) -> dict[str, Any]:
    """Run somebody's loop of conjugate gradients, and count what ranks would have to do.

    Args:
        loop: called as ``loop(multiply, start_dots, b, steps)``: multiply(v) is A v, and start_dots((a, b), ...) starts
            one reduction of dot products, whose ``wait()`` returns them. It returns the iterates after steps 1, 2, ...
        matrix, b: the system.
        steps: iterations to take.

    Returns:
        "iterates"; "reductions", how many were started; and "beside", how many products ran between the start of a
        reduction and its wait.
    """
    array, events = np.asarray(matrix, float), []

    @dataclass
    class Sums:
        values: tuple[float, ...]

        def wait(self) -> tuple[float, ...]:
            events.append("wait")
            return self.values

    def multiply(v: Any) -> np.ndarray:
        events.append("product")
        return array @ v

    def start_dots(*pairs: tuple[Any, Any]) -> Sums:
        events.append("start")
        return Sums(tuple(float(np.vdot(a, c)) for a, c in pairs))

    iterates = [np.asarray(x, float).tolist() for x in loop(multiply, start_dots, np.asarray(b, float), steps)]
    beside = open_sums = 0
    for event in events:
        open_sums += {"start": 1, "wait": -1, "product": 0}[event]
        beside += event == "product" and open_sums > 0
    return {"iterates": iterates, "reductions": events.count("start"), "beside": beside}


# -------------------------------------------------------------------------------------------------- test problems


class Poisson:
    """The five-point Laplacian on a square grid, cut into strips of rows; scaled from both sides by a diagonal.

    With ``contrast`` above 1 the diagonal grows from 1 to that value across the grid: the system is worse conditioned,
    and the diagonal preconditioner (:meth:`inverse_diagonal`) takes that away again.

    Args:
        side: grid points along one edge; the matrix has side x side rows.
        contrast: largest over smallest scaling.
        low, high: rows of the grid this strip holds, all if not given.
    """

    def __init__(self, side: int, contrast: float = 1.0, low: int = 0, high: int | None = None) -> None:
        self.side, self.low, self.high = _whole("side", side), low, side if high is None else high
        if not (_is_real(contrast) and contrast >= 1):
            raise ValueError(f"contrast is {contrast!r}; a number of at least 1 is needed")
        across = np.add.outer(np.arange(self.low, self.high), np.arange(side)) / max(1, 2 * (side - 1))
        self.scaling = float(contrast) ** across

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of this strip of the grid."""
        return self.high - self.low, self.side

    def edges(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and the last row of the scaled strip: what its neighbours need."""
        scaled = self.scaling * v.reshape(self.shape)
        return scaled[0].copy(), scaled[-1].copy()

    def __call__(self, v: np.ndarray, above: Any = 0.0, below: Any = 0.0) -> np.ndarray:
        """Return A v for this strip, given the neighbours' edges (0 at the border of the grid)."""
        scaled = self.scaling * v.reshape(self.shape)
        out = 4 * scaled
        out[1:] -= scaled[:-1]
        out[:-1] -= scaled[1:]
        out[:, 1:] -= scaled[:, :-1]
        out[:, :-1] -= scaled[:, 1:]
        out[0] -= above
        out[-1] -= below
        return (self.scaling * out).ravel()

    def inverse_diagonal(self) -> np.ndarray:
        """Return 1 over the matrix's diagonal on this strip: Jacobi's preconditioner."""
        return (0.25 / self.scaling**2).ravel()


def spread_spectrum(size: int, condition: float, bend: float = 0.9) -> np.ndarray:
    """Return the diagonal matrix's eigenvalues of Strakos's test problem (1991): most crowd at the small end.

    Args:
        size: n.
        condition: largest over smallest eigenvalue; the largest is 1.
        bend: below 1; the smaller, the more they crowd.

    In exact arithmetic n iterations are enough; rounding makes it more, and separates the variants.
    """
    place = np.arange(_whole("size", size)) / max(1, size - 1)
    smallest = 1 / condition
    return smallest + place * (1 - smallest) * bend ** (size - 1 - np.arange(size))


# -------------------------------------------------------------------------------------------------- time on a machine


@dataclass(frozen=True)
class Machine:
    """What an iteration on a grid of ``side`` x ``side`` points cut into strips costs.

    Attributes:
        link: alpha and beta of a message.
        flop: seconds per FLOP of the (memory-bound) vector work on one rank.
        side: grid points along an edge.
        preconditioner: FLOP per row of the preconditioner.
        sums: numbers in one reduction, 8 bytes each.
    """

    link: Link
    flop: float
    side: int
    preconditioner: float = 1.0
    sums: int = 3

    def reduction(self, ranks: int) -> float:
        """Return G, seconds of an all-reduce by recursive doubling."""
        steps = math.ceil(math.log2(_whole("ranks", ranks)))
        return _doubling(steps).time(self.link, 8 * self.sums)

    def product(self, ranks: int) -> float:
        """Return SPMV, seconds of a product with the matrix: 9 FLOP a row, and one exchange with the neighbours."""
        halo = self.link.time(8 * self.side) if _whole("ranks", ranks) > 1 else 0.0
        return self.side**2 / ranks * 9 * self.flop + halo

    def preconditioning(self, ranks: int) -> float:
        """Return PC, seconds of the preconditioner."""
        return self.side**2 / _whole("ranks", ranks) * self.preconditioner * self.flop


@cache
def _doubling(steps: int) -> Cost:
    """Recursive doubling in that many steps: a number of ranks between two powers of two takes as many as the next."""
    return collective("all_reduce", "recursive doubling", 2**steps)


def iteration_time(variant: str, machine: Machine, ranks: int) -> float:
    """Return seconds of one iteration: the variant's formula, and its vector updates and dot products."""
    chosen = _variant(variant)
    parts = (machine.reduction(ranks), machine.product(ranks), machine.preconditioning(ranks))
    return chosen.time(*parts) + machine.side**2 / ranks * chosen.flops_per_row * machine.flop


def crossover(machine: Machine, variant: str = "pipelined", other: str = "classic", most: int = 2**20) -> int | None:
    """Return the fewest ranks with which ``variant`` is faster than ``other``; None up to ``most``.

    Between two powers of two the reduction costs the same and the rest only falls, so the border is found by halving.
    """

    def faster(ranks: int) -> bool:
        return iteration_time(variant, machine, ranks) < iteration_time(other, machine, ranks)

    powers = [2**k for k in range(_whole("most", most).bit_length())]
    high = next((ranks for ranks in powers if faster(ranks)), None)
    if high is None or high == 1:
        return high
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if faster(middle) else (middle, high)
    return high


# ------------------------------------------------------------------------------------------------ what is refused


def _operator(name: str, given: Any, size: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function that multiplies: an array is one of rows and columns, or a diagonal."""
    if callable(given):
        return given
    array = np.asarray(given, float)
    if array.shape == (size, size):
        return array.__matmul__
    if array.shape == (size,) and name == "preconditioner":
        return array.__mul__
    raise ValueError(f"the {name} has the shape {array.shape}; {(size, size)} is needed for a b of length {size}")


def _check_symmetry(space: _OneProcess, matrix: Any, size: int) -> None:
    """Hold u.Av against v.Au for two random vectors: equal for a symmetric matrix."""
    draw = np.random.default_rng(0)
    u, v = draw.standard_normal((2, size))
    one, other = (float(np.vdot(a, space._multiply(c))) for a, c in ((u, v), (v, u)))
    scale = float(np.linalg.norm(u) * np.linalg.norm(space._multiply(v)))
    if abs(one - other) > 1e-9 * scale:
        raise NotPositiveDefiniteError(
            f"u.Av is {one:.6g} and v.Au is {other:.6g}; the matrix is not symmetric, and conjugate gradients need one "
            "that is"
        )


def _vector(name: str, given: Any, size: int | None = None) -> np.ndarray:
    vector = np.asarray(given, float)
    if vector.ndim != 1 or not len(vector) or size not in (None, len(vector)):
        wanted = f"({size},)" if size else "(n,)"
        raise ValueError(f"{name} has the shape {vector.shape}; {wanted} is needed")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} holds NaN or infinity; finite numbers are needed")
    return vector


def _variant(name: str) -> Variant:
    if name not in VARIANTS:
        raise ValueError(f"variant is {name!r}; there are: {', '.join(VARIANTS)}")
    return VARIANTS[name]


def _check_limits(rtol: float, most: int, replace_every: int) -> None:
    if not (_is_real(rtol) and rtol >= 0):
        raise ValueError(f"rtol is {rtol!r}; a number of at least 0 is needed")
    for name, value in (("most", most), ("replace_every", replace_every)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} is {value!r}; a whole number of at least 0 is needed")


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; a whole number of at least 1 is needed")
    return int(value)


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
