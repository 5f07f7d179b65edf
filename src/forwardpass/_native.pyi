"""The C++ part of forwardpass; the source is in csrc/.

What a caller hands over is checked: whatever is out of range, of another shape or of another type
raises ValueError. Arrays are C-contiguous.

Longer than 400 lines, since it is one extension.
"""

# ruff: noqa: PT028  (the kernels' test entries are no tests)

from typing import ClassVar, Final, Literal, NotRequired, Protocol, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

class _Caches(TypedDict):
    l1d: int
    l2: int
    l3: int

class _Cpu(TypedDict):
    vendor: str
    brand: str
    features: dict[str, bool]
    tile_permission: Literal["unsupported", "on request", "granted"]
    caches: _Caches

cache_block: int  # positions of a block of the cache

_F32: TypeAlias = NDArray[np.float32]
_View: TypeAlias = tuple[int, int]  # slot, first column

_RowKind: TypeAlias = Literal[
    "embed", "add_positions", "scale", "rms_norm", "layer_norm", "head_layer_norm", "rope",
    "add", "relu", "gelu", "gelu_erf", "silu_multiply", "gelu_multiply", "softcap", "quantize",
    "write_cache", "gather", "copy",
]  # fmt: skip

class RowOp(TypedDict):
    """One operation on a row of heads × width; csrc/program.h says which members a kind takes."""

    kind: _RowKind
    a: NotRequired[_View]
    b: NotRequired[_View]
    out: NotRequired[_View]
    width: int
    heads: NotRequired[int]
    weight: NotRequired[_F32 | None]
    bias: NotRequired[_F32 | None]
    number: NotRequired[float]
    offset: NotRequired[int]
    table: NotRequired[int]
    rope: NotRequired[int]
    state: NotRequired[int]
    pairs: NotRequired[int]
    interleaved: NotRequired[bool]
    node: NotRequired[int]

class Segment(TypedDict):
    """What becomes of the products with one table (with a gate: of two)."""

    table: int
    up: NotRequired[int]
    bias: NotRequired[_F32 | None]
    up_bias: NotRequired[_F32 | None]
    out: _View
    residual: NotRequired[_View | None]
    gate: NotRequired[Literal["none", "silu", "gelu"]]
    act: NotRequired[Literal["none", "relu", "gelu", "gelu_erf"]]
    cap: NotRequired[float]
    quantize: NotRequired[bool]
    floats: NotRequired[bool]
    node: NotRequired[int]

class Attention(TypedDict):
    """Attention of `heads` query heads over the `groups` KV heads of a state."""

    q: _View
    out: _View
    state: int
    heads: int
    groups: int
    width: int
    scale: NotRequired[float]
    softcap: NotRequired[float]
    window: NotRequired[int]
    slopes: NotRequired[_F32 | None]
    sinks: NotRequired[_F32 | None]
    quantize: NotRequired[bool]
    node: NotRequired[int]

class StepFault(RuntimeError):
    """A pass that stopped: at a value that is not finite, or one that the cache cannot hold.

    `row` is the first such row of the pass, `node` the graph's number. Sequences keep their
    lengths.
    """

    kind: Literal["finite", "cache"]
    step: int
    node: int
    row: int

def cpu() -> _Cpu: ...
def levels() -> list[str]: ...
def has_tiles(level: str) -> bool: ...
def tile_rate(level: str, threads: int, seconds: float) -> float: ...
def read_rate(nbytes: int, threads: int, repetitions: int) -> float: ...

class Tables:
    """Packed tables and their memory."""

    types: ClassVar[list[str]]
    def __init__(self, threads: int) -> None: ...
    def add(
        self,
        type: str,
        rows: int,
        cols: int,
        stored: NDArray[np.uint8],
        order: NDArray[np.int64] | None = None,
    ) -> int:
        """Packs a table from its stored rows, of which `order` names one for each row."""

    def queue(
        self,
        type: str,
        rows: int,
        cols: int,
        stored: NDArray[np.uint8],
        order: NDArray[np.int64] | None,
        mapped: bool,
    ) -> int:
        """As `add`, but packed by other threads, from now on; the table is zeros until then.

        `mapped`: `stored` is a file, mapped read-only, whose pages are given up on the way.
        """

    def wait(self, seconds: float) -> bool:
        """Waits for the queued tables, `seconds` at most; whether all are packed."""

    def stop(self) -> None:
        """Ends the packing; tables still queued stay as they are."""

    @property
    def packed(self) -> int:
        """Bytes of queued rows, as they were stored, that are packed."""

    def add_mlx4(
        self,
        type: str,
        rows: int,
        cols: int,
        group: int,
        words: NDArray[np.uint32],
        scales: NDArray[np.uint16],
        biases: NDArray[np.uint16],
        order: NDArray[np.int64] | None = None,
    ) -> int: ...
    def decode_row(self, table: int, row: int) -> _F32: ...
    @property
    def nbytes(self) -> int: ...

class Program:
    """A graph as a list of fused steps. Calls from several threads wait for each other."""

    def __init__(
        self,
        tables: Tables,
        slots: list[tuple[int, bool]],
        states: list[tuple[int, int]],
        kv_type: str,
        rows: int,
        level: str,
        threads: int,
    ) -> None:
        """Slots are (width, wanted), states (groups, width); `rows` are the most of a pass.

        An empty level is what FORWARDPASS_ISA names, or the best one.
        """

    def row_step(self, ops: list[RowOp], wanted: bool) -> None: ...
    def linear_step(self, in_: _View, segments: list[Segment], wanted: bool) -> None: ...
    def attention_step(self, members: Attention) -> None: ...
    def set_rope(self, number: int, cos: _F32, sin: _F32) -> None:
        """Angles, positions × pairs; may be replaced by a longer table."""

    def run(
        self,
        tokens: NDArray[np.int64],
        positions: NDArray[np.int64],
        sequences: NDArray[np.int32],
        caches: list[Cache],
        wanted: NDArray[np.int64],
        first: int = 0,
        last: int = -1,
        prompt: bool = False,
        check: bool = False,
        stamps: bool = False,
    ) -> None:
        """Runs steps first to last - 1 (all, where last is -1) for the rows of one pass.

        The positions of a sequence are its cache's length, length + 1, …; room is made for them.
        The cache gets longer by them when the last step of all has run. With `check`, the first
        value that is not finite raises StepFault; a key or value beyond the cache's type does so
        always.
        """

    def slot(self, number: int, rows: int) -> _F32:
        """The slot's own memory, rows × width: valid until the next run."""

    def stamps(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds of thread 0 in each step of the last stamped run: its work, then its wait."""

    @property
    def steps(self) -> int: ...
    @property
    def level(self) -> str: ...
    @property
    def threads(self) -> int: ...

class Cache:
    """The keys and values of one sequence; ValueError while a pass uses it."""

    def __init__(self, program: Program) -> None: ...
    length: int  # positions written; setting it cuts
    @property
    def nbytes(self) -> int: ...
    def reserve(self, tokens: int) -> None: ...
    def fork(self) -> Cache: ...
    def fill_random(self, tokens: int, seed: int) -> None: ...
    def read(self, state: int, which: int, head: int, position: int) -> _F32:
        """A key (which = 0) or a value (1) of one head."""

# Token, random number and the token's part of [0, 1) (None where nothing is drawn), rank, log
# probabilities before and after the stages; int64 ids and float32 scores of the best; how many more
# can come, ln of the sum, their share; what each stage left (survivors, mass, best, its
# probability); the likeliest with their log probabilities; both of each wanted id.
Picked: TypeAlias = tuple[
    tuple[int, float | None, tuple[float, float] | None, int, float, float],
    bytes, bytes, tuple[int, float, float],
    list[tuple[int, float, int, float]], list[tuple[int, float]], list[tuple[float, float]],
]  # fmt: skip

class Sampler:
    """Takes tokens from rows of float32 scores. Not for two threads at once."""

    def __init__(
        self,
        stages: list[tuple[str, float, bool]],
        temperature: float,
        exact_k: bool,
        of_what_is_left: bool,
        xtc_threshold: float,
        seed: int,
        choice: int,
        kept: int,
        level: str = "",
    ) -> None:
        """Stages are those behind the mask, in order: name, value, whether it acts.

        At temperature 0 the best score wins. An empty level is what FORWARDPASS_ISA names, or the
        best one.
        """

    def pick(
        self,
        scores: NDArray[np.floating],
        position: int,
        ids: NDArray[np.int64] | None,
        values: NDArray[np.float64] | None,
        mask: NDArray[np.uint8] | NDArray[np.uint32] | None,
        wanted: NDArray[np.int64] | None,
    ) -> Picked | None:
        """The token, or None where the plain chain has to decide, as for rows that are not float32.

        `ids` rise and have other scores, `values`; the mask has a byte a score, or a bit.
        """

    @property
    def decided(self) -> tuple[int, int, int]:
        """How many float32 sums decided, float64 sums did, and nothing did."""

class Trie:
    """The texts of a vocabulary as a tree of bytes."""

    def __init__(
        self, ids: NDArray[np.int32], blob: bytes, offsets: NDArray[np.int64], size: int
    ) -> None:
        """Token i is ids[i], its text blob[offsets[i] : offsets[i + 1]]; `size` rows of scores.

        ValueError for an empty text, one of more than 4,096 bytes, and an id that comes twice.
        """

    @staticmethod
    def from_arrays(
        bytes: NDArray[np.uint8],
        depths: NDArray[np.uint16],
        first: NDArray[np.int32],
        ids: NDArray[np.int32],
        size: int,
    ) -> Trie:
        """From what `arrays` gave; ValueError where it is no tree."""

    def arrays(
        self,
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.int32], NDArray[np.int32]]:
        """Bytes and depths of the nodes, in preorder; where their tokens begin [nodes + 1]; ids."""

    @property
    def nodes(self) -> int: ...
    @property
    def size(self) -> int: ...
    def find(self, text: bytes) -> list[int]:
        """Ids with exactly these bytes, rising."""

    def segment(self, text: bytes) -> list[int]:
        """The fewest tokens that give a text; of equally many, the longest first.

        ValueError, naming the byte at which it comes to an end, where there are none.
        """

    def segment_count(self, text: bytes) -> int: ...

_Moves: TypeAlias = list[tuple[int, int, int]]
_Language: TypeAlias = tuple[bool, _Moves] | tuple[bool, _Moves, int]

class Grammar(Protocol):
    """What fills the tables of Masks. -1 is what does not go on."""

    def move(self, state: int, byte: int, /) -> int:
        """The move that a byte leads to."""

    def language(self, language: int, /) -> _Language:
        """Whether a text may end here; and rising ranges of the code points that may come next,
        without surrogates: first, last, the language that they lead to. Asked once."""

    def language_cost(self, language: int, /) -> int:
        """Tokens to behind the closing quote, from between two characters. Asked once."""

    def name(self, state: int, raw: bytes, /) -> int:
        """The move behind a member's name, given with both of its quotes."""

_Item: TypeAlias = tuple[int, int, int]
_Start: TypeAlias = tuple[int, int, int]  # entry, outer or -1, list of tokens or -1

class Masks:
    """Which tokens may come next under a grammar. Not for two threads at once.

    RuntimeError where the tables would take more than `most_bytes`: what is there still works.
    """

    STATE: Final[int]  # (STATE, state, 0)
    TEXT: Final[int]  # (TEXT, text state, the move behind its closing quote)
    NAME: Final[int]  # (NAME, text state, the state it is asked behind its closing quote)
    POPPED: Final[int]  # (POPPED, 0, 0): the local level has ended
    DOUBT: Final[int]  # (DOUBT, cost, 0): each token through here has to be judged on its own
    CALL: Final[int]  # (CALL, state, the move behind its level)

    def __init__(self, trie: Trie, callbacks: Grammar, most_bytes: int = 1 << 30) -> None: ...
    def add_state(self, pop: bool, cost: int, first: bytes) -> int:
        """A state. `pop`: its level may end here; `cost`: least tokens to that end.

        Bytes that are not in `first` are dead; the grammar is not asked.
        """

    def add_move(self, items: list[_Item]) -> int:
        """A set of items, one of which will stand.

        It costs what the cheapest does; what doubt costs counts where there is nothing else.
        """

    def add_outer(self, move: int, cost: int, parent: int) -> int:
        """What stands around a level that has ended; no names.

        `cost`: least tokens from there to the end of everything; parent: the one further out, -1
        for the end of everything.
        """

    def text_state(self, language: int, written: bytes) -> int:
        """The state of a JSON string, from 1 up: in a language, after some bytes of one character.

        Each state can reach the closing quote, as long as each language has a text.
        """

    def text_after(self, text_state: int, byte: int) -> int:
        """The state after a byte: 0 behind the closing quote, -1 where it is refused."""

    def text_cost(self, text_state: int) -> int:
        """Tokens to behind the closing quote: one for each byte to the end of a character (by the
        way that `constraint.values` takes), and what its language costs. Very much where one of
        these bytes is no token."""

    def add_tokens(self, ids: list[int]) -> int: ...
    def adopt_entry(self, other: Masks, entry: int) -> int:
        """Shares an entry of other masks over the same trie."""

    def adopt_tokens(self, other: Masks, list: int) -> int:
        """Shares a list of tokens of other masks over the same trie."""

    def entry_state(self, state: int) -> int: ...
    def entry_text(self, text_state: int) -> int:
        """In a text with whose closing quote the level ends."""

    def entry_name(self, text_state: int, state: int, raw: bytes) -> int:
        """In a name, of which `raw` is written, with its quote."""

    def mask(
        self, starts: list[_Start], limit: int, out: NDArray[np.uint32]
    ) -> tuple[int, int, list[int]]:
        """How many are legal; no less than the greatest least cost of any; the doubtful ones.

        Sets the bits in `out` of the tokens after which `limit` more are enough (-1: any number
        is). `out` has 32 ids a word, and means nothing where this raises.
        """

    def costs(self, starts: list[_Start], ids: list[int]) -> list[int]:
        """Least tokens to the end after each of these; -1: not legal as far as is known."""

    def exit_texts(self, entry: int) -> list[tuple[bytes, list[int]]]:
        """Each text with which an entry's level ends within a token, and its tokens."""

    @property
    def nbytes(self) -> int:
        """Memory of the tables, about."""

# One kernel at one level, for tests.

def test_rows(
    level: str,
    kind: str,
    a: _F32,
    b: _F32 | None = None,
    weight: _F32 | None = None,
    bias: _F32 | None = None,
    number: float = 0.0,
    pairs: int = 0,
    interleaved: bool = False,
    cos: _F32 | None = None,
    sin: _F32 | None = None,
) -> _F32:
    """A row function on each row of a; cos and sin have an entry a pair."""

def test_mass(
    level: str, x: _F32, temperature: float, from_: float
) -> tuple[float, float, float, int, _F32, NDArray[np.int32]]:
    """Weights exp((x - best) / temperature) below a bound in float32 and in float64, and of the
    others in float64; how many these are, and in order of their ids they and their ids."""

def test_finite(level: str, x: _F32) -> bool: ...
def test_quantize(level: str, x: _F32) -> tuple[NDArray[np.int16], _F32, NDArray[np.int32]]:
    """Integers [len(x)], scales [blocks] and sums of half blocks [blocks, 2]."""

def test_products(
    level: str, type: str, stored: NDArray[np.uint8], rows: int, cols: int, x: _F32
) -> _F32:
    """x [n, cols] with the table's rows: [n, rows]."""

def test_decode(level: str, type: str, stored: NDArray[np.uint8], rows: int, cols: int) -> _F32: ...
def test_attention(
    level: str,
    kv_type: str,
    q: _F32,
    keys: _F32,
    values: _F32,
    scale: float,
    softcap: float = 0.0,
    window: int = 0,
    slopes: _F32 | None = None,
    sinks: _F32 | None = None,
    prompt: bool = False,
    threads: int = 1,
) -> _F32:
    """q [n, h, e] at the last n of the positions of keys and values [s, g, e]: [n, h, e]."""

def test_pool(threads: int, count: int, gap: float) -> tuple[float, NDArray[np.float64]]:
    """Seconds of a barrier, and of `count` empty jobs with `gap` seconds before each."""
