// Arrays that Python hands over, checked before they are used. For the bindings alone.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace forwardpass {

// A C-contiguous array and the reference that keeps it alive.
template <class T>
struct Array {
    nanobind::ndarray<nanobind::ro, nanobind::device::cpu> held;
    const T *data = nullptr;
    std::int64_t size = 0;

    std::int64_t shape(std::size_t axis) const {
        return static_cast<std::int64_t>(held.shape(axis));
    }
    explicit operator bool() const { return data != nullptr; }
};

template <class T>
constexpr const char *element_name() {
    if constexpr (std::is_same_v<T, float>) return "float32";
    else if constexpr (std::is_same_v<T, std::int64_t>) return "int64";
    else if constexpr (std::is_same_v<T, std::int32_t>) return "int32";
    else if constexpr (std::is_same_v<T, std::uint32_t>) return "uint32";
    else if constexpr (std::is_same_v<T, std::uint16_t>) return "uint16";
    else return "uint8";
}

// Throws std::invalid_argument where it is not an aligned, contiguous array of T of `axes` axes.
template <class T>
Array<T> array(nanobind::handle from, const char *name, std::size_t axes) {
    Array<T> out;
    const auto refuse = [&](const char *what) {
        throw std::invalid_argument(std::string(name) + ": a C-contiguous " + element_name<T>() +
                                    " array of " + std::to_string(axes) +
                                    (axes == 1 ? " axis" : " axes") + " is wanted, " + what);
    };
    if (!nanobind::try_cast(from, out.held, false)) refuse("not what is offered");
    if (out.held.dtype() != nanobind::dtype<T>()) refuse("the offered elements are others");
    if (out.held.ndim() != axes) refuse("the offered axes are others");
    out.size = 1;
    for (std::size_t i = axes; i-- > 0;) {
        const std::int64_t length = out.shape(i);
        if (length > 1 && out.held.stride(i) != out.size) refuse("the offered one has gaps");
        out.size *= length;
    }
    if (reinterpret_cast<std::uintptr_t>(out.held.data()) % alignof(T))
        refuse("the offered one is not aligned");
    static const T nothing{};
    out.data = out.size ? static_cast<const T *>(out.held.data()) : &nothing;
    return out;
}

template <class T>
Array<T> array_or_none(nanobind::handle from, const char *name, std::size_t axes) {
    if (from.is_none()) return {};
    return array<T>(from, name, axes);
}

// A new array of Python's that owns its memory.
template <class T>
nanobind::ndarray<nanobind::numpy, T> new_array(std::initializer_list<std::size_t> shape) {
    std::size_t size = 1;
    for (const std::size_t length : shape) size *= length;
    T *data = new T[size]();
    const nanobind::capsule owner(data, [](void *p) noexcept { delete[] static_cast<T *>(p); });
    return nanobind::ndarray<nanobind::numpy, T>(data, shape, owner);
}

void bind_masks(nanobind::module_ &module);
void bind_program(nanobind::module_ &module);
void bind_sampler(nanobind::module_ &module);
void bind_tests(nanobind::module_ &module);

}  // namespace forwardpass
