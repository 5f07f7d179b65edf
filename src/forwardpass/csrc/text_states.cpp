#include "text_states.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace forwardpass {
namespace {

constexpr int last_code = 0x10FFFF, high_first = 0xD800, high_last = 0xDBFF, low_first = 0xDC00,
              low_last = 0xDFFF;
// The least code points that are written with so many bytes behind the first.
constexpr int least_raw[] = {0, 0x80, 0x800, 0x10000};

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }

int hex_value(int byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    const int letter = byte | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

int short_escape(int byte) {
    switch (byte) {
        case '"': case '\\': case '/': return byte;
        case 'b': return 8;
        case 'f': return 12;
        case 'n': return 10;
        case 'r': return 13;
        case 't': return 9;
        default: return -1;
    }
}

bool is_tail(int byte) { return byte >= 0x80 && byte <= 0xBF; }

// The first code point that is written with a pair.
int first_of_pairs(int high) { return 0x10000 + ((high - high_first) << 10); }

// Bytes in the order in which they are tried to get out of a character (the same as what writes the
// end of a text in Python does, constraint/values.py).
const std::string &ways_out() {
    static const std::string ways = [] {
        std::string out = "\\u\"/bfnrt0123456789abcdefABCDEF";
        for (int byte = 0x80; byte <= 0xBF; ++byte) out += static_cast<char>(byte);
        return out;
    }();
    return ways;
}

std::uint64_t key_of(const TextPlace &place) {
    std::uint64_t out = static_cast<std::uint64_t>(place.language);  // 22 bits, see most_of_each
    out = out << 4 | static_cast<std::uint64_t>(place.kind);
    out = out << 2 | static_cast<std::uint64_t>(place.count);   // 3 at most
    out = out << 21 | static_cast<std::uint64_t>(place.value);  // a code point at most
    return out << 10 | static_cast<std::uint64_t>(place.high == 0 ? 0 : place.high - high_first);
}

}  // namespace

TextStates::TextStates(LanguageSource &source, Budget &budget,
                       const std::array<int, 256> &byte_costs)
    : source_(source), budget_(budget), byte_costs_(byte_costs) {
    states_.emplace_back();  // closed; never stood in
}

int TextStates::state(std::int64_t language, std::string_view written) {
    TextPlace at{TextKind::between, language_of(language)};
    for (const char byte : written) {
        at = step(at, static_cast<std::uint8_t>(byte));
        const bool within = at.kind != TextKind::none && at.kind != TextKind::closed &&
                            at.kind != TextKind::between;
        if (!within) refuse("these bytes do not begin a character of the language");
    }
    return numbered(at);
}

int TextStates::ask_after(int state, int byte) {
    const TextPlace from = states_[static_cast<std::size_t>(state)].place;
    const TextPlace at = step(from, byte);
    const int after = at.kind == TextKind::none ? dead
                      : at.kind == TextKind::closed ? closed : numbered(at);
    return states_[static_cast<std::size_t>(state)].row[byte] = after;
}

int TextStates::ask_cost(int state) {
    TextPlace at = states_[static_cast<std::size_t>(state)].place;
    int cost = 0;
    while (at.kind != TextKind::between) {
        TextPlace next;
        for (std::size_t i = 0; i < ways_out().size() && next.kind == TextKind::none; ++i) {
            const auto byte = static_cast<std::uint8_t>(ways_out()[i]);
            next = step(at, byte);
            if (next.kind != TextKind::none) cost = sum_of_costs(cost, byte_costs_[byte]);
        }
        if (next.kind == TextKind::none) refuse("a language has a character without a way out");
        at = next;
    }
    cost = sum_of_costs(cost, language_cost(at.language));
    return states_[static_cast<std::size_t>(state)].cost = cost;
}

int TextStates::numbered(const TextPlace &place) {
    const std::uint64_t key = key_of(place);
    if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
    check_room(states_.size(), "text states");
    budget_.take(static_cast<std::int64_t>(sizeof(State)) + row_bytes + key_bytes);
    states_.push_back({new_row(), unknown, place});
    return numbers_[key] = size() - 1;
}

int TextStates::language_of(std::int64_t number) {
    if (const auto found = places_.find(number); found != places_.end()) return found->second;
    check_room(languages_.size(), "languages");
    budget_.take(static_cast<std::int64_t>(sizeof(Language)) + key_bytes);
    languages_.emplace_back().number = number;
    return places_[number] = static_cast<int>(languages_.size()) - 1;
}

const TextStates::Language &TextStates::known(int language) {
    Language &out = languages_[static_cast<std::size_t>(language)];
    if (out.asked) return out;
    const LanguageFacts facts = source_.language(out.number);
    budget_.take(static_cast<std::int64_t>(facts.ranges.size() * sizeof(Range)));
    std::vector<Range> ranges;
    ranges.reserve(facts.ranges.size());
    std::int64_t from = 0;
    for (const auto &[first, last, to] : facts.ranges) {
        const bool surrogates = first <= low_last && last >= high_first;
        if (first < from || last < first || last > last_code || surrogates)
            refuse("language " + std::to_string(out.number) +
                   ": rising ranges of code points are wanted, without surrogates");
        ranges.push_back({static_cast<int>(first), static_cast<int>(last), language_of(to)});
        from = last + 1;
    }
    out.escaped = language_of(facts.escaped);
    // The callback may have come here too.
    if (!out.asked) out.ranges = std::move(ranges);
    out.nullable = facts.nullable;
    out.asked = true;
    return out;
}

int TextStates::language_cost(int language) {
    Language &of = languages_[static_cast<std::size_t>(language)];
    if (of.cost == unknown)
        of.cost = checked_cost(source_.language_cost(of.number), "cost of a language");
    return of.cost;
}

// ---- one byte ----------------------------------------------------------------------------------

TextPlace TextStates::step(const TextPlace &at, int byte) {
    const int language = at.language, digit = hex_value(byte);
    switch (at.kind) {
        case TextKind::between: return at_character(language, byte);
        case TextKind::escape:
            if (byte == 'u') return hexes(language, 0, 0);
            return character(language, short_escape(byte));
        case TextKind::hexes:
            return digit < 0 ? TextPlace{} : hexes(language, at.count + 1, at.value * 16 + digit);
        case TextKind::backslash:
            if (byte != '\\') return {};
            return {TextKind::letter_u, language, 0, 0, at.high};
        case TextKind::letter_u:
            return byte == 'u' ? low(language, at.high, 0, 0) : TextPlace{};
        case TextKind::low:
            if (digit < 0) return {};
            return low(language, at.high, at.count + 1, at.value * 16 + digit);
        case TextKind::tail: return is_tail(byte) ? tail(at, byte) : TextPlace{};
        case TextKind::rest:
            if (!is_tail(byte)) return {};
            if (at.count == 1) return {TextKind::between, language};
            return {TextKind::rest, language, at.count - 1};
        default: return {};
    }
}

TextPlace TextStates::at_character(int language, int byte) {
    if (byte == '"') return {known(language).nullable ? TextKind::closed : TextKind::none};
    if (byte == '\\') {
        const int escaped = known(language).escaped;
        if (known(escaped).ranges.empty()) return {};
        return {TextKind::escape, escaped};
    }
    if (byte < 0x20) return {};
    if (byte < 0x80) return character(language, byte);
    if (byte >= 0xC2 && byte <= 0xDF) return raw(language, (byte & 0x1F) << 6, 1);
    if (byte >= 0xE0 && byte <= 0xEF) return raw(language, (byte & 0x0F) << 12, 2);
    return byte >= 0xF0 && byte <= 0xF4 ? raw(language, (byte & 0x07) << 18, 3) : TextPlace{};
}

// Behind the whole of a character.
TextPlace TextStates::character(int language, int code) {
    const Range *range = last_from(language, code);
    if (range == nullptr || code > range->last) return {};
    return {TextKind::between, range->language};
}

// Within a raw character that lies in `start` to `start + 64^more - 1`. Overlong forms and what is
// no code point end here.
TextPlace TextStates::raw(int language, int start, int more) {
    const int end = start + (1 << 6 * more) - 1;
    const int first = std::max(start, least_raw[more]), last = std::min(end, last_code);
    const Range *range = last_from(language, last);
    if (first > last || range == nullptr || range->last < first) return {};
    const bool all = first == start && last == end && range->first <= first && range->last >= last;
    if (all) return {TextKind::rest, range->language, more};
    return {TextKind::tail, language, more, start};
}

TextPlace TextStates::tail(const TextPlace &at, int byte) {
    const int left = at.count - 1, start = at.value | (byte & 0x3F) << 6 * left;
    if (left == 0) return character(at.language, start);
    // Of a character that takes so many bytes, whatever is yet to come.
    if (start + (1 << 6 * left) <= least_raw[at.count]) return {};
    return raw(at.language, start, left);
}

// After some of the four digits of \uXXXX.
TextPlace TextStates::hexes(int language, int digits, int value) {
    if (digits == 4) {
        if (value < high_first || value > high_last) return character(language, value);
        const int first = first_of_pairs(value);
        if (!reaches(language, first, first + 0x3FF)) return {};
        return {TextKind::backslash, language, 0, 0, value};
    }
    const int shift = 4 * (4 - digits);
    const int first = value << shift, last = ((value + 1) << shift) - 1;
    const int high = std::max(first, high_first), highest = std::min(last, high_last);
    const bool pairs = high <= highest && reaches(language, first_of_pairs(high),
                                                  first_of_pairs(highest) + 0x3FF);
    if (!pairs && !reaches(language, first, last)) return {};
    return {TextKind::hexes, language, digits, value};
}

// After some of the four digits of the second half of a pair.
TextPlace TextStates::low(int language, int high, int digits, int value) {
    const int shift = 4 * (4 - digits);
    const int first = std::max(value << shift, low_first);
    const int last = std::min(((value + 1) << shift) - 1, low_last);
    const int base = first_of_pairs(high) - low_first;
    if (first > last || !reaches(language, base + first, base + last)) return {};
    if (digits == 4) return character(language, base + first);
    return {TextKind::low, language, digits, value, high};
}

// The last range that begins at or before a code point.
const TextStates::Range *TextStates::last_from(int language, int code) {
    const std::vector<Range> &ranges = known(language).ranges;
    const auto behind = std::upper_bound(ranges.begin(), ranges.end(), code,
                                         [](int at, const Range &r) { return at < r.first; });
    return behind == ranges.begin() ? nullptr : &*(behind - 1);
}

// Whether any code point of the range may come next.
bool TextStates::reaches(int language, int first, int last) {
    const Range *range = last_from(language, last);
    return range != nullptr && range->last >= first;
}

}  // namespace forwardpass
