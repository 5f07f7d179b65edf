// What Python sees of the sampler; and its kernels at one level, for tests.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "arrays.h"
#include "levels.h"
#include "sampler.h"

namespace nb = nanobind;

namespace forwardpass {
namespace {

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }

using Stages = std::vector<std::tuple<std::string, double, bool>>;

StageKind kind_named(const std::string &name) {
    constexpr const char *names[] = {"temperature", "top_n_sigma", "top_k", "typical_p",
                                     "top_p",       "min_p",       "xtc"};
    for (std::size_t i = 0; i < std::size(names); ++i)
        if (name == names[i]) return static_cast<StageKind>(i);
    refuse("stage \"" + name + "\" is unknown");
}

Sampler *make(const Stages &stages, double temperature, bool exact_k, bool of_what_is_left,
              double xtc_threshold, std::int64_t seed, std::uint64_t choice, std::int64_t kept,
              const std::string &level) {
    SamplingRules rules{{}, temperature, exact_k, of_what_is_left, xtc_threshold,
                        seed, choice,      kept};
    int temperatures = 0;
    for (const auto &[name, value, acts] : stages) {
        const StageKind kind = kind_named(name);
        temperatures += kind == StageKind::temperature;
        if (!std::isfinite(value) || value < 0) refuse(name + ": a number from 0 up is wanted");
        if (kind == StageKind::typical_p && acts) refuse("typical_p is not provided for");
        if (kind == StageKind::top_k && acts && value < 1) refuse("top_k: at least 1 is wanted");
        rules.stages.push_back({kind, value, acts});
    }
    if (temperatures != 1) refuse("stages: one temperature is wanted");
    if (!std::isfinite(temperature) || temperature < 0 || !std::isfinite(xtc_threshold))
        refuse("temperature and xtc_threshold are numbers from 0 up");
    if (kept < 0) refuse("kept: a number from 0 up is wanted");
    return new Sampler(*choose_level(level), std::move(rules));
}

template <class T, class From>
nb::object copied(const std::vector<From> &from) {
    auto out = new_array<T>({from.size()});
    std::copy(from.begin(), from.end(), out.data());
    return nb::cast(std::move(out));
}

// What numpy.frombuffer reads; making an array here takes longer.
template <class T>
nb::bytes bytes_of(const std::vector<T> &from) {
    return nb::bytes(reinterpret_cast<const char *>(from.data()), from.size() * sizeof(T));
}

nb::tuple answer(const Picked &picked) {
    nb::list left, after, wanted;
    for (const StageLeft &one : picked.left)
        left.append(nb::make_tuple(one.survivors, one.mass, one.best, one.best_probability));
    for (const auto &[id, logprob] : picked.after) after.append(nb::make_tuple(id, logprob));
    for (const auto &[own, sampled] : picked.wanted) wanted.append(nb::make_tuple(own, sampled));
    nb::object random = nb::none(), interval = nb::none();
    if (picked.drawn) {
        random = nb::float_(picked.random);
        interval = nb::make_tuple(picked.begin, picked.end);
    }
    return nb::make_tuple(nb::make_tuple(picked.token, random, interval, picked.rank,
                                         picked.logprob, picked.sampled_logprob),
                          bytes_of(picked.best), bytes_of(picked.best_scores),
                          nb::make_tuple(picked.rest, picked.log_sum, picked.rest_mass), left,
                          after, wanted);
}

// One byte or, 32 in a word, one bit for each score; Python's bools are bytes.
void add_mask(SamplingInput &input, nb::handle mask, Array<std::uint8_t> &bytes,
              Array<std::uint32_t> &words) {
    if (mask.is_none()) return;
    if (nb::ndarray<nb::ro> any; nb::try_cast(mask, any, false) &&
                                 any.dtype() == nb::dtype<std::uint32_t>()) {
        words = array<std::uint32_t>(mask, "mask", 1);
        if (words.size != (input.size + 31) / 32) refuse("mask: one bit a score is wanted");
        input.words = words.data;
        return;
    }
    bytes = array<std::uint8_t>(mask, "mask", 1);
    if (bytes.size != input.size) refuse("mask: one byte a score is wanted");
    input.allowed = bytes.data;
}

nb::object pick(Sampler &sampler, nb::handle scores, std::uint64_t position, nb::handle ids,
                nb::handle values, nb::handle mask, nb::handle wanted) {
    nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu> row;
    if (!nb::try_cast(scores, row, false) || row.size() < 1 || row.size() > INT32_MAX - 1024 ||
        reinterpret_cast<std::uintptr_t>(row.data()) % alignof(float) != 0)
        return nb::none();
    const auto changed = array_or_none<std::int64_t>(ids, "ids", 1);
    const auto asked = array_or_none<std::int64_t>(wanted, "wanted", 1);
    nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu> others;
    if (changed && (!nb::try_cast(values, others, false) ||
                    static_cast<std::int64_t>(others.shape(0)) != changed.size))
        refuse("values: a float64 for each of ids is wanted");
    SamplingInput input;
    input.scores = row.data();
    input.size = static_cast<std::int64_t>(row.size());
    input.ids = changed.data;
    input.changed = changed ? changed.size : 0;
    input.values = changed ? others.data() : nullptr;
    input.position = position;
    input.wanted = asked.data;
    input.wanted_count = asked ? asked.size : 0;
    Array<std::uint8_t> bytes;
    Array<std::uint32_t> words;
    add_mask(input, mask, bytes, words);
    const Picked *picked = sampler.pick(input);
    return picked == nullptr ? nb::none() : nb::object(answer(*picked));
}

// Σ exp((x − best) / temperature) below and from `from` on, by float32 sums and by float64 sums.
nb::tuple test_mass(const std::string &level, nb::handle x, double temperature, float from) {
    const Kernels &k = *choose_level(level);
    const auto row = array<float>(x, "x", 1);
    if (row.size < 1) refuse("x: one score at least");
    const std::size_t room = static_cast<std::size_t>(row.size) + 1024;
    std::vector<float> values(room), groups(room);
    std::vector<std::int32_t> ids(room);
    const float best = k.scores_scan(row.data, row.size, 1, groups.data()).high;
    const Found found = k.scores_mass(row.data, row.size, best, temperature, from, row.size,
                                      values.data(), ids.data());
    const Mass wide = k.scores_wide_mass(row.data, row.size, best, 1 / temperature, from);
    values.resize(static_cast<std::size_t>(found.count));
    ids.resize(static_cast<std::size_t>(found.count));
    return nb::make_tuple(found.below, wide.below, wide.above, wide.count, copied<float>(values),
                          copied<std::int32_t>(ids));
}

}  // namespace

void bind_sampler(nb::module_ &module) {
    nb::class_<Sampler>(module, "Sampler", "Takes tokens from rows of float32 scores.")
        .def(nb::new_(&make), nb::arg("stages"), nb::arg("temperature"), nb::arg("exact_k"),
             nb::arg("of_what_is_left"), nb::arg("xtc_threshold"), nb::arg("seed"),
             nb::arg("choice"), nb::arg("kept"), nb::arg("level") = "",
             "`stages`: (name, value, whether it acts), those behind the mask, in order.")
        .def("pick", &pick, nb::arg("scores"), nb::arg("position"), nb::arg("ids").none(),
             nb::arg("values").none(), nb::arg("mask").none(), nb::arg("wanted").none(),
             "The token, or None where the plain way has to decide.")
        .def_prop_ro("decided", [](const Sampler &s) {
            return std::make_tuple(s.decided[0], s.decided[1], s.decided[2]);
        });
    module.def("test_mass", &test_mass, nb::arg("level"), nb::arg("x"), nb::arg("temperature"),
               nb::arg("from_"));
}

}  // namespace forwardpass
