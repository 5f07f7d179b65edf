// A graph compiled to a flat list of fused steps, and the pass that runs them. Knows nothing of Python.
//
// Values of a pass live in slots: n × width float32, n the rows of the pass. A view is a slot and a
// first column. Steps of `wanted` rows run on the rows whose scores are asked for (r of them), whose
// slots have r rows. All threads run every step and meet behind it; work is split by output rows,
// by rows, or by (row, KV head, split), never inside a sum, so that their number changes no bit.
//
// A pass is of prompt rows or of generated ones. At a level with tiles the products of prompt rows
// are those of bf16 tiles, but for what is computed of wanted rows alone; all other products are of
// 16-bit integers. What a row gives depends on that and on the row, never on how many there are.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "cache.h"
#include "kernels/kernels.h"
#include "memory.h"
#include "pool.h"
#include "tables.h"

namespace forwardpass {

struct View {
    int slot = -1;  // -1: none
    std::int64_t column = 0;
};

// What is done to one row, by one thread.
enum class RowKind : std::uint8_t {
    embed,          // out = table[token]
    add_positions,  // out = a + table[position + offset]
    scale,          // a × number
    rms_norm, layer_norm,  // of each of `heads` parts of `width`; weight, bias (may be null)
    head_layer_norm,       // the same with a gain for each head, and no bias
    rope,           // each of `heads` parts of `width`; `rope` numbers the table of angles
    add, relu, gelu, gelu_erf, silu_multiply, gelu_multiply, softcap,
    quantize,       // what products read of a, kept beside slot a: see `leave_operands`
    write_cache,    // a: keys, b: values, `heads` parts of `width` of layer state `state`
    gather,         // out (of wanted rows) = a of the rows asked for
    copy            // out = a
};

struct RowOp {
    RowKind kind;
    View a, b, out;
    std::int64_t width = 0;   // elements of one part
    std::int64_t heads = 1;   // parts
    const float *weight = nullptr, *bias = nullptr;
    float number = 0;         // eps, factor, cap
    std::int64_t offset = 0;  // add_positions
    int table = -1;           // embed, add_positions: a packed table
    int rope = -1, state = -1;
    std::int64_t pairs = 0;   // rope
    bool interleaved = false;
    int node = -1;            // of the graph: for messages
};

// Consecutive row operations, run on one row after another without waiting in between.
struct RowStep {
    std::vector<RowOp> ops;
    bool wanted = false;
};

// Which way the sums of a linear segment go on.
enum class Gate : std::uint8_t { none, silu, gelu };       // gate(x) × up
enum class Act : std::uint8_t { none, relu, gelu, gelu_erf };

struct Segment {
    int table = -1;          // a packed table
    int up = -1;             // with a gate: the second table of the same size
    const float *bias = nullptr, *up_bias = nullptr;  // padded to whole panels
    View out;
    View residual;           // out = residual + sums (slot -1: none)
    Gate gate = Gate::none;
    Act act = Act::none;
    float cap = 0;           // softcap of the result; 0: none
    bool quantize = false;   // also leave what products read of out; out.column is 0
    bool floats = true;      // whether anything else reads out
    int node = -1;
};

// Products of one input with one or more tables, split by strips of 32 output rows.
struct LinearStep {
    View in;                 // what products read of it is there; column 0
    std::vector<Segment> segments;
    bool wanted = false;
};

struct AttentionStep {
    View q, out;
    int state = -1;
    std::int64_t heads = 0, groups = 0, width = 0;  // query heads, KV heads, head_dim
    float scale = 1, softcap = 0;
    std::int64_t window = 0;             // 0: none
    std::vector<float> slopes, sinks;    // a query head each, or empty
    bool quantize = false;               // also leave what products read of out
    int node = -1;

    std::int64_t first_visible(std::int64_t position) const {
        return window && position >= window ? position - window + 1 : 0;
    }
};

struct Slot {
    std::int64_t width;
    bool wanted = false;     // has a row for each wanted row instead of each row
};

// One pass: rows in the order of their sequences. A sequence's rows continue its cache: their
// positions are its length, length + 1, …
struct Pass {
    const std::int64_t *tokens, *positions;  // n
    const std::int32_t *sequences;           // n: number of the row's cache
    std::int64_t n = 0;
    Cache *const *caches = nullptr;
    std::int64_t cache_count = 0;
    const std::int64_t *wanted = nullptr;    // r row numbers, ascending
    std::int64_t r = 0;
    bool prompt = false;                     // or generated
};

// How a pass went wrong. `node` is the graph's. The first row that did is named.
struct Fault {
    enum Kind : std::uint8_t { none, finite, cache } kind = none;
    int step = -1, node = -1;
    std::int64_t row = -1;
};

// Angles of one kind of rotary embedding: positions × pairs. The memory is the caller's.
struct Rope {
    const float *cos = nullptr, *sin = nullptr;
    std::int64_t positions = 0, pairs = 0;
};

// A slot's memory. Rows are padded to a multiple of 32 floats, zeros behind the width.
struct SlotMemory {
    std::int64_t width = 0, stride = 0, blocks = 0;  // blocks: of a row
    bool wanted = false;
    bool quantized = false;  // some step leaves what products read
    bool as_blocks = false;  // some product reads blocks
    Memory floats, block_memory, tile_memory;

    float *row(std::int64_t r) const {
        return reinterpret_cast<float *>(floats.data()) + r * stride;
    }
    XBlock *block_row(std::int64_t r) const {
        return reinterpret_cast<XBlock *>(block_memory.data()) + r * blocks;
    }
    // The row's first line in tiles.
    std::uint8_t *tile_row(std::int64_t r) const {
        return tile_memory.data() + r / tile_rows * blocks * tile_step + r % tile_rows * 64;
    }
};

// Strips of a linear step, numbered through its segments.
struct Strips {
    std::vector<std::int64_t> first;  // of each segment, and the end
    std::int64_t most = 1;            // that a thread takes at once
    std::int64_t most_tiles = 1;      // likewise, of products of tiles
};

// What one thread writes while it works on a step.
struct Scratch {
    float *sums, *ups;          // 8 rows × most strips × 32
    float *tile_sums;           // all rows × (most strips × 32 + 16)
    std::uint8_t *tile_weights; // a chunk of most strips
    float *row;                 // one row of the widest table that is added
    float *scores, *mix, *max, *sum;  // attention
    std::uint8_t *attention;    // the same by tiles
    Fault fault;
    Memory memory;
};

struct Step {
    std::variant<RowStep, LinearStep, AttentionStep> what;
    Strips strips;              // of a linear step
    double work = 0, wait = 0;  // seconds of thread 0 in the last stamped run
};

// A pass while it runs: what steps read and write.
struct Frame {
    const Kernels *kernels;
    Pool *pool;
    const CacheShape *shape;
    Pass pass;
    bool check = false;
    std::vector<SlotMemory> slots;
    std::map<int, Table> tables;       // by number: those that steps use
    std::vector<Rope> ropes;
    std::vector<Scratch> scratch;      // a thread each
    Memory partial;                    // of attention over several splits: see attention_steps.cpp
    Memory kv_tiles;                   // of attention by tiles: see attention_tiles.cpp
    std::int64_t cache_bytes;          // of the activations that a thread keeps near it

    float *at(View view, std::int64_t row) const {
        return slots[static_cast<std::size_t>(view.slot)].row(row) + view.column;
    }
    // Keeps the fault of the lowest row.
    void fail(int thread, Fault::Kind kind, int node, std::int64_t row);
    void check_row(int thread, const float *x, std::int64_t width, int node, std::int64_t row);

    // Tiles where this pass multiplies them, null where it does not.
    const Tiles *tiles(bool wanted) const {
        return pass.prompt && !wanted ? kernels->tiles : nullptr;
    }
    // Leaves what this pass's products read of x, `width` columns of a slot's row from `column` on (a
    // multiple of 32): tiles or, where a table takes them, blocks.
    void leave_operands(const float *x, const SlotMemory &slot, std::int64_t row,
                        std::int64_t column, std::int64_t width) const;
};

// The most steps of 32 inputs whose weights are turned into tiles at a time: activations of 32 rows
// fill two thirds of the first cache.
constexpr std::int64_t most_chunk = 18;

// Each is called by all threads, without a barrier behind it. `rows` are n, or r of wanted rows.
void run_rows(const RowStep &step, Frame &frame, std::int64_t rows, int thread);
void run_linear(const LinearStep &step, const Strips &strips, Frame &frame, std::int64_t rows,
                int thread);
// Asks for the first bytes that a thread will read of a step to come; changes nothing.
void fetch_first(const LinearStep &step, const Strips &strips, const Frame &frame, int thread);
void run_attention(const AttentionStep &step, Frame &frame, int thread);
// The same by tiles, where the pass multiplies them.
void run_prompt_attention(const AttentionStep &step, Frame &frame, int thread);
// Bytes of the tiles that it needs at a time.
std::int64_t attention_tile_bytes(const AttentionStep &step, const Pass &pass);
// Floats that attention needs for the splits that threads share; 0: none are.
std::int64_t attention_partials(const AttentionStep &step, const Pass &pass, int threads);
// Whether attention over one row leaves whole blocks of 32 with each KV head.
bool whole_blocks(const AttentionStep &step);

class Program {
  public:
    // `tables` outlives the program. `rows`: the most of a pass.
    Program(const Tables &tables, const std::vector<Slot> &slots, std::vector<StateShape> states,
            KvType kv_type, std::int64_t rows, const Kernels *kernels, int threads);

    // What refers to something that is not there, or would reach over its edge, is refused with
    // std::invalid_argument. Pointers of weights and biases are copied from: `kept` does that.
    void add(RowStep step);
    void add(LinearStep step);
    void add(AttentionStep step);
    const float *kept(const float *values, std::int64_t count, std::int64_t padded);

    // The angles outlive the program or the next call with the same number. Waits for a pass.
    void set_rope(int number, Rope rope);
    void check_rope(int number, const Rope &rope) const;

    // Throws std::invalid_argument where the pass does not fit the program, and gives its caches
    // room. No more steps may be added.
    void prepare(const Pass &pass, std::int64_t first, std::int64_t last);
    // Steps first … last − 1 of a prepared pass. Sequences get longer with the last step of all,
    // if there was no fault. `check`: stop at the first value that is not finite.
    Fault run(const Pass &pass, std::int64_t first, std::int64_t last, bool check, bool stamps);

    const Table &table(int number) const { return tables_.at(number); }
    const SlotMemory &slot(std::int64_t number) const;
    const std::vector<Step> &steps() const { return steps_; }
    std::shared_ptr<const CacheShape> shape() const { return shape_; }
    const Kernels &kernels() const { return *frame_.kernels; }
    int threads() const { return pool_.threads(); }
    std::int64_t rows() const { return rows_; }

  private:
    struct Turn;  // one run, as its threads see it
    void work(Turn &turn, int thread);
    void run_step(const Step &step, int thread);
    void fetch_next(std::int64_t step, std::int64_t last, int thread);
    std::int64_t rows_of(const Step &step) const;
    void make_scratch(std::int64_t splits);
    SlotMemory &checked(View view, std::int64_t width, bool wanted, const char *what);
    void check_op(const RowOp &op, bool wanted);
    void check_segment(const Segment &segment, const LinearStep &step);
    const Table &use_table(int number);
    void will_leave(SlotMemory &slot);
    std::int64_t tile_strips(const LinearStep &step, std::int64_t count) const;
    void check_open() const;

    const Tables &tables_;
    std::shared_ptr<const CacheShape> shape_;
    Pool pool_;
    Frame frame_;
    std::vector<Step> steps_;
    std::deque<std::vector<float>> kept_;
    std::int64_t rows_;
    bool sealed_ = false;
    // What a pass must fit, over all steps.
    std::int64_t tokens_ = INT64_MAX, positions_ = INT64_MAX;  // less than these
    std::map<int, std::int64_t> rope_pairs_;
    std::int64_t most_strips_ = 1, most_tile_strips_ = 0, added_width_ = 0, heads_ = 0, head_floats_ = 0, splits_ = 0, head_width_ = 0;
};

}  // namespace forwardpass
