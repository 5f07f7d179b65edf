#include "segments.h"

#include <cstdint>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>

namespace forwardpass {
namespace {

constexpr std::int32_t nothing = std::numeric_limits<std::int32_t>::max();

// At each byte, how many tokens it takes from there to the end, and the first of them as a node.
struct Fewest {
    std::vector<std::int32_t> counts;
    std::vector<std::int32_t> nodes;
};

// Calls `found(node, bytes)` for the texts of tokens that the text has at `from`, shortest first.
template <class Found>
void each_token(const Trie &trie, std::string_view text, std::size_t from, Found found) {
    const ByteTree &tree = trie.tree();
    int node = 0;
    for (std::size_t i = from; i < text.size(); ++i) {
        node = trie.child(node, static_cast<std::uint8_t>(text[i]));
        if (node < 0) return;
        if (tree.first[node] != tree.first[node + 1]) found(node, i + 1 - from);
    }
}

[[noreturn]] void refuse_at_its_end(const Trie &trie, std::string_view text) {
    std::vector<bool> reached(text.size() + 1);
    reached[0] = true;
    std::size_t last = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (!reached[i]) continue;
        last = i;
        each_token(trie, text, i, [&](int, std::size_t bytes) { reached[i + bytes] = true; });
    }
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02x", static_cast<std::uint8_t>(text[last]));
    throw std::invalid_argument("no token goes on at byte " + std::to_string(last) + " (" + hex +
                                ") of a text of " + std::to_string(text.size()) + " bytes");
}

Fewest fewest(const Trie &trie, std::string_view text) {
    if (text.size() > (std::size_t{1} << 28))
        throw std::invalid_argument("a text of more than 256 MiB is not taken apart");
    Fewest out;
    out.counts.assign(text.size() + 1, nothing);
    out.nodes.assign(text.size() + 1, 0);
    out.counts[text.size()] = 0;
    for (std::size_t i = text.size(); i-- > 0;)
        each_token(trie, text, i, [&](int node, std::size_t bytes) {
            const std::int32_t rest = out.counts[i + bytes];
            if (rest != nothing && rest + 1 <= out.counts[i])
                out.counts[i] = rest + 1, out.nodes[i] = node;
        });
    if (out.counts[0] == nothing) refuse_at_its_end(trie, text);
    return out;
}

}  // namespace

std::vector<int> segment(const Trie &trie, std::string_view text) {
    const Fewest found = fewest(trie, text);
    const ByteTree &tree = trie.tree();
    std::vector<int> out;
    for (std::size_t i = 0; i < text.size(); i += tree.depths[found.nodes[i]])
        out.push_back(tree.ids[tree.first[found.nodes[i]]]);
    return out;
}

std::int64_t segment_count(const Trie &trie, std::string_view text) {
    return fewest(trie, text).counts[0];
}

}  // namespace forwardpass
