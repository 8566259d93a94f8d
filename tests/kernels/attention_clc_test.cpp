// Tiles by cluster launch control: whatever the device grants or refuses, each tile is computed once, and to
// the bits of the static schedulers.
#include <nlohmann/json.hpp>

#include "kernels/attention_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// What the CPU driver answers requests with (MXFA_EMU_CLC), for the launches in its scope.
struct Grants {
  explicit Grants(const char* mode) { setenv("MXFA_EMU_CLC", mode, 1); }
  ~Grants() { unsetenv("MXFA_EMU_CLC"); }
};

// Bytes that the copy engine has moved and MMAs that were issued so far: a tile computed twice adds to both.
std::pair<uint64_t, uint64_t> work_so_far() {
  const auto counters = nlohmann::json::parse(Device::instance().driver().counters());
  return {counters.at("tma_bytes").get<uint64_t>(), counters.at("mma_instructions").get<uint64_t>()};
}

struct Measured {
  AttentionOutputs outputs;
  uint64_t tma_bytes, mma_instructions;
};
Measured measure(const AttentionInputs& inputs) {
  const auto before = work_so_far();
  AttentionOutputs outputs = run_attention(inputs);
  const auto after = work_so_far();
  return {std::move(outputs), after.first - before.first, after.second - before.second};
}

void check_grants(AttentionInputs inputs, int seeds) {
  inputs.kernel = R"({"scheduler": "static"})";
  const Measured want = measure(inputs);
  check_kernel_rounding(inputs, want.outputs);
  inputs.kernel = R"({"scheduler": "clc"})";
  const auto check_same = [&] {
    const Measured got = measure(inputs);
    CHECK(got.outputs == want.outputs);
    CHECK(got.tma_bytes == want.tma_bytes);
    CHECK(got.mma_instructions == want.mma_instructions);
  };
  for (const char* mode : {"ordered", "refuse", "one", "random"})
    for (int seed = 0; seed < seeds; ++seed) {
      const std::string order = seed % 3 == 0 ? "random" : seed % 3 == 1 ? "pct" : "split";
      INFO("grants " << mode << ", schedule " << order << ":" << seed);
      const Schedule schedule(order + ":" + std::to_string(seed));
      const Grants grants(mode);
      check_same();
    }
  for (const char* order : {"functional", "lazy", "eager"}) {
    INFO("schedule " << order);
    const Schedule schedule(order);
    check_same();
  }
}

}  // namespace

TEST_CASE("sched-clc-random-grants: dynamic scheduling with any grant order",
          "[attention][sm_100][clc][cases]") {
  check_grants(make_inputs(problem_of({130, 64, 130, 64}, {300, 0, 5, 128}, 2, 128), /*mxfp8=*/false), 5);
}

TEST_CASE("sched-clc-random-grants: one Q for all sequences", "[attention][sm_100][clc][cases]") {
  AttentionProblem problem = problem_of({130}, {300, 0, 5, 128}, 2, 128);
  problem.broadcast_q = true;
  check_grants(make_inputs(problem, /*mxfp8=*/false), 20);
}

TEST_CASE("Granted tiles of MXFP8 and under masks have the bits of static ones", "[attention][sm_100][clc]") {
  AttentionProblem problem = problem_of({300, 70, 1}, {300, 200, 0}, 2, 64);
  problem.causal = true;
  problem.window_left = 150;
  for (const bool dynamic_p : {false, true}) {
    AttentionInputs inputs = make_inputs(problem, /*mxfp8=*/true);
    inputs.dynamic_p = dynamic_p;
    check_grants(inputs, 2);
  }
}

// The last P V of a tile is issued with the first products of the next one that has keys.  It must not wait
// for grants that others hold up until they have its result.
TEST_CASE("Any number of tiles without keys may come between two with keys", "[attention][sm_100][clc]") {
  for (const bool mxfp8 : {false, true})
    check_grants(
        make_inputs(problem_of({3, 1, 200, 1, 1, 260, 5, 1, 1, 2}, {200, 0, 0, 0, 0, 0, 9, 0, 140, 0}, 1, 64),
                    mxfp8),
        2);
}

// More tiles than SMs: CTAs with a chain of tiles of their own, and CTAs that are taken over.
TEST_CASE("Chains and granted tiles together cover every tile once", "[attention][sm_100][clc]") {
  std::vector<int32_t> lengths_q, lengths_k;
  Random random(7);
  for (int b = 0; b < 220; ++b) {
    lengths_q.push_back(1 + static_cast<int32_t>(random.next() % 40));
    lengths_k.push_back(static_cast<int32_t>(random.next() % 60));
  }
  check_grants(make_inputs(problem_of(lengths_q, lengths_k, 1, 64), /*mxfp8=*/false), 1);
}
