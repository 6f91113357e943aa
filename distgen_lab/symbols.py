"""The one table of symbols of the whole course: a symbol stands for one thing, in every section.

The chapter changes letters from section to section; each row says which ones it uses for the same thing.
"""

import difflib
import unicodedata
from dataclasses import dataclass

from distgen_lab.claims import html_table

__all__ = ["SYMBOLS", "Symbol", "SymbolTable", "show"]


@dataclass(frozen=True)
class Symbol:
    """One symbol: its name, its unit ("1" for a plain number), what it means, and the chapter's letters for it."""

    symbol: str
    name: str
    unit: str
    meaning: str
    chapter: str = "the same"

    @property
    def ascii(self) -> str:
        """The symbol as one types it: "alpha" for α, "vec_x" for a bold x."""
        return "".join(_typed(letter) for letter in self.symbol)


def _typed(letter: str) -> str:
    """An ASCII spelling of one letter."""
    if letter.isascii():
        return letter
    words = unicodedata.name(letter).split()
    last = words[-1] if "CAPITAL" in words else words[-1].lower()
    return f"vec_{last}" if "BOLD" in words else last


_ROWS = (
    # the model and its data
    Symbol("N", "parameters", "1", "parameters of the model",
           "N in section 1; but N is message bytes in section 4, and D is the parameter count in section 5"),
    Symbol("N_act", "active parameters", "1", "parameters that one token passes through; N for a dense model",
           "not used"),
    Symbol("D", "tokens", "1", "tokens of training data",
           "D in section 1; but D is a diameter in section 3, parameters in section 5, message bytes in section 6"),
    Symbol("C", "compute", "FLOP", "operations of a whole training run, about 6ND"),
    Symbol("B", "batch", "1", "sequences in one step of all workers",
           "no letter; but B is link bandwidth in section 6"),
    Symbol("s", "context", "1", "tokens that attend to each other, the sequence length", "L"),
    Symbol("L", "layers", "1", "layers of the model",
           "ℓ in section 1, L in section 7; but L is sequence length in section 1 and a loss in section 5"),
    Symbol("ℓ", "layer index", "1", "one layer, from 1 to L",
           "ℓ in section 7; but ℓ is the number of layers in section 1"),
    Symbol("H", "heads", "1", "query heads of one layer"),
    Symbol("H_kv", "key and value heads", "1", "heads the cache keeps: H for MHA, fewer for GQA, 1 for MQA",
           "H, as if all were kept"),
    Symbol("d_h", "head size", "1", "values in one head"),
    Symbol("d", "width", "1", "values in one token's vector, often H x d_h",
           "not used; but d is the hypercube's dimension in section 3"),
    Symbol("V", "vocabulary", "1", "different tokens", "not used; but V is a volume in section 1"),
    Symbol("M_state", "model state", "B", "weights, gradients and optimiser state"),
    Symbol("M_KV", "KV cache", "B", "keys and values kept for all layers and tokens"),
    Symbol("MFU", "model FLOP utilisation", "1", "the model's own FLOP per second over the peak",
           "observed FLOP per second over the peak"),
    Symbol("HFU", "hardware FLOP utilisation", "1", "as MFU, with recomputed work counted", "not used"),
    # one device: the roofline
    Symbol("π", "peak", "FLOP/s", "dense peak rate of a device at one precision"),
    Symbol("b_mem", "memory bandwidth", "B/s", "HBM traffic a device can sustain",
           "β in section 2, a clash with time per byte"),
    Symbol("I", "arithmetic intensity", "FLOP/B", "operations for each byte moved from memory"),
    Symbol("I_ridge", "ridge point", "FLOP/B", "π / b_mem: below it memory limits, above it compute"),
    Symbol("W", "work", "FLOP", "operations of one kernel", "not used; but a bold W is a weight matrix in section 2"),
    Symbol("Q", "traffic", "B", "bytes one kernel moves between chip and memory", "not used"),
    Symbol("M", "systolic side", "1", "rows and columns of a systolic array"),
    Symbol("rows", "matrix rows", "1", "rows of the left factor and of the product", "m in section 2"),
    Symbol("inner", "inner size", "1", "columns of the left factor, rows of the right one",
           "k in section 2, K for the systolic array; both clash with other uses"),
    Symbol("cols", "matrix columns", "1", "columns of the right factor and of the product",
           "n in section 2, a clash with bytes"),
    # ranks and messages
    Symbol("P", "ranks", "1", "processes that communicate; one each for a GPU",
           "P (nodes) in sections 3 and 4, p in sections 5 and 6, which is kept for dragonflies here"),
    Symbol("i", "rank index", "1", "one rank, from 0 to P-1"),
    Symbol("K", "data-parallel workers", "1", "copies of the model that share a batch; P or fewer",
           "K in section 1; but K is an inner size in section 2"),
    Symbol("n", "bytes", "B", "bytes of one message, or of the data of one collective on each rank",
           "n in section 3, N in section 4, D in section 6"),
    Symbol("m", "segments", "1", "pieces a pipelined message is cut into",
           "not used; but m is matrix rows in section 2"),
    Symbol("t", "round", "1", "round of a schedule, from 0", "r in sections 3 and 4; but t is a time in section 1"),
    Symbol("α", "start-up time", "s", "time of a message that does not depend on its size",
           "α; but α is a step length in the CG of section 7"),
    Symbol("β", "time per byte", "s/B", "1 / b",
           "β in section 4; but β is a bandwidth in sections 2 and 5, and a CG coefficient in section 7"),
    Symbol("γ", "reduction time", "s/B", "time to add one byte of a message to another", "left out"),
    Symbol("b", "link bandwidth", "B/s", "bandwidth of one link in one direction, 1 / β",
           "b in section 3, 1/β in section 4, B in section 6"),
    Symbol("n_half", "half-bandwidth size", "B", "α / β: the message that reaches half the bandwidth",
           "N* in section 4"),
    Symbol("n_cross", "crossover size", "B", "message for which two algorithms take the same time",
           "D* in section 6, under the same name as N* of section 4"),
    Symbol("T", "time", "s", "time of a message, collective or step; a subscript says which", "T, and t in section 1"),
    Symbol("algbw", "algorithm bandwidth", "B/s", "n / T"),
    Symbol("busbw", "bus bandwidth", "B/s", "algbw x 2(P-1)/P for an all-reduce: comparable with b"),
    # topologies
    Symbol("diam", "diameter", "1", "hops between the two ranks furthest apart", "D, a clash with tokens"),
    Symbol("deg", "degree", "1", "links of one node", "in words, d for the hypercube"),
    Symbol("BB", "bisection bandwidth", "B/s", "least bandwidth, in one direction, over a cut into equal halves",
           "in words"),
    Symbol("side", "torus side", "1", "nodes along one dimension: P = side^dims", "n in section 3, a clash with bytes"),
    Symbol("dims", "dimensions", "1", "dimensions of a torus or hypercube", "k for the torus, d for the hypercube"),
    Symbol("k", "switch ports", "1", "ports of each switch of a fat-tree",
           "k; but k is also a torus dimension and a matrix size"),
    Symbol("ω", "oversubscription", "1", "bandwidth into a switch from below over that out of it above",
           "r, which also counts rounds"),
    Symbol("p", "terminals", "1", "hosts at one dragonfly router",
           "not used; but p is the number of processes in sections 5 and 6"),
    Symbol("a", "routers", "1", "routers of one dragonfly group", "in words"),
    Symbol("h", "global links", "1", "links of one dragonfly router to other groups", "in words"),
    Symbol("g", "groups", "1", "groups of a dragonfly", "in words; but g is a gradient in sections 5 and 7"),
    # communication hiding
    Symbol("T_comp", "compute time", "s", "compute of one step"),
    Symbol("T_comm", "communication time", "s", "communication of one step, wherever it runs"),
    Symbol("T_exp", "exposed communication", "s", "the part of T_comm during which no compute runs", "not named"),
    Symbol("T_bwd,ℓ", "backward time", "s", "backward pass of layer ℓ"),
    Symbol("T_AR,ℓ", "all-reduce time", "s", "all-reduce of layer ℓ's gradients"),
    Symbol("S", "speed-up from hiding", "1", "time without overlap over time with it, at most 2 for two phases",
           "a script S in section 7"),
    Symbol("grad", "gradient", "1", "gradient of the loss in the parameters", "g in section 5, a bold g in section 7"),
    # conjugate gradients: bold letters are vectors and matrices
    Symbol("𝐀", "matrix", "1", "the system to solve is 𝐀𝐱 = 𝐛",
           "𝐀; but a bold A is a matrix of activations in section 2"),
    Symbol("𝐱", "iterate", "1", "the approximate solution"),
    Symbol("𝐛", "right-hand side", "1", "what 𝐀𝐱 should give", "not used"),
    Symbol("𝐫", "residual", "1", "𝐛 - 𝐀𝐱"),
    Symbol("𝐩", "search direction", "1", "direction of the next step"),
    Symbol("𝐪", "product", "1", "𝐀𝐩"),
    Symbol("ρ", "squared residual", "1", "the dot product of 𝐫 with itself: one all-reduce"),
    Symbol("α_cg", "CG step length", "1", "ρ over the dot product of 𝐩 and 𝐪", "α, a clash with start-up time"),
    Symbol("β_cg", "CG direction coefficient", "1", "new ρ over old ρ", "β, a clash with time per byte"),
)  # fmt: skip

SYMBOLS: dict[str, Symbol] = {row.symbol: row for row in _ROWS}
"""Every symbol of the course, in the order of the sections."""


@dataclass(frozen=True, repr=False)
class SymbolTable:
    """Rows of the symbol table: HTML in a notebook, one line a symbol in a terminal."""

    rows: tuple[Symbol, ...]

    def _repr_html_(self) -> str:
        names = ("Symbol", "Name", "Unit", "Meaning", "In the chapter")
        return html_table(names, [(r.symbol, r.name, r.unit, r.meaning, r.chapter) for r in self.rows])

    def __repr__(self) -> str:
        wide = max((len(row.symbol) for row in self.rows), default=0)
        return "\n".join(
            f"{r.symbol:{wide}}  {r.name} [{r.unit}]: {r.meaning}. Chapter: {r.chapter}." for r in self.rows
        )


def show(*symbols: str) -> SymbolTable:
    """Return the rows of these symbols, of all when none is given; "alpha" finds α.

    Raises:
        ValueError: for a symbol that the course does not use; the message suggests near ones.

    >>> show("algbw", "beta_cg")
    algbw  algorithm bandwidth [B/s]: n / T. Chapter: the same.
    β_cg   CG direction coefficient [1]: new ρ over old ρ. Chapter: β, a clash with time per byte.
    """
    return SymbolTable(tuple(map(_find, symbols)) if symbols else _ROWS)


def _find(symbol: str) -> Symbol:
    """The row of a symbol, spelt with its own letters or in ASCII."""
    known = {row.ascii: row for row in _ROWS} | SYMBOLS
    if symbol in known:
        return known[symbol]
    names = {row.name: row.symbol for row in _ROWS}
    near = [names.get(hit, hit) for hit in difflib.get_close_matches(symbol, [*known, *names], n=5, cutoff=0.4)]
    raise ValueError(f"unknown symbol {symbol!r}; did you mean {', '.join(dict.fromkeys(near or known))}?")
