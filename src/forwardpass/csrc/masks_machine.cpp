#include "masks_machine.h"

#include <stdexcept>

namespace forwardpass {
namespace {

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }

}  // namespace

MaskMachine::MaskMachine(Grammar &grammar, std::int64_t most_bytes,
                         const std::array<int, 256> &byte_costs)
    : budget{0, most_bytes}, texts(grammar, budget, byte_costs), grammar_(grammar) {}

int MaskMachine::add_state(bool pop, std::int64_t cost, std::string_view first) {
    check_room(states_.size(), "states");
    State state{pop, checked_cost(cost, "cost"), {}, nullptr};
    for (const char c : first) {
        const auto byte = static_cast<std::uint8_t>(c);
        state.first[byte / 64] |= std::uint64_t{1} << byte % 64;
    }
    budget.take(sizeof(State));
    states_.push_back(std::move(state));
    return states() - 1;
}

Item MaskMachine::known_item(const std::array<std::int64_t, 3> &item) {
    const auto &[kind, a, b] = item;
    if (kind < 0 || kind >= item_kinds) refuse("an item is of a kind that there is not");
    Item out{static_cast<ItemKind>(kind), 0, 0};
    switch (out.kind) {
        case ItemKind::state:
            check_state(a);
            out.a = static_cast<int>(a);
            break;
        case ItemKind::call:
            check_state(a);
            out.a = static_cast<int>(a);
            out.b = known_move(b, "an item");
            if (moves_[static_cast<std::size_t>(out.b)].named)
                refuse("no name stands behind a call");
            return out;
        case ItemKind::text: out.b = known_move(b, "an item"); break;
        case ItemKind::name:
            check_state(b);
            out.b = static_cast<int>(b);
            break;
        case ItemKind::doubt: out.a = checked_cost(a, "cost of a doubt"); return out;
        default: return out;
    }
    if (out.kind != ItemKind::state) {
        check_text(a);
        out.a = static_cast<int>(a);
    }
    return out;
}

int MaskMachine::add_move(const std::vector<std::array<std::int64_t, 3>> &items) {
    if (items.empty()) refuse("a move without items: -1 says that nothing goes on");
    check_room(items_.size() + items.size(), "items of moves");
    std::vector<Item> known;
    Move move;
    move.cost = no_cost;
    int doubt_cost = no_cost;
    for (const auto &one : items) {
        known.push_back(known_item(one));
        const Item &item = known.back();
        if (item.kind == ItemKind::doubt) {
            doubt_cost = std::min(doubt_cost, item.a);
            continue;
        }
        move.certain = true;
        move.named |= item.kind == ItemKind::name;
        move.cost = std::min(move.cost, cost(item));
    }
    if (!move.certain) move.cost = doubt_cost;
    // From here on nothing calls back.
    budget.take(static_cast<std::int64_t>(sizeof(Move) + known.size() * sizeof(Item)));
    move.begin = static_cast<int>(items_.size());
    move.end = move.begin + static_cast<int>(known.size());
    items_.insert(items_.end(), known.begin(), known.end());
    moves_.push_back(move);
    return moves() - 1;
}

int MaskMachine::add_outer(std::int64_t move, std::int64_t cost, std::int64_t parent) {
    check_room(outers_.size(), "outers");
    check_outer(parent);
    Outer outer{known_move(move, "an outer"), checked_cost(cost, "cost"),
                static_cast<int>(parent)};
    if (moves_[outer.move].named)
        refuse("an outer is a move without names: nobody knows where those began");
    budget.take(sizeof(Outer));
    outers_.push_back(outer);
    return static_cast<int>(outers_.size()) - 1;
}

int MaskMachine::pushed(int move, int outer) {
    const auto key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(move)) << 32 |
                     static_cast<std::uint32_t>(outer);
    if (const auto found = pushed_.find(key); found != pushed_.end()) return found->second;
    check_room(outers_.size(), "outers");
    budget.take(sizeof(Outer) + key_bytes);
    outers_.push_back({move, sum_of_costs(moves_[static_cast<std::size_t>(move)].cost,
                                          outer_cost(outer)), outer});
    return pushed_[key] = static_cast<int>(outers_.size()) - 1;
}

void MaskMachine::check_text(std::int64_t text) const {
    if (text < 1 || text >= texts.size())
        refuse("text state " + std::to_string(text) + " is none that is open");
}

void MaskMachine::check_state(std::int64_t state) const {
    if (state < 0 || state >= states())
        refuse("state " + std::to_string(state) + " is none of the " + std::to_string(states()));
}

void MaskMachine::check_outer(std::int64_t outer) const {
    if (outer < -1 || outer >= static_cast<std::int64_t>(outers_.size()))
        refuse("outer " + std::to_string(outer) + " is none of the " +
               std::to_string(outers_.size()));
}

int MaskMachine::known_move(std::int64_t move, const char *from) const {
    if (move < 0 || move >= moves())
        refuse(std::string(from) + " leads to move " + std::to_string(move) +
               ", which is none of the " + std::to_string(moves()));
    return static_cast<int>(move);
}

int MaskMachine::ask_move(int state, int byte) {
    if (!states_[state].row) {
        budget.take(row_bytes);
        auto row = new_row();
        for (int b = 0; b < 256; ++b)
            if (!(states_[state].first[b / 64] >> b % 64 & 1)) row[b] = dead;
        states_[state].row = std::move(row);
    }
    if (const std::int32_t known = states_[state].row[byte]; known != unknown) return known;
    const std::int64_t move = grammar_.move(state, byte);
    return states_[state].row[byte] = move == dead ? dead : known_move(move, "a state");
}

int MaskMachine::name(int state, const std::string &raw) {
    const std::string key = std::to_string(state) + ':' + raw;
    if (const auto found = names_.find(key); found != names_.end()) return found->second;
    const std::int64_t move = grammar_.name(state, raw);
    const int known = move == dead ? dead : known_move(move, "a name");
    budget.take(static_cast<std::int64_t>(key.size()) + key_bytes);
    return names_[key] = known;
}

int MaskMachine::rest_cost(const Item &item) const {
    switch (item.kind) {
        case ItemKind::state: return states_[item.a].cost;
        case ItemKind::call: return sum_of_costs(states_[item.a].cost, moves_[item.b].cost);
        case ItemKind::text: return moves_[item.b].cost;
        case ItemKind::name: return states_[item.b].cost;
        default: return 0;
    }
}

int MaskMachine::cost(const Item &item) {
    const int rest = rest_cost(item);
    const bool in_text = item.kind == ItemKind::text || item.kind == ItemKind::name;
    return in_text ? sum_of_costs(rest, texts.cost(item.a)) : rest;
}

}  // namespace forwardpass
