// Steps are checked when they are added: what they name must be there, and wide enough. So a pass
// needs to look only at what differs from pass to pass.

#include <algorithm>
#include <stdexcept>

#include "cpu.h"
#include "program.h"

namespace forwardpass {
namespace {

constexpr std::int64_t most_width = std::int64_t{1} << 31, most_pass_rows = std::int64_t{1} << 20;
constexpr std::int64_t most_ropes = 64;

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }
std::string text(std::int64_t number) { return std::to_string(number); }

void want(bool fine, const std::string &what) {
    if (!fine) refuse(what);
}

bool per_pass_row(RowKind kind) {
    return kind == RowKind::embed || kind == RowKind::add_positions || kind == RowKind::rope ||
           kind == RowKind::write_cache;
}

bool takes_two(RowKind kind) {
    return kind == RowKind::add || kind == RowKind::silu_multiply ||
           kind == RowKind::gelu_multiply || kind == RowKind::write_cache;
}

// What a thread keeps near it of the activations: half of its second cache.
std::int64_t activation_bytes() {
    const std::int64_t l2 = static_cast<std::int64_t>(describe_cpu().l2);
    return l2 > 0 ? l2 / 2 : 128 << 10;
}

}  // namespace

Program::Program(const Tables &tables, const std::vector<Slot> &slots,
                 std::vector<StateShape> states, KvType kv_type, std::int64_t rows,
                 const Kernels *kernels, int threads)
    : tables_(tables), shape_(std::make_shared<CacheShape>(std::move(states), kv_type)),
      pool_(threads), rows_(rows) {
    want(rows >= 1 && rows <= most_pass_rows, "rows must be from 1 to " + text(most_pass_rows));
    frame_.kernels = kernels;
    frame_.pool = &pool_;
    frame_.shape = shape_.get();
    frame_.cache_bytes = activation_bytes();
    frame_.scratch.resize(static_cast<std::size_t>(threads));
    for (const Slot &slot : slots) {
        want(slot.width >= 1 && slot.width <= most_width,
             "slot " + text(static_cast<std::int64_t>(frame_.slots.size())) + ": a width of " +
                 text(slot.width));
        SlotMemory memory;
        memory.width = slot.width;
        memory.wanted = slot.wanted;
        memory.blocks = (slot.width + block_width - 1) / block_width;
        memory.stride = memory.blocks * block_width;
        memory.floats = Memory(static_cast<std::size_t>(rows * memory.stride) * sizeof(float));
        frame_.slots.push_back(std::move(memory));
    }
}

const float *Program::kept(const float *values, std::int64_t count, std::int64_t padded) {
    std::vector<float> &copy = kept_.emplace_back(values, values + count);
    copy.resize(static_cast<std::size_t>(std::max(count, padded)));
    return copy.data();
}

void Program::check_open() const {
    want(!sealed_, "steps are added before the first pass");
}

SlotMemory &Program::checked(View view, std::int64_t width, bool wanted, const char *what) {
    const std::int64_t count = static_cast<std::int64_t>(frame_.slots.size());
    want(view.slot >= 0 && view.slot < count,
         std::string(what) + ": slot " + text(view.slot) + " of " + text(count));
    SlotMemory &slot = frame_.slots[static_cast<std::size_t>(view.slot)];
    want(view.column >= 0 && width >= 1 && width <= slot.width &&
             view.column <= slot.width - width,
         std::string(what) + ": " + text(width) + " columns from " + text(view.column) +
             " on of slot " + text(view.slot) + ", which has " + text(slot.width));
    want(slot.wanted == wanted, std::string(what) + ": slot " + text(view.slot) +
                                    (slot.wanted ? " has only the rows asked for"
                                                 : " has all rows, the step has only some"));
    return slot;
}

const Table &Program::use_table(int number) { return frame_.tables[number] = tables_.at(number); }

void Program::will_leave(SlotMemory &slot) {
    if (slot.quantized) return;
    slot.block_memory = Memory(static_cast<std::size_t>(rows_ * slot.blocks) * sizeof(XBlock));
    if (frame_.kernels->tiles && !slot.wanted) {
        const std::int64_t steps = (rows_ + tile_rows - 1) / tile_rows * slot.blocks;
        slot.tile_memory = Memory(static_cast<std::size_t>(steps * tile_step));
    }
    slot.quantized = true;
}

void Program::check_op(const RowOp &op, bool wanted) {
    want(op.width >= 1 && op.width <= most_width && op.heads >= 1 && op.heads <= most_width,
         "an operation on " + text(op.heads) + " parts of " + text(op.width));
    const std::int64_t width = op.width * op.heads;
    want(!wanted || !per_pass_row(op.kind),
         "embed, add_positions, rope and write_cache are for all rows of a pass");
    if (op.kind != RowKind::embed)
        checked(op.a, width, op.kind == RowKind::gather ? false : wanted, "a");
    if (takes_two(op.kind)) checked(op.b, width, wanted, "b");
    if (op.kind != RowKind::quantize && op.kind != RowKind::write_cache)
        checked(op.out, width, wanted, "out");
    switch (op.kind) {
    case RowKind::embed:
    case RowKind::add_positions: {
        const Table &table = use_table(op.table);
        want(op.heads == 1 && table.cols == op.width,
             "table " + text(op.table) + " has " + text(table.cols) + " columns, the operation " +
                 text(width));
        if (op.kind == RowKind::embed) tokens_ = std::min(tokens_, table.rows);
        else {
            want(op.offset >= 0 && op.offset < table.rows,
                 "an offset of " + text(op.offset) + " into " + text(table.rows) + " positions");
            positions_ = std::min(positions_, table.rows - op.offset);
            added_width_ = std::max(added_width_, op.width);
        }
        return;
    }
    case RowKind::rms_norm:
    case RowKind::layer_norm:
    case RowKind::head_layer_norm: want(op.weight, "a norm needs a weight"); return;
    case RowKind::rope: {
        want(op.rope >= 0 && op.rope < most_ropes && op.pairs >= 1 && op.pairs <= op.width / 2,
             "rope " + text(op.rope) + " with " + text(op.pairs) + " pairs in a width of " +
                 text(op.width));
        const auto known = rope_pairs_.emplace(op.rope, op.pairs).first;
        want(known->second == op.pairs,
             "rope " + text(op.rope) + " has " + text(known->second) + " pairs elsewhere");
        return;
    }
    case RowKind::quantize:
        want(op.a.column % block_width == 0, "blocks begin at a multiple of 32 columns");
        will_leave(frame_.slots[static_cast<std::size_t>(op.a.slot)]);
        return;
    case RowKind::write_cache: {
        want(op.state >= 0 && op.state < static_cast<std::int64_t>(shape_->states().size()),
             "state " + text(op.state) + " of " +
                 text(static_cast<std::int64_t>(shape_->states().size())));
        const StateShape &state = shape_->states()[static_cast<std::size_t>(op.state)];
        want(state.groups == op.heads && state.width == op.width,
             "state " + text(op.state) + " has " + text(state.groups) + " heads of " +
                 text(state.width));
        return;
    }
    case RowKind::gather: want(wanted, "gather belongs in a step of wanted rows"); return;
    default: return;
    }
}

void Program::add(RowStep step) {
    check_open();
    for (const RowOp &op : step.ops) check_op(op, step.wanted);
    steps_.push_back({std::move(step), {}});
}

void Program::check_segment(const Segment &s, const LinearStep &step) {
    const Table &table = use_table(s.table);
    SlotMemory &in = checked(step.in, table.cols, step.wanted, "in");
    const bool blocks = takes_blocks(table.type);
    in.as_blocks |= blocks;
    want(step.in.column == 0, "the input of products begins at column 0 of its slot");
    want(!blocks || in.quantized, "table " + text(s.table) + " takes blocks, but no step before " +
                                      "leaves blocks of slot " + text(step.in.slot));
    want(in.quantized || step.wanted || !frame_.kernels->tiles,
         "products at this level take tiles, but no step before leaves those of slot " +
             text(step.in.slot));
    want(table.cols == in.width || table.cols % (blocks ? block_width : panel_rows) == 0,
         "table " + text(s.table) + " has " + text(table.cols) + " columns, slot " +
             text(step.in.slot) + " has " + text(in.width));
    SlotMemory &out = checked(s.out, table.rows, step.wanted, "out");
    want(s.out.slot != step.in.slot, "products cannot go where their input lies");
    if (s.gate != Gate::none) {
        const Table &up = use_table(s.up);
        want(up.rows == table.rows && up.cols == table.cols, "gate and up differ in shape");
        want(!takes_blocks(up.type) || in.quantized, "table " + text(s.up) + " takes blocks");
        in.as_blocks |= takes_blocks(up.type);
    }
    if (s.residual.slot >= 0) checked(s.residual, table.rows, step.wanted, "residual");
    if (s.quantize) {
        want(s.out.column == 0, "what is quantized begins at column 0 of its slot");
        will_leave(out);
    }
}

// An even part of a thread's share, of 256 outputs or somewhat less: activations, which come from
// the third cache, are read once for all of them.
std::int64_t Program::tile_strips(const LinearStep &step, std::int64_t count) const {
    const bool gated = std::any_of(step.segments.begin(), step.segments.end(),
                                   [](const Segment &s) { return s.gate != Gate::none; });
    const std::int64_t most = gated ? 4 : 8;
    const std::int64_t share = (count + pool_.threads() - 1) / pool_.threads();
    const std::int64_t parts = (share + most - 1) / most;
    return (share + parts - 1) / parts;
}

void Program::add(LinearStep step) {
    check_open();
    want(!step.segments.empty(), "a linear step needs a segment");
    constexpr std::int64_t bytes_at_once = 16 << 10, strips_at_once = 8, takes = 4;
    Strips strips{{0}, strips_at_once};
    for (const Segment &segment : step.segments) {
        check_segment(segment, step);
        const Table &table = frame_.tables.at(segment.table);
        const std::int64_t bytes = 2 * panel_bytes(table.type, table.cols);
        strips.most = std::min(strips.most, (bytes_at_once + bytes - 1) / bytes);
        strips.first.push_back(strips.first.back() + (panel_count(table.rows) + 1) / 2);
    }
    const std::int64_t share = strips.first.back() / (takes * pool_.threads());
    strips.most = std::clamp<std::int64_t>(share, 1, strips.most);
    most_strips_ = std::max(most_strips_, strips.most);
    if (frame_.kernels->tiles && !step.wanted) {
        strips.most_tiles = tile_strips(step, strips.first.back());
        most_tile_strips_ = std::max(most_tile_strips_, 2 * strips.most_tiles);
    }
    steps_.push_back({std::move(step), std::move(strips)});
}

void Program::add(AttentionStep step) {
    check_open();
    want(step.state >= 0 && step.state < static_cast<std::int64_t>(shape_->states().size()),
         "state " + text(step.state) + " of " +
             text(static_cast<std::int64_t>(shape_->states().size())));
    const StateShape &state = shape_->states()[static_cast<std::size_t>(step.state)];
    want(state.groups == step.groups && state.width == step.width,
         "state " + text(step.state) + " has " + text(state.groups) + " heads of " +
             text(state.width));
    want(step.heads >= 1 && step.heads <= most_width && step.heads % step.groups == 0,
         text(step.heads) + " query heads on " + text(step.groups) + " KV heads");
    want(step.window >= 0, "a window of " + text(step.window));
    for (const std::vector<float> *each : {&step.slopes, &step.sinks})
        want(each->empty() || static_cast<std::int64_t>(each->size()) == step.heads,
             "slopes and sinks have a number for each query head, or none");
    checked(step.q, step.heads * step.width, false, "q");
    SlotMemory &out = checked(step.out, step.heads * step.width, false, "out");
    want(step.out.slot != step.q.slot || step.out.column == step.q.column ||
             std::abs(step.out.column - step.q.column) >= step.heads * step.width,
         "q and out overlap");
    if (step.quantize) {
        want(step.out.column == 0, "what is quantized begins at column 0 of its slot");
        will_leave(out);
    }
    const std::int64_t heads = step.heads / step.groups;
    heads_ = std::max(heads_, heads);
    head_floats_ = std::max(head_floats_, heads * step.width);
    head_width_ = std::max(head_width_, step.width);
    steps_.push_back({std::move(step), {}});
}

void Program::check_rope(int number, const Rope &rope) const {
    want(number >= 0 && number < most_ropes, "ropes are numbered from 0 to 63");
    const auto used = rope_pairs_.find(number);
    want(used == rope_pairs_.end() || used->second == rope.pairs,
         "rope " + text(number) + " has " + text(rope.pairs) + " pairs, its steps another number");
    if (number < static_cast<int>(frame_.ropes.size())) {
        const Rope &old = frame_.ropes[static_cast<std::size_t>(number)];
        want(!old.cos || (rope.positions >= old.positions && rope.pairs == old.pairs),
             "rope " + text(number) + " can be replaced only by a longer one");
    }
}

}  // namespace forwardpass
