// Products of a step's input with its tables, and what is done to their results.
//
// Bytes read: the tables once for each block of rows whose activations stay in the second cache
// (activations have more bytes than weights, so they are what is kept); the activations once for
// each block from memory. A strip is 32 output rows; eight activation rows are multiplied at a time,
// and their sums are finished while they are in the first cache.

#include <algorithm>
#include <cstring>

#include "program.h"

namespace forwardpass {
namespace {

constexpr std::int64_t rows_at_once = 8, strip = 2 * panel_rows;

// Several strips of one segment, and the rows to be done.
struct Piece {
    const Segment &segment;
    const SlotMemory &in, &out;
    Frame &frame;
    int thread;
    bool wanted;
    std::int64_t first, strips;  // of the segment's
    std::int64_t width;          // output columns that there are
};

void multiply(const Piece &p, int number, std::int64_t row, std::int64_t rows, float *out,
              std::int64_t stride) {
    const Table &table = p.frame.tables.at(number);
    const std::int64_t panels = std::min(2 * p.strips, panel_count(table.rows) - 2 * p.first);
    const bool blocks = takes_blocks(table.type);
    p.frame.kernels->products(table, 2 * p.first, panels, blocks ? p.in.block_row(row) : nullptr,
                              blocks ? nullptr : p.in.row(row), blocks ? p.in.blocks : p.in.stride,
                              static_cast<int>(rows), out, stride);
}

// Sums of one row to what the segment leaves of them, in `x`.
void finish(const Piece &p, float *x, float *up) {
    const Segment &s = p.segment;
    const Kernels &k = *p.frame.kernels;
    const std::int64_t column = p.first * strip, width = p.width;
    if (s.bias) k.add(x, s.bias + column, x, width);
    if (s.gate != Gate::none) {
        if (s.up_bias) k.add(up, s.up_bias + column, up, width);
        if (s.gate == Gate::silu) k.silu_multiply(x, up, x, width);
        else k.gelu_multiply(x, up, x, width);
    }
    if (s.act == Act::relu) k.relu(x, x, width);
    else if (s.act == Act::gelu) k.gelu(x, x, width);
    else if (s.act == Act::gelu_erf) k.gelu_erf(x, x, width);
}

// Residual, softcap, and the row's place in memory.
void leave(const Piece &p, float *x, float *out, std::int64_t row) {
    const Segment &s = p.segment;
    const Kernels &k = *p.frame.kernels;
    const std::int64_t column = p.first * strip, width = p.width;
    if (s.cap != 0.0f) {
        if (s.residual.slot >= 0) k.add(p.frame.at(s.residual, row) + column, x, x, width);
        k.softcap(x, s.cap, out, width);
    } else if (s.residual.slot >= 0) {
        k.add(p.frame.at(s.residual, row) + column, x, out, width);
    } else if (x != out) {
        std::memcpy(out, x, static_cast<std::size_t>(width) * sizeof(float));
    }
    if (s.quantize) k.quantize(out, p.out.block_row(row) + column / block_width, width);
    if (p.frame.check)
        p.frame.check_row(p.thread, out, width, s.node, p.wanted ? p.frame.pass.wanted[row] : row);
}

void run_piece(const Piece &p, std::int64_t first_row, std::int64_t last_row) {
    const Segment &s = p.segment;
    Scratch &scratch = p.frame.scratch[static_cast<std::size_t>(p.thread)];
    // Products go where their results go, if nothing lies there that the last panel would reach.
    const bool direct = p.width % panel_rows == 0 && s.residual.slot < 0;
    const std::int64_t column = p.first * strip, apart = p.strips * strip;
    const std::int64_t stride = direct ? p.out.stride : apart;
    for (std::int64_t row = first_row; row < last_row; row += rows_at_once) {
        const std::int64_t rows = std::min(rows_at_once, last_row - row);
        float *sums = direct ? p.frame.at(s.out, row) + column : scratch.sums;
        multiply(p, s.table, row, rows, sums, stride);
        if (s.gate != Gate::none) multiply(p, s.up, row, rows, scratch.ups, apart);
        for (std::int64_t i = 0; i < rows; ++i) {
            float *x = sums + i * stride;
            finish(p, x, scratch.ups + i * apart);
            leave(p, x, p.frame.at(s.out, row + i) + column, row + i);
        }
    }
}

// Rows whose activations take about half of the second cache.
std::int64_t rows_of_block(const Frame &frame, const SlotMemory &in) {
    const std::int64_t bytes = in.quantized
                                   ? in.blocks * static_cast<std::int64_t>(sizeof(XBlock))
                                   : in.stride * static_cast<std::int64_t>(sizeof(float));
    return std::max(rows_at_once, frame.cache_bytes / bytes / rows_at_once * rows_at_once);
}

}  // namespace

void run_linear(const LinearStep &step, const Strips &strips, Frame &frame, std::int64_t rows,
                int thread) {
    const SlotMemory &in = frame.slots[static_cast<std::size_t>(step.in.slot)];
    const std::int64_t block = rows_of_block(frame, in), count = strips.first.back();
    const std::int64_t total = (rows + block - 1) / block * count;
    std::int64_t begin, end;
    while (frame.pool->take(thread, total, strips.most, begin, end))
        while (begin < end) {
            const std::int64_t at = begin % count, row = begin / count * block;
            std::size_t number = 0;
            while (at >= strips.first[number + 1]) ++number;
            const Segment &segment = step.segments[number];
            const std::int64_t first = at - strips.first[number];
            const std::int64_t taken = std::min(end - begin, strips.first[number + 1] - at);
            const std::int64_t width =
                std::min(taken * strip, frame.tables.at(segment.table).rows - first * strip);
            run_piece({segment, in, frame.slots[static_cast<std::size_t>(segment.out.slot)], frame,
                       thread, step.wanted, first, taken, width},
                      row, std::min(rows, row + block));
            begin += taken;
        }
}

void fetch_first(const LinearStep &step, const Strips &strips, const Frame &frame, int thread) {
    constexpr std::int64_t most = 8 << 10, line = 64;
    const std::int64_t first = Pool::share(strips.first.back(), frame.pool->threads(), thread);
    std::size_t number = 0;
    while (first >= strips.first[number + 1]) ++number;
    const Table &table = frame.tables.at(step.segments[number].table);
    const std::int64_t bytes = panel_bytes(table.type, table.cols);
    const std::int64_t panel = 2 * (first - strips.first[number]);
    const std::uint8_t *at = table.data + panel * bytes;
    const std::int64_t left = (panel_count(table.rows) - panel) * bytes;
    for (std::int64_t i = 0; i < std::min(most, left); i += line) __builtin_prefetch(at + i);
}

}  // namespace forwardpass
