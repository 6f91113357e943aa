"""Count a transformer's parameters and KV cache from its Hugging Face ``config.json``.

:meth:`ModelShape.from_config` turns a config into an inventory: blocks of weights, each with its shape. Everything
else (total, active and multiplied parameters, the table) is a sum over that inventory. How a family differs from
the next (names of keys, biases, norms, experts, tied head) is one row of :data:`_STYLES`.

Sources: the config and model classes of Hugging Face transformers 5, and the model cards' published counts.
"""

import difflib
import html
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

__all__ = [
    "SUPPORTED_MODEL_TYPES", "Block", "ConfigError", "ModelShape", "ShapeRow", "ShapeTable", "Weight",
]  # fmt: skip

_LARGEST = 2**31  # no width, row count or vocabulary comes near it
_MOST_LAYERS = 100_000
_MOST_BYTES = 16 * 2**20  # a config is a few kB; more is a weights file


class ConfigError(ValueError):
    """A config that cannot be counted: one sentence naming file, line, field, value found and what would be right."""


# ------------------------------------------------------------------------------------------------ the inventory


@dataclass(frozen=True)
class Weight:
    """One tensor, or ``copies`` tensors of equal shape (experts).

    ``active`` is how many copies one token passes through (None: all). ``matmul`` says whether every token's vector
    is multiplied by it: true for linear layers, routers and the output head; false for lookups, norms and biases.
    ``tied`` marks a tensor that is another one's memory: multiplied, but not counted again.
    """

    name: str
    shape: tuple[int, ...]
    copies: int = 1
    active: int | None = None
    matmul: bool = True
    tied: bool = False

    @property
    def parameters(self) -> int:
        """Numbers stored, over all copies; 0 for a tied weight."""
        return 0 if self.tied else self.copies * math.prod(self.shape)

    @property
    def active_parameters(self) -> int:
        """Numbers stored in the copies that one token passes through; 0 for a tied weight."""
        return 0 if self.tied else self._used * math.prod(self.shape)

    @property
    def matmul_parameters(self) -> int:
        """Numbers that one token's vector is multiplied by (a tied head too); 0 for lookups, norms and biases."""
        return self._used * math.prod(self.shape) if self.matmul else 0

    @property
    def _used(self) -> int:
        return self.copies if self.active is None else self.active


@dataclass(frozen=True)
class Block:
    """Weights that occur ``repeat`` times, e.g. all layers that are alike."""

    name: str
    weights: tuple[Weight, ...]
    repeat: int = 1

    @property
    def parameters(self) -> int:
        """Numbers stored in all repetitions."""
        return self.repeat * sum(w.parameters for w in self.weights)


class ShapeRow(NamedTuple):
    """One line of a :class:`ShapeTable`; ``share`` is the fraction of all parameters, 0 to 1."""

    block: str
    weight: str
    shape: tuple[int, ...]
    copies: int
    repeat: int
    parameters: int
    share: float


@dataclass(frozen=True, repr=False)
class ShapeTable:
    """A model's weights, a row each; prints as text in a terminal and as an HTML table in a notebook."""

    title: str
    rows: tuple[ShapeRow, ...]

    def _cells(self) -> Iterator[tuple[str, ...]]:
        yield tuple(ShapeRow._fields)
        for row in self.rows:
            shape = " x ".join(map(str, row.shape))
            counts = (str(row.copies), str(row.repeat), f"{row.parameters:,}", f"{row.share:.2%}")
            yield (row.block, row.weight, shape, *counts)

    def __repr__(self) -> str:
        """Aligned columns under the title."""
        lines = list(self._cells())
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join([self.title, *(_aligned(line, widths) for line in lines)])

    def _repr_html_(self) -> str:
        head, *body = ([html.escape(cell) for cell in line] for line in self._cells())
        rows = "".join(f"<tr><td>{'</td><td>'.join(line)}</td></tr>" for line in body)
        top = f"<caption>{html.escape(self.title)}</caption><thead><tr><th>{'</th><th>'.join(head)}</th></tr></thead>"
        return f"<table>{top}<tbody>{rows}</tbody></table>"


def _aligned(cells: Iterable[str], widths: list[int]) -> str:
    """Names to the left, numbers to the right."""
    pairs = enumerate(zip(cells, widths, strict=True))
    return "  ".join(cell.ljust(n) if i < 3 else cell.rjust(n) for i, (cell, n) in pairs).rstrip()


@dataclass(frozen=True, repr=False)
class ModelShape:
    """The shape of one transformer: its weights by block, and what its KV cache holds.

    ``layers`` are the decoder's (or the only stack's) layers, ``encoder_layers`` those of a T5 encoder. ``head_dim``
    is the width of one head's query and key.
    ``kv_heads`` is None under multi-head latent attention, whose cache has no heads. ``kv_values_per_token`` counts
    keys and values over all layers (0 for an encoder such as BERT). ``assumed`` lists the keys that the file leaves
    out and the transformers class fills in.
    """

    name: str
    family: str
    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int | None
    head_dim: int
    vocab: int
    tied: bool
    blocks: tuple[Block, ...]
    kv_values_per_token: int
    max_context: int | None = None
    encoder_layers: int = 0
    assumed: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> "ModelShape":
        """Read a Hugging Face config (path or dict) and return the shape of the model in ``architectures``.

        Without ``architectures`` decoders are read as language models and BERT-like encoders as the base model. A
        config that nests a text model (``text_config``) gives that text model only. Multi-token-prediction layers
        and router correction biases (buffers) are not counted. ``name`` defaults to ``_name_or_path``.
        Raises :class:`ConfigError` for anything that cannot be counted exactly.

        >>> gpt2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
        ...         "n_positions": 1024, "vocab_size": 50257}
        >>> ModelShape.from_config(gpt2).parameters
        124439808
        """
        try:
            return _from_config(config, name)
        except RecursionError:
            raise ConfigError(f"{_label(config)}: the config is nested too deeply, a flat object is needed.") from None

    @property
    def parameters(self) -> int:
        """All weights and biases, a tied head once (N of the chapter for a dense model)."""
        return sum(block.parameters for block in self.blocks)

    @property
    def active_parameters(self) -> int:
        """Parameters less the routed experts that a token does not pass through."""
        return sum(b.repeat * w.active_parameters for b in self.blocks for w in b.weights)

    @property
    def matmul_parameters(self) -> int:
        """Active weights that a token is multiplied by, the output head included even when tied.

        2 x this is the forward FLOP per token (without attention scores), 6 x this the training FLOP. In an
        encoder-decoder the encoder's weights meet the encoder's tokens and the decoder's weights the decoder's.
        """
        return sum(b.repeat * w.matmul_parameters for b in self.blocks for w in b.weights)

    def kv_bytes_per_token(self, bytes_per_value: float = 2) -> int:
        """Bytes of KV cache that one more token adds, over all layers (default: 2-byte values).

        Without window effects: layers that keep only the last tokens stop growing there. For T5 this is decoder
        self-attention only; cross-attention stores as much again per encoder token.
        """
        return self.kv_cache_bytes(1, 1, bytes_per_value)

    def kv_cache_bytes(self, context: int, batch: int = 1, bytes_per_value: float = 2) -> int:
        """Bytes of KV cache for ``batch`` sequences of ``context`` tokens each, without window effects.

        Raises ValueError when an argument is negative or not a finite number.

        >>> llama = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        ...          "intermediate_size": 11008, "vocab_size": 32000}
        >>> ModelShape.from_config(llama).kv_cache_bytes(4096) == 2 * 2**30
        True
        """
        _check_arguments(context=context, batch=batch, bytes_per_value=bytes_per_value)
        values = self.kv_values_per_token * context * batch
        return math.ceil(values * bytes_per_value)

    def table(self) -> ShapeTable:
        """Return one row per block and weight: shape, copies, repeat, parameters and share of the total."""
        total = self.parameters
        rows = (_row(block, weight, total) for block in self.blocks for weight in block.weights)
        return ShapeTable(str(self), tuple(rows))

    def __str__(self) -> str:
        """Name, model class and parameters."""
        active = f" ({self.active_parameters:,} active)" if self.active_parameters < self.parameters else ""
        return f"{self.name}: {self.architecture}, {self.parameters:,} parameters{active}"

    def __repr__(self) -> str:
        """One line: parameters, layers, widths, and the keys that were filled in."""
        heads = f"{self.heads} heads" + (f" ({self.kv_heads} KV)" if self.kv_heads not in (None, self.heads) else "")
        layers = f"{self.encoder_layers} + {self.layers}" if self.encoder_layers else str(self.layers)
        parts = [str(self), f"{layers} layers", f"hidden {self.hidden}", heads, f"vocabulary {self.vocab}"]
        if self.assumed:
            parts.append(f"class defaults for {', '.join(self.assumed)}")
        return f"<{', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _row(block: Block, weight: Weight, total: int) -> ShapeRow:
    stored = block.repeat * weight.parameters
    label = f"{weight.name} (tied)" if weight.tied else weight.name
    return ShapeRow(block.name, label, weight.shape, weight.copies, block.repeat, stored, stored / total)


def _check_arguments(**arguments: float) -> None:
    for name, value in arguments.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise ValueError(f"{name} is {value!r}, a finite number of at least 0 is needed")


# ------------------------------------------------------------------------------------------------ reading the file

_KEY_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]')
_Path = tuple[str | int, ...]


def _label(config: object) -> str:
    """How an error names the input."""
    return "config" if isinstance(config, Mapping) else str(config)


def _show(value: object) -> str:
    """A value for an error message: short, and safe for numbers with thousands of digits."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        tens = int(math.log10(abs(value)))
        return f"about {value / 10**tens:.2f}e{tens}"
    kind = {dict: "an object", list: "a list"}.get(type(value))
    text = kind or json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _dotted(path: _Path) -> str:
    """Write ``("a", "b", 3)`` as ``a.b[3]``."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{_plain(p)}" for p in path).lstrip(".")


def _plain(key: object) -> str:
    """A key as it may stand in a one-line message."""
    return "".join(c if c.isprintable() else "?" for c in str(key)[:60])


def _key_lines(text: str) -> dict[_Path, list[int]]:
    """Return the 1-based lines on which each key stands; two lines for one path are a repeated key."""
    found: dict[_Path, list[int]] = {}
    stack: list[str | int] = []
    line, seen = 1, 0
    for token in _KEY_TOKENS.finditer(text):
        line, seen = line + text.count("\n", seen, token.start()), token.start()
        _step(stack, token.group(), text[token.end() : token.end() + 80], found, line)
    return found


def _step(stack: list[str | int], token: str, after: str, found: dict[_Path, list[int]], line: int) -> None:
    """Follow one token of the text; the last item of ``stack`` is the current key or list index."""
    if token in "{[":
        stack.append("" if token == "{" else 0)
    elif token in "}]":
        del stack[-1:]
    elif token == "," and stack and isinstance(stack[-1], int):
        stack[-1] += 1
    elif token[0] == '"' and after.lstrip().startswith(":") and stack and isinstance(stack[-1], str):
        stack[-1] = json.loads(token, strict=False)
        found.setdefault(tuple(stack), []).append(line)


@dataclass
class _Source:
    """Where a config came from, for error messages."""

    label: str
    lines: Mapping[_Path, list[int]] = field(default_factory=dict)

    def fail(self, problem: str, line: int | None = None) -> ConfigError:
        """Make the error: file, line, problem."""
        return ConfigError(f"{self.label}{f', line {line}' if line else ''}: {problem}.")

    def fail_at(self, path: _Path, problem: str) -> ConfigError:
        """Make the error for a field, at the line of the field or of what it stands in."""
        prefixes = (path[:n] for n in range(len(path), 0, -1))
        line = next((self.lines[p][-1] for p in prefixes if p in self.lines), None)
        return self.fail(f"{_dotted(path)} {problem}", line)


def _read_bytes(path: str | os.PathLike[str], source: _Source) -> bytes:
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise source.fail("is a directory, the config.json file in it is needed")
        if not stat.S_ISREG(mode):
            raise source.fail("is not a regular file, a config.json file is needed")
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise source.fail(f"cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise source.fail(f"is not a file name ({error})") from None


def _decode(data: bytes, source: _Source) -> str:
    """Return the text, or say in words what kind of file it is instead."""
    if len(data) > _MOST_BYTES:
        raise source.fail(f"has over {_MOST_BYTES} bytes, a config.json has a few thousand")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise source.fail("is UTF-16 text, JSON in UTF-8 is needed")
    if b"\0" in data:
        raise source.fail("is a binary file, not JSON text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad = error.start + 3 * data.startswith(b"\xef\xbb\xbf")
        problem = f"byte 0x{data[bad]:02x} at byte offset {bad} is not UTF-8, JSON text in UTF-8 is needed"
        raise source.fail(problem, data.count(b"\n", 0, bad) + 1) from None


def _parse(text: str, source: _Source) -> object:
    if not text.strip():
        raise source.fail("is empty, a JSON object is needed")
    if text.lstrip().startswith("<"):
        raise source.fail("is HTML or XML (a saved web page?), not JSON", 1)
    try:
        return json.loads(text, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise _json_error(text, error, source) from None


def _integer(digits: str) -> int:
    """Like int(), without Python's limit on digits: only the size of such a number matters, as it is refused."""
    return int(digits) if len(digits) < 300 else (-1 if digits[0] == "-" else 1) * 10 ** min(len(digits), 10_000)


def _json_error(text: str, error: json.JSONDecodeError, source: _Source) -> ConfigError:
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        last = text.rstrip().count("\n") + 1
        return source.fail("JSON ends early, the file is cut off", last)
    near = text[error.pos :].split("\n", 1)[0].strip()[:40]
    return source.fail(f"not valid JSON at column {error.colno}, at {near!r} ({error.msg})", error.lineno)


def _load(config: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Mapping[str, Any], _Source]:
    """Return the top-level object and its source; text-level faults end here."""
    source = _Source(_label(config))
    data: object = config
    if not isinstance(config, Mapping):
        if not isinstance(config, str | os.PathLike):
            raise ConfigError(f"config is {_show(config)}, a path or a dict is needed.")
        text = _decode(_read_bytes(config, source), source)
        data = _parse(text, source)
        source.lines = _key_lines(text)
    if not isinstance(data, Mapping):
        raise source.fail(f"the top level is {_show(data)}, an object {{...}} is needed", 1)
    _refuse_repeated_keys(source)
    _refuse_nan(data, (), source)
    return data, source


def _refuse_repeated_keys(source: _Source) -> None:
    for path, lines in source.lines.items():
        if len(lines) > 1:
            where = " and ".join(map(str, lines[:2]))
            raise source.fail_at(path, f"is given twice (lines {where}), once is needed")


def _refuse_nan(value: object, path: _Path, source: _Source) -> None:
    """JSON has no NaN; a config that holds one is broken, wherever it stands."""
    if isinstance(value, float) and math.isnan(value):
        raise source.fail_at(path, "is NaN, a number is needed")
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, list | tuple):
        pairs = enumerate(value)
    for key, item in pairs:
        _refuse_nan(item, (*path, key), source)


class _Fields:
    """The fields of one object of the config, checked as they are read."""

    def __init__(self, data: Mapping[str, Any], source: _Source, path: _Path = ()) -> None:
        self.data, self.source, self.path = data, source, path
        self.assumed: list[str] = []

    def fail(self, key: str, problem: str) -> ConfigError:
        """Make the error for a field of this object."""
        return self.source.fail_at((*self.path, key), problem)

    def assume(self, key: str, value: Any) -> Any:
        """Note that the file leaves a key out, and return the class default."""
        self.assumed.append(f"{_dotted((*self.path, key))} = {_show(value)}")
        return value

    def find(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        """Return the first of several names that is given, and its value; names that disagree are an error."""
        given = [(key, self.data[key]) for key in keys if self.data.get(key) is not None]
        for key, value in given[1:]:
            if value != given[0][1]:
                other = f"{given[0][0]} is {_show(given[0][1])}"
                raise self.fail(key, f"is {_show(value)} but {other}, one value is needed")
        return given[0] if given else (keys[0], None)

    def whole(self, keys: tuple[str, ...], low: int = 1, high: int = _LARGEST) -> int | None:
        """Return a whole number within [low, high], or None when it is absent or null."""
        key, value = self.find(keys)
        if value is None:
            return None
        self._check_whole(key, value, low, high)
        return value

    def _check_whole(self, key: str, value: object, low: int, high: int) -> None:
        wanted = f"a whole number from {low} to {high} is needed"
        if not isinstance(value, int) or isinstance(value, bool):
            kind = {str: "a string", bool: "true or false", float: "not whole"}.get(type(value), "not a number")
            raise self.fail(key, f"is {_show(value)} ({kind}), {wanted}")
        if not low <= value <= high:
            raise self.fail(key, f"is {_show(value)}, {wanted}")

    def whole_list(self, key: str) -> list[int] | None:
        """Return a list of layer numbers, or None when it is absent or null."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, list | tuple):
            raise self.fail(key, f"is {_show(value)}, a list of layer numbers is needed")
        for item in value or ():
            self._check_whole(key, item, 0, _MOST_LAYERS)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a true-or-false field."""
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(key, f"is {_show(value)}, true or false is needed")
        return value

    def text(self, key: str) -> str | None:
        """Return a text field, or None when it is absent or null."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise self.fail(key, f"is {_show(value)}, a text is needed")
        return value

    def nested(self, key: str) -> "_Fields | None":
        """Return the fields of a nested object, or None when it is absent or null."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.fail(key, f"is {_show(value)}, an object {{...}} is needed")
        return None if value is None else _Fields(value, self.source, (*self.path, key))


# ------------------------------------------------------------------------------------------------ the families

_Rule = bool | str  # a constant, or the config key that decides


@dataclass(frozen=True)
class _Experts:
    """How a family lays out its mixture of experts."""

    moe_layers: Callable[["_Builder"], int]  # how many layers have experts
    width: str = "expert_inner"
    shared: tuple[str, ...] = ()  # dimensions whose product is the width of the shared expert
    shared_gate: bool = False
    bias: bool = False


@dataclass(frozen=True)
class _Style:
    """What the model class of a family does, where the config does not say it."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, int | None] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()  # dimensions filled in from the defaults at the top level too
    flags: Mapping[str, bool] = field(default_factory=dict)  # class defaults of true-or-false keys
    fixed: Mapping[str, object] = field(default_factory=dict)  # keys for which only this value is known
    stems: tuple[str, ...] = ()  # names of model classes that do not follow from the model_type
    kind: str = "decoder"  # or "encoder" (BERT) or "t5"
    mla: bool = False
    fixed_heads: bool = False  # head_dim is always hidden / heads, and every head has its own key and value
    kv: Callable[["_Builder"], int] | None = None
    inner_ratio: int | None = None  # inner = ratio x hidden where the file gives none
    qkv_bias: _Rule = False
    output_bias: _Rule = False
    mlp_bias: _Rule = False
    gated: _Rule = True
    norm_bias: bool = False
    norms: int | Callable[["_Builder"], int] = 2
    final_norm: Callable[["_Builder"], bool] = lambda _: True
    qk_norm: _Rule = False
    sinks: bool = False
    extra_positions: int | None = None  # rows beyond max_position_embeddings; None: no learned positions
    embedding_norm: bool = False
    head_bias: bool = False
    tied: bool | None = False  # None: the file must say
    experts: _Experts | None = None


def _kv_falcon(b: "_Builder") -> int:
    if b.flag("new_decoder_architecture"):
        return b.kv_from_file()
    return 1 if b.flag("multi_query") else b.heads


def _norms_falcon(b: "_Builder") -> int:
    if not b.flag("parallel_attn"):
        return 2
    given = b.fields.whole(("num_ln_in_parallel_attn",), 1, 2)
    return given or (2 if b.flag("new_decoder_architecture") else 1)


def _moe_after_dense(b: "_Builder") -> int:
    return max(0, b.layers - b.dim("dense_layers", low=0))


def _moe_sparse_step(b: "_Builder") -> int:
    step = b.fields.whole(("decoder_sparse_step",)) or 1
    dense = set(b.fields.whole_list("mlp_only_layers") or ())
    return sum(i not in dense and (i + 1) % step == 0 for i in range(b.layers))


def _moe_interleaved(b: "_Builder") -> int:
    listed = b.fields.whole_list("moe_layers")
    if listed is not None:
        return sum(i < b.layers for i in set(listed))
    return b.layers // (b.fields.whole(("interleave_moe_layer_step",)) or 1)


_KEYS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "inner": ("intermediate_size",),
    "vocab": ("vocab_size",),
    "positions": ("max_position_embeddings",),
    "token_types": ("type_vocab_size",),
    "embedding": ("word_embed_proj_dim",),
    "experts": ("num_experts", "num_local_experts"),
    "active": ("num_experts_per_tok",),
    "expert_inner": ("moe_intermediate_size",),
    "shared_inner": ("shared_expert_intermediate_size",),
    "shared_count": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
    "q_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "nope_dim": ("qk_nope_head_dim",),
    "value_dim": ("v_head_dim",),
    "decoder_layers": ("num_decoder_layers",),
    "buckets": ("relative_attention_num_buckets",),
}
_GPT2_KEYS = {
    "hidden": ("n_embd", "hidden_size"),
    "layers": ("n_layer", "num_hidden_layers"),
    "heads": ("n_head", "num_attention_heads"),
    "inner": ("n_inner",),
    "positions": ("n_positions", "max_position_embeddings"),
}
_LOCAL_EXPERTS = {"experts": ("num_local_experts", "num_experts")}
_BIASED = {"qkv_bias": True, "output_bias": True, "mlp_bias": True, "norm_bias": True}
_ATTENTION_BIAS = {"qkv_bias": "attention_bias", "output_bias": "attention_bias"}


def _sizes(hidden: int, layers: int, heads: int, inner: int | None, vocab: int, **more: int | None) -> dict:
    """Class defaults in the order in which papers give them."""
    core = {"hidden": hidden, "layers": layers, "heads": heads, "vocab": vocab}
    return core | ({} if inner is None else {"inner": inner}) | more


_GPT2 = _Style(
    keys=_GPT2_KEYS, defaults=_sizes(768, 12, 12, None, 50257, positions=1024), **_BIASED, gated=False,
    fixed={"add_cross_attention": False}, fixed_heads=True, inner_ratio=4, extra_positions=0, tied=True,
)  # fmt: skip
_BERT = _Style(
    kind="encoder", defaults=_sizes(768, 12, 12, 3072, 30522, positions=512, token_types=2), **_BIASED, gated=False,
    fixed={"add_cross_attention": False, "position_embedding_type": "absolute"}, fixed_heads=True,
    extra_positions=0, embedding_norm=True, tied=True, optional=frozenset({"token_types"}),
)  # fmt: skip
_LLAMA = _Style(
    defaults=_sizes(4096, 32, 32, 11008, 32000), **_ATTENTION_BIAS, mlp_bias="mlp_bias",
    flags={"attention_bias": False, "mlp_bias": False},
)  # fmt: skip
_MISTRAL = _Style(defaults=_sizes(4096, 32, 32, 14336, 32000, kv_heads=8))
_QWEN2 = _Style(defaults=_sizes(4096, 32, 32, 22016, 151936, kv_heads=32), qkv_bias=True)
_QWEN3 = _Style(
    defaults=_sizes(4096, 32, 32, 22016, 151936, kv_heads=32, head_dim=128), **_ATTENTION_BIAS, qk_norm=True,
    flags={"attention_bias": False},
)  # fmt: skip
_QWEN2_MOE = replace(
    _QWEN2, qkv_bias="qkv_bias", flags={"qkv_bias": True},
    defaults=_sizes(
        2048, 24, 16, 5632, 151936, kv_heads=16, experts=60, active=4, expert_inner=1408, shared_inner=5632
    ),
    experts=_Experts(_moe_sparse_step, shared=("shared_inner",), shared_gate=True),
)  # fmt: skip
_QWEN3_MOE = replace(
    _QWEN3,
    defaults=_sizes(2048, 24, 32, 6144, 151936, kv_heads=4, experts=128, active=8, expert_inner=768),
    experts=_Experts(_moe_sparse_step),
)
_DEEPSEEK = _Style(
    mla=True, **_ATTENTION_BIAS, flags={"attention_bias": False}, fixed={"moe_layer_freq": 1},
    keys={"experts": ("n_routed_experts", "num_local_experts", "num_experts")},
    experts=_Experts(_moe_after_dense, shared=("shared_count", "expert_inner")),
)  # fmt: skip
_DEEPSEEK_V2 = replace(
    _DEEPSEEK, mlp_bias="mlp_bias", flags={"attention_bias": False, "mlp_bias": False},
    defaults=_sizes(
        4096, 32, 32, 11008, 102400, experts=64, expert_inner=1407, shared_count=2, dense_layers=0,
        q_rank=1536, kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128,
    ),
)  # fmt: skip
_DEEPSEEK_V3 = replace(
    _DEEPSEEK,
    defaults=_sizes(
        7168, 61, 128, 18432, 129280, experts=256, active=8, expert_inner=2048, shared_count=1, dense_layers=3,
        q_rank=1536, kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128,
    ),
)  # fmt: skip
_GEMMA = _Style(
    defaults=_sizes(3072, 28, 16, 24576, 256000, kv_heads=16, head_dim=256), **_ATTENTION_BIAS, tied=True,
    flags={"attention_bias": False},
)  # fmt: skip
_GEMMA2 = replace(_GEMMA, defaults=_sizes(2304, 26, 8, 9216, 256000, kv_heads=4, head_dim=256), norms=4)
_GEMMA3 = replace(
    _GEMMA2, defaults=_sizes(2304, 26, 8, 9216, 262208, kv_heads=4, head_dim=256), qk_norm=True,
    optional=frozenset({"heads", "vocab"}),
)  # fmt: skip
_FALCON = _Style(
    keys={
        "hidden": ("hidden_size", "n_embed"), "layers": ("num_hidden_layers", "n_layer"),
        "heads": ("num_attention_heads", "n_head"), "kv_heads": ("num_kv_heads", "n_head_kv"),
        "inner": ("ffn_hidden_size",),
    },
    defaults=_sizes(4544, 32, 71, None, 65024), inner_ratio=4, gated=False, norm_bias=True, tied=True,
    qkv_bias="bias", output_bias="bias", mlp_bias="bias", fixed_heads=True, kv=_kv_falcon, norms=_norms_falcon,
    flags={"bias": False, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False},
    stems=("falcon", "rw"),
)  # fmt: skip
_OPT = _Style(
    keys={"inner": ("ffn_dim",)}, defaults=_sizes(768, 12, 12, 3072, 50272, positions=2048), gated=False,
    qkv_bias="enable_bias", output_bias="enable_bias", mlp_bias="enable_bias", norm_bias=True, fixed_heads=True,
    flags={"enable_bias": True, "do_layer_norm_before": True, "_remove_final_layer_norm": False},
    fixed={"layer_norm_elementwise_affine": True}, extra_positions=2, tied=True,
    final_norm=lambda b: b.flag("do_layer_norm_before") and not b.flag("_remove_final_layer_norm"),
)  # fmt: skip
_T5 = _Style(
    kind="t5", gated="feed_forward_proj", tied=True, optional=frozenset({"buckets"}),
    keys={
        "hidden": ("d_model", "hidden_size"), "layers": ("num_layers", "num_hidden_layers"),
        "heads": ("num_heads", "num_attention_heads"), "head_dim": ("d_kv", "head_dim"), "inner": ("d_ff",),
    },
    defaults=_sizes(512, 6, 8, 2048, 32128, head_dim=64, buckets=32),
)  # fmt: skip
_STYLES: dict[str, _Style] = {
    "gpt2": _GPT2,
    "gpt_bigcode": replace(
        _GPT2, kv=lambda b: 1 if b.flag("multi_query") else b.heads, flags={"multi_query": True}, stems=("gptbigcode",)
    ),
    "bert": _BERT,
    "roberta": replace(_BERT, defaults={**_BERT.defaults, "vocab": 50265}),
    "xlm-roberta": replace(_BERT, defaults=_BERT.defaults),
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "mixtral": replace(
        _MISTRAL, defaults={**_MISTRAL.defaults, "experts": 8, "active": 2}, keys=_LOCAL_EXPERTS,
        experts=_Experts(lambda b: b.layers, width="inner"),
    ),
    "qwen2": _QWEN2,
    "mimo": replace(_QWEN2, defaults={}, fixed={"attention_bias": True}),
    "qwen2_moe": _QWEN2_MOE,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": replace(_DEEPSEEK_V3, stems=("deepseekv3", "kimik2")),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": replace(_GEMMA3, stems=("gemma3", "gemma3text")),
    "phi": _Style(
        defaults=_sizes(2048, 24, 32, 8192, 51200), **_BIASED, gated=False, norms=1, qk_norm="qk_layernorm",
        flags={"qk_layernorm": False}, head_bias=True,
    ),
    "phi3": _Style(defaults=_sizes(3072, 32, 32, 8192, 32064)),
    "falcon": _FALCON,
    "RefinedWebModel": _FALCON,
    "RefinedWeb": replace(_FALCON, flags={**_FALCON.flags, "new_decoder_architecture": True}),
    "bloom": _Style(
        keys={
            "hidden": ("hidden_size", "n_embed"), "layers": ("n_layer", "num_hidden_layers"),
            "heads": ("n_head", "num_attention_heads"), "inner": (),
        },
        **_BIASED, gated=False, fixed_heads=True, inner_ratio=4, embedding_norm=True, tied=True,
    ),
    "opt": _OPT,
    "gpt_neox": _Style(
        defaults=_sizes(6144, 44, 64, 24576, 50432), **_ATTENTION_BIAS, mlp_bias=True, norm_bias=True, gated=False,
        flags={"attention_bias": True}, fixed_heads=True,
    ),
    "gpt_neo": _Style(
        keys={"layers": ("num_layers", "num_hidden_layers"), "heads": ("num_heads", "num_attention_heads")},
        defaults=_sizes(2048, 24, 16, None, 50257, positions=2048), inner_ratio=4, gated=False, fixed_heads=True,
        output_bias=True, mlp_bias=True, norm_bias=True, extra_positions=0, tied=True,
    ),
    "gptj": _Style(
        keys=_GPT2_KEYS, defaults=_sizes(4096, 28, 16, None, 50400), inner_ratio=4, gated=False, fixed_heads=True,
        mlp_bias=True, norm_bias=True, norms=1, head_bias=True,
    ),
    "t5": _T5,
    "mt5": replace(_T5, defaults=_sizes(512, 8, 6, 1024, 250112, head_dim=64, buckets=32), tied=None),
    "gpt_oss": _Style(
        keys=_LOCAL_EXPERTS | {"active": ("num_experts_per_tok", "experts_per_token")},
        defaults=_sizes(2880, 36, 64, 2880, 201088, kv_heads=8, head_dim=64, experts=128, active=4),
        **_ATTENTION_BIAS, flags={"attention_bias": True}, sinks=True,
        experts=_Experts(lambda b: b.layers, width="inner", bias=True),
    ),
    "llama4_text": _Style(
        keys=_LOCAL_EXPERTS | {"expert_inner": ("intermediate_size",), "inner": ("intermediate_size_mlp",)},
        defaults=_sizes(
            5120, 48, 40, 16384, 202048, kv_heads=8, head_dim=128, experts=16, active=1, expert_inner=8192
        ),
        **_ATTENTION_BIAS, flags={"attention_bias": False}, stems=("llama4", "llama4text"),
        experts=_Experts(_moe_interleaved, shared=("expert_inner",)),
    ),
}  # fmt: skip
_STYLES |= {name: _QWEN2 for name in ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")}
_STYLES |= {"qwen3_vl_text": _QWEN3, "qwen3_vl_moe_text": _QWEN3_MOE}
_TEXT_TYPES = {  # the text model of a multimodal config that does not name it
    "gemma3": "gemma3_text", "llama4": "llama4_text", "llava": "llama", "llava_next": "llama", "mistral3": "mistral",
    "paligemma": "gemma", "qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "qwen3_vl": "qwen3_vl_text",
}  # fmt: skip

SUPPORTED_MODEL_TYPES: tuple[str, ...] = tuple(sorted(_STYLES, key=str.lower))
"""The ``model_type`` values that :meth:`ModelShape.from_config` counts (any of them under ``text_config`` too)."""

_ARCHITECTURE = re.compile(
    r"(\w+?)(ForCausalLM|WithLMHeadModel|LMHeadModel|ForConditionalGeneration|ForMaskedLM|ForPreTraining|Model)"
)
_DECODER_HEADS = {name: "lm" for name in ("ForCausalLM", "LMHeadModel", "WithLMHeadModel", "ForConditionalGeneration")}
_ENCODER_HEADS = {"ForMaskedLM": "mlm", "LMHeadModel": "mlm", "ForCausalLM": "mlm", "ForPreTraining": "pretraining"}


# ------------------------------------------------------------------------------------------------ building


def _linear(name: str, out: int, width: int, bias: bool, copies: int = 1, active: int | None = None) -> list[Weight]:
    """A linear layer: out x width, and its bias."""
    weights = [Weight(name, (out, width), copies, active)]
    return [*weights, Weight(f"{name}.bias", (out,), copies, active, matmul=False)] if bias else weights


class _Builder:
    """Turns the fields of one config into blocks, as the style of its family says."""

    def __init__(self, fields: _Fields, style: _Style, family: str) -> None:
        self.fields, self.style, self.family = fields, style, family
        self._refuse_unknown_variants()
        self.hidden, self.heads, self.vocab = self.dim("hidden"), self.dim("heads"), self.dim("vocab")
        self.layers = self.dim("layers", high=_MOST_LAYERS)
        self.head_dim = self._head_dim()
        self.kv_heads = self._kv_heads()
        self.norms = style.norms if isinstance(style.norms, int) else style.norms(self)
        self.tied = self._tied()

    def _refuse_unknown_variants(self) -> None:
        for key, known in self.style.fixed.items():
            value = self.fields.data.get(key)
            if value is not None and value != known:
                raise self.fields.fail(key, f"is {_show(value)}, only {_show(known)} is supported for {self.family}")

    # ---- values

    def keys(self, name: str) -> tuple[str, ...]:
        """The names of a dimension in this family's files."""
        return self.style.keys.get(name, _KEYS[name])

    def dim(self, name: str, low: int = 1, high: int = _LARGEST) -> int:
        """Return a dimension, from the class defaults where the file may leave it out."""
        value = self.fields.whole(self.keys(name), low, high)
        return self._default(name) if value is None else value

    def _default(self, name: str) -> int:
        key = self.keys(name)[0]
        value = self.style.defaults.get(name)
        nested = bool(self.fields.path)
        if value is None or not (nested or name in self.style.optional or name in ("kv_heads", "head_dim")):
            found = "null" if key in self.fields.data else "missing"
            raise self.fields.fail(key, f"is {found}, {self.family} needs it as a whole number of at least 1")
        return self.fields.assume(key, value)

    def flag(self, rule: _Rule) -> bool:
        """Resolve a constant or a true-or-false key."""
        return rule if isinstance(rule, bool) else self.fields.flag(rule, self.style.flags[rule])

    def _head_dim(self) -> int:
        if self.style.mla:
            return self.dim("nope_dim") + self.dim("rope_dim")
        given = None if self.style.fixed_heads else self.fields.whole(self.keys("head_dim"))
        if given is None and self.style.defaults.get("head_dim") and not self.style.fixed_heads:
            return self._default("head_dim")
        return given or self._split_hidden()

    def _split_hidden(self) -> int:
        if self.hidden % self.heads:
            hidden, heads = self.fields.find(self.keys("hidden"))[0], self.fields.find(self.keys("heads"))[0]
            problem = f"is {self.heads}, which does not divide {hidden} {self.hidden}"
            known = "" if self.style.fixed_heads else ", and head_dim is absent"
            raise self.fields.fail(heads, f"{problem}{known}: a divisor{' or a head_dim' if known else ''} is needed")
        return self.hidden // self.heads

    def _kv_heads(self) -> int | None:
        if self.style.mla:
            return None
        if self.style.kv:
            return self.style.kv(self)
        return self.heads if self.style.fixed_heads or self.style.kind == "t5" else self.kv_from_file()

    def kv_from_file(self) -> int:
        """Return the number of KV heads; null means one per head."""
        keys = self.keys("kv_heads")
        key, value = self.fields.find(keys)[0], self.fields.whole(keys)
        by_default = value is None and key not in self.fields.data and "kv_heads" in self.style.defaults
        value = (self._default("kv_heads") if by_default else value) or self.heads
        if self.heads % value:
            found = f"missing, and {value} by class default" if by_default else str(value)
            other = f"{self.fields.find(self.keys('heads'))[0]} {self.heads}"
            raise self.fields.fail(key, f"is {found}, which does not divide {other}: a divisor is needed")
        return value

    def inner(self) -> int:
        """Width between the two halves of the dense MLP."""
        keys = self.keys("inner")
        given = self.fields.whole(keys) if keys else None
        if given is None and self.style.inner_ratio:
            return self.style.inner_ratio * self.hidden
        return self._default("inner") if given is None else given

    def gated(self) -> bool:
        """Whether the MLP multiplies two up-projections (SwiGLU, GeGLU)."""
        if isinstance(self.style.gated, bool):
            return self.style.gated
        kind = self.fields.text("feed_forward_proj")
        if kind is not None and kind.count("-") > kind.startswith("gated-"):
            problem = f"is {_show(kind)}, an activation or gated-ACTIVATION is needed"
            raise self.fields.fail("feed_forward_proj", problem)
        return self.family == "mt5" if kind is None else kind.startswith("gated-")

    def _tied(self) -> bool:
        key = "tie_word_embeddings"
        if self.fields.data.get(key) is None and self.style.tied is None:
            problem = f"is missing, {self.family} needs true or false (the default differs between versions)"
            raise self.fields.fail(key, problem)
        return self.fields.flag(key, bool(self.style.tied))

    # ---- weights

    def norm(self, name: str, width: int | None = None) -> list[Weight]:
        """A norm's scale, and its shift in the families that have one."""
        names = (name, f"{name}.bias") if self.style.norm_bias else (name,)
        return [Weight(n, (width or self.hidden,), matmul=False) for n in names]

    def attention(self, name: str = "attention") -> list[Weight]:
        """Query, key, value and output projections, with what hangs on them."""
        if self.style.mla:
            return self._latent_attention()
        assert self.kv_heads is not None
        q, kv, bias = self.heads * self.head_dim, self.kv_heads * self.head_dim, self.flag(self.style.qkv_bias)
        parts = (("q", q), ("k", kv), ("v", kv))
        weights = [w for part, out in parts for w in _linear(f"{name}.{part}", out, self.hidden, bias)]
        weights += _linear(f"{name}.output", self.hidden, q, self.flag(self.style.output_bias))
        if self.flag(self.style.qk_norm):
            weights += self.norm(f"{name}.q_norm", self.head_dim) + self.norm(f"{name}.k_norm", self.head_dim)
        return weights + ([Weight(f"{name}.sinks", (self.heads,), matmul=False)] if self.style.sinks else [])

    def _latent_attention(self) -> list[Weight]:
        """Multi-head latent attention: keys and values are rebuilt from one small vector per token."""
        rank, rope, value = self.dim("kv_rank"), self.dim("rope_dim"), self.dim("value_dim")
        bias = self.flag(self.style.qkv_bias)
        weights = self._latent_query(bias)
        weights += _linear("attention.kv_down", rank + rope, self.hidden, bias) + self.norm("attention.kv_norm", rank)
        weights += _linear("attention.kv_up", self.heads * (self.dim("nope_dim") + value), rank, False)
        return weights + _linear("attention.output", self.hidden, self.heads * value, self.flag(self.style.output_bias))

    def _latent_query(self, bias: bool) -> list[Weight]:
        keys, out = self.keys("q_rank"), self.heads * self.head_dim
        if keys[0] in self.fields.data and self.fields.data[keys[0]] is None:
            return _linear("attention.q", out, self.hidden, False)
        rank = self.dim("q_rank")
        down = _linear("attention.q_down", rank, self.hidden, bias) + self.norm("attention.q_norm", rank)
        return down + _linear("attention.q_up", out, rank, False)

    def mlp(self, name: str, inner: int, bias: bool, copies: int = 1, active: int | None = None) -> list[Weight]:
        """The two or, gated, three matrices of a feed-forward layer (or of ``copies`` experts)."""
        ups = ("gate", "up") if self.gated() else ("up",)
        weights = [w for up in ups for w in _linear(f"{name}.{up}", inner, self.hidden, bias, copies, active)]
        return weights + _linear(f"{name}.down", self.hidden, inner, bias, copies, active)

    def dense_mlp(self) -> list[Weight]:
        """The feed-forward layer of a layer without experts."""
        return self.mlp("mlp", self.inner(), self.flag(self.style.mlp_bias))

    def moe(self, layout: _Experts) -> list[Weight]:
        """Router, routed experts and shared experts of one layer."""
        experts, active = self.dim("experts"), self._active_experts()
        width = self.inner() if layout.width == "inner" else self.dim(layout.width)
        weights = _linear("router", experts, self.hidden, layout.bias)
        weights += self.mlp("experts", width, layout.bias, experts, active)
        shared = math.prod(self._shared(name) for name in layout.shared) if layout.shared else 0
        weights += self.mlp("shared", shared, self.flag(self.style.mlp_bias)) if shared else []
        return weights + (_linear("shared.gate_score", 1, self.hidden, False) if layout.shared_gate else [])

    def _shared(self, name: str) -> int:
        """A dimension of the shared expert; null says that there is none."""
        keys = self.keys(name)
        absent = any(key in self.fields.data for key in keys) and self.fields.find(keys)[1] is None
        return 0 if absent else self.dim(name, low=0)

    def _active_experts(self) -> int:
        experts, active = self.dim("experts"), self.dim("active")
        if active > experts:
            key, of = self.fields.find(self.keys("active"))[0], self.fields.find(self.keys("experts"))[0]
            raise self.fields.fail(key, f"is {active}, more than {of} {experts}: at most that many are needed")
        return active

    # ---- blocks

    def layer_blocks(self) -> list[Block]:
        """The stack of layers: one block for those with experts, one for those without."""
        moe = self.style.experts.moe_layers(self) if self.style.experts else 0
        parts = [w for i in range(self.norms) for w in self.norm(f"norm{i + 1}")] + self.attention()
        blocks = []
        if self.layers > moe:
            blocks.append(Block("layer", (*parts, *self.dense_mlp()), self.layers - moe))
        if self.style.experts and moe:
            blocks.append(Block("moe layer", (*parts, *self.moe(self.style.experts)), moe))
        return blocks

    def embedding_block(self) -> Block:
        """Tables that tokens and positions are looked up in."""
        width = self.embedding_width()
        weights = [Weight("tokens", (self.vocab, width), matmul=False)]
        if width != self.hidden:
            weights += _linear("project_in", self.hidden, width, False)
        if self.style.extra_positions is not None:
            rows = self.dim("positions") + self.style.extra_positions
            weights.append(Weight("positions", (rows, self.hidden), matmul=False))
        if self.style.kind == "encoder":
            weights.append(Weight("token_types", (self.dim("token_types"), self.hidden), matmul=False))
        return Block("embedding", (*weights, *(self.norm("norm") if self.style.embedding_norm else [])))

    def embedding_width(self) -> int:
        """Width of the token table: the hidden size but for OPT-350M."""
        width = self.fields.whole(self.keys("embedding")) if self.family == "opt" else None
        return width or self.hidden

    def output_block(self, head: str) -> Block:
        """Final norm and language-model head."""
        width = self.embedding_width()
        weights = self.norm("norm") if self.style.final_norm(self) else []
        if width != self.hidden:
            weights += _linear("project_out", width, self.hidden, False)
        return Block("output", (*weights, *(self.head(width) if head == "lm" else ())))

    def head(self, width: int) -> list[Weight]:
        """The matrix that turns a vector into one score per word of the vocabulary."""
        weights = [Weight("head", (self.vocab, width), tied=self.tied)]
        return weights + ([Weight("head.bias", (self.vocab,), matmul=False)] if self.style.head_bias else [])

    def encoder_output(self, head: str) -> list[Block]:
        """BERT's pooler and its masked-word and next-sentence heads."""
        blocks = []
        if head in ("base", "pretraining"):
            blocks.append(Block("pooler", _once(_linear("dense", self.hidden, self.hidden, True))))
        if head in ("mlm", "pretraining"):
            # an untied decoder has a bias of its own beside that of the head
            biases = Weight("head.bias", (self.vocab,), 1 if self.tied else 2, matmul=False)
            dense = _linear("dense", self.hidden, self.hidden, True) + self.norm("norm")
            blocks.append(Block("masked-word head", (*dense, *self.head(self.hidden), biases)))
        if head == "pretraining":
            blocks.append(Block("next-sentence head", _once(_linear("dense", 2, self.hidden, True))))
        return blocks

    def t5_blocks(self, head: str) -> list[Block]:
        """Encoder and decoder; the table of relative positions belongs to each stack's first layer."""
        feed = [*self.norm("norm_mlp"), *self.dense_mlp()]
        layer = (*self.norm("norm1"), *self.attention(), *feed)
        cross = (*self.norm("norm_cross"), *self.attention("cross"))
        bias = Weight("relative_positions", (self.dim("buckets"), self.heads), matmul=False)
        ends = [Block(f"{name} ends", (bias, *self.norm("norm"))) for name in ("encoder", "decoder")]
        stacks = [Block("encoder layer", layer, self.layers), ends[0]]
        stacks += [Block("decoder layer", (*layer, *cross), self.decoder_layers()), ends[1]]
        return stacks + ([Block("output", tuple(self.head(self.hidden)))] if head == "lm" else [])

    def decoder_layers(self) -> int:
        """Layers that keep a KV cache."""
        given = self.fields.whole(self.keys("decoder_layers"), 1, _MOST_LAYERS) if self.style.kind == "t5" else None
        return given or self.layers

    def blocks(self, head: str) -> tuple[Block, ...]:
        """The whole inventory, in the order in which a token meets it."""
        if self.style.kind == "t5":
            return (self.embedding_block(), *self.t5_blocks(head))
        ends = self.encoder_output(head) if self.style.kind == "encoder" else [self.output_block(head)]
        return (self.embedding_block(), *self.layer_blocks(), *ends)

    def kv_values(self) -> int:
        """Keys and values that one token leaves in the cache, over all layers."""
        if self.style.kind == "encoder":
            return 0
        if self.style.mla:
            return self.layers * (self.dim("kv_rank") + self.dim("rope_dim"))
        assert self.kv_heads is not None
        return 2 * self.decoder_layers() * self.kv_heads * self.head_dim


def _once(weights: Iterable[Weight]) -> tuple[Weight, ...]:
    """Mark weights that meet one vector of a sequence, not every token's."""
    return tuple(replace(w, matmul=False) for w in weights)


# ------------------------------------------------------------------------------------------------ from_config


def _from_config(config: str | os.PathLike[str] | Mapping[str, Any], name: str | None) -> ModelShape:
    data, source = _load(config)
    outer = _Fields(data, source)
    family, fields = _text_model(outer)
    style = _STYLES[family]
    architecture, head = _architecture(outer, fields, family, style)
    _settle_tie(outer, fields, style)
    builder = _Builder(fields, style, family)
    t5 = style.kind == "t5"
    return ModelShape(
        name=_name(outer, config, name), family=family, architecture=architecture, hidden=builder.hidden,
        layers=builder.decoder_layers(), heads=builder.heads, kv_heads=builder.kv_heads, head_dim=builder.head_dim,
        vocab=builder.vocab, tied=builder.tied, blocks=builder.blocks(head), kv_values_per_token=builder.kv_values(),
        max_context=None if t5 else fields.whole(builder.keys("positions")),
        encoder_layers=builder.layers if t5 else 0, assumed=tuple(dict.fromkeys(fields.assumed)),
    )  # fmt: skip


def _text_model(outer: _Fields) -> tuple[str, _Fields]:
    """Return the family and the fields of the text model, which may be nested in ``text_config``."""
    family, inner = outer.text("model_type"), outer.nested("text_config")
    if family is None:
        problem = f"is missing, without it the family is unknown (found: {_found(outer)}); {_OFFER}"
        raise outer.fail("model_type", problem)
    if inner is None:
        return _known(family, outer), outer
    nested = inner.text("model_type") or _TEXT_TYPES.get(family)
    if nested is None:
        raise inner.fail("model_type", f"is missing, the text model inside {family} is unknown; {_OFFER}")
    return _known(nested, inner), inner


def _found(fields: _Fields) -> str:
    keys = [_plain(key) for key in list(fields.data)[:6]]
    return ", ".join(keys) or "no keys at all"


_OFFER = f"supported: {', '.join(SUPPORTED_MODEL_TYPES)}"


def _known(family: str, fields: _Fields) -> str:
    if family in _STYLES:
        return family
    near = difflib.get_close_matches(family, _STYLES, 1)
    hint = f" (nearest name: {near[0]})" if near else ""
    raise fields.fail("model_type", f"is {_show(family)}, which is not supported{hint}; {_OFFER}")


def _architecture(outer: _Fields, inner: _Fields, family: str, style: _Style) -> tuple[str, str]:
    """Return the name of the model class and which head it carries ("base" for none)."""
    name = _first_architecture(outer)
    if outer is not inner:
        return _nested_architecture(outer, inner, name, family), "lm" if style.kind != "encoder" else "base"
    default = "base" if style.kind == "encoder" else "lm"
    if name is None:
        return f"{family} ({'base model' if default == 'base' else 'language model'})", default
    heads = (_ENCODER_HEADS if style.kind == "encoder" else _DECODER_HEADS) | {"Model": "base"}
    match = _ARCHITECTURE.fullmatch(name)
    stems = {_squash(family), *style.stems}
    head = heads.get(match[2]) if match and _squash(match[1]) in stems else None
    if head is None or (head == "pretraining" and family != "bert"):
        wanted = f"a {family} model class ending in {', '.join(heads)}"
        raise outer.fail("architectures", f"is [{_show(name)}], which is not supported: {wanted} is needed")
    return name, head


def _nested_architecture(outer: _Fields, inner: _Fields, name: str | None, family: str) -> str:
    """A multimodal class must be one that generates text: others carry heads that no key describes."""
    for fields, given in ((outer, name), (inner, _first_architecture(inner))):
        match = _ARCHITECTURE.fullmatch(given) if given else None
        if given and (match is None or match[2] not in _DECODER_HEADS):
            wanted = "a model class ending in ForConditionalGeneration or ForCausalLM is needed"
            raise fields.fail("architectures", f"is [{_show(given)}], which is not supported: {wanted}")
    return name or f"{family} (language model)"


def _first_architecture(fields: _Fields) -> str | None:
    value = fields.data.get("architectures")
    if value is None or value == []:
        return None
    if not isinstance(value, list | tuple) or not isinstance(value[0], str):
        raise fields.fail("architectures", f"is {_show(value)}, a list with the name of one model class is needed")
    return value[0]


def _squash(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _settle_tie(outer: _Fields, inner: _Fields, style: _Style) -> None:
    """A nested text model is tied if either level says so; levels that contradict each other are refused."""
    key = "tie_word_embeddings"
    if outer is inner or outer.data.get(key) is None:
        return
    above, below = outer.flag(key, False), inner.flag(key, bool(style.tied))
    stated = inner.data.get(key) is not None
    if above != below and (above if stated else not above):
        other = f"{_dotted((*inner.path, key))} is {_show(below)}"
        raise outer.fail(key, f"is {_show(above)} but {other}, one value is needed")
    if not stated:
        inner.data = {**inner.data, key: above}


def _name(outer: _Fields, config: object, given: str | None) -> str:
    """The given name, or the last part of ``_name_or_path``, or the file's own name, or the family."""
    path = outer.data.get("_name_or_path")
    stem = "" if isinstance(config, Mapping) else Path(str(config)).stem
    told = path.rstrip("/").rsplit("/", 1)[-1] if isinstance(path, str) else ""
    name = given or told or (stem if stem != "config" else "") or str(outer.data["model_type"])
    return name.encode(errors="replace").decode()
