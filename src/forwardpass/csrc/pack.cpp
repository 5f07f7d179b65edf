// Rows of a model file, or of MLX's tables, to panels of 16. What stored blocks mean is told by
// formats/blocks.py, what packed ones mean by kernels/formats.inc. Four inputs are moved at a time,
// as the bytes of a 32-bit word, and the words of all 16 rows together: stored blocks are turned so
// that a word's 16 rows are neighbours, and what follows are loops that compilers make vectors of.

#include "pack.h"

#include <cstring>

namespace forwardpass {
namespace {

#include "kernels/formats.inc"

using Word = std::uint32_t;
using Byte = std::uint8_t;

constexpr Word each(Word byte) { return byte * 0x01010101u; }

// One word of each of 16 rows: 64 bytes of a panel.
struct alignas(64) Words {
    Word of[panel_rows];
};

template <class Function>
inline Words map(Function function) {
    Words out;
    for (int row = 0; row < panel_rows; ++row) out.of[row] = function(row);
    return out;
}

inline Words operator|(const Words &a, const Words &b) {
    return map([&](int r) { return a.of[r] | b.of[r]; });
}
inline Words operator&(const Words &a, Word mask) {
    return map([&](int r) { return a.of[r] & mask; });
}
inline Words operator<<(const Words &a, int bits) {
    return map([&](int r) { return a.of[r] << bits; });
}
inline Words operator>>(const Words &a, int bits) {
    return map([&](int r) { return a.of[r] >> bits; });
}

// Words 0 … count − 1 behind `from` of each row.
inline void turn(const Byte *const from[panel_rows], std::int64_t offset, int count, Words *out) {
    for (int row = 0; row < panel_rows; ++row)
        for (int i = 0; i < count; ++i)
            std::memcpy(&out[i].of[row], from[row] + offset + 4 * i, sizeof(Word));
}

// 64-byte register `number`.
inline void put(Byte *to, std::int64_t number, const Words &words) {
    std::memcpy(to + 64 * number, &words, sizeof words);
}

// 16 values of 6 bits a row, as the bytes of four words, in three registers.
inline Words sixes(const Words &value, const Words &last, int number) {
    return value | (last & each(48u >> 2 * number)) << (2 + 2 * number);
}

inline void put_sixes(Byte *to, const Words v[4]) {
    for (int i = 0; i < 3; ++i) put(to, i, sixes(v[i], v[3], i));
}

// 32 values of 4 bits a row, as the bytes of eight words.
inline void put_nibbles(Byte *to, const Words q[8]) {
    for (int j = 0; j < 4; ++j) put(to, j, q[j] | q[j + 4] << 4);
}

// Bit 4j + k of each word to bit j of byte k.
inline Words spread_fifths(const Words &bits) {
    return map([&](int r) {
        Word out = 0;
        for (int j = 0; j < 8; ++j) out |= ((bits.of[r] >> 4 * j & 15) * 0x00204081u & each(1)) << j;
        return out;
    });
}

// The 6-bit scales and minima of a block of q4_k or q5_k, from its 12 bytes of them.
void put_scales(Byte *to, const Words stored[3]) {
    const Words &a = stored[0], &b = stored[1], &c = stored[2];
    const Words last = (c >> 4 & each(15)) | (b >> 6 & each(3)) << 4;
    const Words values[3] = {a & each(63), (c & each(15)) | (a >> 6 & each(3)) << 4, b & each(63)};
    for (int i = 0; i < 3; ++i) {
        const Words packed = sixes(values[i], last, i);
        for (int value = 0; value < 4; ++value)
            for (int row = 0; row < panel_rows; ++row)
                to[64 * i + 16 * value + row] = static_cast<Byte>(packed.of[row] >> 8 * value);
    }
}

void put_q45_k(Byte *to, const Words *stored, bool fifths) {
    put_scales(to, stored);
    const Words *high = stored + 3, *quants = high + (fifths ? 8 : 0);
    to += 192;
    for (int g = 0; g < 8; ++g) {
        if (fifths) {
            put(to, 0, map([&](int r) {
                Word bits = 0;
                for (int j = 0; j < 8; ++j) bits |= (high[j].of[r] >> g & each(1)) << j;
                return bits;
            }));
            to += 64;
        }
        Words q[8];
        for (int j = 0; j < 8; ++j) q[j] = quants[g / 2 * 8 + j] >> g % 2 * 4 & each(15);
        put_nibbles(to, q);
        to += 256;
    }
}

void put_q6_k(Byte *to, const Words *stored) {
    const Words *low = stored, *high = stored + 32, *scales = stored + 48;
    for (int s = 0; s < 16; ++s)
        for (int row = 0; row < panel_rows; ++row)
            to[16 * s + row] = static_cast<Byte>(scales[s / 4].of[row] >> s % 4 * 8);
    for (int g = 0; g < 8; ++g) {  // 32 inputs: part k of half h
        const int h = g / 4, k = g % 4;
        Words q[8];
        for (int j = 0; j < 8; ++j)
            q[j] = (low[16 * h + k % 2 * 8 + j] >> k / 2 * 4 & each(15)) |
                   (high[8 * h + j] >> 2 * k & each(3)) << 4;
        put_sixes(to + 256 + 384 * g, q);
        put_sixes(to + 256 + 384 * g + 192, q + 4);
    }
}

// A stored block of as many inputs as a unit has: its bytes, where its `halves` 16-bit scales begin,
// and where its `words` do. No bytes for the float types and mlx4.
struct Block {
    std::int64_t bytes, scales, halves, offset;
    int words;
};

constexpr Block block_of(Type type) {
    switch (type) {
    case Type::q4_0: return {18, 0, 1, 2, 4};
    case Type::q4_1: return {20, 0, 2, 4, 4};
    case Type::q5_0: return {22, 0, 1, 2, 5};
    case Type::q5_1: return {24, 0, 2, 4, 5};
    case Type::q8_0: return {34, 0, 1, 2, 8};
    case Type::q4_k: return {144, 0, 2, 4, 35};
    case Type::q5_k: return {176, 0, 2, 4, 43};
    case Type::q6_k: return {210, 208, 1, 0, 52};
    default: return {};
    }
}

constexpr int most_words = 52;
constexpr Byte no_block[210] = {};  // of rows behind the last

template <Type type>
void pack_unit(const Byte *const from[panel_rows], Byte *head, Byte *body) {
    constexpr Block block = block_of(type);
    for (int row = 0; row < panel_rows; ++row)
        for (std::int64_t half = 0; half < block.halves; ++half)
            std::memcpy(head + 32 * half + 2 * row, from[row] + block.scales + 2 * half, 2);
    Words stored[most_words];
    turn(from, block.offset, block.words, stored);
    if constexpr (type == Type::q4_k || type == Type::q5_k) {
        put_q45_k(body, stored, type == Type::q5_k);
    } else if constexpr (type == Type::q6_k) {
        put_q6_k(body, stored);
    } else if constexpr (type == Type::q8_0) {
        for (int j = 0; j < 8; ++j)
            put(body, j, map([&](int r) { return stored[j].of[r] ^ each(128); }));
    } else {
        constexpr int fifths = type == Type::q5_0 || type == Type::q5_1;
        if (fifths) put(body, 0, spread_fifths(stored[0]));
        for (int j = fifths; j < block.words; ++j) put(body, j, stored[j]);
    }
}

// One panel; `from` are its `count` rows.
template <Type type>
void pack_blocks(const Byte *const from[panel_rows], int count, std::int64_t cols, Byte *out) {
    constexpr Layout layout = layout_of(type);
    for (std::int64_t u = 0; u < cols / layout.inputs; ++u) {
        const Byte *at[panel_rows];
        for (int row = 0; row < panel_rows; ++row)
            at[row] = row < count ? from[row] + u * block_of(type).bytes : no_block;
        pack_unit<type>(at, out + head_at(layout, u), out + body_at(layout, u));
    }
}

// A panel of floats, 16 words of each row at a time: f32 and bf16 stay words, f16 become halves.
void pack_floats(Type type, const Byte *const from[panel_rows], int count, std::int64_t cols,
                 Byte *out) {
    const std::int64_t bytes = (type == Type::f32 ? 4 : 2) * cols;
    for (std::int64_t done = 0; done < bytes; done += sizeof(Words), out += 16 * sizeof(Words)) {
        const std::int64_t left = bytes - done;
        const std::int64_t some = left < 64 ? left : 64, words = (some + 3) / 4;
        Byte rows[panel_rows][sizeof(Words)] = {};
        const Byte *at[panel_rows];
        for (int row = 0; row < panel_rows; ++row) {
            if (row < count) std::memcpy(rows[row], from[row] + done, static_cast<std::size_t>(some));
            at[row] = rows[row];
        }
        Words turned[16];
        turn(at, 0, 16, turned);
        for (std::int64_t w = 0; w < words; ++w) {
            if (type != Type::f16) {
                put(out, w, turned[w]);
                continue;
            }
            for (int half = 0; half < 2; ++half)
                for (int row = 0; row < panel_rows; ++row) {
                    const auto value = static_cast<std::uint16_t>(turned[w].of[row] >> 16 * half);
                    std::memcpy(out + 64 * w + 32 * half + 2 * row, &value, sizeof value);
                }
        }
    }
}

void pack_panel(Type type, const Byte *const from[panel_rows], int count, std::int64_t cols,
                Byte *out) {
    switch (type) {
    case Type::q4_0: return pack_blocks<Type::q4_0>(from, count, cols, out);
    case Type::q4_1: return pack_blocks<Type::q4_1>(from, count, cols, out);
    case Type::q5_0: return pack_blocks<Type::q5_0>(from, count, cols, out);
    case Type::q5_1: return pack_blocks<Type::q5_1>(from, count, cols, out);
    case Type::q8_0: return pack_blocks<Type::q8_0>(from, count, cols, out);
    case Type::q4_k: return pack_blocks<Type::q4_k>(from, count, cols, out);
    case Type::q5_k: return pack_blocks<Type::q5_k>(from, count, cols, out);
    case Type::q6_k: return pack_blocks<Type::q6_k>(from, count, cols, out);
    default: return pack_floats(type, from, count, cols, out);
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
    default: return cols / layout_of(type).inputs * block_of(type).bytes;
    }
}

void pack(Type type, const std::uint8_t *stored, std::int64_t rows, std::int64_t cols,
          const std::int64_t *order, std::int64_t first, std::int64_t last, std::uint8_t *out) {
    const Layout layout = layout_of(type);
    const std::int64_t stride = stored_row_bytes(type, cols), size = bytes_of(layout, cols);
    for (std::int64_t p = first; p < last; ++p, out += size) {
        std::memset(out, 0, static_cast<std::size_t>(size));
        const int count = static_cast<int>(rows - p * 16 < 16 ? rows - p * 16 : 16);
        const Byte *from[panel_rows];
        for (int r = 0; r < panel_rows; ++r) {
            const std::int64_t row = p * 16 + (r < count ? r : 0);
            from[r] = stored + stride * (order ? order[row] : row);
        }
        pack_panel(type, from, count, cols, out);
    }
}

void pack_mlx4(Type type, const std::uint32_t *words, const std::uint16_t *scales,
               const std::uint16_t *biases, std::int64_t group, std::int64_t rows,
               std::int64_t cols, std::int64_t first, std::int64_t last, std::uint8_t *out) {
    const Layout layout = layout_of(type);
    const std::int64_t size = bytes_of(layout, cols), groups = cols / group;
    for (std::int64_t p = first; p < last; ++p, out += size) {
        std::memset(out, 0, static_cast<std::size_t>(size));
        const int count = static_cast<int>(rows - p * 16 < 16 ? rows - p * 16 : 16);
        for (std::int64_t u = 0; u < cols / 32; ++u) {
            Byte *head = out + head_at(layout, u);
            Words q[8] = {};
            for (int r = 0; r < count; ++r) {
                const std::int64_t row = p * 16 + r, g = row * groups + u * 32 / group;
                std::memcpy(head + 2 * r, scales + g, 2);
                std::memcpy(head + 32 + 2 * r, biases + g, 2);
                for (int j = 0; j < 8; ++j) {
                    const Word eight = words[row * (cols / 8) + u * 4 + j / 2];
                    const Word four = eight >> j % 2 * 16 & 0xffff;
                    q[j].of[r] = (four & 15) | (four >> 4 & 15) << 8 | (four >> 8 & 15) << 16 |
                                 four >> 12 << 24;
                }
            }
            put_nibbles(out + body_at(layout, u), q);
        }
    }
}

}  // namespace forwardpass
