// What Python sees of the machine and of packed tables. Only the bindings see Python.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "ceilings.h"
#include "cpu.h"
#include "levels.h"
#include "tables.h"

namespace nb = nanobind;

namespace {

const char *name(forwardpass::TilePermission permission) {
    switch (permission) {
        case forwardpass::TilePermission::granted: return "granted";
        case forwardpass::TilePermission::on_request: return "on request";
        case forwardpass::TilePermission::unsupported: break;
    }
    return "unsupported";
}

nb::dict cpu() {
    const forwardpass::Cpu found = forwardpass::describe_cpu();
    nb::dict features, caches, report;
    for (const auto &[feature, present] : found.features) features[feature] = present;
    caches["l1d"] = found.l1d;
    caches["l2"] = found.l2;
    caches["l3"] = found.l3;
    report["vendor"] = found.vendor;
    report["brand"] = found.brand;
    report["features"] = features;
    report["tile_permission"] = name(found.tile_permission);
    report["caches"] = caches;
    return report;
}

std::vector<std::string> levels() {
    std::vector<std::string> names;
    for (const forwardpass::Kernels *level : forwardpass::runnable_levels())
        names.push_back(level->level);
    return names;
}

bool has_tiles(const std::string &level) {
    return forwardpass::choose_level(level)->tiles != nullptr;
}

double read_rate(std::int64_t nbytes, int threads, int repetitions) {
    if (nbytes < 4096 || nbytes > (std::int64_t{1} << 40))
        throw std::invalid_argument("nbytes must be from 4,096 to 2^40");
    if (threads < 1 || threads > 1024 || repetitions < 1)
        throw std::invalid_argument("threads must be from 1 to 1024, repetitions at least 1");
    const nb::gil_scoped_release released;
    return forwardpass::read_rate(nbytes, threads, repetitions);
}

double tile_rate(const std::string &level, int threads, double seconds) {
    const forwardpass::Tiles *tiles = forwardpass::choose_level(level)->tiles;
    if (!tiles) throw std::invalid_argument("the level has no tiles");
    if (threads < 1 || threads > 1024 || !(seconds > 0 && seconds <= 10))
        throw std::invalid_argument("threads must be from 1 to 1024, seconds at most 10");
    const nb::gil_scoped_release released;
    return forwardpass::tile_rate(*tiles, threads, seconds);
}

using forwardpass::array;
using forwardpass::array_or_none;
using forwardpass::Tables;

void check_order(const forwardpass::Array<std::int64_t> &order, std::int64_t rows) {
    if (order && order.size != rows)
        throw std::invalid_argument("order has " + std::to_string(order.size) +
                                    " numbers, the table " + std::to_string(rows) + " rows");
}

int add(Tables &tables, const std::string &type, std::int64_t rows, std::int64_t cols,
        nb::handle stored, nb::handle order) {
    const auto bytes = array<std::uint8_t>(stored, "stored", 1);
    const auto numbers = array_or_none<std::int64_t>(order, "order", 1);
    check_order(numbers, rows);
    forwardpass::Table packed;
    {
        const nb::gil_scoped_release released;
        packed = forwardpass::pack_table(tables.arena(), forwardpass::type_named(type), rows, cols,
                                         bytes.data, bytes.size, numbers.data, tables.threads());
    }
    return tables.add(packed);
}

// Arrays that outlive whoever handed them over.
struct Kept {
    forwardpass::Array<std::uint8_t> stored;
    forwardpass::Array<std::int64_t> order;
};

int queue(Tables &tables, const std::string &type, std::int64_t rows, std::int64_t cols,
          nb::handle stored, nb::handle order, bool mapped) {
    const std::shared_ptr<Kept> kept(new Kept{array<std::uint8_t>(stored, "stored", 1),
                                              array_or_none<std::int64_t>(order, "order", 1)},
                                     [](Kept *arrays) {
                                         const nb::gil_scoped_acquire held;
                                         delete arrays;
                                     });
    check_order(kept->order, rows);
    forwardpass::PackingJob job =
        forwardpass::packing_job(tables.arena(), forwardpass::type_named(type), rows, cols,
                                 kept->stored.data, kept->stored.size, kept->order.data);
    job.mapped = mapped;
    job.owner = kept;
    const int number = tables.add(job.table);
    tables.packer().add(std::move(job));
    return number;
}

bool wait(Tables &tables, double seconds) {
    const nb::gil_scoped_release released;
    return tables.packer().wait(seconds);
}

void stop(Tables &tables) {
    const nb::gil_scoped_release released;
    tables.packer().stop();
}

int add_mlx4(Tables &tables, const std::string &name, std::int64_t rows, std::int64_t cols,
             std::int64_t group, nb::handle words, nb::handle scales, nb::handle biases,
             nb::handle order) {
    const forwardpass::Type type = forwardpass::type_named(name);
    forwardpass::check_mlx4(type, rows, cols, group);
    const auto w = array<std::uint32_t>(words, "words", 2);
    const auto s = array<std::uint16_t>(scales, "scales", 2);
    const auto b = array<std::uint16_t>(biases, "biases", 2);
    const auto numbers = array_or_none<std::int64_t>(order, "order", 1);
    if (w.shape(0) != rows || w.shape(1) != cols / 8 || s.shape(0) != rows ||
        s.shape(1) != cols / group || b.shape(0) != rows || b.shape(1) != cols / group ||
        (numbers && numbers.size != rows))
        throw std::invalid_argument(
            "words are rows x cols / 8, scales and biases rows x cols / group, order has rows");
    forwardpass::Table packed;
    {
        const nb::gil_scoped_release released;
        packed = forwardpass::pack_mlx4_table(tables.arena(), type, rows, cols, group, w.data, s.data,
                                              b.data, numbers.data, tables.threads());
    }
    return tables.add(packed);
}

nb::ndarray<nb::numpy, float> decode_row(const Tables &tables, std::int64_t number,
                                         std::int64_t row) {
    const forwardpass::Table &table = tables.at(number);
    if (row < 0 || row >= table.rows)
        throw std::invalid_argument("row " + std::to_string(row) + " of " +
                                    std::to_string(table.rows));
    auto out = forwardpass::new_array<float>({static_cast<std::size_t>(table.cols)});
    forwardpass::kernels_portable()->decode_row(table, row, out.data());
    return out;
}

std::vector<std::string> type_names() {
    std::vector<std::string> names;
    for (int i = 0; i < static_cast<int>(forwardpass::Type::count); ++i)
        names.push_back(forwardpass::type_name(static_cast<forwardpass::Type>(i)));
    return names;
}

void bind_tables(nb::module_ &module) {
    nb::class_<Tables> tables(module, "Tables", "Packed tables and their memory.");
    tables.def(nb::init<int>(), nb::arg("threads"))
        .def("add", &add, nb::arg("type"), nb::arg("rows"), nb::arg("cols"), nb::arg("stored"),
             nb::arg("order").none() = nb::none(), "Packs a table; its number.")
        .def("queue", &queue, nb::arg("type"), nb::arg("rows"), nb::arg("cols"), nb::arg("stored"),
             nb::arg("order").none(), nb::arg("mapped"),
             "Has a table packed by other threads; its number. The pages of a mapped file are given "
             "up on the way.")
        .def("wait", &wait, nb::arg("seconds"),
             "Until what was queued is packed, for so long at most; whether it is.")
        .def("stop", &stop, "Leaves what is queued as it is.")
        .def_prop_ro("packed", [](const Tables &t) { return t.packer().packed(); },
                     "Bytes of queued rows that are packed, as they were stored.")
        .def("add_mlx4", &add_mlx4, nb::arg("type"), nb::arg("rows"), nb::arg("cols"),
             nb::arg("group"), nb::arg("words"), nb::arg("scales"), nb::arg("biases"),
             nb::arg("order").none() = nb::none(), "Packs one of MLX's tables; its number.")
        .def("decode_row", &decode_row, nb::arg("table"), nb::arg("row"))
        .def_prop_ro("nbytes", &Tables::nbytes, "Bytes of all packed tables.");
    tables.attr("types") = type_names();
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "The C++ part of forwardpass.";
    module.def("cpu", &cpu, "What this processor and operating system let a program use.");
    module.attr("cache_block") = forwardpass::kv_block;
    module.def("levels", &levels, "Instruction-set levels that run here, best first.");
    module.def("has_tiles", &has_tiles, nb::arg("level"),
               "Whether the products of prompts are those of bf16 tiles.");
    module.def("read_rate", &read_rate, nb::arg("nbytes"), nb::arg("threads"),
               nb::arg("repetitions"), "Bytes a second read from memory: the best repetition.");
    module.def("tile_rate", &tile_rate, nb::arg("level"), nb::arg("threads"), nb::arg("seconds"),
               "FLOP a second of products of bf16 tiles from the first cache, all threads together.");
    bind_tables(module);
    forwardpass::bind_program(module);
    forwardpass::bind_sampler(module);
    forwardpass::bind_masks(module);
    forwardpass::bind_tests(module);
}
