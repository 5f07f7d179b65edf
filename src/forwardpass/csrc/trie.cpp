#include "trie.h"

#include <algorithm>
#include <stdexcept>

namespace forwardpass {
namespace {

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }

// A text and its first eight bytes as a number, by which nearly all comparisons are decided.
struct Sorted {
    std::uint64_t head;
    std::string_view text;
    std::int32_t id;

    bool operator<(const Sorted &other) const {
        if (head != other.head) return head < other.head;
        if (const int order = text.compare(other.text)) return order < 0;
        return id < other.id;
    }
};

std::uint64_t head_of(std::string_view text) {
    std::uint64_t head = 0;
    for (std::size_t i = 0; i < 8; ++i)
        head = head << 8 | (i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0u);
    return head;
}

std::vector<Sorted> sorted_texts(const std::vector<std::int32_t> &ids, std::string_view blob,
                                 const std::vector<std::int64_t> &offsets) {
    if (offsets.size() != ids.size() + 1) refuse("offsets: one more than ids is wanted");
    if (offsets.front() != 0 || offsets.back() != static_cast<std::int64_t>(blob.size()))
        refuse("offsets: from 0 to the length of the blob is wanted");
    if (blob.size() > (std::size_t{1} << 30)) refuse("blob: 1 GiB at most");
    std::vector<Sorted> out;
    out.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::int64_t begin = offsets[i], end = offsets[i + 1];
        // The first of them is 0, so what rises and does not pass the end is inside.
        if (end <= begin || end > static_cast<std::int64_t>(blob.size()))
            refuse("token " + std::to_string(ids[i]) + " has no text, or one outside the blob");
        if (end - begin > longest_token)
            refuse("token " + std::to_string(ids[i]) + " has " + std::to_string(end - begin) +
                   " bytes; at most " + std::to_string(longest_token) + " are provided for");
        const std::string_view text = blob.substr(static_cast<std::size_t>(begin),
                                                  static_cast<std::size_t>(end - begin));
        out.push_back({head_of(text), text, ids[i]});
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::size_t in_common(std::string_view a, std::string_view b) {
    const std::size_t most = std::min(a.size(), b.size());
    std::size_t n = 0;
    while (n < most && a[n] == b[n]) ++n;
    return n;
}

}  // namespace

void ByteTree::open(std::uint8_t byte, int depth) {
    bytes.push_back(byte);
    depths.push_back(static_cast<std::uint16_t>(depth));
    first.push_back(static_cast<std::int32_t>(ids.size()));
}

void ByteTree::finish() {
    first.push_back(static_cast<std::int32_t>(ids.size()));
    ends.resize(bytes.size());
    std::vector<int> open;  // the nodes above the next one, by depth
    for (int i = 0; i < nodes(); ++i) {
        while (static_cast<int>(open.size()) > depths[i]) ends[open.back()] = i, open.pop_back();
        open.push_back(i);
    }
    for (const int node : open) ends[node] = nodes();
}

std::int64_t ByteTree::nbytes() const {
    return static_cast<std::int64_t>(bytes.size() * (1 + 2 + 4 + 4) + ids.size() * 4);
}

Trie::Trie(const std::vector<std::int32_t> &ids, std::string_view blob,
           const std::vector<std::int64_t> &offsets, std::int64_t size) {
    check_size(size);
    std::string_view last;
    tree_.open(0, 0);
    for (const Sorted &one : sorted_texts(ids, blob, offsets)) {
        for (std::size_t n = in_common(last, one.text); n < one.text.size(); ++n)
            tree_.open(static_cast<std::uint8_t>(one.text[n]), static_cast<int>(n) + 1);
        tree_.ids.push_back(one.id);
        last = one.text;
    }
    tree_.finish();
    check_ids();
    index_root();
}

Trie::Trie(ByteTree stored, std::int64_t size) {
    check_size(size);
    const auto &[bytes, depths, ends, first, ids] = stored;
    const std::size_t nodes = bytes.size();
    if (nodes < 1 || nodes > (std::size_t{1} << 30) || ids.size() > (std::size_t{1} << 30) ||
        depths.size() != nodes || first.size() != nodes + 1)
        refuse("a stored trie: its arrays have lengths that do not go together");
    if (bytes[0] != 0 || depths[0] != 0 || first[0] != 0 || first[1] != 0 ||
        first[nodes] != static_cast<std::int64_t>(ids.size()))
        refuse("a stored trie: it has no root");
    std::vector<int> before(longest_token + 1, -1);  // the last byte at each depth
    for (std::size_t i = 1; i < nodes; ++i) {
        const int depth = depths[i], above = depths[i - 1];
        if (depth < 1 || depth > longest_token || depth > above + 1 || first[i] > first[i + 1])
            refuse("a stored trie: node " + std::to_string(i) + " has no place in it");
        if (depth <= above && bytes[i] <= before[static_cast<std::size_t>(depth)])
            refuse("a stored trie: the byte of node " + std::to_string(i) + " does not rise");
        before[static_cast<std::size_t>(depth)] = bytes[i];
    }
    tree_ = std::move(stored);
    tree_.first.pop_back();
    tree_.finish();
    check_ids();
    for (int i = 0; i < tree_.nodes(); ++i)
        if (!std::is_sorted(tree_.ids.begin() + tree_.first[i],
                            tree_.ids.begin() + tree_.first[i + 1]))
            refuse("a stored trie: the ids of node " + std::to_string(i) + " do not rise");
    index_root();
}

void Trie::check_size(std::int64_t size) {
    if (size < 1 || size > most_rows)
        refuse("size: from 1 to " + std::to_string(most_rows) + " rows of scores");
    size_ = static_cast<int>(size);
}

void Trie::check_ids() const {
    std::vector<bool> seen(static_cast<std::size_t>(size_));
    for (const std::int32_t id : tree_.ids) {
        if (id < 0 || id >= size_)
            refuse("token " + std::to_string(id) + " has none of the " + std::to_string(size_) +
                   " rows of scores");
        if (seen[static_cast<std::size_t>(id)])
            refuse("token " + std::to_string(id) + " comes twice");
        seen[static_cast<std::size_t>(id)] = true;
    }
}

void Trie::index_root() {
    of_root_.assign(256, -1);
    for (int node = 1; node < tree_.nodes(); node = tree_.ends[node])
        of_root_[tree_.bytes[node]] = node;
}

int Trie::child(int node, std::uint8_t byte) const {
    if (node == 0) return of_root_[byte];
    for (int child = node + 1; child < tree_.ends[node]; child = tree_.ends[child])
        if (tree_.bytes[child] >= byte) return tree_.bytes[child] == byte ? child : -1;
    return -1;
}

std::vector<int> Trie::find(std::string_view text) const {
    int node = 0;
    for (const char byte : text)
        if ((node = child(node, static_cast<std::uint8_t>(byte))) < 0) return {};
    return {tree_.ids.begin() + tree_.first[node], tree_.ids.begin() + tree_.first[node + 1]};
}

std::string Trie::text(int node) const {
    std::string out;
    for (int above = 0; above != node;) {
        int child = above + 1;
        while (tree_.ends[child] <= node) child = tree_.ends[child];
        out.push_back(static_cast<char>(tree_.bytes[child]));
        above = child;
    }
    return out;
}

}  // namespace forwardpass
