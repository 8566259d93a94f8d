// attention_bwd_prepare, attention_bwd_sm90 and attention_bwd_finish on an sm_90a device, against the
// double-precision gradients: every element within the bound of kernels that round P and dS to BF16, and
// N(0,1) data also at 48 dB or better overall.
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/attention_backward_run.hpp"
#include "kernels/attention_masks.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

const std::vector<int> kHeadDims{64, 96, 128};

// Both sides of 16 rows of a warp, of a warpgroup's 64 and of a tile's 128; every length meets another one.
const std::vector<int32_t> kLengthsQ{0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257};
const std::vector<int32_t> kLengthsK{129, 257, 33, 65, 0, 127, 1, 64, 31, 256, 128, 63, 255, 32};

void check_head_dim(int head_dim) {
  for (const Mask& variant : kMasks) {
    INFO("head_dim " << head_dim << ", " << variant.name);
    AttentionProblem problem = problem_of(kLengthsQ, kLengthsK, 1, head_dim);
    variant.apply(problem);
    check_backward(make_backward(problem));
  }
  for (const bool causal : {false, true}) {
    INFO("head_dim " << head_dim << ", groups of three query heads, causal " << causal);
    AttentionProblem problem = problem_of({130, 0, 70}, {65, 40, 200}, 6, head_dim);
    problem.heads_kv = 2;
    problem.causal = causal;
    check_backward(make_backward(problem));
  }
  for (const int32_t queries : {1, 65, 200})
    for (const Mask& variant : {kMasks[0], kMasks[1], kMasks[4]}) {
      INFO("head_dim " << head_dim << ", " << queries << " broadcast queries, " << variant.name);
      AttentionProblem problem = problem_of({queries}, {129, 0, 64, 1, 200}, 2, head_dim);
      problem.broadcast_q = true;
      variant.apply(problem);
      check_backward(make_backward(problem));
    }
}

bool same_rows(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, int64_t first, int64_t rows,
               int64_t width) {
  return std::equal(a.begin() + first * width, a.begin() + (first + rows) * width, b.begin() + first * width);
}

void poison(std::vector<uint16_t>& tensor, int64_t first, int64_t rows, int64_t width) {
  std::fill_n(tensor.begin() + first * width, rows * width, uint16_t{0x7fff});
}

bool all_plus_zero(const std::vector<uint16_t>& tensor, int64_t first, int64_t rows, int64_t width) {
  return std::all_of(tensor.begin() + first * width, tensor.begin() + (first + rows) * width,
                     [](uint16_t bits) { return bits == 0; });
}

}  // namespace

TEST_CASE("sm_90a backward: every mask, grouped heads and broadcast queries at head_dim 64",
          "[gpu][sm_90][bwd][d64]") {
  const OnHopper hopper;
  if (hopper.ready()) check_head_dim(64);
}

TEST_CASE("sm_90a backward: every mask, grouped heads and broadcast queries at head_dim 96",
          "[gpu][sm_90][bwd][d96]") {
  const OnHopper hopper;
  if (hopper.ready()) check_head_dim(96);
}

TEST_CASE("sm_90a backward: every mask, grouped heads and broadcast queries at head_dim 128",
          "[gpu][sm_90][bwd][d128]") {
  const OnHopper hopper;
  if (hopper.ready()) check_head_dim(128);
}

TEST_CASE("sm_90a backward: dQ staged for bulk reductions, added from registers, and half and half",
          "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const auto& [head_dim, chunks] : {std::pair{64, "0"}, {64, "8"}, {96, "2"}, {128, "4"}}) {
    INFO("head_dim " << head_dim << ", direct_chunks " << chunks);
    BackwardInputs inputs = make_backward(problem_of({75, 1, 130}, {70, 9, 3}, 1, head_dim));
    inputs.forward.kernel = std::string(R"({"kv_stages": 1, "direct_chunks": )") + chunks + "}";
    check_backward(inputs);
  }
}

TEST_CASE("sm_90a backward: dQ summed in FP16, staged or added from registers", "[gpu][sm_90][bwd][fp16]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const char* chunks : {"0", "4", "8"}) {
      INFO("head_dim " << head_dim << ", direct_chunks " << chunks);
      AttentionProblem problem = problem_of({75, 0, 1, 260}, {300, 9, 3, 257}, 2, head_dim);
      problem.heads_kv = 1;
      problem.causal = head_dim == 64;
      BackwardInputs inputs = make_backward(problem);
      inputs.options.dq_accumulate = MXFA_DQ_FP16;
      inputs.options.dq_scale_log2 = 6;
      inputs.forward.kernel = std::string(R"({"kv_stages": 1, "direct_chunks": )") + chunks + "}";
      check_backward(inputs);
    }
}

TEST_CASE("sm_90a backward: dQ summed in FP16 over a batch of broadcast queries, in turns",
          "[gpu][sm_90][bwd][fp16]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const bool deterministic : {false, true}) {
    INFO("deterministic " << deterministic);
    AttentionProblem problem = problem_of({70}, {129, 0, 64, 1, 200}, 2, 128);
    problem.broadcast_q = true;
    BackwardInputs inputs = make_backward(problem);
    inputs.options.dq_accumulate = MXFA_DQ_FP16;
    inputs.options.deterministic = deterministic;
    check_backward(inputs);
  }
}

// Clipping would look like a gradient.
TEST_CASE("sm_90a backward: FP16 sums of dQ that are too large for the format are infinite",
          "[gpu][sm_90][bwd][fp16]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  BackwardInputs inputs = make_backward(problem_of({20}, {30}, 1, 64));
  inputs.options.dq_accumulate = MXFA_DQ_FP16;
  inputs.options.dq_scale_log2 = 30;
  const GradientValues got = decoded(run_backward(inputs));
  CHECK(std::any_of(got.dq.begin(), got.dq.end(), [](double x) { return !std::isfinite(x); }));
  CHECK(std::all_of(got.dk.begin(), got.dk.end(), [](double x) { return std::isfinite(x); }));
}

// The default of long sequences under a mask, at lengths a test can afford.
TEST_CASE("sm_90a backward: one K|V stage and staged dQ under masks", "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const bool window : {false, true}) {
    INFO("window " << window);
    AttentionProblem problem = problem_of({200, 1, 130}, {300, 9, 130}, 1, 128);
    problem.causal = true;
    if (window) problem.window_left = 70;
    BackwardInputs inputs = make_backward(problem);
    inputs.forward.kernel = R"({"kv_stages": 1, "direct_chunks": 0})";
    check_backward(inputs);
  }
}

TEST_CASE("sm_90a backward: dQ is staged where a tile of keys meets 512 query rows or more",
          "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const auto direct_chunks = [](int32_t rows, int heads_q, int heads_kv) {
    BackwardInputs inputs = make_backward(problem_of({rows}, {128}, heads_q, 128));
    mxfa_attention attention = describe_attention(inputs.forward);
    attention.heads_kv = heads_kv;
    attention.kernel = R"({"method": "one_kernel"})";
    const auto plan = Device::instance().context().attention_backward(attention, inputs.options);
    return nlohmann::json::parse(plan.describe())["config"]["direct_chunks"].get<int>();
  };
  CHECK(direct_chunks(511, 1, 1) == 8);
  CHECK(direct_chunks(512, 1, 1) == 0);
  CHECK(direct_chunks(256, 2, 1) == 0);  // the rows of both query heads
}

TEST_CASE("sm_90a backward: more tiles than CTAs", "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  std::vector<int32_t> lengths_q, lengths_k;
  Random random(3);
  for (int b = 0; b < 150; ++b) {
    lengths_q.push_back(static_cast<int32_t>(random.next() % 40));
    lengths_k.push_back(static_cast<int32_t>(random.next() % 150));
  }
  for (const int head_dim : kHeadDims) {
    INFO("head_dim " << head_dim);
    AttentionProblem problem = problem_of(lengths_q, lengths_k, 1, head_dim);
    problem.causal = head_dim != 96;
    check_backward(make_backward(problem));
  }
}

TEST_CASE("sm_90a backward: with kernel.max_ctas few CTAs walk all tiles, by either method",
          "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const std::string method : {"one_kernel", "split"}) {
    INFO(method);
    BackwardInputs inputs = make_backward(problem_of({300, 5, 130, 0}, {300, 0, 290, 300}, 2, 64));
    const std::string kernel = R"({"max_ctas": 2, "method": ")" + method + R"("})";
    inputs.forward.kernel = kernel.c_str();
    const auto plan =
        Device::instance().context().attention_backward(describe_attention(inputs.forward), inputs.options);
    const auto description = nlohmann::json::parse(plan.describe());
    CHECK(description["grid"] == nlohmann::json({2, 1, 1}));
    for (const auto& other : description["other_kernels"])
      if (other["kernel"] == "attention_bwd_dq_sm90") CHECK(other["grid"] == 2);
    check_backward(inputs);
  }
}

// Large and small scales, 0 included; steep scores, where LSE and the scores cancel.
TEST_CASE("sm_90a backward: the scale of the softmax", "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const double scale : {0.0, 0x1p-114, 0.01, 1.0}) {
    INFO("scale " << scale);
    AttentionProblem problem = problem_of({70, 33}, {70, 140}, 1, 64);
    problem.scale = scale;
    const BackwardInputs inputs = make_backward(problem);
    check_gradient_bounds(inputs, run_backward(inputs));
  }
}

TEST_CASE("sm_90a backward: nothing to sum is +0, over poisoned outputs and workspace",
          "[gpu][sm_90][bwd][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims) {
    INFO("head_dim " << head_dim);
    const int64_t width = 2 * head_dim;
    const BackwardOutputs keys_only = run_backward(make_backward(problem_of({0, 0}, {70, 200}, 2, head_dim)));
    CHECK(all_plus_zero(keys_only.dk, 0, 270, width));
    CHECK(all_plus_zero(keys_only.dv, 0, 270, width));
    const BackwardOutputs queries_only =
        run_backward(make_backward(problem_of({70, 200}, {0, 0}, 2, head_dim)));
    CHECK(all_plus_zero(queries_only.dq, 0, 270, width));
    const BackwardOutputs mixed =
        run_backward(make_backward(problem_of({3, 300, 0, 5}, {0, 0, 7, 9}, 2, head_dim)));
    CHECK(all_plus_zero(mixed.dq, 0, 303, width));
    CHECK(all_plus_zero(mixed.dk, 0, 7, width));
    CHECK(all_plus_zero(mixed.dv, 0, 7, width));
    // The window leaves keys before the first one seen, the causal mask queries before the first one that
    // sees.
    AttentionProblem masked = problem_of({10, 300}, {300, 10}, 2, head_dim);
    masked.causal = true;
    masked.window_left = 20;
    const BackwardOutputs outputs = run_backward(make_backward(masked));
    CHECK(all_plus_zero(outputs.dk, 0, 270, width));
    CHECK(all_plus_zero(outputs.dv, 0, 270, width));
    CHECK(all_plus_zero(outputs.dq, 10, 290, width));
  }
}

TEST_CASE("sm_90a backward: a broadcast Q without a batch, or with sequences without keys, has dQ = +0",
          "[gpu][sm_90][bwd][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const std::vector<int32_t>& lengths_k : {std::vector<int32_t>{}, {0, 0, 0}}) {
    AttentionProblem problem = problem_of({70}, lengths_k, 2, 128);
    problem.broadcast_q = true;
    CHECK(all_plus_zero(run_backward(make_backward(problem)).dq, 0, 70, 256));
  }
}

TEST_CASE("sm_90a backward: no queries and no keys is a success", "[gpu][sm_90][bwd][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  CHECK(run_backward(make_backward(problem_of({0, 0}, {0, 0}, 2, 128))).dq.empty());
  CHECK(run_backward(make_backward(problem_of({}, {}, 2, 128))).dk.empty());
}

TEST_CASE("sm_90a backward: NaN in neighbouring sequences and behind the last one changes no bit",
          "[gpu][sm_90][bwd][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const bool causal : {false, true}) {
      INFO("head_dim " << head_dim << ", causal " << causal);
      // At most one tile of keys a sequence, so that dQ has the same bits in every run.
      AttentionProblem problem = problem_of({65, 40, 200, 9, 1}, {33, 60, 128, 60, 100}, 2, head_dim);
      problem.causal = causal;
      const BackwardInputs clean = make_backward(problem);
      BackwardInputs poisoned = clean;
      const int64_t width = 2 * head_dim;
      for (const int b : {1, 3}) {
        poison(poisoned.forward.bf16_q, problem.first_q(b), problem.len_q(b), width);
        poison(poisoned.forward.bf16_k, problem.offsets_k[b], problem.len_k(b), width);
        poison(poisoned.forward.bf16_v, problem.offsets_k[b], problem.len_k(b), width);
        poison(poisoned.d_o, problem.first_o(b), problem.len_q(b), width);
      }
      BackwardLaunch tail;
      tail.tail_rows = 150;
      const BackwardOutputs a = run_backward(clean), with_tail = run_backward(clean, tail),
                            b = run_backward(poisoned);
      CHECK(with_tail.dq == a.dq);
      CHECK(with_tail.dk == a.dk);
      CHECK(with_tail.dv == a.dv);
      for (const int sequence : {0, 2, 4}) {
        INFO("sequence " << sequence);
        const int64_t first_q = problem.first_q(sequence), first_k = problem.offsets_k[sequence];
        CHECK(same_rows(a.dq, b.dq, first_q, problem.len_q(sequence), width));
        CHECK(same_rows(a.dk, b.dk, first_k, problem.len_k(sequence), width));
        CHECK(same_rows(a.dv, b.dv, first_k, problem.len_k(sequence), width));
      }
    }
}

TEST_CASE("sm_90a backward: padded rows, a workspace of zeros and a second launch change no bit",
          "[gpu][sm_90][bwd][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const BackwardInputs inputs = make_backward(problem_of({130, 7}, {64, 128}, 2, 128));
  const BackwardOutputs packed = run_backward(inputs);
  BackwardLaunch padded, zeros, twice;
  padded.row_padding_bytes = 48;
  zeros.workspace_fill = 0;
  twice.launches = 2;
  for (const BackwardLaunch& launch : {padded, zeros, twice}) {
    const BackwardOutputs outputs = run_backward(inputs, launch);
    CHECK(outputs.dq == packed.dq);
    CHECK(outputs.dk == packed.dk);
    CHECK(outputs.dv == packed.dv);
  }
}

TEST_CASE("sm_90a backward: deterministic, every schedule and start order gives the same bits",
          "[gpu][sm_90][bwd][deterministic]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  // Every mask and head_dim, not every pair: each is a kernel to compile.
  for (const auto& [head_dim, mask] : {std::pair{64, 0}, {64, 4}, {96, 1}, {128, 0}, {128, 2}, {128, 6}}) {
    const Mask& variant = kMasks[mask];
    INFO("head_dim " << head_dim << ", " << variant.name);
    AttentionProblem problem = problem_of({200, 5, 0, 300, 65}, {500, 129, 7, 300, 0}, 2, head_dim);
    problem.heads_kv = 1;
    variant.apply(problem);
    BackwardInputs inputs = make_backward(problem);
    inputs.options.deterministic = 1;
    inputs.forward.kernel = R"({"method": "one_kernel"})";  // the one with turns
    const BackwardOutputs want = check_backward(inputs);
    for (const char* name : {"lazy", "random:1", "random:2"}) {
      INFO("schedule " << name);
      const Schedule schedule(name);
      const BackwardOutputs outputs = run_backward(inputs);
      CHECK(outputs.dq == want.dq);
      CHECK(outputs.dk == want.dk);
      CHECK(outputs.dv == want.dv);
    }
  }
}

TEST_CASE("sm_90a backward: deterministic, a broadcast Q sums over the batch in one order",
          "[gpu][sm_90][bwd][deterministic]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const auto& [head_dim, mask] : {std::pair{64, 4}, {96, 1}, {128, 0}}) {
    const Mask& variant = kMasks[mask];
    INFO("head_dim " << head_dim << ", " << variant.name);
    std::vector<int32_t> lengths_k;
    for (int b = 0; b < 24; ++b) lengths_k.push_back((b * 53) % 290);
    AttentionProblem problem = problem_of({150}, lengths_k, 1, head_dim);
    problem.broadcast_q = true;
    variant.apply(problem);
    BackwardInputs inputs = make_backward(problem);
    inputs.options.deterministic = 1;
    inputs.forward.kernel = R"({"method": "one_kernel"})";  // the one with turns
    const BackwardOutputs want = check_backward(inputs);
    for (const char* name : {"lazy", "random:1"}) {
      const Schedule schedule(name);
      CHECK(run_backward(inputs).dq == want.dq);
    }
  }
}

// A GPU has one order of its own; the CPU driver delays asynchronous work and shuffles warps.  dQ is left
// out: it is added to in the order in which tiles finish.
TEST_CASE("sm_90a backward: every schedule gives the same dK and dV and a dQ within its bound",
          "[gpu][sm_90][bwd][schedules]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims) {
    AttentionProblem problem = problem_of({130, 5, 1, 200}, {300, 129, 0, 150}, 1, head_dim);
    problem.causal = head_dim == 96;
    const BackwardInputs inputs = make_backward(problem);
    const BackwardOutputs want = run_backward(inputs);
    for (const std::string& name : schedules(5)) {
      INFO("head_dim " << head_dim << ", schedule " << name);
      const Schedule schedule(name);
      const BackwardOutputs outputs = run_backward(inputs);
      CHECK(outputs.dk == want.dk);
      CHECK(outputs.dv == want.dv);
      check_gradient_bounds(inputs, outputs);
    }
  }
}
