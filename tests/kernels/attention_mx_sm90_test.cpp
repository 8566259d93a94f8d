// MXFP8 attention forward on an sm_90a device: operands multiplied out to BF16 by mxfp8_expand, then
// attention_fwd_sm90 with Blackwell's roundings of P.  Every element of O and
// LSE is within the bound of a kernel that walks and rounds as attention_fwd_sm100 does, N(0,1) data also
// within the accuracy the format promises; and O is what attention_fwd_sm100 computes on the CPU driver.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/attention_masks.hpp"
#include "kernels/attention_run.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// Both sides of a warpgroup's 64 rows, of a tile's end and of a block of 128 keys; every length meets
// another.
const std::vector<int32_t> kLengthsQ{0, 1, 63, 64, 65, 128, 193, 300};
const std::vector<int32_t> kLengthsK{129, 257, 0, 65, 600, 1, 128, 255};

struct Variant {
  int head_dim;
  bool dynamic_p;
  int mask;  // of kMasks
  std::string name() const {
    return "head_dim " + std::to_string(head_dim) + (dynamic_p ? ", dynamic P, " : ", constant P, ") +
           kMasks[mask].name;
  }
};
// Each head_dim with and without masks and with both scales of P; all masks at 128.
const std::vector<Variant> kVariants{{128, false, 0}, {128, false, 1}, {128, false, 2}, {128, false, 3},
                                     {128, false, 4}, {128, false, 5}, {128, true, 0},  {128, true, 4},
                                     {96, false, 0},  {96, true, 1},   {64, true, 0},   {64, false, 6}};

AttentionInputs variant_inputs(const Variant& v, AttentionProblem problem,
                               DataDistribution distribution = DataDistribution::kNormal) {
  kMasks[v.mask].apply(problem);
  AttentionInputs inputs = make_inputs(problem, /*mxfp8=*/true, distribution);
  inputs.dynamic_p = v.dynamic_p;
  return inputs;
}

void check_all(const AttentionInputs& inputs) {
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
  check_format_accuracy(inputs, outputs);
}

// What both kernels compute for the comparison, the Blackwell one with every exponential from ex2.approx.
std::vector<AttentionInputs> compared_inputs(bool blackwell) {
  std::vector<AttentionInputs> list;
  for (const Variant& v : {Variant{128, false, 0}, {128, true, 4}, {96, true, 1}, {64, false, 0}})
    list.push_back(variant_inputs(v, problem_of({130, 0, 300, 5}, {300, 40, 520, 129}, 1, v.head_dim)));
  if (blackwell)
    for (AttentionInputs& inputs : list) inputs.kernel = R"({"exp2_emulation_count": 0})";
  return list;
}

// A driver shows one device a process: the Blackwell outputs come from another run of this program.
std::vector<std::vector<uint16_t>> blackwell_outputs() {
  const auto path = std::filesystem::temp_directory_path() / ("mxfa_blackwell_" + std::to_string(getpid()));
  const std::string command =
      "MXFA_TEST_DEVICE=emulator:b200 MXFA_EMU_DEVICE=b200 MXFA_BLACKWELL_OUTPUTS='" + path.string() + "' '" +
      std::filesystem::read_symlink("/proc/self/exe").string() + "' '[blackwell_outputs]' > /dev/null";
  REQUIRE(std::system(command.c_str()) == 0);
  std::ifstream file(path, std::ios::binary);
  std::vector<std::vector<uint16_t>> outputs;
  for (const AttentionInputs& inputs : compared_inputs(true)) {
    const AttentionProblem& p = inputs.problem;
    outputs.emplace_back(p.rows_o() * p.heads_q * p.head_dim);
    file.read(reinterpret_cast<char*>(outputs.back().data()), std::streamsize(outputs.back().size() * 2));
  }
  REQUIRE(file.good());
  file.close();
  std::filesystem::remove(path);
  return outputs;
}

}  // namespace

TEST_CASE("sm_90a MXFP8: masks, head dimensions and scales of P are within rounding", "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : kVariants) {
      INFO(v.name());
      check_all(variant_inputs(v, problem_of(kLengthsQ, kLengthsK, 1, v.head_dim)));
    }
  });
}

TEST_CASE("sm_90a MXFP8: grouped heads and broadcast queries are within rounding", "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[0], kVariants[1], kVariants[10]}) {
      INFO(v.name());
      AttentionProblem grouped = problem_of({70, 0, 200}, {129, 33, 257}, 6, v.head_dim);
      grouped.heads_kv = 2;
      check_all(variant_inputs(v, grouped));
      for (const int32_t queries : {1, 200}) {
        AttentionProblem broadcast = problem_of({queries}, kLengthsK, 2, v.head_dim);
        broadcast.broadcast_q = true;
        check_all(variant_inputs(v, broadcast));
      }
    }
  });
}

TEST_CASE("sm_90a MXFP8: each of 1100 sequences, most of them empty, is multiplied out with its own scales",
          "[gpu][sm_90][mx]") {
  on_hopper([] {
    std::vector<int32_t> lengths(1100, 0);
    for (size_t b = 7; b < lengths.size(); b += 31) lengths[b] = b % 3 == 0 ? 129 : 1;
    const AttentionInputs inputs =
        variant_inputs(kVariants[10], problem_of(lengths, lengths, 1, 64), DataDistribution::kPowerOfTwo);
    check_kernel_rounding(inputs, run_attention(inputs));
  });
}

// Gaussian data hides misplaced scales and rows; these do not.
TEST_CASE("sm_90a MXFP8: power-of-two, heavy-tailed and constant data are within rounding",
          "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[0], kVariants[7], kVariants[8], kVariants[9], kVariants[10]})
      for (const auto distribution :
           {DataDistribution::kPowerOfTwo, DataDistribution::kHeavyTailed, DataDistribution::kConstant}) {
        INFO(v.name() << ", distribution " << static_cast<int>(distribution));
        const AttentionInputs inputs = variant_inputs(
            v, problem_of({1, 130, 257, 40}, {257, 129, 300, 33}, 2, v.head_dim), distribution);
        check_kernel_rounding(inputs, run_attention(inputs));
      }
  });
}

TEST_CASE("sm_90a MXFP8: with and without P V under the next Q K^T (overlap) within rounding",
          "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[1], kVariants[6], kVariants[10]}) {
      INFO(v.name());
      AttentionInputs inputs = variant_inputs(v, problem_of(kLengthsQ, kLengthsK, 1, v.head_dim));
      inputs.kernel =
          v.head_dim == 64 ? R"({"overlap": 0})" : R"({"overlap": 1, "consumer_warpgroups": 2, "kv_stages": 4,
                                             "consumer_registers": 240, "producer_registers": 24})";
      check_all(inputs);
    }
  });
}

TEST_CASE("sm_90a MXFP8: square scales serve both orientations", "[gpu][sm_90][mx]") {
  on_hopper([] {
    const AttentionProblem problem = problem_of({130, 65}, {200, 129}, 2, 128);
    AttentionInputs inputs = make_inputs(problem, /*mxfp8=*/true);
    const JaggedShape q{problem.offsets_q, 2, 128}, k{problem.offsets_k, 2, 128};
    inputs.mx_q = quantize_bf16(inputs.bf16_q, q, BlockLayout::kSquare, ScalingMode::kRceil);
    inputs.mx_k = quantize_bf16(inputs.bf16_k, k, BlockLayout::kSquare, ScalingMode::kRceil);
    inputs.mx_v = quantize_bf16(inputs.bf16_v, k, BlockLayout::kSquare, ScalingMode::kRceil);
    inputs.q = dequantize(inputs.mx_q), inputs.k = dequantize(inputs.mx_k),
    inputs.v = dequantize(inputs.mx_v);
    check_all(inputs);
  });
}

// Blocks are walked from the last key to the first, so a score that falls with the key's number keeps
// outgrowing what the row has seen: by less than the kernel tolerates, by more, and by far more, a block.
TEST_CASE("sm_90a MXFP8: maxima that keep growing are within rounding", "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[0], kVariants[6], kVariants[10]})
      for (const double step : {0.003, 0.05, 3.0}) {
        INFO(v.name() << ", " << step << " a key");
        AttentionInputs inputs = variant_inputs(v, problem_of({140}, {900}, 1, v.head_dim));
        const double c = inputs.problem.scale * std::log2(std::exp(1.0));
        for (int i = 0; i < 140; ++i) inputs.bf16_q[i * v.head_dim] = bf16_from_double(i % 2 ? -4.0 : 4.0);
        for (int j = 0; j < 900; ++j)
          inputs.bf16_k[j * v.head_dim] = bf16_from_double((900 - j) * step / (4.0 * c));
        update_inputs(inputs);
        check_kernel_rounding(inputs, run_attention(inputs));
      }
  });
}

TEST_CASE("sm_90a MXFP8: scales from 2^-124 to 2^119 are exact", "[gpu][sm_90][mx]") {
  on_hopper([] {
    // One key a sequence: O is the dequantised V.  Each channel of a key has a scale of its own.
    const std::vector<int32_t> one(8, 1);
    AttentionInputs inputs = make_inputs(problem_of({70, 1, 1, 1, 1, 1, 1, 1}, one, 1, 128), /*mxfp8=*/true);
    for (int i = 0; i < 8 * 128; ++i) {
      const int64_t key = i / 128, channel = i % 128;
      // Bytes 3 to 246 in turn, with every finite payload.
      const uint8_t byte = uint8_t(3 + i % 244);
      const uint8_t payload = uint8_t(i * 37 % 256);
      inputs.mx_v.payload[i] = (payload & 0x7f) == 0x7f ? 0x7e : payload;
      inputs.mx_v.scales_tokens[JaggedScaleLayout(inputs.problem.offsets_k, 1)
                                    .along_tokens(0, int(key), 0, int(channel))] = byte;
    }
    const std::vector<double> v = dequantize(inputs.mx_v);
    const AttentionOutputs outputs = run_attention(inputs);
    for (int row = 0; row < 77; ++row) {
      const int key = row < 70 ? 0 : row - 69;
      for (int d = 0; d < 128; ++d) {
        INFO("row " << row << ", channel " << d);
        const uint16_t want = bf16_from_double(v[key * 128 + d]), got = outputs.o[row * 128 + d];
        if (want << 1 == 0) {
          REQUIRE(uint16_t(got << 1) == 0);  // a zero of either sign
        } else if ((want & 0x7f80) != 0) {   // below 2^-126 FP32 flushes at the division by the row sum
          REQUIRE(got == want);
        }
      }
    }
  });
}

TEST_CASE("sm_90a MXFP8: a NaN in K makes its queries NaN, one in V its channel", "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[0], kVariants[10]}) {
      INFO(v.name());
      AttentionInputs inputs = variant_inputs(v, problem_of({70, 70, 70}, {300, 150, 60}, 1, v.head_dim));
      inputs.bf16_k[200 * v.head_dim + 33] = 0x7fc0;  // sequence 0
      inputs.bf16_v[(300 + 7) * v.head_dim + 50] = 0xffc0;
      update_inputs(inputs);
      const AttentionOutputs outputs = run_attention(inputs);
      for (int row = 0; row < 210; ++row) {
        REQUIRE(std::isnan(outputs.lse[row]) == (row < 70));
        for (int d = 0; d < v.head_dim; ++d) {
          const bool nan = (outputs.o[row * v.head_dim + d] & 0x7fff) > 0x7f80;
          INFO("row " << row << ", channel " << d);
          REQUIRE(nan == (row < 70 || (row < 140 && d == 50)));
        }
      }
    }
  });
}

TEST_CASE("sm_90a MXFP8: rows without keys are +0 with LSE = -infinity, over poisoned outputs",
          "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[0], kVariants[9]}) {
      INFO(v.name());
      const AttentionInputs inputs =
          variant_inputs(v, problem_of({3, 300, 0, 5, 20}, {0, 0, 7, 9, 10}, 2, v.head_dim));
      const AttentionOutputs outputs = run_attention(inputs);
      check_kernel_rounding(inputs, outputs);
      for (int row = 0; row < 303; ++row)
        for (int head = 0; head < 2; ++head) {
          CHECK(outputs.lse[head * 328 + row] == -INFINITY);
          for (int d = 0; d < v.head_dim; ++d) REQUIRE(outputs.o[(row * 2 + head) * v.head_dim + d] == 0);
        }
    }
  });
}

TEST_CASE("sm_90a MXFP8: what belongs to nobody changes no bit", "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[0], kVariants[7], kVariants[8], kVariants[10]}) {
      INFO(v.name());
      const AttentionInputs inputs =
          variant_inputs(v, problem_of({65, 200, 1}, {33, 129, 160}, 2, v.head_dim));
      const AttentionOutputs want = run_attention(inputs);
      LaunchOptions padding, rows, without_lse;
      padding.scale_padding = 0xff;
      rows.tail_rows = 150, rows.row_padding_bytes = 48;
      without_lse.store_lse = false;
      CHECK(run_attention(inputs, padding) == want);
      CHECK(run_attention(inputs, rows) == want);
      CHECK(run_attention(inputs, without_lse).o == want.o);
    }
  });
}

TEST_CASE("sm_90a MXFP8: more tiles than CTAs", "[gpu][sm_90][mx]") {
  on_hopper([] {
    std::vector<int32_t> lengths_q, lengths_k;
    Random random(3);
    for (int b = 0; b < 300; ++b) {
      lengths_q.push_back(static_cast<int32_t>(random.next() % 150));
      lengths_k.push_back(b % 5 == 0 ? 0 : static_cast<int32_t>(random.next() % 150));
    }
    check_all(variant_inputs(kVariants[1], problem_of(lengths_q, lengths_k, 1, 128)));
  });
}

TEST_CASE("sm_90a MXFP8: every schedule of the CPU driver gives the same bits", "[gpu][sm_90][mx]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[1], kVariants[10]}) {
      const AttentionInputs inputs =
          variant_inputs(v, problem_of({130, 5, 1, 256}, {300, 129, 0, 250}, 1, v.head_dim));
      const AttentionOutputs want = run_attention(inputs);
      for (const std::string& name : schedules(6)) {
        INFO(v.name() << ", schedule " << name);
        const Schedule schedule(name);
        CHECK(run_attention(inputs) == want);
      }
    }
  });
}

TEST_CASE("sm_90a MXFP8: repeated launches give the same bits", "[gpu][sm_90][mx][repeat]") {
  on_hopper([] {
    for (const Variant& v : {kVariants[1], kVariants[10]}) {
      INFO(v.name());
      const AttentionInputs inputs =
          variant_inputs(v, problem_of({65, 200, 3}, {257, 129, 40}, 1, v.head_dim));
      const AttentionOutputs first = run_attention(inputs);
      for (int i = 1; i < launches(200); ++i) REQUIRE(run_attention(inputs) == first);
    }
  });
}

TEST_CASE("Outputs of attention_fwd_sm100 for the comparison", "[.][blackwell_outputs]") {
  std::ofstream file(std::getenv("MXFA_BLACKWELL_OUTPUTS"), std::ios::binary);
  for (const AttentionInputs& inputs : compared_inputs(true)) {
    const AttentionOutputs outputs = run_attention(inputs);
    file.write(reinterpret_cast<const char*>(outputs.o.data()), std::streamsize(outputs.o.size() * 2));
  }
}

// The two kernels differ in the order of FP32 sums alone (32 products a fused sum there, 16 here).  That
// moves a score by some 1e-7 of its terms: O then differs in its BF16 rounding where it stood near a tie, and
// by more where an E4M3 rounding of P did.  Both are within the reference's bound, so their distance is
// within twice that and a BF16 rounding each; and few elements differ at all.
TEST_CASE("sm_90a MXFP8: O is that of attention_fwd_sm100 within accumulation order", "[gpu][sm_90][mx]") {
  on_hopper([] {
    const std::vector<std::vector<uint16_t>> blackwell = blackwell_outputs();
    const std::vector<AttentionInputs> list = compared_inputs(false);
    for (size_t i = 0; i < list.size(); ++i) {
      const AttentionInputs& in = list[i];
      INFO("comparison " << i);
      const AttentionOutputs hopper = run_attention(in);
      AttentionOptions numerics = hopper_kernel_numerics(true, in.dynamic_p);
      const AttentionResult reference = attention_forward(in.problem, in.q, in.k, in.v, numerics);
      const auto got = bf16_to_double(std::span<const uint16_t>(hopper.o));
      const auto want = bf16_to_double(std::span<const uint16_t>(blackwell[i]));
      size_t different = 0;
      for (size_t e = 0; e < got.size(); ++e) {
        different += hopper.o[e] != blackwell[i][e];
        const double rounding = std::ldexp(std::fabs(want[e]), -7);  // half a step twice
        INFO("element " << e << ": " << got[e] << " and " << want[e]);
        REQUIRE(std::fabs(got[e] - want[e]) <= 2 * reference.o_bound[e] + rounding);
      }
      INFO(different << " of " << got.size() << " elements differ");
      CHECK(different * 100 <= got.size());
    }
  });
}
