#include "sampler_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace forwardpass {
namespace {

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

template <class T> void at_least(std::vector<T> &place, std::int64_t count) {
    if (place.size() < size(count)) place.resize(size(count));
}

// The highest key at which `holds(score)`, which it does at `low` and all between, not at `high`.
template <class Holds> std::int32_t bisect(std::int64_t low, std::int64_t high, Holds holds) {
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (holds(float_of(static_cast<std::int32_t>(middle))) ? low : high) = middle;
    }
    return static_cast<std::int32_t>(low);
}

}  // namespace

std::int32_t key_of(float x) {
    std::int32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits >= 0 ? bits : static_cast<std::int32_t>(~bits ^ INT32_MIN);
}

float float_of(std::int32_t key) {
    const std::int32_t bits = key >= 0 ? key : static_cast<std::int32_t>(~(key ^ INT32_MIN));
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

float at_or_above(double x) {
    if (!(x > lowest_score)) return lowest_score;
    const float near = static_cast<float>(x);
    return near < x ? std::nextafter(near, highest_score) : near;
}

bool Row::open(const Kernels &kernels, const float *x, std::int64_t n, std::int64_t need,
               double temperature) {
    k_ = &kernels, x_ = x, n_ = n;
    at_least(scratch_.groups, (n + 1023) / 1024 * 16);
    at_least(scratch_.values, n + 16);
    at_least(scratch_.ids, n + 16);
    equals_left_ = 0;
    sample_temperature_ = known_temperature_ = 0;
    expected_ = -1;
    std::int64_t numbers = by_sample(need, temperature);
    if (numbers < 0) numbers = by_scan(need, temperature);
    reachable = numbers + static_cast<std::int64_t>(others.size());
    if (reachable <= 0 || std::isnan(rest_)) return false;
    merge(found_ == numbers);
    top_ = best.front().score;
    return std::isfinite(top_);
}

// One pass over a long row, which takes what reaches a floor that a sixteenth of it suggests. How
// many are above -inf; negative where too few reached the floor, or too many.
std::int64_t Row::by_sample(std::int64_t need, double temperature) {
    if (n_ < 16384 || need > n_ / 64 || !fits_float32(temperature)) return -1;
    ends_ = k_->scores_scan(x_, n_, 16, scratch_.groups.data());
    if (!(ends_.high >= lowest_score && ends_.high < highest_score)) return -1;
    row_top_ = ends_.high;
    floor_ = floor_for(std::max<std::int64_t>(need * 7 / 64, 24));
    gather(4 * need + 1024, temperature);
    if (found_ < need || found_ > 4 * need + 1024) return -1;
    return ends_.low >= lowest_score ? n_ : k_->scores_count(x_, n_, lowest_score);
}

// The same in as many passes as it takes; negative where the best is NaN or +inf.
std::int64_t Row::by_scan(std::int64_t need, double temperature) {
    ends_ = k_->scores_scan(x_, n_, 1, scratch_.groups.data());
    ends_.high += 0.0f;  // no −0: it equals 0
    if (!(ends_.high < highest_score)) return std::numeric_limits<std::int64_t>::min() / 2;
    row_top_ = std::max(ends_.high, lowest_score);
    const auto numbers = ends_.low >= lowest_score ? n_ : k_->scores_count(x_, n_, lowest_score);
    const bool all = numbers <= std::max(need, few_scores);
    floor_ = all ? lowest_score : floor_for(need);
    const std::int64_t limit = all ? n_ : 4 * need + 1024;
    gather(limit, temperature);
    if (found_ > limit) gather_ties(need, temperature);
    return numbers;
}

// A score that at least `need` reach, and not many more, by the best of each group: if as many
// groups reach it, so do as many scores.
float Row::floor_for(std::int64_t need) const {
    const float *x = scratch_.groups.data();
    std::int64_t n = (n_ + 1023) / 1024 * 16;
    if (4 * n < 5 * need || k_->scores_count(x, n, lowest_score) < need) x = x_, n = n_;
    std::int64_t low = key_of(lowest_score), high = std::int64_t{key_of(ends_.high)} + 1;
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        const auto count = k_->scores_count(x, n, float_of(static_cast<std::int32_t>(middle)));
        (count >= need ? low : high) = middle;
        if (count >= need && count <= need + need / 4) break;
    }
    return float_of(static_cast<std::int32_t>(low));
}

bool Row::fits_float32(double temperature) { return temperature >= 1e-6 && temperature <= 1e6; }

void Row::gather(std::int64_t limit, double temperature) {
    float *values = scratch_.values.data();
    std::int32_t *ids = scratch_.ids.data();
    rest_ = rest_temperature_ = 0;
    if (fits_float32(temperature)) {
        const Found found =
            k_->scores_mass(x_, n_, row_top_, temperature, floor_, limit, values, ids);
        rest_ = found.below, rest_temperature_ = temperature;
        found_ = found.count, ends_.low = found.low;
    } else {
        found_ = k_->scores_collect(x_, nullptr, n_, floor_, highest_score, limit, values, ids);
    }
}

// Where far more reach the floor than were wanted: a higher one, or else of many equals the first.
void Row::gather_ties(std::int64_t need, double temperature) {
    const std::int64_t most = 4 * need + 1024;
    float *values = scratch_.values.data();
    std::int32_t *ids = scratch_.ids.data();
    const std::int32_t key =
        bisect(key_of(floor_), std::int64_t{key_of(ends_.high)} + 1,
               [&](float from) { return k_->scores_count(x_, n_, from) >= need; });
    floor_ = float_of(key);
    const float next = float_of(key + 1);
    found_ = k_->scores_collect(x_, nullptr, n_, next, highest_score, most, values, ids);
    const std::int64_t wanted = std::max(need - found_, std::int64_t{0});
    const std::int64_t equals = k_->scores_collect(x_, nullptr, n_, floor_, next, wanted,
                                                   values + found_, ids + found_);
    equals_left_ = equals - std::min(equals, wanted);
    found_ += std::min(equals, wanted);
    if (rest_temperature_ > 0)
        rest_ = k_->scores_mass(x_, n_, row_top_, temperature, floor_, 0, nullptr, nullptr).below;
}

// What was found, which stands in the order of ids, best first: radix sort from the lowest byte of
// the score, leaving out bytes that are all the same.
void Row::sort_found(std::int64_t count, std::vector<Candidate> &into) {
    at_least(scratch_.keys, count);
    at_least(scratch_.sorted, count);
    std::uint64_t *from = scratch_.keys.data(), *to = scratch_.sorted.data();
    std::uint32_t counts[4][256] = {};
    for (std::int64_t i = 0; i < count; ++i) {
        const float score = scratch_.values[size(i)] + 0.0f;  // no −0: it equals 0
        const std::uint32_t key = ~(static_cast<std::uint32_t>(key_of(score)) ^ 0x80000000u);
        from[i] = std::uint64_t{key} << 32 | static_cast<std::uint32_t>(scratch_.ids[size(i)]);
        for (int byte = 0; byte < 4; ++byte) ++counts[byte][key >> 8 * byte & 0xff];
    }
    for (int byte = 0; byte < 4 && count > 0; ++byte) {
        const int shift = 32 + 8 * byte;
        std::uint32_t *places = counts[byte], before = 0;
        if (places[from[0] >> shift & 0xff] == count) continue;
        for (int i = 0; i < 256; ++i) before += std::exchange(places[i], before);
        for (std::int64_t i = 0; i < count; ++i) to[places[from[i] >> shift & 0xff]++] = from[i];
        std::swap(from, to);
    }
    into.resize(size(count));
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t key = ~static_cast<std::uint32_t>(from[i] >> 32) ^ 0x80000000u;
        into[size(i)] = {float_of(static_cast<std::int32_t>(key)),
                         static_cast<std::int32_t>(from[i] & 0xffffffffu)};
    }
}

// `best`, from what was found in the row and from the others that are not behind it.
void Row::merge(bool complete) {
    sort_found(found_, best);
    const auto in = [&](const Candidate &other) {
        if (complete) return true;
        return equals_left_ > 0 ? ahead(other, best.back()) : other.score >= floor_;
    };
    const auto behind = std::partition(others.begin(), others.end(), in);
    std::sort(others.begin(), behind, ahead);
    others_in_ = size(behind - others.begin());
    const auto middle = static_cast<std::ptrdiff_t>(best.size());
    best.insert(best.end(), others.begin(), behind);
    std::inplace_merge(best.begin(), best.begin() + middle, best.end(), ahead);
}

double Row::lowest() const {
    double lowest = ends_.low;
    for (const Candidate &other : others) lowest = std::min(lowest, other.score);
    return lowest;
}

void Row::weigh(const std::vector<double> &scores, std::int64_t count, double top,
                double temperature, std::vector<double> &exponents,
                std::vector<double> &weights) const {
    at_least(exponents, count);
    at_least(weights, count);
    k_->scores_weights(scores.data(), count, top, temperature, exponents.data(), weights.data());
}

Sum Row::outside(double temperature, bool exact) {
    double row, error;
    if (exact) {
        const Sum below = exact_below(temperature);
        row = below.value, error = below.error;
    } else if (!fits_float32(temperature)) {
        return {0, std::numeric_limits<double>::infinity()};
    } else {
        if (rest_temperature_ != temperature)
            rest_ = k_->scores_mass(x_, n_, row_top_, temperature, floor_, 0, nullptr, nullptr).below;
        rest_temperature_ = temperature;
        // Of weights that add up to w the mean distance is at most ln n − ln w: sampling.inc.
        const double spread =
            std::log(static_cast<double>(n_)) - std::min(std::log(rest_ + 1e-40), 0.0);
        row = rest_ * std::exp((row_top_ - top_) / temperature);
        error = row * (7e-7 + 0x1p-23 * spread) + 1e-28;
    }
    double total = row;
    if (equals_left_ > 0)
        total += static_cast<double>(equals_left_) * std::exp((floor_ - top_) / temperature);
    for (std::size_t i = others_in_; i < others.size(); ++i)
        total += std::exp((others[i].score - top_) / temperature);
    return {total, error + 1e-13 * total};
}

std::int64_t Row::count_from(double from) const {
    std::int64_t count = k_->scores_count(x_, n_, at_or_above(from));
    for (const Candidate &other : others) count += other.score >= from;
    return count;
}

Reached Row::others_from(double from, double to, double temperature) const {
    Reached found;
    for (const Candidate &other : others)
        if (other.score >= from && other.score < to) {
            ++found.count;
            found.weight += std::exp((other.score - top_) / temperature);
        }
    return found;
}

Reached Row::reached(double from, double temperature) const {
    const Mass mass =
        k_->scores_wide_mass(x_, n_, top_, 1 / temperature, at_or_above(from));
    const Reached apart = others_from(from, highest_score, temperature);
    return {mass.count + apart.count, mass.above + apart.weight};
}

Moments Row::moments(double from, double mean) const {
    Moments sums = k_->scores_moments(x_, n_, at_or_above(from), top_, mean);
    for (const Candidate &other : others)
        if (other.score >= from) {
            const double d = other.score - top_ - mean;
            sums.sum += d;
            sums.square += d * d;
        }
    return sums;
}

}  // namespace forwardpass
