// The members of a step as Python hands them over: a dict by name. For the bindings alone.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "arrays.h"
#include "program.h"

namespace forwardpass {

[[noreturn]] inline void refuse(const std::string &text) { throw std::invalid_argument(text); }

template <class T>
T value_of(nanobind::handle value, const std::string &name) {
    T out;
    if (!nanobind::try_cast(value, out))
        refuse(name + ": " + nanobind::repr(value).c_str() + " is no such value");
    return out;
}

// The members of a step, by name. Every name must be one that was asked for.
class Members {
  public:
    explicit Members(nanobind::handle from) {
        if (!nanobind::isinstance<nanobind::dict>(from)) refuse("a dict of members is wanted");
        dict_ = nanobind::borrow<nanobind::dict>(from);
    }

    template <class T>
    T get(const char *name, T otherwise) {
        const nanobind::object value = find(name);
        return value.is_none() ? otherwise : value_of<T>(value, name);
    }
    View view(const char *name) {
        const nanobind::object value = find(name);
        if (value.is_none()) return {};
        const auto fail = [&] { refuse(std::string(name) + ": a view is (slot, column)"); };
        if (!nanobind::isinstance<nanobind::tuple>(value) || nanobind::len(value) != 2) fail();
        const nanobind::tuple two = nanobind::borrow<nanobind::tuple>(value);
        return {value_of<int>(two[0], name), value_of<std::int64_t>(two[1], name)};
    }
    // One of the names, by its place.
    template <class E>
    E choice(const char *name, std::initializer_list<const char *> names, E otherwise) {
        const nanobind::object value = find(name);
        if (value.is_none()) return otherwise;
        const std::string text = value_of<std::string>(value, name);
        int place = 0;
        for (const char *one : names) {
            if (text == one) return static_cast<E>(place);
            ++place;
        }
        refuse(std::string(name) + ": \"" + text + "\" is unknown");
    }
    // A copy that the program keeps; null where there is none.
    const float *floats(const char *name, Program &program, std::int64_t count,
                        std::int64_t padded = 0) {
        const nanobind::object value = find(name);
        if (value.is_none()) return nullptr;
        const auto values = array<float>(value, name, 1);
        if (values.size != count)
            refuse(std::string(name) + " has " + std::to_string(values.size) + " numbers, not " +
                   std::to_string(count));
        return program.kept(values.data, count, padded);
    }
    std::vector<float> list(const char *name) {
        const nanobind::object value = find(name);
        if (value.is_none()) return {};
        const auto values = array<float>(value, name, 1);
        return {values.data, values.data + values.size};
    }
    nanobind::object find(const char *name) {
        asked_.insert(name);
        return dict_.contains(name) ? nanobind::borrow(dict_[name]) : nanobind::none();
    }
    void done() const {
        for (const auto &[key, value] : dict_) {
            const std::string name = value_of<std::string>(key, "member");
            if (!asked_.count(name)) refuse("there is no member \"" + name + "\"");
        }
    }

  private:
    nanobind::dict dict_;
    std::set<std::string> asked_;
};

}  // namespace forwardpass
