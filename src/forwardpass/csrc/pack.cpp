// Rows of a model file, or of MLX's tables, to panels of 16. What stored blocks mean is told by
// formats/blocks.py, what packed ones mean by kernels/formats.inc. Four inputs are moved at a time,
// as the bytes of a 32-bit word.

#include "pack.h"

#include <cstring>

namespace forwardpass {
namespace {

#include "kernels/formats.inc"

using Word = std::uint32_t;
using Byte = std::uint8_t;

constexpr Word each(Word byte) { return byte * 0x01010101u; }

Word word(const Byte *from, std::int64_t number) {
    Word value;
    std::memcpy(&value, from + 4 * number, sizeof value);
    return value;
}

// Word `row` of 64-byte register `number`.
void put(Byte *to, std::int64_t number, int row, Word value) {
    std::memcpy(to + 64 * number + 4 * row, &value, sizeof value);
}

void put_half(Byte *head, int row, const Byte *from) { std::memcpy(head + 2 * row, from, 2); }

// 16 values of 6 bits, as the bytes of four words, into three registers.
void put_sixes(Byte *to, int row, const Word v[4]) {
    put(to, 0, row, v[0] | (v[3] & each(48)) << 2);
    put(to, 1, row, v[1] | (v[3] & each(12)) << 4);
    put(to, 2, row, v[2] | (v[3] & each(3)) << 6);
}

// 32 values of 4 bits, as the bytes of eight words.
void put_nibbles(Byte *to, int row, const Word q[8]) {
    for (int j = 0; j < 4; ++j) put(to, j, row, q[j] | q[j + 4] << 4);
}

// Bit 4j + k of `bits` to bit j of byte k.
Word spread_fifths(Word bits) {
    Word out = 0;
    for (int j = 0; j < 8; ++j) out |= ((bits >> 4 * j & 15) * 0x00204081u & each(1)) << j;
    return out;
}

// The 6-bit scales, then the minima, of a block of q4_k or q5_k.
void scales_of(const Byte *stored, Byte out[16]) {
    for (int g = 0; g < 4; ++g) {
        const int a = stored[g], b = stored[4 + g], c = stored[8 + g];
        out[g] = static_cast<Byte>(a & 63);
        out[4 + g] = static_cast<Byte>((c & 15) | a >> 6 << 4);
        out[8 + g] = static_cast<Byte>(b & 63);
        out[12 + g] = static_cast<Byte>(c >> 4 | b >> 6 << 4);
    }
}

// Register n of the unpacked ones is values 4n … 4n + 3, each of 16 rows.
void put_scales(Byte *to, int row, const Byte v[16]) {
    for (int i = 0; i < 4; ++i) {
        const int at = 16 * i + row, d = v[12 + i];
        to[at] = static_cast<Byte>(v[i] | (d & 48) << 2);
        to[64 + at] = static_cast<Byte>(v[4 + i] | (d & 12) << 4);
        to[128 + at] = static_cast<Byte>(v[8 + i] | (d & 3) << 6);
    }
}

void pack_q4(const Byte *from, bool minimum, Byte *head, Byte *body, int row) {
    put_half(head, row, from);
    if (minimum) put_half(head + 32, row, from + 2);
    const Byte *quants = from + (minimum ? 4 : 2);
    for (int j = 0; j < 4; ++j) put(body, j, row, word(quants, j));
}

void pack_q5(const Byte *from, bool minimum, Byte *head, Byte *body, int row) {
    put_half(head, row, from);
    if (minimum) put_half(head + 32, row, from + 2);
    const Byte *fifths = from + (minimum ? 4 : 2);
    put(body, 0, row, spread_fifths(word(fifths, 0)));
    for (int j = 0; j < 4; ++j) put(body, 1 + j, row, word(fifths + 4, j));
}

void pack_q8_0(const Byte *from, Byte *head, Byte *body, int row) {
    put_half(head, row, from);
    for (int j = 0; j < 8; ++j) put(body, j, row, word(from + 2, j) ^ each(128));
}

void pack_q45_k(const Byte *from, bool fifths, Byte *head, Byte *body, int row) {
    put_half(head, row, from);
    put_half(head + 32, row, from + 2);
    Byte scales[16];
    scales_of(from + 4, scales);
    put_scales(body, row, scales);
    const Byte *high = from + 16, *quants = high + (fifths ? 32 : 0);
    Byte *to = body + 192;
    for (int g = 0; g < 8; ++g) {
        if (fifths) {
            Word bits = 0;
            for (int j = 0; j < 8; ++j) bits |= (word(high, j) >> g & each(1)) << j;
            put(to, 0, row, bits);
            to += 64;
        }
        Word q[8];
        for (int j = 0; j < 8; ++j) q[j] = word(quants, g / 2 * 8 + j) >> g % 2 * 4 & each(15);
        put_nibbles(to, row, q);
        to += 256;
    }
}

void pack_q6_k(const Byte *from, Byte *head, Byte *body, int row) {
    const Byte *low = from, *high = from + 128, *scales = from + 192;
    put_half(head, row, from + 208);
    for (int s = 0; s < 16; ++s) body[16 * s + row] = scales[s];
    for (int g = 0; g < 8; ++g) {  // 32 inputs: part k of half h
        const int h = g / 4, k = g % 4;
        Word q[8];
        for (int j = 0; j < 8; ++j)
            q[j] = (word(low, 16 * h + k % 2 * 8 + j) >> k / 2 * 4 & each(15)) |
                   (word(high, 8 * h + j) >> 2 * k & each(3)) << 4;
        put_sixes(body + 256 + 384 * g, row, q);
        put_sixes(body + 256 + 384 * g + 192, row, q + 4);
    }
}

// One unit of one row; `from` is its stored block.
void pack_unit(Type type, const Byte *from, Byte *head, Byte *body, int row) {
    switch (type) {
    case Type::q4_0: return pack_q4(from, false, head, body, row);
    case Type::q4_1: return pack_q4(from, true, head, body, row);
    case Type::q5_0: return pack_q5(from, false, head, body, row);
    case Type::q5_1: return pack_q5(from, true, head, body, row);
    case Type::q8_0: return pack_q8_0(from, head, body, row);
    case Type::q4_k: return pack_q45_k(from, false, head, body, row);
    case Type::q5_k: return pack_q45_k(from, true, head, body, row);
    case Type::q6_k: return pack_q6_k(from, head, body, row);
    default: return;
    }
}

// Bytes of a stored block of as many inputs as a unit has; 0 for the float types and mlx4.
std::int64_t stored_block(Type type) {
    switch (type) {
    case Type::q4_0: return 18;
    case Type::q4_1: return 20;
    case Type::q5_0: return 22;
    case Type::q5_1: return 24;
    case Type::q8_0: return 34;
    case Type::q4_k: return 144;
    case Type::q5_k: return 176;
    case Type::q6_k: return 210;
    default: return 0;
    }
}

void pack_floats(Type type, const Byte *from, std::int64_t cols, Byte *panel, int row) {
    for (std::int64_t c = 0; c < cols; ++c) {
        if (type == Type::f32) std::memcpy(panel + 64 * c + 4 * row, from + 4 * c, 4);
        else if (type == Type::f16) std::memcpy(panel + 32 * c + 2 * row, from + 2 * c, 2);
        else std::memcpy(panel + 64 * (c / 2) + 4 * row + c % 2 * 2, from + 2 * c, 2);
    }
}

}  // namespace

std::int64_t stored_row_bytes(Type type, std::int64_t cols) {
    switch (type) {
    case Type::f32: return 4 * cols;
    case Type::f16:
    case Type::bf16: return 2 * cols;
    case Type::mlx4_f16:
    case Type::mlx4_bf16: return cols / 2;
    default: return cols / layout_of(type).inputs * stored_block(type);
    }
}

void pack(Type type, const std::uint8_t *stored, std::int64_t rows, std::int64_t cols,
          const std::int64_t *order, std::int64_t first, std::int64_t last, std::uint8_t *out) {
    const Layout layout = layout_of(type);
    const std::int64_t stride = stored_row_bytes(type, cols), size = bytes_of(layout, cols);
    const std::int64_t block = stored_block(type);
    for (std::int64_t p = first; p < last; ++p, out += size) {
        std::memset(out, 0, static_cast<std::size_t>(size));
        const int count = static_cast<int>(rows - p * 16 < 16 ? rows - p * 16 : 16);
        const Byte *from[16];
        for (int r = 0; r < count; ++r) {
            const std::int64_t row = p * 16 + r;
            from[r] = stored + stride * (order ? order[row] : row);
        }
        if (block == 0) {
            for (int r = 0; r < count; ++r) pack_floats(type, from[r], cols, out, r);
            continue;
        }
        for (std::int64_t u = 0; u < cols / layout.inputs; ++u)
            for (int r = 0; r < count; ++r)
                pack_unit(type, from[r] + u * block, out + head_at(layout, u),
                          out + body_at(layout, u), r);
    }
}

void pack_mlx4(Type type, const std::uint32_t *words, const std::uint16_t *scales,
               const std::uint16_t *biases, std::int64_t group, std::int64_t rows,
               std::int64_t cols, std::int64_t first, std::int64_t last, std::uint8_t *out) {
    const Layout layout = layout_of(type);
    const std::int64_t size = bytes_of(layout, cols), groups = cols / group;
    for (std::int64_t p = first; p < last; ++p, out += size) {
        std::memset(out, 0, static_cast<std::size_t>(size));
        for (std::int64_t row = p * 16; row < rows && row < p * 16 + 16; ++row) {
            const int r = static_cast<int>(row - p * 16);
            for (std::int64_t u = 0; u < cols / 32; ++u) {
                const std::int64_t g = row * groups + u * 32 / group;
                Byte *head = out + head_at(layout, u);
                std::memcpy(head + 2 * r, scales + g, 2);
                std::memcpy(head + 32 + 2 * r, biases + g, 2);
                Word q[8];
                for (int j = 0; j < 8; ++j) {
                    const Word eight = words[row * (cols / 8) + u * 4 + j / 2];
                    const Word four = eight >> j % 2 * 16 & 0xffff;
                    q[j] = (four & 15) | (four >> 4 & 15) << 8 | (four >> 8 & 15) << 16 |
                           four >> 12 << 24;
                }
                put_nibbles(out + body_at(layout, u), r, q);
            }
        }
    }
}

}  // namespace forwardpass
