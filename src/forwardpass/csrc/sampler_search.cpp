// Where in a row's falling order a share of the weight lies, beyond the part that is sorted.

#include <algorithm>
#include <cmath>

#include "sampler_row.h"

namespace forwardpass {
namespace {

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

}  // namespace

// The scores from `low` up to `high` among which a target lies; `count` of the row are in the scratch.
struct Row::Bracket {
    float low, high;
    std::int64_t rank;
    double before;
    std::int64_t count = 0;
};

// The weight of the row below its floor. Where a search is expected, the same pass weighs what is
// ahead of there.
Sum Row::exact_below(double temperature) {
    Bracket bracket{lowest_score, floor_, 0, 0};
    double inside = 0, apart = 0;
    for (const Candidate &one : best) inside += std::exp((one.score - top_) / temperature);
    for (std::size_t i = 0; i < others_in_; ++i)
        apart += std::exp((others[i].score - top_) / temperature);
    if (n_ > 8 * few_scores && expected_ >= 0 && equals_left_ == 0 && fits_float32(temperature)) {
        const double rest = outside(temperature, false).value;
        const double share = expected_ - (1 - expected_) * inside / rest;
        if (share > 0) {
            sample(temperature);
            guess(bracket, share);
        }
    }
    const Mass mass = k_->scores_wide_mass(x_, n_, top_, 1 / temperature, bracket.high);
    if (bracket.high >= floor_) return {mass.below, 1e-13 * mass.below};
    const Reached others_ahead = others_from(bracket.high, highest_score, temperature);
    known_temperature_ = temperature, known_from_ = bracket.high;
    known_ = {mass.count + others_ahead.count, mass.above + others_ahead.weight};
    const double row = mass.below + mass.above;  // of which the floor's part is known
    return {row - (inside - apart), 1e-13 * row};
}

Place Row::find(double target, double temperature, double total,
                const std::vector<double> &ahead_of) {
    const float high = equals_left_ > 0 ? float_of(key_of(floor_) + 1) : floor_;
    const auto behind = std::partition_point(
        best.begin(), best.end(), [&](const Candidate &one) { return one.score >= high; });
    const auto rank = behind - best.begin();
    Bracket bracket{lowest_score, high, rank, ahead_of[size(rank)]};
    enclose(bracket, target, temperature, total);
    while (bracket.count > few_scores && std::int64_t{key_of(bracket.high)} - key_of(bracket.low) > 1)
        halve(bracket, target, temperature);
    return locate(bracket, target, temperature);
}

// Sorts a sample of what is below the floor; once for a temperature.
void Row::sample(double temperature) {
    if (sample_temperature_ == temperature) return;
    sample_temperature_ = temperature;
    const std::int64_t step = std::max<std::int64_t>(1, n_ / 16 / 80) * 16;
    std::int64_t taken = 0;
    for (std::int64_t i = 0; i + 16 <= n_; i += step)
        taken += k_->scores_collect(x_ + i, nullptr, 16, lowest_score, floor_, 16,
                                    scratch_.values.data() + taken, scratch_.ids.data() + taken);
    sort_found(taken, scratch_.sample);
    if (scratch_.scores.size() < size(taken)) scratch_.scores.resize(size(taken));
    for (std::size_t i = 0; i < size(taken); ++i) scratch_.scores[i] = scratch_.sample[i].score;
    weigh(scratch_.scores, taken, top_, temperature, scratch_.exponents, scratch_.weights);
}

// Narrows the bracket to where the sample says that a share of the weight below the floor lies.
void Row::guess(Bracket &bracket, double share) const {
    const std::vector<Candidate> &sample = scratch_.sample;
    const double *weights = scratch_.weights.data();
    double sum = 0, squares = 0, passed = 0;
    for (std::size_t i = 0; i < sample.size(); ++i)
        sum += weights[i], squares += weights[i] * weights[i];
    if (sample.size() < 64 || !(squares > 0)) return;
    const double doubt = 4 * std::sqrt(share * (1 - share) * squares) / sum;
    const double width = doubt + 2 * squares / sum / sum;
    const float high = bracket.high;
    for (std::size_t i = 0; i < sample.size(); ++i) {
        const float score = static_cast<float>(sample[i].score);
        if (passed <= (share - width) * sum) bracket.high = std::min(high, score);
        passed += weights[i];
        if (passed >= (share + width) * sum) {
            bracket.low = score;
            return;
        }
    }
}

// The bracket with its scores, and the weight and number of what is ahead of it.
void Row::enclose(Bracket &bracket, double target, double temperature, double total) {
    const Bracket whole = bracket;
    const double share = (target - bracket.before) / (total - bracket.before);
    if (n_ > 8 * few_scores && share > 0 && share < 1) {
        sample(temperature);
        guess(bracket, share);
    }
    const bool known = known_temperature_ == temperature && known_.weight <= target;
    if (known && known_from_ < whole.high) {
        bracket.high = known_from_;
        bracket.rank = known_.count;
        bracket.before = known_.weight;
        bracket.low = std::min(bracket.low, bracket.high);
    } else if (bracket.high < whole.high) {
        const Reached ahead_of = reached(bracket.high, temperature);
        if (ahead_of.weight > target) {
            bracket.low = bracket.high;
            bracket.high = whole.high;
        } else {
            bracket.rank = ahead_of.count;
            bracket.before = ahead_of.weight;
        }
    }
    collect(bracket);
    if (bracket.low == whole.low) return;
    const Reached apart = others_from(bracket.low, bracket.high, temperature);
    double weight = apart.weight;
    if (bracket.count > 0)
        weight += k_->scores_wide_mass(scratch_.values.data(), bracket.count, top_,
                                       1 / temperature, lowest_score).above;
    if (bracket.before + weight > target) return;
    bracket.before += weight;
    bracket.rank += bracket.count + apart.count;
    bracket.high = bracket.low;
    bracket.low = whole.low;
    collect(bracket);
}

void Row::collect(Bracket &bracket) const {
    bracket.count = k_->scores_collect(x_, nullptr, n_, bracket.low, bracket.high, n_,
                                       scratch_.values.data(), scratch_.ids.data());
}

void Row::halve(Bracket &bracket, double target, double temperature) const {
    float *values = scratch_.values.data();
    std::int32_t *ids = scratch_.ids.data();
    const std::int64_t low = key_of(bracket.low), high = key_of(bracket.high);
    const float middle = float_of(static_cast<std::int32_t>(low + (high - low) / 2));
    const Mass mass = k_->scores_wide_mass(values, bracket.count, top_, 1 / temperature, middle);
    const Reached apart = others_from(middle, bracket.high, temperature);
    if (bracket.before + mass.above + apart.weight > target) {
        bracket.low = middle;
    } else {
        bracket.before += mass.above + apart.weight;
        bracket.rank += mass.count + apart.count;
        bracket.high = middle;
    }
    bracket.count = k_->scores_collect(values, ids, bracket.count, bracket.low, bracket.high,
                                       bracket.count, values, ids);
}

// The token among those of a small bracket, or of one of equals.
Place Row::locate(const Bracket &bracket, double target, double temperature) {
    const bool apart = others_from(bracket.low, bracket.high, temperature).count > 0;
    if (bracket.count > few_scores && !apart) {
        const double score = scratch_.values[0];
        const double weight = std::exp((score - top_) / temperature);
        const double equals = std::floor((target - bracket.before) / weight);
        const double last = static_cast<double>(bracket.count - 1);
        const auto i = static_cast<std::int64_t>(std::clamp(equals, 0.0, last));
        return {bracket.rank + i, {score, scratch_.ids[size(i)]},
                bracket.before + static_cast<double>(i) * weight, weight};
    }
    std::vector<Candidate> &inside = scratch_.some;
    sort_found(bracket.count, inside);
    for (const Candidate &other : others)
        if (other.score >= bracket.low && other.score < bracket.high) inside.push_back(other);
    if (apart) std::sort(inside.begin(), inside.end(), ahead);
    Place place{bracket.rank, {top_, -1}, bracket.before, 0};
    for (const Candidate &one : inside) {
        place.token = one;
        place.weight = std::exp((one.score - top_) / temperature);
        if (place.before + place.weight > target) return place;
        ++place.rank;
        place.before += place.weight;
    }
    --place.rank;
    place.before -= place.weight;
    return place;
}

}  // namespace forwardpass
