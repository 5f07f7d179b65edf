// What is done to rows one by one. A row is one thread's from the first operation to the last.

#include "program.h"

namespace forwardpass {
namespace {

constexpr std::int64_t rows_at_once = 4;

struct Row {
    const RowOp &op;
    Frame &frame;
    int thread;
    std::int64_t row;     // of the slots
    std::int64_t source;  // of the pass

    float *at(View view) const { return frame.at(view, row); }
};

void add_positions(const Row &r) {
    const RowOp &op = r.op;
    float *added = r.frame.scratch[static_cast<std::size_t>(r.thread)].row;
    const Table &table = r.frame.tables.at(op.table);
    r.frame.kernels->decode_row(table, r.frame.pass.positions[r.source] + op.offset, added);
    r.frame.kernels->add(r.at(op.a), added, r.at(op.out), op.width);
}

void turn(const Row &r) {
    const RowOp &op = r.op;
    const Rope &rope = r.frame.ropes[static_cast<std::size_t>(op.rope)];
    const std::int64_t from = r.frame.pass.positions[r.source] * rope.pairs;
    for (std::int64_t i = 0; i < op.heads; ++i)
        r.frame.kernels->rope(r.at(op.a) + i * op.width, rope.cos + from, rope.sin + from,
                              op.pairs, op.interleaved, r.at(op.out) + i * op.width, op.width);
}

bool write_cache(const Row &r) {
    const RowOp &op = r.op;
    const Frame &frame = r.frame;
    const std::int64_t position = frame.pass.positions[r.source];
    Cache &cache = *frame.pass.caches[frame.pass.sequences[r.source]];
    std::uint8_t *block = cache.block(position / kv_block);
    bool fits = true;
    for (std::int64_t i = 0; i < op.heads; ++i)
        fits &= frame.kernels->kv_write(
            frame.shape->type(), r.at(op.a) + i * op.width, r.at(op.b) + i * op.width,
            static_cast<int>(op.width), static_cast<int>(position % kv_block),
            block + frame.shape->offset(op.state, 0, i),
            block + frame.shape->offset(op.state, 1, i));
    return fits;
}

void norm(const Row &r) {
    const RowOp &op = r.op;
    const Kernels &k = *r.frame.kernels;
    for (std::int64_t i = 0; i < op.heads; ++i) {
        const float *x = r.at(op.a) + i * op.width;
        float *out = r.at(op.out) + i * op.width;
        if (op.kind == RowKind::rms_norm) k.rms_norm(x, op.weight, op.number, out, op.width);
        else if (op.kind == RowKind::layer_norm)
            k.layer_norm(x, op.weight, op.bias, op.number, out, op.width);
        else k.layer_norm(x, op.weight + i * op.width, nullptr, op.number, out, op.width);
    }
}

// False where the row cannot go on.
bool apply(const Row &r) {
    const RowOp &op = r.op;
    const Kernels &k = *r.frame.kernels;
    const std::int64_t width = op.width * op.heads;
    switch (op.kind) {
    case RowKind::embed:
        k.decode_row(r.frame.tables.at(op.table), r.frame.pass.tokens[r.source], r.at(op.out));
        break;
    case RowKind::add_positions: add_positions(r); break;
    case RowKind::scale: k.scale(r.at(op.a), op.number, r.at(op.out), width); break;
    case RowKind::rms_norm:
    case RowKind::layer_norm:
    case RowKind::head_layer_norm: norm(r); break;
    case RowKind::rope: turn(r); break;
    case RowKind::add: k.add(r.at(op.a), r.at(op.b), r.at(op.out), width); break;
    case RowKind::relu: k.relu(r.at(op.a), r.at(op.out), width); break;
    case RowKind::gelu: k.gelu(r.at(op.a), r.at(op.out), width); break;
    case RowKind::gelu_erf: k.gelu_erf(r.at(op.a), r.at(op.out), width); break;
    case RowKind::silu_multiply:
        k.silu_multiply(r.at(op.a), r.at(op.b), r.at(op.out), width);
        break;
    case RowKind::gelu_multiply:
        k.gelu_multiply(r.at(op.a), r.at(op.b), r.at(op.out), width);
        break;
    case RowKind::softcap: k.softcap(r.at(op.a), op.number, r.at(op.out), width); break;
    case RowKind::quantize:
        r.frame.leave_operands(r.at(op.a), r.frame.slots[static_cast<std::size_t>(op.a.slot)],
                               r.row, op.a.column, width);
        return true;
    case RowKind::write_cache:
        if (write_cache(r)) return true;
        r.frame.fail(r.thread, Fault::cache, op.node, r.source);
        return false;
    case RowKind::gather: k.scale(r.frame.at(op.a, r.source), 1.0f, r.at(op.out), width); break;
    case RowKind::copy: k.scale(r.at(op.a), 1.0f, r.at(op.out), width); break;
    }
    if (r.frame.check) r.frame.check_row(r.thread, r.at(op.out), width, op.node, r.source);
    return true;
}

}  // namespace

void run_rows(const RowStep &step, Frame &frame, std::int64_t rows, int thread) {
    if (rows == 1 && thread != 0) return;
    std::int64_t begin, end;
    while (frame.pool->take(thread, rows, rows_at_once, begin, end))
        for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t source = step.wanted ? frame.pass.wanted[row] : row;
            for (const RowOp &op : step.ops)
                if (!apply({op, frame, thread, row, source})) break;
        }
}

}  // namespace forwardpass
