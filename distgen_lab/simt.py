"""SIMT: a warp of 32 lanes that share one instruction; what branches and scattered addresses cost it.

A kernel is a tuple of statements: :class:`Let`, :class:`If` and :class:`While`. :func:`run` executes it as a warp does:
where lanes disagree, the paths run one after the other with the other lanes masked, and the lanes meet again where the
branch ends. (Since Volta the scheduler may interleave the paths; the cycles each takes are the same.) Addresses of one
load or store are gathered into the aligned segments that memory serves.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = [
    "LANES", "Access", "If", "Issue", "Let", "Statement", "WarpRun", "While", "bank_conflicts", "branch", "coalesce",
    "run", "strided",
]  # fmt: skip

LANES = 32
"""Threads of a warp on every NVIDIA GPU."""
MOST_ISSUES = 1_000_000

State = dict[str, np.ndarray]
Expression = Callable[[State], "np.ndarray | float | bool"]


@dataclass(frozen=True)
class Let:
    """Assign ``value(state)`` to a variable in the active lanes; it takes ``cycles`` instructions."""

    name: str
    value: Expression
    cycles: int = 1


@dataclass(frozen=True)
class If:
    """Run ``then`` in the lanes where ``condition(state)`` holds, ``otherwise`` in the others, then go on together."""

    condition: Expression
    then: Sequence["Statement"]
    otherwise: Sequence["Statement"] = ()


@dataclass(frozen=True)
class While:
    """Repeat ``body`` in the lanes where ``condition(state)`` still holds; lanes that are through wait for the rest."""

    condition: Expression
    body: Sequence["Statement"]


Statement = Let | If | While


@dataclass(frozen=True)
class Issue:
    """One instruction sent to the warp: what it does, its first cycle, its cycles, and the lanes that take part."""

    label: str
    start: int
    cycles: int
    mask: tuple[bool, ...]

    @property
    def active(self) -> int:
        """Lanes that take part."""
        return sum(self.mask)


@dataclass
class WarpRun:
    """What a warp did: the variables at the end (one value a lane) and every instruction it was sent."""

    lanes: int
    state: State
    issues: list[Issue] = field(default_factory=list)

    @property
    def cycles(self) -> int:
        """Cycles of all instructions; testing a condition takes one."""
        return sum(issue.cycles for issue in self.issues)

    @property
    def efficiency(self) -> float:
        """Active lanes over all lanes, over all cycles; 1 where no lane ever waited."""
        if not self.issues:
            return 1.0
        return sum(issue.cycles * issue.active for issue in self.issues) / (self.lanes * self.cycles)

    @property
    def longest_lane(self) -> int:
        """Cycles of the lane that takes part in most: with a processor of its own each lane would need no more."""
        taken = np.array([issue.mask for issue in self.issues], dtype=bool).reshape(-1, self.lanes)
        return int(max(np.array([issue.cycles for issue in self.issues], dtype=int) @ taken, default=0))

    def masks(self) -> np.ndarray:
        """Return the active lanes of every cycle: bool, cycles x lanes."""
        rows = [issue.mask for issue in self.issues for _ in range(issue.cycles)]
        return np.array(rows, dtype=bool).reshape(-1, self.lanes)


def run(program: Iterable[Statement], lanes: int = LANES, **variables: Sequence[float]) -> WarpRun:
    """Execute a kernel on one warp; every lane finds its number in ``state["lane"]``.

    Args:
        program: statements; their functions get the state (a dict of arrays of one value a lane) and must not change
            it.
        lanes: lanes of the warp.
        variables: further variables, one value for each lane or one for all.

    Raises:
        ValueError: for no lanes, a variable of another length, cycles below 1, or a loop that does not end within a
            million instructions.
        TypeError: for a statement of another kind.

    >>> kernel = [If(lambda s: s["lane"] < 8, [Let("x", lambda s: 1.0)], [Let("x", lambda s: 2.0)])]
    >>> run(kernel).cycles, run(kernel).efficiency
    (3, 0.6666666666666666)
    """
    if lanes < 1:
        raise ValueError(f"lanes is {lanes}; 1 or more is needed")
    state = {"lane": np.arange(lanes)}
    state |= {name: _per_lane(name, value, lanes).copy() for name, value in variables.items()}
    done = WarpRun(lanes, state)
    _block(done, program, np.ones(lanes, dtype=bool))
    return done


def _block(warp: WarpRun, program: Iterable[Statement], mask: np.ndarray) -> None:
    """Run statements in the lanes of ``mask``; the others keep their state."""
    for statement in program:
        if not mask.any():
            return
        if isinstance(statement, Let):
            _let(warp, statement, mask)
        elif isinstance(statement, If):
            chosen = _test(warp, statement.condition, mask, "if")
            _block(warp, statement.then, mask & chosen)
            _block(warp, statement.otherwise, mask & ~chosen)
        elif isinstance(statement, While):
            _loop(warp, statement, mask)
        else:
            raise TypeError(f"a kernel holds a {type(statement).__name__}; Let, If and While are its statements")


def _let(warp: WarpRun, statement: Let, mask: np.ndarray) -> None:
    """Assign in the active lanes; a new variable is 0 in the others."""
    value = _evaluate(warp, statement.value, statement.name)
    old = warp.state.get(statement.name, np.zeros_like(value))
    warp.state[statement.name] = np.where(mask, value, old)
    _issue(warp, statement.name, statement.cycles, mask)


def _loop(warp: WarpRun, statement: While, mask: np.ndarray) -> None:
    """Repeat in the lanes that are not through."""
    going = mask & _test(warp, statement.condition, mask, "while")
    while going.any():
        _block(warp, statement.body, going)
        going = going & _test(warp, statement.condition, going, "while")


def _test(warp: WarpRun, condition: Expression, mask: np.ndarray, label: str) -> np.ndarray:
    """The condition in every lane; testing it is an instruction of the active ones."""
    _issue(warp, label, 1, mask)
    return _evaluate(warp, condition, label).astype(bool)


def _evaluate(warp: WarpRun, expression: Expression, name: str) -> np.ndarray:
    """The value of an expression in every lane; what a masked lane computes is thrown away, so it may be anything."""
    with np.errstate(all="ignore"):
        return _per_lane(name, expression(dict(warp.state)), warp.lanes)


def _per_lane(name: str, value: object, lanes: int) -> np.ndarray:
    """The value as an array of one entry a lane."""
    array = np.asarray(value)
    if array.shape not in ((), (lanes,)):
        raise ValueError(f"{name} has the shape {array.shape}; one value, or one for each of {lanes} lanes, is needed")
    return np.broadcast_to(array, lanes)


def _issue(warp: WarpRun, label: str, cycles: int, mask: np.ndarray) -> None:
    """Write down one instruction."""
    if cycles < 1:
        raise ValueError(f"cycles of {label} is {cycles}; 1 or more is needed")
    if len(warp.issues) >= MOST_ISSUES:
        raise ValueError(f"the kernel takes more than {MOST_ISSUES:,} instructions; does its loop end?")
    start = warp.issues[-1].start + warp.issues[-1].cycles if warp.issues else 0
    warp.issues.append(Issue(label, start, cycles, tuple(map(bool, mask))))


def branch(condition: Callable[[np.ndarray], np.ndarray], then: int = 10, otherwise: int = 10) -> WarpRun:
    """Return the run of one branch on the lane number: two paths of so many instructions each.

    >>> both, one = branch(lambda lane: lane % 2 == 0), branch(lambda lane: lane >= 0)
    >>> both.cycles, one.cycles
    (21, 11)
    """
    first, second = (Let(name, lambda s: 1, cycles) for name, cycles in (("then", then), ("otherwise", otherwise)))
    return run([If(lambda state: condition(state["lane"]), [first], [second])])


@dataclass(frozen=True)
class Access:
    """One load or store of a warp: the aligned segments that it touches, and bytes wanted and moved."""

    segments: tuple[int, ...]
    segment: int
    wanted: int

    @property
    def moved(self) -> int:
        """Bytes that memory moves: whole segments."""
        return len(self.segments) * self.segment

    @property
    def efficiency(self) -> float:
        """Bytes wanted over bytes moved."""
        return self.wanted / self.moved


def coalesce(addresses: Sequence[int], size: int = 4, segment: int = 32) -> Access:
    """Return the segments that the lanes' accesses of ``size`` bytes touch.

    Args:
        addresses: byte address of each active lane.
        size: bytes each lane wants.
        segment: 32 for a sector of L2, 128 for a line of L1 (CUDA C++ Best Practices Guide, coalesced access).

    Raises:
        ValueError: for no addresses, negative ones, or sizes below 1.

    >>> coalesce(strided(1)).efficiency, coalesce(strided(2)).efficiency, coalesce(strided(32)).efficiency
    (1.0, 0.5, 0.125)
    """
    places = _addresses(addresses)
    if size < 1 or segment < 1:
        raise ValueError(f"size is {size} and segment {segment}; both must be 1 or more")
    touched = {s for a in places for s in range(a // segment, (a + size - 1) // segment + 1)}
    wanted = {b for a in places for b in range(a, a + size)}
    return Access(tuple(sorted(touched)), segment, len(wanted))


def strided(stride: int, lanes: int = LANES, size: int = 4, start: int = 0) -> list[int]:
    """Return the byte addresses of lanes that are ``stride`` elements of ``size`` bytes apart."""
    return [start + lane * stride * size for lane in range(lanes)]


def bank_conflicts(addresses: Sequence[int], banks: int = 32, width: int = 4) -> int:
    """Return how many times shared memory must be accessed: the most different words that fall on one bank.

    1 is free of conflicts; lanes that want the same word share it (CUDA C++ Best Practices Guide, shared memory).

    Raises:
        ValueError: for no addresses or negative ones.

    >>> [bank_conflicts(strided(stride)) for stride in (1, 2, 32, 33)]
    [1, 2, 32, 1]
    """
    words = {address // width for address in _addresses(addresses)}
    return int(np.bincount([word % banks for word in words]).max())


def _addresses(addresses: Sequence[int]) -> list[int]:
    """The addresses as ints, or a sentence that says what is wrong with them."""
    found = [int(address) for address in addresses]
    if not found or min(found) < 0:
        raise ValueError(f"addresses is {list(addresses)[:4]}; at least one, and none below 0, is needed")
    return found
