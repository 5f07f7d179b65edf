#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "sampler_stages.h"

namespace forwardpass {
namespace {

constexpr std::int64_t shown = 32;  // SHOWN of sampling/outcome.py
constexpr double never = -std::numeric_limits<double>::infinity();

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

std::uint64_t multiply(std::uint64_t a, std::uint64_t b, std::uint64_t &high) {
    const std::uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
    const std::uint64_t cross = (a0 * b0 >> 32) + (a1 * b0 & 0xffffffff) + a0 * b1;
    high = a1 * b1 + (a1 * b0 >> 32) + (cross >> 32);
    return a * b;
}

// The first two words of Philox4x64-10 as numbers in [0, 1): sampling/random.py.
struct Numbers {
    double draw, xtc;
};

Numbers numbers(std::int64_t seed, std::uint64_t choice, std::uint64_t position) {
    std::uint64_t c[4] = {position, choice, 0, 0}, k0 = static_cast<std::uint64_t>(seed), k1 = 0;
    for (int round = 0; round < 10; ++round) {
        std::uint64_t high0, high2;
        const std::uint64_t low0 = multiply(0xD2E7470EE14C6C93, c[0], high0);
        const std::uint64_t low2 = multiply(0xCA5A826395121157, c[2], high2);
        const std::uint64_t next[4] = {high2 ^ c[1] ^ k0, low2, high0 ^ c[3] ^ k1, low0};
        std::copy_n(next, 4, c);
        k0 += 0x9E3779B97F4A7C15;
        k1 += 0xBB67AE8584CAA73B;
    }
    return {static_cast<double>(c[0] >> 11) * 0x1p-53, static_cast<double>(c[1] >> 11) * 0x1p-53};
}

bool allowed(const SamplingInput &input, std::int64_t id) {
    if (input.words != nullptr) return input.words[id / 32] >> id % 32 & 1;
    return input.allowed == nullptr || input.allowed[id] != 0;
}

void check(const SamplingInput &input) {
    std::int64_t before = -1;
    for (std::int64_t i = 0; i < input.changed; before = input.ids[i++])
        if (input.ids[i] <= before || input.ids[i] >= input.size)
            throw std::invalid_argument("ids: rising ids of the row are wanted, not " +
                                        std::to_string(input.ids[i]));
    for (std::int64_t i = 0; i < input.wanted_count; ++i)
        if (input.wanted[i] < 0 || input.wanted[i] >= input.size)
            throw std::invalid_argument("wanted: token id " + std::to_string(input.wanted[i]) +
                                        " is outside the vocabulary");
}

}  // namespace

Sampler::Sampler(const Kernels &kernels, SamplingRules rules)
    : k_(kernels), rules_(std::move(rules)), need_(std::max(rules_.kept, shown)) {
    for (const StageRule &rule : rules_.stages)
        if (rule.kind == StageKind::top_k && rule.acts && rules_.temperature > 0)
            need_ = std::max(need_, static_cast<std::int64_t>(std::min(rule.value, 0x1p31)));
}

const Picked *Sampler::pick(const SamplingInput &input) {
    check(input);
    if (answer(input)) return &picked_;
    ++decided[2];
    return nullptr;
}

bool Sampler::answer(const SamplingInput &input) {
    const std::int64_t need = std::min(need_, input.size);
    picked_.left.clear();
    raw_.others.clear();
    if (!raw_.open(k_, input.scores, input.size, need, 1)) return false;
    keep_best();
    on_its_own_ = input.changed > 0 || input.masked();
    Row &row = on_its_own_ ? final_ : raw_;
    if (!adjust(input, row)) return false;
    if (rules_.temperature == 0) {
        take_best(input, row);
        ++decided[0];
        return true;
    }
    const std::size_t adjusted = picked_.left.size();
    for (const bool exact : {false, true}) {
        picked_.left.resize(adjusted);
        if (narrow(input, row, exact)) {
            ++decided[exact];
            return true;
        }
    }
    return false;
}

double Sampler::model_logprob(float score) const {
    return score - raw_.top() - picked_.log_sum;
}

// The best of the scores as they came, and what the others weigh.
void Sampler::keep_best() {
    const std::size_t count = std::min(raw_.best.size(), size(rules_.kept));
    picked_.best.resize(count);
    picked_.best_scores.resize(count);
    scratch_.best.resize(raw_.best.size());
    for (std::size_t i = 0; i < raw_.best.size(); ++i) {
        scratch_.best[i] = raw_.best[i].score;
        if (i >= count) continue;
        picked_.best[i] = raw_.best[i].id;
        picked_.best_scores[i] = static_cast<float>(raw_.best[i].score);
    }
    raw_.weigh(scratch_.best, static_cast<std::int64_t>(raw_.best.size()), raw_.top(), 1,
               scratch_.best_exponents, scratch_.best_weights);
    double kept = 0, rest = raw_.outside(1, false).value;
    for (std::size_t i = 0; i < raw_.best.size(); ++i)
        (i < count ? kept : rest) += scratch_.best_weights[i];
    total_ = kept + rest;
    picked_.log_sum = std::log(total_);
    picked_.rest = raw_.reachable - static_cast<std::int64_t>(count);
    picked_.rest_mass = picked_.rest > 0 ? rest / total_ : 0;
}

// Opens the row of the scores after bias, penalties and mask, and notes what these two left.
bool Sampler::adjust(const SamplingInput &input, Row &row) {
    const auto left = [&](std::int64_t count, double mass, const Candidate &best, double log_sum) {
        picked_.left.push_back({count, mass, best.id, std::exp(-log_sum)});
    };
    if (!on_its_own_) {
        left(row.reachable, 1, row.best[0], picked_.log_sum);
        picked_.left.push_back(picked_.left[0]);
        return true;
    }
    Candidate best = best_unchanged(input);
    std::int64_t count = raw_.reachable;
    scratch_.working.resize(size(input.size));
    float *working = scratch_.working.data();
    std::copy_n(input.scores, input.size, working);
    row.others.clear();
    for (std::int64_t i = 0; i < input.changed; ++i) {
        const auto id = static_cast<std::int32_t>(input.ids[i]);
        const Candidate other{input.values[i], id};
        if (std::isnan(other.score) || other.score == -never) return false;
        count += (other.score > never) - (working[id] > static_cast<float>(never));
        if (ahead(other, best)) best = other;
        if (other.score > never) row.others.push_back(other);
        working[id] = static_cast<float>(never);
    }
    if (!(best.score > never)) return false;
    const double before = log_sum_before(input, row, best.score);
    left(count, 1, best, before);
    if (input.masked()) {
        k_.scores_allow(working, input.size, input.allowed, input.words, working);
        std::erase_if(row.others, [&](const Candidate &one) { return !allowed(input, one.id); });
    }
    const bool tempers = !rules_.stages.empty() && !input.masked() && rules_.temperature > 0 &&
                         rules_.stages.front().kind == StageKind::temperature;
    const double first = tempers ? rules_.temperature : 1;
    if (!row.open(k_, working, input.size, std::min(need_, input.size), first)) return false;
    if (!input.masked()) {
        picked_.left.push_back(picked_.left[0]);
        return true;
    }
    const Sum rest = row.outside(1, !(row.outside(1, false).error < 1e-6));
    double total = rest.value;
    for (const Candidate &one : row.best) total += std::exp(one.score - row.top());
    left(row.reachable, std::min(1.0, total * std::exp(row.top() - best.score - before)),
         row.best[0], std::log(total));
    return true;
}

// The best score that was not changed; -inf where there is none.
Candidate Sampler::best_unchanged(const SamplingInput &input) const {
    const std::int64_t *end = input.ids + input.changed;
    const auto unchanged = [&](std::int64_t id) { return !std::binary_search(input.ids, end, id); };
    for (const Candidate &one : raw_.best)
        if (unchanged(one.id)) return one;
    Candidate best{never, -1};
    for (std::int64_t id = 0, next = 0; id < input.size; ++id) {
        if (next < input.changed && input.ids[next] == id) {
            ++next;
            continue;
        }
        if (input.scores[id] > best.score)
            best = {input.scores[id], static_cast<std::int32_t>(id)};
    }
    return best;
}

// ln Σ exp(score − top) before the mask: from the sum over the scores as they came, where enough of
// that stays; else from the working row, which has no mask yet.
double Sampler::log_sum_before(const SamplingInput &input, const Row &row, double top) {
    double gone = 0, apart = 0;
    for (std::int64_t i = 0; i < input.changed; ++i)
        gone += std::exp(static_cast<double>(input.scores[input.ids[i]]) - raw_.top());
    for (const Candidate &other : row.others) apart += std::exp(other.score - top);
    double stays = total_ - gone;
    if (stays < total_ / 4 || !(std::abs(raw_.top() - top) < 600))
        stays = k_.scores_wide_mass(scratch_.working.data(), input.size, top, 1, lowest_score).above;
    else
        stays *= std::exp(raw_.top() - top);
    return std::log(stays + apart);
}

double Sampler::final_score(const SamplingInput &input, const Row &row, std::int64_t id) const {
    if (!on_its_own_) return input.scores[id];
    const double score = scratch_.working[size(id)];
    for (const Candidate &other : row.others)
        if (other.id == id) return other.score;
    return score;
}

bool Sampler::narrow(const SamplingInput &input, Row &row, bool exact) {
    const Numbers drawn = numbers(rules_.seed, rules_.choice, input.position);
    Narrowing stages(row, rules_, scratch_, exact);
    double share = drawn.draw;
    for (const StageRule &rule : rules_.stages)
        if (rule.kind == StageKind::top_p && rule.acts) share = rule.value;
    row.expect(share);
    if (!stages.run(drawn.xtc, picked_.left) || !stages.draw(drawn.draw)) return false;
    if (!stages.first(shown, picked_.after)) return false;
    picked_.wanted.resize(size(input.wanted_count));
    for (std::int64_t i = 0; i < input.wanted_count; ++i) {
        const std::int64_t id = input.wanted[i];
        const Candidate one{final_score(input, row, id), static_cast<std::int32_t>(id)};
        auto &[own, sampled] = picked_.wanted[size(i)];
        own = model_logprob(input.scores[id]);
        if (!stages.logprob(one, sampled)) return false;
    }
    picked_.token = stages.token.id;
    picked_.drawn = true;
    picked_.random = drawn.draw;
    picked_.begin = stages.begin;
    picked_.end = stages.end;
    picked_.rank = stages.rank;
    picked_.logprob = model_logprob(input.scores[picked_.token]);
    picked_.sampled_logprob = stages.sampled_logprob;
    return true;
}

void Sampler::take_best(const SamplingInput &input, const Row &row) {
    picked_.token = row.best[0].id;
    picked_.drawn = false;
    picked_.rank = 1;
    picked_.logprob = model_logprob(input.scores[picked_.token]);
    picked_.sampled_logprob = 0;
    picked_.left.push_back({1, 1, picked_.token, 1});
    picked_.after.assign(1, {picked_.token, 0.0});
    picked_.wanted.resize(size(input.wanted_count));
    for (std::int64_t i = 0; i < input.wanted_count; ++i) {
        const std::int64_t id = input.wanted[i];
        picked_.wanted[size(i)] = {model_logprob(input.scores[id]), id == picked_.token ? 0 : never};
    }
}

}  // namespace forwardpass
