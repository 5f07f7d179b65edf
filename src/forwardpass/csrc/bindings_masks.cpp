// What Python sees of the trie of a vocabulary and of the masks of a grammar.

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "masks.h"
#include "segments.h"
#include "trie.h"

namespace nb = nanobind;

namespace forwardpass {
namespace {

[[noreturn]] void refuse(const std::string &text) { throw std::invalid_argument(text); }

std::string_view view(const nb::bytes &bytes) { return {bytes.c_str(), bytes.size()}; }

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

template <class T> std::vector<T> vector_of(nb::handle from, const char *name) {
    const auto given = array<T>(from, name, 1);
    return {given.data, given.data + given.size};
}

template <class T> nb::object array_of(const std::vector<T> &from) {
    auto out = new_array<T>({from.size()});
    std::copy(from.begin(), from.end(), out.data());
    return nb::cast(std::move(out));
}

Trie *make_trie(nb::handle ids, const nb::bytes &blob, nb::handle offsets, std::int64_t size) {
    return new Trie(vector_of<std::int32_t>(ids, "ids"), view(blob),
                    vector_of<std::int64_t>(offsets, "offsets"), size);
}

Trie *trie_from_arrays(nb::handle bytes, nb::handle depths, nb::handle first, nb::handle ids,
                       std::int64_t size) {
    ByteTree tree;
    tree.bytes = vector_of<std::uint8_t>(bytes, "bytes");
    tree.depths = vector_of<std::uint16_t>(depths, "depths");
    tree.first = vector_of<std::int32_t>(first, "first");
    tree.ids = vector_of<std::int32_t>(ids, "ids");
    return new Trie(std::move(tree), size);
}

nb::tuple trie_arrays(const Trie &trie) {
    const ByteTree &tree = trie.tree();
    return nb::make_tuple(array_of(tree.bytes), array_of(tree.depths), array_of(tree.first),
                          array_of(tree.ids));
}

using Ranges = std::vector<std::array<std::int64_t, 3>>;

// The grammar as an object of Python's. Its methods are looked up once.
class Callbacks : public Grammar {
  public:
    explicit Callbacks(const nb::object &from) {
        for (std::size_t i = 0; i < std::size(methods); ++i) methods[i] = from.attr(names[i]);
    }

    std::int64_t move(int state, int byte) override { return number(0, called(0)(state, byte)); }
    LanguageFacts language(std::int64_t language) override {
        const nb::object found = called(1)(language);
        std::tuple<bool, Ranges, std::int64_t> narrowed;
        if (nb::try_cast(found, narrowed, false))
            return {std::get<0>(narrowed), std::get<1>(narrowed), std::get<2>(narrowed)};
        std::tuple<bool, Ranges> out;
        if (!nb::try_cast(found, out, false))
            refuse("language: (whether it ends, [(first, last, language), ...]) is wanted");
        return {std::get<0>(out), std::get<1>(out), language};
    }
    std::int64_t language_cost(std::int64_t language) override {
        return number(2, called(2)(language));
    }
    std::int64_t name(int state, std::string_view raw) override {
        return number(3, called(3)(state, to_bytes(raw)));
    }

    nb::object methods[4];

  private:
    static constexpr const char *names[] = {"move", "language", "language_cost", "name"};

    // Held, as Python may let go of the grammar while it runs.
    nb::object called(std::size_t which) const {
        if (!methods[which].is_valid()) refuse("the grammar of these masks is gone");
        return methods[which];
    }

    static std::int64_t number(std::size_t which, const nb::object &from) {
        std::int64_t out;
        if (!nb::try_cast(from, out, false))
            refuse(std::string(names[which]) + ": a whole number is wanted from the grammar");
        return out;
    }
};

struct PyMasks {
    PyMasks(const Trie &trie, const nb::object &callbacks, std::int64_t most_bytes)
        : grammar(callbacks), masks(trie, grammar, most_bytes) {}
    PyMasks(const PyMasks &) = delete;
    PyMasks &operator=(const PyMasks &) = delete;

    Callbacks grammar;
    Masks masks;
};

// A grammar mostly holds the masks that hold it; Python's collector has to see that.
int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    for (const nb::object &method : nb::inst_ptr<PyMasks>(self)->grammar.methods)
        Py_VISIT(method.ptr());
    return 0;
}

int let_go(PyObject *self) {
    for (nb::object &method : nb::inst_ptr<PyMasks>(self)->grammar.methods) method.reset();
    return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void *>(&traverse)},
                       {Py_tp_clear, reinterpret_cast<void *>(&let_go)},
                       {0, nullptr}};

using Starts = std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

std::vector<Start> starts_of(const Starts &from) {
    std::vector<Start> out;
    for (const auto &[entry, outer, but] : from) out.push_back({entry, outer, but});
    return out;
}

nb::tuple mask(PyMasks &self, const Starts &starts, std::int64_t limit, nb::handle out) {
    nb::ndarray<std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> words;
    if (!nb::try_cast(out, words, false) ||
        static_cast<std::int64_t>(words.size()) != self.masks.trie().words() ||
        reinterpret_cast<std::uintptr_t>(words.data()) % alignof(std::uint32_t) != 0)
        refuse("out: a writable uint32 array of " + std::to_string(self.masks.trie().words()) +
               " words is wanted");
    const MaskAnswer answer = self.masks.mask(starts_of(starts), limit, words.data());
    return nb::make_tuple(answer.count, answer.worst, answer.doubtful);
}

nb::list exit_texts(const PyMasks &self, std::int64_t entry) {
    nb::list out;
    for (const auto &[text, ids] : self.masks.exit_texts(entry))
        out.append(nb::make_tuple(to_bytes(text), ids));
    return out;
}

void bind_trie(nb::module_ &module) {
    nb::class_<Trie>(module, "Trie", "The texts of a vocabulary as a tree of bytes.")
        .def(nb::new_(&make_trie), nb::arg("ids"), nb::arg("blob"), nb::arg("offsets"),
             nb::arg("size"))
        .def_static("from_arrays", &trie_from_arrays, nb::arg("bytes"), nb::arg("depths"),
                    nb::arg("first"), nb::arg("ids"), nb::arg("size"),
                    nb::rv_policy::take_ownership, "From what `arrays` gave.")
        .def("arrays", &trie_arrays, "What `from_arrays` takes, but for the size.")
        .def_prop_ro("nodes", [](const Trie &t) { return t.tree().nodes(); })
        .def_prop_ro("size", &Trie::size, "How many rows the scores have.")
        .def("find", [](const Trie &t, const nb::bytes &text) { return t.find(view(text)); },
             nb::arg("text"), "Ids with exactly these bytes, rising.")
        .def("segment", [](const Trie &t, const nb::bytes &text) { return segment(t, view(text)); },
             nb::arg("text"), "The fewest tokens that give a text.")
        .def("segment_count",
             [](const Trie &t, const nb::bytes &text) { return segment_count(t, view(text)); },
             nb::arg("text"), "How many tokens `segment` gives.");
}

void bind_machine(nb::class_<PyMasks> &masks) {
    masks
        .def("add_state",
             [](PyMasks &m, bool pop, std::int64_t cost, const nb::bytes &first) {
                 return m.masks.machine.add_state(pop, cost, view(first));
             },
             nb::arg("pop"), nb::arg("cost"), nb::arg("first"))
        .def("add_move",
             [](PyMasks &m, const std::vector<std::array<std::int64_t, 3>> &items) {
                 return m.masks.machine.add_move(items);
             },
             nb::arg("items"))
        .def("add_outer",
             [](PyMasks &m, std::int64_t move, std::int64_t cost, std::int64_t parent) {
                 return m.masks.machine.add_outer(move, cost, parent);
             },
             nb::arg("move"), nb::arg("cost"), nb::arg("parent"))
        .def("text_state",
             [](PyMasks &m, std::int64_t language, const nb::bytes &written) {
                 return m.masks.machine.texts.state(language, view(written));
             },
             nb::arg("language"), nb::arg("written"))
        .def("text_after",
             [](PyMasks &m, std::int64_t text, std::uint8_t byte) {
                 m.masks.machine.check_text(text);
                 return m.masks.machine.texts.after(static_cast<int>(text), byte);
             },
             nb::arg("text_state"), nb::arg("byte"))
        .def("text_cost",
             [](PyMasks &m, std::int64_t text) {
                 m.masks.machine.check_text(text);
                 return m.masks.machine.texts.cost(static_cast<int>(text));
             },
             nb::arg("text_state"));
}

}  // namespace

void bind_masks(nb::module_ &module) {
    bind_trie(module);
    nb::class_<PyMasks> masks(module, "Masks", nb::type_slots(slots),
                              "Which tokens may come next under a grammar.");
    masks
        .def(nb::init<const Trie &, const nb::object &, std::int64_t>(), nb::arg("trie"),
             nb::arg("callbacks"), nb::arg("most_bytes") = std::int64_t{1} << 30,
             nb::keep_alive<1, 2>())
        .def("add_tokens",
             [](PyMasks &m, const std::vector<std::int64_t> &ids) {
                 return m.masks.add_tokens(ids);
             },
             nb::arg("ids"))
        .def("adopt_entry",
             [](PyMasks &m, const PyMasks &other, std::int64_t entry) {
                 return m.masks.adopt_entry(other.masks, entry);
             },
             nb::arg("other"), nb::arg("entry"))
        .def("adopt_tokens",
             [](PyMasks &m, const PyMasks &other, std::int64_t list) {
                 return m.masks.adopt_tokens(other.masks, list);
             },
             nb::arg("other"), nb::arg("list"))
        .def("entry_state", [](PyMasks &m, std::int64_t s) { return m.masks.entry_state(s); },
             nb::arg("state"))
        .def("entry_text", [](PyMasks &m, std::int64_t t) { return m.masks.entry_text(t); },
             nb::arg("text_state"))
        .def("entry_name",
             [](PyMasks &m, std::int64_t text, std::int64_t state, const nb::bytes &raw) {
                 return m.masks.entry_name(text, state, std::string(view(raw)));
             },
             nb::arg("text_state"), nb::arg("state"), nb::arg("raw"))
        .def("mask", &mask, nb::arg("starts"), nb::arg("limit"), nb::arg("out"))
        .def("costs",
             [](PyMasks &m, const Starts &starts, const std::vector<std::int64_t> &ids) {
                 return m.masks.costs(starts_of(starts), ids);
             },
             nb::arg("starts"), nb::arg("ids"))
        .def("exit_texts", &exit_texts, nb::arg("entry"))
        .def_prop_ro("nbytes", [](const PyMasks &m) { return m.masks.machine.budget.used; });
    bind_machine(masks);
    for (int kind = 0; kind < item_kinds; ++kind) {
        constexpr const char *names[item_kinds] = {"STATE", "TEXT",   "NAME",
                                                    "POPPED", "DOUBT", "CALL"};
        masks.attr(names[kind]) = kind;
    }
}

}  // namespace forwardpass
