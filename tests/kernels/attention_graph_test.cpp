// rt-graph-new-lengths as a CUDA graph: captured once, replayed with other lengths.
#include <dlfcn.h>

#include <functional>

#include "kernels/attention_lengths_run.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// What the runtime itself does not use, from the library that it loaded.
struct GraphFunctions {
  decltype(&cuStreamBeginCapture_v2) begin;
  decltype(&cuStreamEndCapture) end;
  decltype(&cuGraphInstantiateWithFlags) instantiate;
  decltype(&cuGraphLaunch) launch;
  decltype(&cuGraphDestroy) destroy;
  decltype(&cuGraphExecDestroy) destroy_exec;

  GraphFunctions() {
    void* library = dlopen(Device::instance().driver().library.c_str(), RTLD_NOW);
    REQUIRE(library);
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      REQUIRE(function);
    };
    find(begin, "cuStreamBeginCapture_v2");
    find(end, "cuStreamEndCapture");
    find(instantiate, "cuGraphInstantiateWithFlags");
    find(launch, "cuGraphLaunch");
    find(destroy, "cuGraphDestroy");
    find(destroy_exec, "cuGraphExecDestroy");
  }
};

// What `work` launches, as a graph.  The mode is the one that forbids most: a launch that allocates, copies
// or waits fails.
class Captured {
 public:
  explicit Captured(const std::function<void()>& work) : device_(Device::instance()) {
    const auto check = [&](CUresult result, const char* what) { device_.driver().check(result, what); };
    check(cu_.begin(device_.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    work();
    CUgraph graph = nullptr;
    check(cu_.end(device_.stream(), &graph), "cuStreamEndCapture");
    check(cu_.instantiate(&exec_, graph, 0), "cuGraphInstantiate");
    check(cu_.destroy(graph), "cuGraphDestroy");
  }
  ~Captured() { cu_.destroy_exec(exec_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  void replay() const {
    device_.driver().check(cu_.launch(exec_, device_.stream()), "cuGraphLaunch");
    device_.synchronize();
  }

 private:
  const GraphFunctions cu_;
  const Device& device_;
  CUgraphExec exec_ = nullptr;
};

AttentionInputs forward_of(const std::vector<int32_t>& lengths, uint64_t seed) {
  return make_inputs(problem_of(lengths, lengths, 4, 128), false, DataDistribution::kNormal, 1.0, seed);
}

void check_forward_graph() {
  const AttentionInputs first = forward_of(kReplays[0], 1);
  CapacityForward forward(first, kCapacity);
  forward.set(first);
  const Captured graph([&] { forward.launch(); });
  CHECK(forward.outputs_untouched());  // captured, not run
  uint64_t seed = 1;
  for (const auto& lengths : kReplays) {
    CAPTURE(lengths);
    const AttentionInputs inputs = forward_of(lengths, seed++);
    forward.set(inputs);
    graph.replay();
    CHECK_NOTHROW(forward.check());
    CHECK(forward.outputs() == run_attention(inputs));
  }
  const auto offsets = [](const std::vector<int32_t>& lengths) {
    return problem_of(lengths, lengths, 1, 64).offsets_q;
  };
  forward.set_offsets(offsets({257, 0, 0, 0}), offsets({257, 0, 0, 0}));
  graph.replay();
  CHECK(forward.outputs_untouched());
  CHECK_THROWS_WITH(forward.check(), Contains("sequence 0 has 257 tokens"));
  forward.set_offsets(offsets({256, 256, 1, 0}), offsets({256, 256, 1, 0}));
  graph.replay();
  CHECK(forward.outputs_untouched());
  CHECK_THROWS_WITH(forward.check(), Contains("index 3 is 513"));
}

void check_backward_graph() {
  const auto inputs_of = [](const std::vector<int32_t>& lengths, uint64_t seed) {
    AttentionProblem problem = problem_of(lengths, lengths, 4, 64);
    problem.heads_kv = 2, problem.causal = true;
    return make_backward(problem, DataDistribution::kNormal, 1.0, seed);
  };
  const BackwardInputs first = inputs_of(kReplays[0], 1);
  CapacityBackward backward(first, kCapacity);
  backward.set(first, run_backward(first));
  const Captured graph([&] { backward.launch(); });
  CHECK(backward.outputs_untouched());
  uint64_t seed = 1;
  for (const auto& lengths : kReplays) {
    CAPTURE(lengths);
    const BackwardInputs inputs = inputs_of(lengths, seed++);
    backward.set(inputs, run_backward(inputs));
    graph.replay();
    CHECK_NOTHROW(backward.check());
    check_gradient_bounds(inputs, backward.outputs());
  }
}

}  // namespace

TEST_CASE("rt-graph-new-lengths: captured with one set of lengths, replayed with others",
          "[lengths][graph][any_arch]") {
  check_forward_graph();
}

TEST_CASE("rt-graph-new-lengths: captured and replayed on Hopper", "[gpu][lengths][graph][sm_90]") {
  const OnHopper hopper;
  if (hopper.ready()) check_forward_graph();
}

TEST_CASE("rt-graph-new-lengths: the backward, captured and replayed", "[gpu][lengths][graph][sm_90][bwd]") {
  const OnHopper hopper;
  if (hopper.ready()) check_backward_graph();
}
