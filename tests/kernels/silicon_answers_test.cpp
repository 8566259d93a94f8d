// What a real H200 gave for small inputs, kept in tests/data/silicon/attention_h200.bin, against what this
// device gives: on the CPU driver that is its agreement with hardware, on a GPU that the kernels still
// compute the same.  MXFA_RECORD_ANSWERS=FILE writes the file instead (on a GPU).
//
// Both compute the same products in the same order.  They may differ in ex2.approx (2 ulp of FP32, PTX ISA),
// so seldom, and then by the rounding of a P near a tie, of the dS made of it and of the sum: three BF16
// ulps, where an addend is no larger than the sum or the tensor's typical value.  Seen: 42 of 11,008
// elements, by two ulps at most.  (mxfp8_quantize is not here: it equals the reference byte for byte.)
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "kernels/attention_backward_run.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

using Answers = std::map<std::string, std::vector<uint16_t>>;

const char* const kFile = MXFA_TEST_DATA "/silicon/attention_h200.bin";

// A line "name count", then as many BF16 codes, little-endian.
Answers read_answers(const char* file) {
  std::ifstream in(file, std::ios::binary);
  Answers answers;
  std::string name;
  for (size_t count = 0; in >> name >> count && in.get() == '\n';) {
    std::vector<uint16_t>& values = answers[name];
    values.resize(count);
    in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(2 * count));
  }
  return answers;
}

void write_answers(const char* file, const Answers& answers) {
  std::ofstream out(file, std::ios::binary);
  for (const auto& [name, values] : answers) {
    out << name << ' ' << values.size() << '\n';
    out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(2 * values.size()));
  }
  REQUIRE(out.flush().good());
}

// The forward that the answers at head_dim 64 were recorded with: another block of keys rounds P elsewhere.
constexpr char kRecorded64[] = R"({"tile_n": 128, "overlap": 1, "consumer_warpgroups": 3, "kv_stages": 8,
                                   "consumer_registers": 160, "producer_registers": 32})";

Answers answers_here() {
  Answers answers;
  for (const int head_dim : {64, 96, 128}) {
    const std::string dim = "d" + std::to_string(head_dim);
    AttentionProblem problem = problem_of({1, 65, 0, 20}, {33, 70, 7, 20}, 2, head_dim);
    problem.heads_kv = 1;
    problem.causal = head_dim != 128;
    if (head_dim == 96) problem.window_left = 20;
    AttentionInputs inputs = make_inputs(problem, false);
    if (head_dim == 64) inputs.kernel = kRecorded64;
    answers["o_" + dim] = run_attention(inputs).o;
    BackwardInputs backward = make_backward(problem);
    if (head_dim == 64) backward.forward_kernel = kRecorded64;
    backward.options.deterministic = 1;
    backward.forward.kernel = R"({"method": "one_kernel"})";
    const BackwardOutputs gradients = run_backward(backward);
    answers["dv_" + dim] = gradients.dv;
    if (head_dim == 64) continue;  // recorded when dS was computed from the rounded P there
    answers["dq_" + dim] = gradients.dq;
    answers["dk_" + dim] = gradients.dk;
  }
  return answers;
}

}  // namespace

TEST_CASE("sm_90a attention gives what a real H200 gave", "[gpu][sm_90][bwd][silicon]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const Answers got = answers_here();
  if (const char* file = std::getenv("MXFA_RECORD_ANSWERS")) return write_answers(file, got);
  const Answers want = read_answers(kFile);
  REQUIRE(want.size() == got.size());
  for (const auto& [name, values] : want) {
    INFO(name);
    const std::vector<uint16_t>& mine = got.at(name);
    REQUIRE(mine.size() == values.size());
    size_t different = 0;
    double square = 0, largest = 0;  // difference, relative to the value or the tensor's typical one
    for (const uint16_t bits : values) square += std::pow(bf16_to_double(bits), 2);
    const double typical = std::sqrt(square / static_cast<double>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = bf16_to_double(mine[i]), y = bf16_to_double(values[i]);
      different += mine[i] != values[i];
      largest = std::max(largest, std::fabs(x - y) / std::max({std::fabs(x), std::fabs(y), typical}));
    }
    INFO(different << " of " << values.size() << " elements differ, by at most " << largest);
    CHECK(static_cast<double>(different) <= 0.01 * static_cast<double>(values.size()));
    CHECK(largest <= 3 * 0x1p-7);
  }
}
