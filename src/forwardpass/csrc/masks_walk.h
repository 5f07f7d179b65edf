// A walk through a tree of bytes along a set of items: once through the nodes in preorder, past the
// subtrees that no item reaches. Each node sees each item once, however many ways lead to it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "masks_machine.h"
#include "trie.h"

namespace forwardpass {

// An item with what stands around it, and where its name began: at the node at that depth, or, at
// depth 0, before the walk. (`begin` is 0 for what is no name.)
struct Live {
    Item item;
    int outer = inside;
    int begin = 0;
    bool operator==(const Live &) const = default;
};

// What a walk works with, kept for its memory.
struct WalkScratch {
    // What stands at a node, by depth: lines[from[depth]], so that what is as it was above is not
    // copied. Nearly always it is one text or name that goes on from byte to byte: `row` are its
    // bytes, `text` is where it is, `cost` what a token costs that ends there, and `origin` the
    // depth at which it was put down as `single`. Otherwise `row` is null, and what stands there is
    // live[begin] to live[end] of its own place.
    struct Line {
        const std::int32_t *row = nullptr;
        int text = 0, cost = 0, origin = 0;
    };
    struct Place {
        Live single;
        int rest = 0;  // what the cost of the text is added to
        int begin = 0, end = 0;
    };
    std::vector<int> from = std::vector<int>(longest_token + 1);
    std::vector<Line> lines = std::vector<Line>(longest_token + 1);
    std::vector<Place> places = std::vector<Place>(longest_token + 1);
    std::vector<char> path = std::vector<char>(longest_token + 1);
    std::vector<Live> live;
};

// A Sink has
//   ends(tree, node, cost)  the node's own tokens may end here, at this least cost;
//   doubt(tree, node)       all tokens of its subtree have to be judged one by one;
//   exit(node)              the local level has ended here.
template <class Sink> class Walk {
  public:
    // `prefix` is what is written of a name in which the walk starts.
    Walk(MaskMachine &machine, const ByteTree &tree, const std::string &prefix,
         WalkScratch &scratch, Sink &sink)
        : machine_(machine), tree_(tree), prefix_(prefix), s_(scratch), sink_(sink) {
        s_.live.clear();
    }

    void from_item(const Item &item) {
        clear();
        add(item, inside, 0);
        run(0);
    }

    // From a node at which the local level has ended. Says what becomes of the tokens that end with
    // it: their least cost, and whether they are in doubt.
    std::pair<int, bool> from_exit(int node, int outer) {
        s_.live.clear();
        clear();
        pop(outer);
        const std::pair<int, bool> at_exit{best_, doubt_};
        run(node);
        return at_exit;
    }

  private:
    using Line = WalkScratch::Line;
    using Place = WalkScratch::Place;

    void clear() { best_ = no_cost, doubt_ = exit_ = false, new_from_ = s_.live.size(); }

    // An item is there after a byte, or at the start.
    void add(const Item &item, int outer, int begin) {
        if (item.kind == ItemKind::doubt) {
            doubt_ = true;
            return;
        }
        if (item.kind != ItemKind::popped)
            best_ = std::min(best_, sum_of_costs(machine_.cost(item), machine_.outer_cost(outer)));
        if (item.kind == ItemKind::call) outer = machine_.pushed(item.b, outer);
        if (stand(item, outer, begin)) pop(outer);
    }

    // The same without counting the tokens that end here. Says whether its level may end.
    bool stand(const Item &item, int outer, int begin) {
        if (item.kind == ItemKind::popped) return true;
        Live live{item, outer, item.kind == ItemKind::name ? begin : 0};
        if (item.kind == ItemKind::call) live.item = {ItemKind::state, item.a, 0};
        bool known = false;
        for (std::size_t i = new_from_; i < s_.live.size() && !known; ++i)
            known = s_.live[i] == live;
        if (!known) s_.live.push_back(live);
        return live.item.kind == ItemKind::state && machine_.pops(live.item.a);
    }

    void add_all(int number, int outer, int depth) {
        const Move move = machine_.move_of(number);
        for (int i = move.begin; i < move.end; ++i) add(machine_.item(i), outer, depth);
    }

    // The level has ended: goes on with what stands around it, and around that, and so on.
    void pop(int outer) {
        for (bool further = true; further;) {
            if (outer == inside) exit_ = true;
            if (outer == -1) best_ = 0;
            if (outer < 0) return;
            const Outer around = machine_.outer(outer);
            const Move move = machine_.move_of(around.move);
            if (move.certain) best_ = std::min(best_, around.cost);
            further = false;
            for (int i = move.begin; i < move.end; ++i) {
                const Item item = machine_.item(i);
                if (item.kind == ItemKind::doubt) doubt_ = true;
                else if (item.kind == ItemKind::call) add(item, around.parent, 0);
                else further |= stand(item, around.parent, 0);
            }
            outer = around.parent;
        }
    }

    // What is known of a node goes to the sink, and what stands there to its place. Says whether
    // anything does.
    bool settle(int node, int depth) {
        if (best_ < no_cost) sink_.ends(tree_, node, best_);
        if (doubt_) sink_.doubt(tree_, node);
        if (exit_) sink_.exit(node);
        Line &line = s_.lines[static_cast<std::size_t>(depth)];
        Place &place = s_.places[static_cast<std::size_t>(depth)];
        line = {nullptr, 0, 0, depth};
        s_.from[static_cast<std::size_t>(depth)] = depth;
        place.begin = static_cast<int>(new_from_);
        if (s_.live.size() == new_from_ + 1 && s_.live.back().item.kind != ItemKind::state) {
            const Live one = place.single = s_.live.back();
            s_.live.pop_back();
            place.rest = sum_of_costs(machine_.rest_cost(one.item), machine_.outer_cost(one.outer));
            line.cost = sum_of_costs(machine_.texts.cost(one.item.a), place.rest);
            line.text = one.item.a;
            line.row = machine_.texts.row(line.text);
        }
        place.end = static_cast<int>(s_.live.size());
        return line.row != nullptr || place.begin < place.end;
    }

    void run(int start) {
        const int base = tree_.depths[start], stop = tree_.ends[start];
        if (!settle(start, base)) return;
        for (int node = along(start + 1, stop); node < stop; node = along(node, stop)) {
            const int depth = tree_.depths[node];
            const std::uint8_t byte = tree_.bytes[node];
            const int at = s_.from[static_cast<std::size_t>(depth) - 1];
            const Line above = s_.lines[static_cast<std::size_t>(at)];
            const Place place = s_.places[static_cast<std::size_t>(above.origin)];
            s_.path[static_cast<std::size_t>(depth)] = static_cast<char>(byte);
            s_.live.resize(static_cast<std::size_t>(place.end));
            clear();
            if (above.row != nullptr) {
                Live one = place.single;
                one.item.a = above.text;
                step(one, byte, depth);
            }
            for (int i = place.begin; i < place.end; ++i)
                step(s_.live[static_cast<std::size_t>(i)], byte, depth);
            node = settle(node, depth) ? node + 1 : tree_.ends[node];
        }
    }

    // Goes on from a node as long as one text or name stands there and nobody has to be asked: to
    // the node at which that is otherwise. Nearly all nodes are passed here.
    int along(int node, const int stop) {
        int *const from = s_.from.data();
        Line *const lines = s_.lines.data();
        char *const path = s_.path.data();
        const std::uint8_t *const bytes = tree_.bytes.data();
        const std::uint16_t *const depths = tree_.depths.data();
        const std::int32_t *const ends = tree_.ends.data();
        while (node < stop) {
            const int depth = depths[node];
            const std::uint8_t byte = bytes[node];
            const int at = from[depth - 1];
            const Line &above = lines[at];
            if (above.row == nullptr) return node;
            path[depth] = static_cast<char>(byte);
            const int text = above.row[byte];
            if (text == dead) {
                node = ends[node];
                continue;
            }
            int cost = above.cost;
            from[depth] = at;
            if (text != above.text) {
                if (text == closed || text == unknown) return node;
                const int own = machine_.texts.known_cost(text);
                if (own == unknown) return node;
                cost = sum_of_costs(own, s_.places[static_cast<std::size_t>(above.origin)].rest);
                lines[depth] = {machine_.texts.row(text), text, cost, above.origin};
                from[depth] = depth;
            }
            sink_.ends(tree_, node, cost);
            ++node;
        }
        return node;
    }

    // By value: what stands elsewhere may move.
    void step(const Live live, std::uint8_t byte, int depth) {
        Item item = live.item;
        if (item.kind == ItemKind::state) {
            const int move = machine_.move(item.a, byte);
            if (move != dead) add_all(move, live.outer, depth);
            return;
        }
        const int text = machine_.texts.after(item.a, byte);
        if (text == dead) return;
        if (text != closed) {
            item.a = text;
            return add(item, live.outer, live.begin);
        }
        const int move = item.kind == ItemKind::text ? item.b
                                                     : machine_.name(item.b, raw(live, depth));
        if (move != dead) add_all(move, live.outer, depth);
    }

    // A name with both of its quotes.
    std::string raw(const Live &name, int depth) const {
        std::string out = name.begin == 0 ? prefix_ : std::string();
        const int begin = std::max(name.begin, 1);
        return out.append(s_.path.data() + begin, static_cast<std::size_t>(depth - begin) + 1);
    }

    MaskMachine &machine_;
    const ByteTree &tree_;
    const std::string &prefix_;
    WalkScratch &s_;
    Sink &sink_;
    // Of the node at hand:
    int best_ = no_cost;
    bool doubt_ = false, exit_ = false;
    std::size_t new_from_ = 0;  // where in `live` its items begin
};

}  // namespace forwardpass
