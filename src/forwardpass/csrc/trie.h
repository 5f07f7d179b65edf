// The texts of a vocabulary as a tree of bytes, in preorder. Knows nothing of Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forwardpass {

// Longer texts are refused: walks keep a place for each byte of the longest.
constexpr int longest_token = 4096;
constexpr std::int64_t most_rows = std::int64_t{1} << 24;

// Node 0 is the root. The children of a node follow it, by rising bytes: the first one is node + 1,
// the next one where the subtree of the one before ends.
struct ByteTree {
    std::vector<std::uint8_t> bytes;    // what leads to the node; the root's is 0
    std::vector<std::uint16_t> depths;  // how many bytes lead to it
    std::vector<std::int32_t> ends;     // the node behind its subtree
    std::vector<std::int32_t> first;    // its own tokens: ids[first[node]] to ids[first[node + 1]]
    std::vector<std::int32_t> ids;

    int nodes() const { return static_cast<int>(bytes.size()); }
    bool leaf(int node) const { return ends[node] == node + 1; }

    // Appends a node; its tokens are what is then appended to `ids`.
    void open(std::uint8_t byte, int depth);
    // After the last node: where subtrees and tokens end.
    void finish();
    std::int64_t nbytes() const;
};

class Trie {
  public:
    // Token i is `ids[i]`, whose text is blob[offsets[i] : offsets[i + 1]]. `size` is how many rows
    // the scores have. Throws std::invalid_argument for an empty or overlong text, an id that comes
    // twice or has no row, and offsets that do not rise to the end of the blob.
    Trie(const std::vector<std::int32_t> &ids, std::string_view blob,
         const std::vector<std::int64_t> &offsets, std::int64_t size);
    // From the arrays of a tree that was stored: bytes, depths, first, ids. Throws
    // std::invalid_argument where they are none.
    Trie(ByteTree stored, std::int64_t size);

    const ByteTree &tree() const { return tree_; }
    int size() const { return size_; }
    int words() const { return (size_ + 31) / 32; }

    // The child of a node by one more byte, or -1.
    int child(int node, std::uint8_t byte) const;
    // Ids whose text is exactly this, rising.
    std::vector<int> find(std::string_view text) const;
    // The bytes that lead to a node.
    std::string text(int node) const;

  private:
    void check_size(std::int64_t size);
    void check_ids() const;
    void index_root();

    ByteTree tree_;
    int size_ = 0;
    std::vector<int> of_root_;  // its child by each byte, or -1
};

}  // namespace forwardpass
