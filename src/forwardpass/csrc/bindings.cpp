// The only file that sees Python.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "cpu.h"

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

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "The C++ part of forwardpass.";
    module.def("cpu", &cpu, "What this processor and operating system let a program use.");
}
