// LSE and delta on their way into the backward's main kernel: at head_dim 64 they are operands of products,
// in which a row's numbers lie beside those of others (src/attention/attention_bwd_statistics.cuh).
#include <algorithm>
#include <limits>

#include "kernels/attention_backward_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

constexpr int kRows = 150, kBroken = 37;

bool finite(uint16_t bf16) { return (bf16 & 0x7f80) != 0x7f80; }
bool all_finite(const std::vector<uint16_t>& values, int head_dim, int row) {
  return std::all_of(values.begin() + row * head_dim, values.begin() + (row + 1) * head_dim, finite);
}
// One tile of keys, so that each element of dQ is added to once.
BackwardInputs one_tile(int head_dim) { return make_backward(problem_of({kRows}, {100}, 1, head_dim)); }

BackwardOutputs run_given(const BackwardInputs& inputs, const BackwardOutputs& given) {
  BackwardLaunch launch;
  launch.given = &given;
  launch.given_rows = kRows;
  return run_backward(inputs, launch);
}
void check_only_broken_row(const BackwardOutputs& outputs, const BackwardOutputs& clean, int head_dim) {
  for (int row = 0; row < kRows; ++row) {
    INFO("row " << row);
    const auto at = row * head_dim;
    if (row == kBroken)
      CHECK_FALSE(all_finite(outputs.dq, head_dim, row));
    else
      CHECK(std::equal(outputs.dq.begin() + at, outputs.dq.begin() + at + head_dim, clean.dq.begin() + at));
  }
  for (int key = 0; key < 100; ++key) CHECK_FALSE(all_finite(outputs.dk, head_dim, key));
}

}  // namespace

TEST_CASE("sm_90a backward: an LSE or a delta that is no number is seen, and in dQ of its row alone",
          "[gpu][sm_90][bwd][statistics]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const int head_dim : {64, 128}) {
    INFO("head_dim " << head_dim);
    const BackwardInputs inputs = one_tile(head_dim);
    const BackwardOutputs clean = run_backward(inputs);
    BackwardOutputs given = clean;
    given.lse[kBroken] = kNan;
    const BackwardOutputs without_lse = run_given(inputs, given);
    check_only_broken_row(without_lse, clean, head_dim);
    for (int key = 0; key < 100; ++key) CHECK_FALSE(all_finite(without_lse.dv, head_dim, key));

    given = clean;
    given.o[kBroken * head_dim] = 0x7fc0;  // NaN
    const BackwardOutputs without_delta = run_given(inputs, given);
    check_only_broken_row(without_delta, clean, head_dim);
    CHECK(without_delta.dv == clean.dv);
  }
}
