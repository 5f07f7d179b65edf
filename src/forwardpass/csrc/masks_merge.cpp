#include <algorithm>
#include <utility>

#include "masks.h"

namespace forwardpass {
namespace {

// Nodes of the source that are one node of the merged tree: sources[begin] to the end of the list
// when their turn comes, as later ones are done and gone by then.
struct Group {
    std::size_t begin;
    std::uint8_t byte;
    int depth;
};

void copy_subtree(const ByteTree &from, int node, int depth, ByteTree &to) {
    const int base = from.depths[node];
    for (int i = node; i < from.ends[node]; ++i) {
        to.open(from.bytes[i], from.depths[i] - base + depth);
        if (i == node && depth == 0) to.bytes.back() = 0;
        to.ids.insert(to.ids.end(), from.ids.begin() + from.first[i],
                      from.ids.begin() + from.first[i + 1]);
    }
}

}  // namespace

ByteTree merged_subtrees(const ByteTree &tree, const std::vector<std::int32_t> &nodes) {
    ByteTree out;
    std::vector<std::int32_t> sources = nodes;
    std::vector<Group> groups{{0, 0, 0}};  // the next one last
    std::vector<std::pair<std::uint8_t, std::int32_t>> children;
    while (!groups.empty()) {
        const Group group = groups.back();
        groups.pop_back();
        if (sources.size() == group.begin + 1) {
            copy_subtree(tree, sources.back(), group.depth, out);
            sources.pop_back();
            continue;
        }
        out.open(group.byte, group.depth);
        children.clear();
        for (std::size_t i = group.begin; i < sources.size(); ++i) {
            const int node = sources[i];
            out.ids.insert(out.ids.end(), tree.ids.begin() + tree.first[node],
                           tree.ids.begin() + tree.first[node + 1]);
            for (int child = node + 1; child < tree.ends[node]; child = tree.ends[child])
                children.emplace_back(tree.bytes[child], child);
        }
        std::sort(out.ids.begin() + out.first.back(), out.ids.end());
        std::sort(children.begin(), children.end());
        sources.resize(group.begin);
        // The greatest byte lies deepest, as its turn comes last.
        for (std::size_t i = children.size(); i-- > 0;) {
            if (i + 1 == children.size() || children[i].first != children[i + 1].first)
                groups.push_back({sources.size(), children[i].first, group.depth + 1});
            sources.push_back(children[i].second);
        }
    }
    out.finish();
    return out;
}

}  // namespace forwardpass
