// The MXFP8 backward on an sm_90a device: mxfp8_expand and the backward kernels with their roundings of P and
// dS, against the double-precision gradients of the dequantised operands with the same roundings: every
// element within the derived bound.
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/attention_backward_run.hpp"
#include "kernels/attention_masks.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// Both sides of a block of 32, of a warpgroup's 64 and of a tile's 128; every length meets another one.
const std::vector<int32_t> kLengthsQ{0, 1, 31, 33, 64, 127, 128, 129, 200};
const std::vector<int32_t> kLengthsK{129, 257, 33, 0, 127, 1, 64, 31, 128};

void check_head_dim(int head_dim, const std::vector<int>& masks) {
  for (const bool square : {false, true}) {
    for (const int mask : masks) {
      INFO("head_dim " << head_dim << ", square " << square << ", " << kMasks[mask].name);
      AttentionProblem problem = problem_of(kLengthsQ, kLengthsK, 1, head_dim);
      kMasks[mask].apply(problem);
      check_backward(make_mx_backward(problem, square));
    }
    INFO("head_dim " << head_dim << ", square " << square << ", groups of three query heads");
    AttentionProblem problem = problem_of({130, 0, 70}, {65, 40, 200}, 6, head_dim);
    problem.heads_kv = 2;
    kMasks[masks[0]].apply(problem);  // of a kernel that is compiled already
    check_backward(make_mx_backward(problem, square));
  }
}

// E4M3 NaN.
void poison(QuantizedTensor& tensor, int64_t first, int64_t rows) {
  const int64_t width = int64_t{tensor.shape.heads} * tensor.shape.head_dim;
  std::fill_n(tensor.payload.begin() + first * width, rows * width, uint8_t{0x7f});
}

bool same_rows(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, int64_t first, int64_t rows,
               int64_t width) {
  return std::equal(a.begin() + first * width, a.begin() + (first + rows) * width, b.begin() + first * width);
}

bool all_plus_zero(const std::vector<uint16_t>& tensor) {
  return std::all_of(tensor.begin(), tensor.end(), [](uint16_t bits) { return bits == 0; });
}

}  // namespace

TEST_CASE("sm_90a MXFP8 backward: masks and grouped heads at head_dim 64", "[gpu][sm_90][bwd][mxfp8][d64]") {
  on_hopper([] { check_head_dim(64, {1}); });
}

TEST_CASE("sm_90a MXFP8 backward: masks and grouped heads at head_dim 96", "[gpu][sm_90][bwd][mxfp8][d96]") {
  on_hopper([] { check_head_dim(96, {1}); });
}

TEST_CASE("sm_90a MXFP8 backward: masks and grouped heads at head_dim 128",
          "[gpu][sm_90][bwd][mxfp8][d128]") {
  on_hopper([] { check_head_dim(128, {1, 4}); });
}

TEST_CASE("sm_90a MXFP8 backward: a broadcast Q sums dQ over the batch", "[gpu][sm_90][bwd][mxfp8]") {
  on_hopper([] {
    for (const bool square : {false, true}) {
      INFO("square " << square);
      AttentionProblem problem = problem_of({70}, {129, 0, 64, 1, 200}, 2, 128);
      problem.broadcast_q = true;
      check_backward(make_mx_backward(problem, square));
    }
  });
}

TEST_CASE("sm_90a MXFP8 backward: deterministic, and dQ summed in FP16", "[gpu][sm_90][bwd][mxfp8]") {
  on_hopper([] {
    for (const auto& [head_dim, square] : {std::pair{64, true}, {128, false}}) {
      INFO("head_dim " << head_dim << ", square " << square);
      AttentionProblem problem = problem_of({200, 5, 0, 65}, {300, 129, 7, 0}, 1, head_dim);
      problem.causal = true;
      BackwardInputs inputs = make_mx_backward(problem, square);
      inputs.options.deterministic = 1;
      const BackwardOutputs want = check_backward(inputs);
      {
        const Schedule schedule("random:1");
        const BackwardOutputs again = run_backward(inputs);
        CHECK(again.dq == want.dq);
        CHECK(again.dk == want.dk);
        CHECK(again.dv == want.dv);
      }
      inputs.options.deterministic = 0;
      inputs.options.dq_accumulate = MXFA_DQ_FP16;
      inputs.options.dq_scale_log2 = 6;
      check_backward(inputs);
    }
  });
}

TEST_CASE(
    "sm_90a MXFP8 backward: NaN in neighbours, behind the last sequence and in scale padding change no bit",
    "[gpu][sm_90][bwd][mxfp8][rows]") {
  on_hopper([] {
    for (const auto& [head_dim, square] : {std::pair{64, true}, {96, false}, {128, true}}) {
      INFO("head_dim " << head_dim << ", square " << square);
      // At most one tile of keys a sequence, so that dQ has the same bits in every run.
      AttentionProblem problem = problem_of({65, 40, 100, 9}, {33, 60, 128, 60}, 2, head_dim);
      problem.causal = true;
      const BackwardInputs clean = make_mx_backward(problem, square);
      BackwardInputs poisoned = clean;
      for (const int b : {1, 3}) {
        poison(poisoned.forward.mx_q, problem.first_q(b), problem.len_q(b));
        poison(poisoned.forward.mx_k, problem.offsets_k[b], problem.len_k(b));
        poison(poisoned.forward.mx_v, problem.offsets_k[b], problem.len_k(b));
        poison(poisoned.mx_v, problem.offsets_k[b], problem.len_k(b));
        poison(poisoned.mx_d_o, problem.first_o(b), problem.len_q(b));
      }
      BackwardLaunch launch;
      launch.tail_rows = 150;
      launch.row_padding_bytes = 48;
      launch.scale_padding = 0xff;
      const BackwardOutputs a = run_backward(clean), with_tail = run_backward(clean, launch),
                            b = run_backward(poisoned);
      CHECK(with_tail.dq == a.dq);
      CHECK(with_tail.dk == a.dk);
      CHECK(with_tail.dv == a.dv);
      const int64_t width = 2 * head_dim;
      for (const int sequence : {0, 2}) {
        INFO("sequence " << sequence);
        CHECK(same_rows(a.dq, b.dq, problem.first_q(sequence), problem.len_q(sequence), width));
        CHECK(same_rows(a.dk, b.dk, problem.offsets_k[sequence], problem.len_k(sequence), width));
        CHECK(same_rows(a.dv, b.dv, problem.offsets_k[sequence], problem.len_k(sequence), width));
      }
    }
  });
}

// What blocks of 1x32 are the default for: under a causal mask dQ of a query depends on no later token, not
// even through a rounding.  In blocks of 32x32 it does.
TEST_CASE("sm_90a MXFP8 backward: causal, a later token changes no bit of dQ unless blocks are square",
          "[gpu][sm_90][bwd][mxfp8][leak]") {
  on_hopper([] {
    for (const bool square : {false, true}) {
      INFO("square " << square);
      AttentionProblem problem = problem_of({48}, {48}, 1, 64);
      problem.causal = true;
      BackwardInputs inputs = make_mx_backward(problem, square);
      const BackwardOutputs before = run_backward(inputs);
      // Tokens from 16 on, in the block of tokens 0 to 15.
      for (auto* operand :
           {&inputs.forward.bf16_q, &inputs.forward.bf16_k, &inputs.forward.bf16_v, &inputs.d_o})
        for (size_t i = 16 * 64; i < operand->size(); ++i)
          (*operand)[i] = bf16_from_double(-3 * bf16_to_double((*operand)[i]));
      update_backward(inputs);
      // The forward's V has scales along the tokens: O of the earlier queries is given as it was.
      BackwardLaunch launch;
      launch.given = &before;
      launch.given_rows = 16;
      const BackwardOutputs after = run_backward(inputs, launch);
      CHECK(same_rows(before.dq, after.dq, 0, 16, 64) == !square);
      CHECK_FALSE(same_rows(before.dq, after.dq, 16, 32, 64));
    }
  });
}

TEST_CASE("mxa-bwd-zero-do: zero dO gives zero gradients, not NaN", "[gpu][sm_90][bwd][mxfp8][cases]") {
  on_hopper([] {
    for (const bool square : {false, true}) {
      BackwardInputs inputs = make_mx_backward(problem_of({65, 33}, {65, 33}, 2, 128), square);
      std::fill(inputs.d_o.begin(), inputs.d_o.end(), uint16_t{0});
      update_backward(inputs);
      const BackwardOutputs outputs = run_backward(inputs);
      CHECK(all_plus_zero(outputs.dq));
      CHECK(all_plus_zero(outputs.dk));
      CHECK(all_plus_zero(outputs.dv));
    }
  });
}

TEST_CASE("mxa-bwd-tiny-do: gradients around 1e-30 keep relative accuracy",
          "[gpu][sm_90][bwd][mxfp8][cases]") {
  on_hopper([] {
    for (const bool square : {false, true}) {
      BackwardInputs inputs = make_mx_backward(problem_of({64}, {64}, 1, 128), square);
      const GradientValues plain = decoded(run_backward(inputs));
      for (uint16_t& bits : inputs.d_o) bits = bf16_from_double(1e-30 * bf16_to_double(bits));
      update_backward(inputs);
      const GradientValues tiny = decoded(run_backward(inputs));
      for (const auto gradient : {&GradientValues::dq, &GradientValues::dk, &GradientValues::dv}) {
        std::vector<double> want = plain.*gradient;
        for (double& value : want) value *= 1e-30;
        CHECK(deviation(tiny.*gradient, want).relative_l2 < 0.06);
      }
    }
  });
}

TEST_CASE("mxa-gqa-or-reject: grouped heads in MXFP8", "[gpu][sm_90][bwd][mxfp8][cases]") {
  on_hopper([] {
    AttentionProblem problem = problem_of({40}, {40}, 4, 128);
    problem.heads_kv = 1;
    for (const bool square : {false, true}) check_backward(make_mx_backward(problem, square));
  });
}

TEST_CASE("sm_90a MXFP8 backward: scales along the tokens are refused by name", "[gpu][sm_90][bwd][mxfp8]") {
  on_hopper([] {
    Device& device = Device::instance();
    const BackwardInputs inputs = make_mx_backward(problem_of({40}, {50}, 1, 64), false);
    const mxfa::Plan plan =
        device.context().attention_backward(describe_attention(inputs.forward), inputs.options);
    const auto workspace = prepared_workspace(plan);
    Buffer q(40 * 64), k(50 * 64), v(50 * 64), o(40 * 128), d_o(40 * 64), lse(40 * 4), scales(512);
    Buffer dq(40 * 128), dk(50 * 128), dv(50 * 128);
    const mxfa_scales along_d{scales.data(), 512, MXFA_SCALE_ALONG_D},
        along_tokens{scales.data(), 512, MXFA_SCALE_ALONG_TOKENS};
    mxfa_attention_backward_args args{};
    args.size = sizeof args;
    args.q = {q.data(), 64, 40, along_d}, args.k = {k.data(), 64, 50, along_d};
    args.v = {v.data(), 64, 50, along_tokens};
    args.o = {o.data(), 64, 40, {}}, args.d_o = {d_o.data(), 64, 40, along_d};
    args.dq = {dq.data(), 64, 40, {}}, args.dk = {dk.data(), 64, 50, {}}, args.dv = {dv.data(), 64, 50, {}};
    args.lse = static_cast<const float*>(lse.data());
    args.workspace = workspace->data();
    const auto message = [&] {
      CHECK(mxfa_attention_backward(plan.get(), &args, device.stream()) == MXFA_ERROR_INVALID);
      return std::string(mxfa_error(device.context().get()));
    };
    CHECK(message().find("V: the scales have orientation 2") == 0);
    args.v.scales = along_d;
    args.d_o.scales = {};
    CHECK(message().find("dO has no scales") == 0);
    args.d_o.scales = along_d;
    args.o.scales = along_d;
    CHECK(message().find("O.scales.data is set") == 0);
  });
}
