// What Python sees of programs and caches. Whatever it hands over is checked before it is used.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "arrays.h"
#include "levels.h"
#include "members.h"
#include "program.h"

namespace nb = nanobind;

namespace forwardpass {
namespace {

struct CacheObject {
    std::unique_ptr<Cache> cache;
    const Kernels *kernels;
    // One more than the forks when a pass took it; 0: none has. A pass of the parent does not go on
    // in a forked child.
    std::uint64_t taken = 0;

    Cache &free() const {
        if (taken == forks_so_far() + 1) refuse("the cache is in use by a pass");
        return *cache;
    }
};

constexpr std::int64_t most_tokens = std::int64_t{1} << 31;

void check_tokens(std::int64_t tokens) {
    if (tokens < 0 || tokens > most_tokens) refuse("tokens must be from 0 to 2^31");
}

struct ProgramObject {
    ProgramObject(const Tables &tables, const std::vector<Slot> &slots,
                  std::vector<StateShape> states, KvType kv_type, std::int64_t rows,
                  const Kernels *kernels, int threads)
        : program(tables, slots, std::move(states), kv_type, rows, kernels, threads) {}

    Program program;
    std::map<int, std::pair<nb::object, nb::object>> ropes;
};

KvType kv_type_named(const std::string &name) {
    if (name == "f16") return KvType::f16;
    if (name == "bf16") return KvType::bf16;
    if (name == "f32") return KvType::f32;
    refuse("kv_type \"" + name + "\": there are f16, bf16, f32");
}

void make_program(ProgramObject *self, const Tables &tables, nb::list slots, nb::list states,
                  const std::string &kv_type, std::int64_t rows, const std::string &level,
                  int threads) {
    const auto pair = [](nb::handle item, const char *what) {
        if (!nb::isinstance<nb::tuple>(item) || nb::len(item) != 2)
            refuse(std::string(what) + " are pairs");
        return nb::borrow<nb::tuple>(item);
    };
    std::vector<Slot> all_slots;
    for (nb::handle item : slots) {
        const nb::tuple two = pair(item, "slots");
        all_slots.push_back({value_of<std::int64_t>(two[0], "slot"), value_of<bool>(two[1], "slot")});
    }
    std::vector<StateShape> all_states;
    for (nb::handle item : states) {
        const nb::tuple two = pair(item, "states");
        all_states.push_back(
            {value_of<std::int64_t>(two[0], "state"), value_of<std::int64_t>(two[1], "state")});
    }
    if (threads < 1 || threads > 1024) refuse("threads must be from 1 to 1024");
    new (self) ProgramObject(tables, all_slots, std::move(all_states), kv_type_named(kv_type), rows,
                             choose_level(level), threads);
}

RowOp row_op(nb::handle from, Program &program) {
    Members m(from);
    RowOp op{};
    if (m.find("kind").is_none()) refuse("a row operation needs a kind");
    op.kind = m.choice("kind",
                       {"embed", "add_positions", "scale", "rms_norm", "layer_norm",
                        "head_layer_norm", "rope", "add", "relu", "gelu", "gelu_erf",
                        "silu_multiply", "gelu_multiply", "softcap", "quantize", "write_cache",
                        "gather", "copy"},
                       RowKind::copy);
    op.a = m.view("a");
    op.b = m.view("b");
    op.out = m.view("out");
    op.width = m.get<std::int64_t>("width", 0);
    op.heads = m.get<std::int64_t>("heads", 1);
    constexpr std::int64_t most = std::int64_t{1} << 31;
    if (op.width < 1 || op.width > most || op.heads < 1 || op.heads > most)
        refuse("an operation on " + std::to_string(op.heads) + " parts of " +
               std::to_string(op.width));
    const bool by_head = op.kind == RowKind::head_layer_norm;
    op.weight = m.floats("weight", program, op.width * (by_head ? op.heads : 1));
    op.bias = m.floats("bias", program, op.width);
    op.number = m.get<float>("number", 0.0f);
    op.offset = m.get<std::int64_t>("offset", 0);
    op.table = m.get<int>("table", -1);
    op.rope = m.get<int>("rope", -1);
    op.state = m.get<int>("state", -1);
    op.pairs = m.get<std::int64_t>("pairs", 0);
    op.interleaved = m.get<bool>("interleaved", false);
    op.node = m.get<int>("node", -1);
    m.done();
    return op;
}

void row_step(ProgramObject &self, nb::list ops, bool wanted) {
    RowStep step;
    step.wanted = wanted;
    for (nb::handle op : ops) step.ops.push_back(row_op(op, self.program));
    self.program.add(std::move(step));
}

Segment segment_of(nb::handle from, Program &program) {
    Members m(from);
    Segment s{};
    s.table = m.get<int>("table", -1);
    s.up = m.get<int>("up", -1);
    const std::int64_t rows = program.table(s.table).rows;
    const std::int64_t padded = panel_count(rows) * panel_rows;
    s.bias = m.floats("bias", program, rows, padded);
    s.up_bias = m.floats("up_bias", program, rows, padded);
    s.out = m.view("out");
    s.residual = m.view("residual");
    s.gate = m.choice("gate", {"none", "silu", "gelu"}, Gate::none);
    s.act = m.choice("act", {"none", "relu", "gelu", "gelu_erf"}, Act::none);
    s.cap = m.get<float>("cap", 0.0f);
    s.quantize = m.get<bool>("quantize", false);
    s.floats = m.get<bool>("floats", true);
    s.node = m.get<int>("node", -1);
    m.done();
    return s;
}

void linear_step(ProgramObject &self, nb::tuple in, nb::list segments, bool wanted) {
    LinearStep step;
    if (nb::len(in) != 2) refuse("in_: a view is (slot, column)");
    step.in = {value_of<int>(in[0], "in_"), value_of<std::int64_t>(in[1], "in_")};
    step.wanted = wanted;
    for (nb::handle segment : segments) step.segments.push_back(segment_of(segment, self.program));
    self.program.add(std::move(step));
}

void attention_step(ProgramObject &self, nb::dict from) {
    Members m(from);
    AttentionStep s;
    s.q = m.view("q");
    s.out = m.view("out");
    s.state = m.get<int>("state", -1);
    s.heads = m.get<std::int64_t>("heads", 0);
    s.groups = m.get<std::int64_t>("groups", 0);
    s.width = m.get<std::int64_t>("width", 0);
    s.scale = m.get<float>("scale", 1.0f);
    s.softcap = m.get<float>("softcap", 0.0f);
    s.window = m.get<std::int64_t>("window", 0);
    s.slopes = m.list("slopes");
    s.sinks = m.list("sinks");
    s.quantize = m.get<bool>("quantize", false);
    s.node = m.get<int>("node", -1);
    m.done();
    self.program.add(std::move(s));
}

void set_rope(ProgramObject &self, int number, nb::object cos, nb::object sin) {
    const auto c = array<float>(cos, "cos", 2), s = array<float>(sin, "sin", 2);
    if (c.shape(0) != s.shape(0) || c.shape(1) != s.shape(1))
        refuse("cos and sin differ in shape");
    const Rope rope{c.data, s.data, c.shape(0), c.shape(1)};
    self.program.check_rope(number, rope);
    {
        const nb::gil_scoped_release released;  // a pass may be running
        self.program.set_rope(number, rope);
    }
    self.ropes[number] = {nb::cast(c.held), nb::cast(s.held)};
}

// Python's StepFault, with its members.
[[noreturn]] void raise(const Fault &fault) {
    const char *kind = fault.kind == Fault::cache ? "cache" : "finite";
    const nb::object type = nb::module_::import_("forwardpass._native").attr("StepFault");
    const nb::object error = type(kind, fault.step, fault.node, fault.row);
    error.attr("kind") = kind;
    error.attr("step") = fault.step;
    error.attr("node") = fault.node;
    error.attr("row") = fault.row;
    PyErr_SetObject(type.ptr(), error.ptr());
    throw nb::python_error();
}

// Caches that a pass has taken, until it ends.
class Taken {
  public:
    explicit Taken(nb::list from) {
        for (nb::handle item : from) {
            if (!nb::isinstance<CacheObject>(item)) refuse("caches: a list of Cache is wanted");
            CacheObject *one = nb::cast<CacheObject *>(item);
            caches.push_back(&one->free());
            objects_.push_back(one);
        }
    }
    void take() {
        for (CacheObject *one : objects_) one->taken = forks_so_far() + 1;
        held_ = true;
    }
    ~Taken() {
        if (held_)
            for (CacheObject *one : objects_) one->taken = 0;
    }
    std::vector<Cache *> caches;

  private:
    std::vector<CacheObject *> objects_;
    bool held_ = false;
};

void run(ProgramObject &self, nb::handle tokens, nb::handle positions, nb::handle sequences,
         nb::list caches, nb::handle wanted, std::int64_t first, std::int64_t last, bool prompt,
         bool check, bool stamps) {
    const auto t = array<std::int64_t>(tokens, "tokens", 1);
    const auto p = array<std::int64_t>(positions, "positions", 1);
    const auto s = array<std::int32_t>(sequences, "sequences", 1);
    const auto w = array<std::int64_t>(wanted, "wanted", 1);
    if (p.size != t.size || s.size != t.size)
        refuse("tokens, positions and sequences differ in length");
    // Copies: what was checked must be what is used, whoever writes to the arrays meanwhile.
    const std::vector<std::int64_t> all_tokens(t.data, t.data + t.size);
    const std::vector<std::int64_t> all_positions(p.data, p.data + p.size);
    const std::vector<std::int32_t> all_sequences(s.data, s.data + s.size);
    const std::vector<std::int64_t> all_wanted(w.data, w.data + w.size);
    const nb::list listed(caches);  // likewise, and they stay alive
    Taken taken(listed);
    const Pass pass{all_tokens.data(),
                    all_positions.data(),
                    all_sequences.data(),
                    t.size,
                    taken.caches.data(),
                    static_cast<std::int64_t>(taken.caches.size()),
                    all_wanted.data(),
                    w.size,
                    prompt};
    if (last == -1) last = static_cast<std::int64_t>(self.program.steps().size());
    self.program.prepare(pass, first, last);
    taken.take();
    Fault fault;
    {
        const nb::gil_scoped_release released;
        fault = self.program.run(pass, first, last, check, stamps);
    }
    if (fault.kind != Fault::none) raise(fault);
}

nb::ndarray<nb::numpy, float> slot(nb::handle_t<ProgramObject> self, std::int64_t number,
                                   std::int64_t rows) {
    const Program &program = nb::cast<ProgramObject &>(self).program;
    const SlotMemory &slot = program.slot(number);
    if (rows < 0 || rows > program.rows())
        refuse("rows must be from 0 to " + std::to_string(program.rows()));
    return nb::ndarray<nb::numpy, float>(
        slot.row(0), {static_cast<std::size_t>(rows), static_cast<std::size_t>(slot.width)}, self,
        {slot.stride, 1});
}

nb::tuple stamps(const ProgramObject &self) {
    const std::vector<Step> &steps = self.program.steps();
    auto work = new_array<double>({steps.size()}), wait = new_array<double>({steps.size()});
    for (std::size_t i = 0; i < steps.size(); ++i) {
        work.data()[i] = steps[i].work;
        wait.data()[i] = steps[i].wait;
    }
    return nb::make_tuple(work, wait);
}

void set_length(CacheObject &self, std::int64_t length) {
    Cache &cache = self.free();
    if (length < 0 || length > cache.length())
        refuse("a length of " + std::to_string(length) + ": the cache has " +
               std::to_string(cache.length()) + " positions, and can only be cut");
    cache.set_length(length);
}

nb::ndarray<nb::numpy, float> read(const CacheObject &self, int state, int which,
                                   std::int64_t head, std::int64_t position) {
    const Cache &cache = self.free();
    const std::vector<StateShape> &states = cache.shape().states();
    if (state < 0 || state >= static_cast<int>(states.size()) || which < 0 || which > 1 ||
        head < 0 || head >= states[static_cast<std::size_t>(state)].groups || position < 0 ||
        position >= cache.length())
        refuse("the cache has no such key or value");
    auto out = new_array<float>(
        {static_cast<std::size_t>(states[static_cast<std::size_t>(state)].width)});
    cache.read(state, which, head, position, out.data());
    return out;
}

void bind_cache(nb::module_ &module) {
    nb::class_<CacheObject>(module, "Cache", "The keys and values of one sequence.")
        .def("__init__", [](CacheObject *self, const ProgramObject &program) {
            new (self) CacheObject{std::make_unique<Cache>(program.program.shape()),
                                   &program.program.kernels()};
        }, nb::arg("program"))
        .def_prop_rw("length", [](const CacheObject &self) { return self.cache->length(); },
                     &set_length, "Positions written; setting it cuts.")
        .def_prop_ro("nbytes", [](const CacheObject &self) { return self.free().nbytes(); })
        .def("reserve", [](CacheObject &self, std::int64_t tokens) {
            check_tokens(tokens);
            self.free().reserve(tokens);
        }, nb::arg("tokens"), "Makes room for that many positions in all.")
        .def("fork", [](const CacheObject &self) {
            return std::make_unique<CacheObject>(self.free().fork(), self.kernels);
        }, "A copy.")
        .def("fill_random", [](CacheObject &self, std::int64_t tokens, std::uint64_t seed) {
            check_tokens(tokens);
            self.free().fill_random(tokens, seed, *self.kernels);
        }, nb::arg("tokens"), nb::arg("seed"), "Keys and values from -1 to 1.")
        .def("read", &read, nb::arg("state"), nb::arg("which"), nb::arg("head"),
             nb::arg("position"), "A key (which = 0) or a value (1) of one head.");
}

}  // namespace

void bind_program(nb::module_ &module) {
    module.attr("StepFault") = nb::steal(
        PyErr_NewException("forwardpass._native.StepFault", PyExc_RuntimeError, nullptr));
    nb::class_<ProgramObject>(module, "Program", "A graph as a list of fused steps.")
        .def("__init__", &make_program, nb::arg("tables"), nb::arg("slots"), nb::arg("states"),
             nb::arg("kv_type"), nb::arg("rows"), nb::arg("level"), nb::arg("threads"),
             nb::keep_alive<1, 2>())
        .def("row_step", &row_step, nb::arg("ops"), nb::arg("wanted"))
        .def("linear_step", &linear_step, nb::arg("in_"), nb::arg("segments"), nb::arg("wanted"))
        .def("attention_step", &attention_step, nb::arg("members"))
        .def("set_rope", &set_rope, nb::arg("number"), nb::arg("cos"), nb::arg("sin"))
        .def("run", &run, nb::arg("tokens"), nb::arg("positions"), nb::arg("sequences"),
             nb::arg("caches"), nb::arg("wanted"), nb::arg("first") = 0, nb::arg("last") = -1,
             nb::arg("prompt") = false, nb::arg("check") = false, nb::arg("stamps") = false,
             "Runs steps first to last - 1 for the rows of one pass: of a prompt, or generated.")
        .def("slot", &slot, nb::arg("number"), nb::arg("rows"),
             "The slot's memory, valid until the next run.")
        .def("stamps", &stamps, "Seconds of thread 0 in each step: its work, then its wait.")
        .def_prop_ro("steps", [](const ProgramObject &self) { return self.program.steps().size(); })
        .def_prop_ro("level", [](const ProgramObject &self) { return self.program.kernels().level; })
        .def_prop_ro("threads", [](const ProgramObject &self) { return self.program.threads(); });
    bind_cache(module);
}

}  // namespace forwardpass
