// What every instruction-set level offers: one table of plain functions over pointers.
//
// A kernel has the same bits at every level that has it, but for the sampler's sums: integers are
// exact, and float32 is added in the order that the kernel's file states. Rows never depend on each
// other. Nothing here allocates or throws.
#pragma once

#include <cstdint>

namespace forwardpass {

constexpr int panel_rows = 16;   // output rows that a packed table interleaves
constexpr int block_width = 32;  // inputs that share the scale of an activation block

// Packed table types. Each panel holds 16 output rows; a table's last panel is filled with zeros.
enum class Type : std::uint8_t {
    f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k,
    mlx4_f16, mlx4_bf16,  // affine 4-bit with a scale and a bias for 32 inputs
    count
};

// Whether the products of the type read activations as integers (XBlock) or as float32.
constexpr bool takes_blocks(Type type) { return type > Type::bf16; }

// 32 activations as 16-bit integers: x[i] ≈ scale · q[i], |q| <= 32,639 = 256 · 127 + 127.
//
// `q` is in the order of the level that made it: two planes of int8 (q = 256 · high + low, 32 of
// high, then 32 of low) where bytes are multiplied, or int16 in the order 0 2 1 3 of each four.
// `half` are the sums of the first and of the last 16 integers.
struct XBlock {
    alignas(16) std::int8_t q[64];
    float scale;
    std::int32_t half[2];
    std::int32_t unused;
};

// A packed table. `data` is aligned to 64 bytes.
struct Table {
    Type type = Type::f32;
    std::int64_t rows = 0, cols = 0;
    const std::uint8_t *data = nullptr;
};

enum class KvType : std::uint8_t { f16, bf16, f32 };
constexpr int kv_bytes(KvType type) { return type == KvType::f32 ? 4 : 2; }

constexpr int kv_block = 64;    // positions of a cache block
constexpr int kv_split = 256;   // positions that one attention task reads
// In a block, the keys of one head are [kv_block / 16][e][16 positions], its values
// [kv_block][e]: scores need no sums across lanes, and the mix reads whole rows.

// One query row against one split of one KV head, for all query heads that share it.
struct Split {
    const float *q;                  // heads × e, contiguous
    int heads, e;                    // query heads of the group; e is a multiple of 8, at most 512
    const std::uint8_t *const *blocks;  // the sequence's cache blocks; block i has positions 64 i …
    std::int64_t key_offset, value_offset;  // bytes into a block, of this layer and KV head
    std::int64_t begin, end;         // visible positions of this split, end excluded; begin < end
    KvType type;
    float scale;                     // multiplies the scores
    float softcap;                   // cap · tanh(score / cap); 0: none
    const float *slopes;             // per head: score −= slope · (position − key); null: none
    std::int64_t position;           // of the query
    float *out;                      // heads × e: the sum of exp(score − max) · value
    float *max, *sum;                // per head
    float *scratch;                  // heads × kv_split floats, 64-byte aligned
};

// Tiles of bf16, for the rows of a prompt: 16 rows of 64 bytes, 1 KB. The activations of 32 rows lie
// one step of 32 inputs after another, two tiles each: row r of the first 16 has its inputs at
// 64 r, the last 16 follow. The weights of 32 outputs likewise; a tile of 32 inputs × 16 outputs has
// two inputs in each of its rows.
constexpr std::int64_t tile_rows = 32;    // rows of activations, and outputs, of a step
constexpr std::int64_t tile_step = 2048;  // bytes

struct TileProduct {
    const std::uint8_t *x, *w;  // activations and weights of the first step, aligned to 64 bytes
    std::int64_t steps;
    int rows;                   // that there are of 32
    bool add;                   // to what `out` holds
    float *out;                 // 32 rows (16, where there are no more) × 32 outputs
    std::int64_t stride;        // of out, in floats
    const std::uint8_t *next;   // asked for meanwhile: so many lines of 64 bytes a step
    int next_lines;
};

// Keys and values of one head over one split of 256 positions, to be turned into tiles. Keys: for
// each 16 positions the steps of 32 elements (⌈e / 32⌉). Values: for each 16 elements (an even
// number of them, 2 · ⌈e / 32⌉) the eight steps of 32 positions. Those behind the last 32 that there
// are are left out.
struct KvTiles {
    KvType type;
    int e;                              // a multiple of 8, at most 512
    const std::uint8_t *const *blocks;  // as in Split
    std::int64_t key_offset, value_offset;
    std::int64_t split, end;            // the split's number; positions there are, one of it at least
    std::uint8_t *keys, *values;
};
// Bytes of the keys of a split, and as many of its values.
constexpr std::int64_t kv_tile_bytes(std::int64_t e) { return (e + 31) / 32 * 32 * kv_split * 2; }

// Up to 32 rows, each a query head at a position, against what they see of one KV head.
struct QueryBlock {
    int rows, e;
    const float *const *q;                   // a row's e floats
    const std::int64_t *begin, *end;         // visible positions, end excluded: begin < end
    const float *slopes, *sinks;             // of each row, or null
    float scale, softcap;
    const std::uint8_t *keys, *values;       // tiles of split `first`; kv_tile_bytes apart
    std::int64_t first;
    float *const *out;                       // a row's e floats
    std::uint8_t *scratch;                   // attention_scratch bytes, aligned to 64
};
// Queries, scores, weights, mixes, and two numbers a row.
constexpr std::int64_t attention_scratch(std::int64_t e) {
    return tile_rows * ((e + 31) / 32 * (64 + 128) + kv_split * 6 + 8);
}

struct Tiles {
    // Make tiles the calling thread's, and give them up: products are computed in between.
    void (*begin)();
    void (*end)();
    // One row's activations as bf16, each step's 64 bytes `tile_step` behind the last one's; zeros
    // behind `width`.
    void (*pack)(const float *x, std::uint8_t *out, std::int64_t width);
    // Steps step … step + steps − 1 of a panel as tiles, `tile_step` bytes apart: bf16 of what
    // `decode_row` gives. Both are multiples of 8, but for the end, in types with units of 256.
    void (*weights)(const Table &table, std::int64_t panel, std::int64_t step, std::int64_t steps,
                    std::uint8_t *out);
    void (*products)(const TileProduct &product);
    // The products of 32 rows and 32 outputs over and over, without a sum read or written: what
    // `products` could reach at best. FLOP done: 32 · 32 · 32 · 2 a step and round.
    void (*loop)(const std::uint8_t *x, const std::uint8_t *w, std::int64_t steps,
                 std::int64_t rounds);
    void (*keys_and_values)(const KvTiles &split);
    void (*attend)(const QueryBlock &block);
};

struct Extremes { float high, low; };
// Weights of the scores below a bound, of the others, and how many these are.
struct Mass { double below, above; std::int64_t count; };
// Weights of the scores below a bound, how many reach it, and the least of all.
struct Found { double below; std::int64_t count; float low; };
struct Moments { double sum, square; };

struct Kernels {
    const char *level;
    bool planes;         // whether XBlock has two planes of int8
    const Tiles *tiles;  // null: prompts take the way of all other rows

    // One row, `width` float32. `out` may be the same as an input.
    void (*add)(const float *a, const float *b, float *out, std::int64_t width);
    void (*scale)(const float *x, float factor, float *out, std::int64_t width);
    void (*rms_norm)(const float *x, const float *gain, float eps, float *out, std::int64_t width);
    // `bias` may be null.
    void (*layer_norm)(const float *x, const float *gain, const float *bias, float eps, float *out,
                       std::int64_t width);
    void (*relu)(const float *x, float *out, std::int64_t width);
    void (*gelu)(const float *x, float *out, std::int64_t width);      // tanh form
    void (*gelu_erf)(const float *x, float *out, std::int64_t width);  // by the error function
    void (*silu_multiply)(const float *gate, const float *up, float *out, std::int64_t width);
    void (*gelu_multiply)(const float *gate, const float *up, float *out, std::int64_t width);
    void (*softcap)(const float *x, float cap, float *out, std::int64_t width);
    // One head of `width`: the first 2 · pairs elements turned, the rest copied. Pairs are
    // (i, i + pairs), or (2i, 2i + 1) where interleaved; cos and sin have an entry a pair.
    void (*rope)(const float *x, const float *cos, const float *sin, std::int64_t pairs,
                 bool interleaved, float *out, std::int64_t width);
    // ⌈width / 32⌉ blocks; what is behind `width` counts as 0.
    void (*quantize)(const float *x, XBlock *out, std::int64_t width);
    bool (*finite)(const float *x, std::int64_t width);

    // Row `row` of a packed table, `cols` float32: exactly what formats/blocks.py decodes.
    void (*decode_row)(const Table &table, std::int64_t row, float *out);

    // `panels` panels of a table from panel `first` on, times `rows` (any number >= 1) activations:
    // out[r · stride + 16 p + lane], p from 0. Blocks of row r begin at x + r · x_stride (in
    // blocks, for types that take blocks) or xf + r · x_stride (in floats, zero up to a multiple of
    // 16 columns, for the others).
    void (*products)(const Table &table, std::int64_t first, std::int64_t panels, const XBlock *x,
                     const float *xf, std::int64_t x_stride, int rows, float *out,
                     std::int64_t stride);

    // One position's key and value (e float32 each) of one head, written into its block at `slot`.
    // False where a value does not fit the cache's type.
    bool (*kv_write)(KvType type, const float *key, const float *value, int e, int slot,
                     std::uint8_t *keys, std::uint8_t *values);
    void (*attend)(const Split &split);
    // `count` splits in ascending order, each as `attend` left it (out: e floats at
    // outs + i · out_stride; max and sum at maxes + i · scalar_stride), to the mix of one head.
    // `sink` (null: none) is a score that takes part in the sum and brings no value.
    void (*combine)(const float *outs, std::int64_t out_stride, const float *maxes,
                    const float *sums, std::int64_t scalar_stride, int count, int e,
                    const float *sink, float *out);

    // Rows of n >= 1 scores, for the sampler; sampling.inc has how exact the sums are. A score of -inf
    // weighs nothing, NaN makes a sum NaN and is never found; bounds are above -inf.
    // `groups`: the best of each of 16 · ⌈n / 1024⌉ groups of at most 64 scores; of every `step`th 16
    // scores alone, where step, which divides 64, is not 1.
    Extremes (*scores_scan)(const float *x, std::int64_t n, int step, float *groups);
    std::int64_t (*scores_count)(const float *x, std::int64_t n, float from);  // x >= from
    // from <= x < to, in order, with their numbers (`ids`, null: 0, 1, …); how many there are. The
    // places, which may be x and ids, hold `limit` + 16; those beyond `limit` are counted only.
    std::int64_t (*scores_collect)(const float *x, const std::int32_t *ids, std::int64_t n,
                                   float from, float to, std::int64_t limit, float *values,
                                   std::int32_t *numbers);
    // Σ exp((x − top) / temperature) of what is below `from`; the others are found as above.
    Found (*scores_mass)(const float *x, std::int64_t n, float top, double temperature, float from,
                         std::int64_t limit, float *values, std::int32_t *numbers);
    // The same in float64, with exp((x − top) · factor).
    Mass (*scores_wide_mass)(const float *x, std::int64_t n, double top, double factor, float from);
    // (x − top) / temperature, and e to that.
    void (*scores_weights)(const double *x, std::int64_t n, double top, double temperature,
                           double *exponents, double *weights);
    // Σ (x − top − mean) and its squares, of what is at least `from`.
    Moments (*scores_moments)(const float *x, std::int64_t n, float from, double top, double mean);
    // The row with -inf where a byte or a bit is 0; one of them is null.
    void (*scores_allow)(const float *x, std::int64_t n, const std::uint8_t *bytes,
                         const std::uint32_t *words, float *out);
};

// Bytes of one panel of `cols` inputs, a multiple of 64; of a table, all its panels.
std::int64_t panel_bytes(Type type, std::int64_t cols);
inline std::int64_t panel_count(std::int64_t rows) { return (rows + panel_rows - 1) / panel_rows; }

// The levels of this build that this machine can run, best first; at least the portable one.
const Kernels *kernels_portable();
const Kernels *kernels_avx2();    // null where the build has none
const Kernels *kernels_avx512();  // null where the build has none
const Kernels *kernels_amx();     // likewise

}  // namespace forwardpass
