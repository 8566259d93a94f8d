// What must not change a bit of the result: foreign rows, capacity tails, scale padding, neighbours,
// schedules.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

const std::vector<std::pair<bool, int>> kFormats{{false, 64}, {false, 96}, {false, 128},
                                                 {true, 64},  {true, 96},  {true, 128}};

// O and LSE of one sequence.
AttentionOutputs sequence_of(const AttentionInputs& in, const AttentionOutputs& all, int sequence) {
  const AttentionProblem& p = in.problem;
  const int64_t row = int64_t{p.heads_q} * p.head_dim;
  AttentionOutputs part;
  part.o.assign(all.o.begin() + p.first_o(sequence) * row,
                all.o.begin() + (p.first_o(sequence) + p.len_q(sequence)) * row);
  for (int head = 0; head < p.heads_q; ++head) {
    const auto first = all.lse.begin() + head * p.rows_o() + p.first_o(sequence);
    part.lse.insert(part.lse.end(), first, first + p.len_q(sequence));
  }
  return part;
}

// Everything a sequence owns becomes NaN: BF16 elements, or payload and scales.
void poison_sequence(AttentionInputs& in, int sequence) {
  const AttentionProblem& p = in.problem;
  const auto poison = [](auto& tensor, int64_t first, int64_t rows, int64_t width, auto value) {
    std::fill_n(tensor.begin() + first * width, rows * width, value);
  };
  const int64_t width = int64_t{p.heads_q} * p.head_dim;
  const int64_t first_q = p.offsets_q[sequence], rows_q = p.len_q(sequence);
  const int64_t first_k = p.offsets_k[sequence], rows_k = p.len_k(sequence);
  if (!in.mxfp8) {
    poison(in.bf16_q, first_q, rows_q, width, uint16_t{0x7fff});
    poison(in.bf16_k, first_k, rows_k, width, uint16_t{0x7fff});
    poison(in.bf16_v, first_k, rows_k, width, uint16_t{0x7fff});
    return;
  }
  poison(in.mx_q.payload, first_q, rows_q, width, uint8_t{0x7f});
  poison(in.mx_k.payload, first_k, rows_k, width, uint8_t{0x7f});
  poison(in.mx_v.payload, first_k, rows_k, width, uint8_t{0x7f});
  const auto poison_scales = [&](std::vector<uint8_t>& scales, const std::vector<int32_t>& offsets) {
    const JaggedScaleLayout layout(offsets, p.heads_q);
    const auto starts = layout.starts();
    for (int head = 0; head < p.heads_q; ++head)
      std::fill(scales.begin() + (head * layout.rows() + starts[sequence]) * kAtomColumns,
                scales.begin() + (head * layout.rows() + starts[sequence + 1]) * kAtomColumns, uint8_t{0xff});
  };
  poison_scales(in.mx_q.scales_d, p.offsets_q);
  poison_scales(in.mx_k.scales_d, p.offsets_k);
  poison_scales(in.mx_v.scales_tokens, p.offsets_k);
}

}  // namespace

TEST_CASE("NaN in neighbouring sequences changes no bit", "[attention][sm_100]") {
  for (const auto& [mxfp8, head_dim] : kFormats) {
    INFO((mxfp8 ? "MXFP8 " : "BF16 ") << head_dim);
    const auto clean =
        make_inputs(problem_of({65, 40, 33, 40, 1}, {33, 60, 129, 60, 200}, 2, head_dim), mxfp8);
    AttentionInputs poisoned = clean;
    poison_sequence(poisoned, 1);
    poison_sequence(poisoned, 3);
    const AttentionOutputs a = run_attention(clean), b = run_attention(poisoned);
    for (int sequence : {0, 2, 4}) {
      INFO("sequence " << sequence);
      CHECK(sequence_of(clean, a, sequence) == sequence_of(clean, b, sequence));
    }
  }
}

TEST_CASE("NaN in the capacity tail changes no bit, and the tail of O stays untouched",
          "[attention][sm_100]") {
  for (const auto& [mxfp8, head_dim] : kFormats) {
    INFO((mxfp8 ? "MXFP8 " : "BF16 ") << head_dim);
    const auto inputs = make_inputs(problem_of({70, 100}, {64, 100}, 2, head_dim), mxfp8);
    LaunchOptions tail;
    tail.tail_rows = 64;
    CHECK(run_attention(inputs, tail) == run_attention(inputs));
  }
}

TEST_CASE("Scale padding of 0x00, 0x7F and 0xFF gives the same bits", "[attention][sm_100]") {
  for (const int head_dim : {64, 96, 128}) {
    INFO("head_dim " << head_dim);
    const auto inputs =
        make_inputs(problem_of({65, 3, 200, 10}, {33, 129, 1, 100}, 2, head_dim), /*mxfp8=*/true);
    const AttentionOutputs zero = run_attention(inputs);
    for (const int value : {0x7f, 0xff}) {
      LaunchOptions padding;
      padding.scale_padding = static_cast<uint8_t>(value);
      CHECK(run_attention(inputs, padding) == zero);
    }
  }
}

TEST_CASE("Every schedule of the CPU driver gives the same bits", "[attention][sm_100]") {
  for (const auto& [mxfp8, head_dim] : kFormats) {
    const auto inputs = make_inputs(problem_of({130, 5, 1}, {300, 129, 0}, 1, head_dim), mxfp8);
    const AttentionOutputs want = run_attention(inputs);
    for (const std::string& name : schedules(20)) {
      INFO((mxfp8 ? "MXFP8 " : "BF16 ") << head_dim << ", schedule " << name);
      const Schedule schedule(name);
      CHECK(run_attention(inputs) == want);
    }
  }
}

TEST_CASE("sched-zero-kv-cluster: a sequence without keys beside one with a block of them",
          "[attention][cases][sm_100]") {
  const auto inputs = make_inputs(problem_of({256, 256}, {0, 128}, 2, 128), /*mxfp8=*/false);
  const AttentionOutputs want = run_attention(inputs);
  check_exact(inputs, want);
  CHECK(std::all_of(want.o.begin(), want.o.begin() + 256 * 256, [](uint16_t bits) { return bits == 0; }));
  for (const std::string& name : schedules(6)) {
    INFO("schedule " << name);
    const Schedule schedule(name);
    CHECK(run_attention(inputs) == want);
  }
}
