// Products of a step's input with its tables, and what is done to their results.
//
// Integers and float32. Bytes read: the tables once for each block of rows whose activations stay in the second cache
// (activations have more bytes than weights, so they are what is kept); the activations once for
// each block from memory. A strip is 32 output rows; eight activation rows are multiplied at a time,
// and their sums are finished while they are in the first cache.
//
// Tiles of bf16. Up to 256 outputs (gate and up: 128 of each) are one thread's, for all rows. A chunk
// of about 512 inputs of their weights is turned into tiles in the second cache and multiplied by that of
// each 32 rows, which are asked for while the rows before them are multiplied; sums stay float32 in
// the second cache from chunk to chunk. Bytes read: the tables once, the activations once for each
// 256 outputs.

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

// Residual, softcap, and the row's place in memory: `out` may be `x`, where only products read it.
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
    if (s.quantize) p.frame.leave_operands(out, p.out, row, column, width);
    if (p.frame.check)
        p.frame.check_row(p.thread, out, width, s.node, p.wanted ? p.frame.pass.wanted[row] : row);
}

void run_integers(const Piece &p, std::int64_t first_row, std::int64_t last_row) {
    const Segment &s = p.segment;
    const Scratch &scratch = p.frame.scratch[static_cast<std::size_t>(p.thread)];
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

// A chunk of a table's weights, strip behind strip.
void make_tiles(const Piece &p, int number, std::int64_t step, std::int64_t steps,
                std::uint8_t *out) {
    const Table &table = p.frame.tables.at(number);
    const std::int64_t panels = std::min(2 * p.strips, panel_count(table.rows) - 2 * p.first);
    for (std::int64_t i = 0; i < panels; ++i)
        p.frame.kernels->tiles->weights(table, 2 * p.first + i, step, steps,
                                        out + (i / 2 * steps * 2 + i % 2) * (tile_step / 2));
}

// Asks for part i of `parts` of what up to 32 rows of results will be added to and written over.
void fetch_results(const Piece &p, std::int64_t row, std::int64_t rows, std::int64_t i,
                   std::int64_t parts) {
    constexpr std::int64_t line = 16;  // floats
    const Segment &s = p.segment;
    for (std::int64_t r = row + rows * i / parts; r < row + rows * (i + 1) / parts; ++r)
        for (std::int64_t at = p.first * strip, n = 0; n < p.width; n += line) {
            if (s.floats) __builtin_prefetch(p.frame.at(s.out, r) + at + n, 1, 2);
            if (s.residual.slot >= 0) __builtin_prefetch(p.frame.at(s.residual, r) + at + n, 0, 2);
        }
    if (!s.quantize) return;
    const std::uint8_t *tiles = p.out.tile_row(row) + p.first * tile_step;
    for (std::int64_t at = p.strips * i / parts; at < p.strips * (i + 1) / parts; ++at)
        for (std::int64_t n = 0; n < tile_step; n += 64)
            __builtin_prefetch(tiles + at * tile_step + n, 1, 2);
}

// The products of a chunk with up to 32 rows, for all strips of the piece.
void multiply_tiles(const Piece &p, std::int64_t strips, std::int64_t row, std::int64_t rows,
                    std::int64_t step, std::int64_t steps, bool last, float *out,
                    std::int64_t stride) {
    const std::uint8_t *x = p.in.tile_row(row) + step * tile_step;
    const std::uint8_t *next = x + p.in.blocks * tile_step;
    const std::int64_t lines = (tile_rows + strips - 1) / strips;
    TileProduct product{x, p.frame.scratch[static_cast<std::size_t>(p.thread)].tile_weights,
                        steps, static_cast<int>(rows), step > 0, out, stride, next,
                        static_cast<int>(lines)};
    for (std::int64_t i = 0; i < strips; ++i) {
        if (last) fetch_results(p, row, rows, i, strips);
        p.frame.kernels->tiles->products(product);
        product.w += steps * tile_step;
        product.out += strip;
        product.next += steps * lines * 64;
    }
}

// Steps of a chunk, of `all`: even parts where the table's units are of 32 inputs, whole units where
// they might be of 256.
std::int64_t steps_of_chunk(std::int64_t all) {
    if (all % 8 == 0) return most_chunk / 8 * 8;
    const std::int64_t parts = (all + most_chunk - 1) / most_chunk;
    return (all + parts - 1) / parts;
}

void run_tiles(const Piece &p, std::int64_t first_row, std::int64_t last_row) {
    const Segment &s = p.segment;
    const Scratch &scratch = p.frame.scratch[static_cast<std::size_t>(p.thread)];
    const std::int64_t all = (p.frame.tables.at(s.table).cols + block_width - 1) / block_width;
    const std::int64_t strips = s.gate == Gate::none ? p.strips : 2 * p.strips;
    const std::int64_t stride = strips * strip + panel_rows, column = p.first * strip;
    const std::int64_t chunk = steps_of_chunk(all);
    for (std::int64_t step = 0; step < all; step += chunk) {
        const std::int64_t steps = std::min(chunk, all - step);
        make_tiles(p, s.table, step, steps, scratch.tile_weights);
        if (s.gate != Gate::none)
            make_tiles(p, s.up, step, steps, scratch.tile_weights + p.strips * steps * tile_step);
        for (std::int64_t row = first_row; row < last_row; row += tile_rows) {
            const std::int64_t rows = std::min(tile_rows, last_row - row);
            float *sums = scratch.tile_sums + (row - first_row) * stride;
            const bool last = step + steps == all;
            multiply_tiles(p, strips, row, rows, step, steps, last, sums, stride);
            if (!last) continue;
            for (std::int64_t i = 0; i < rows; ++i) {
                float *x = sums + i * stride;
                finish(p, x, x + p.strips * strip);
                leave(p, x, s.floats ? p.frame.at(s.out, row + i) + column : x, row + i);
            }
        }
    }
}

// Rows that are multiplied together: all where they are tiles, unless threads would have nothing to
// do; else those whose activations take about half of the second cache.
std::int64_t rows_of_block(const Frame &frame, const LinearStep &step, std::int64_t strips,
                           std::int64_t rows) {
    if (frame.tiles(step.wanted)) {
        const std::int64_t parts = std::max<std::int64_t>(1, frame.pool->threads() / strips);
        return (rows + parts * tile_rows - 1) / (parts * tile_rows) * tile_rows;
    }
    const SlotMemory &in = frame.slots[static_cast<std::size_t>(step.in.slot)];
    const std::int64_t bytes = in.as_blocks
                                   ? in.blocks * static_cast<std::int64_t>(sizeof(XBlock))
                                   : in.stride * static_cast<std::int64_t>(sizeof(float));
    return std::max(rows_at_once, frame.cache_bytes / bytes / rows_at_once * rows_at_once);
}

}  // namespace

void run_linear(const LinearStep &step, const Strips &strips, Frame &frame, std::int64_t rows,
                int thread) {
    const SlotMemory &in = frame.slots[static_cast<std::size_t>(step.in.slot)];
    const std::int64_t count = strips.first.back();
    const std::int64_t block = rows_of_block(frame, step, count, rows);
    const bool tiles = frame.tiles(step.wanted) != nullptr;
    const std::int64_t total = (rows + block - 1) / block * count;
    std::int64_t begin, end;
    while (frame.pool->take(thread, total, tiles ? strips.most_tiles : strips.most, begin, end))
        while (begin < end) {
            const std::int64_t at = begin % count, row = begin / count * block;
            std::size_t number = 0;
            while (at >= strips.first[number + 1]) ++number;
            const Segment &segment = step.segments[number];
            const std::int64_t first = at - strips.first[number];
            const std::int64_t taken = std::min(end - begin, strips.first[number + 1] - at);
            const std::int64_t width =
                std::min(taken * strip, frame.tables.at(segment.table).rows - first * strip);
            const Piece piece{segment, in, frame.slots[static_cast<std::size_t>(segment.out.slot)],
                              frame, thread, step.wanted, first, taken, width};
            (tiles ? run_tiles : run_integers)(piece, row, std::min(rows, row + block));
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
