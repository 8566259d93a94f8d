// What a real H200 gave for small inputs, kept in tests/data/silicon/attention_h200.bin, against what this
// device gives: on the CPU driver that is its agreement with hardware, on a GPU that the kernels still
// compute the same.  MXFA_RECORD_ANSWERS=FILE writes the file instead (on a GPU).
//
// Both compute the same products in the same order.  They may differ in ex2.approx (2 ulp of FP32, PTX ISA),
// so seldom, and then by the rounding of a P near a tie, of the dS made of it and of the sum: three BF16
// ulps, where an addend is no larger than the sum or the tensor's typical value.  Seen: 430 of 513,792
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

void add_gradients(Answers& answers, const std::string& of, const BackwardInputs& inputs) {
  const BackwardOutputs gradients = run_backward(inputs);
  answers["dq_" + of] = gradients.dq;
  answers["dk_" + of] = gradients.dk;
  answers["dv_" + of] = gradients.dv;
}

Answers answers_here() {
  Answers answers;
  for (const int head_dim : {64, 96, 128}) {
    const std::string dim = "d" + std::to_string(head_dim);
    // No sequence has more keys than a tile: dQ is one addition, in whatever order tiles come.
    AttentionProblem problem = problem_of({1, 65, 0, 20}, {33, 70, 7, 20}, 2, head_dim);
    problem.heads_kv = 1;
    problem.causal = head_dim != 128;
    if (head_dim == 96) problem.window_left = 20;
    answers["o_" + dim] = run_attention(make_inputs(problem, false)).o;
    answers["o_mx_" + dim] = run_attention(make_inputs(problem, true)).o;
    BackwardInputs backward = make_backward(problem);
    if (head_dim == 128) {
      for (const bool square : {false, true})
        add_gradients(answers, square ? "mx_square" : "mx", make_mx_backward(problem, square));
      backward.forward.kernel =
          R"({"method": "one_kernel", "tile_m": 80, "kv_stages": 1, "direct_chunks": 0})";
      add_gradients(answers, "rows80", backward);
    }
    backward.options.deterministic = 1;
    for (const char* method : {"one_kernel", "split"}) {
      backward.forward.kernel = std::string(R"({"method": ")") + method + "\"}";
      add_gradients(answers, method + ("_" + dim), backward);
    }
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
