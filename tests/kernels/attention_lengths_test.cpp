// Lengths in device memory: one plan for a capacity, launched with other lengths each time.
#include "host/attention_lengths.hpp"

#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "kernels/attention_lengths_run.hpp"
#include "reference/random.hpp"
#include "support/catch.hpp"
#include "support/lengths.hpp"

using namespace mxfa;
using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

using Change = std::function<void(AttentionInputs&)>;

// Problems of the case's form; at head_dim 128 every length has the same configuration of the kernel, so that
// an eager call has the same bits.
AttentionInputs inputs_of(const std::vector<int32_t>& lengths_q, const std::vector<int32_t>& lengths_k,
                          bool mxfp8, const Change& change, uint64_t seed = 1) {
  AttentionProblem problem = problem_of(lengths_q, lengths_k, 4, 128);
  AttentionInputs like;
  like.problem = problem;
  change(like);
  AttentionInputs inputs = make_inputs(like.problem, mxfp8, DataDistribution::kNormal, 1.0, seed);
  inputs.dynamic_p = like.dynamic_p;
  return inputs;
}

void check_replays(
    bool mxfp8, const Change& change = [](AttentionInputs&) {}) {
  CapacityForward forward(inputs_of(kReplays[0], kReplays[0], mxfp8, change), kCapacity);
  uint64_t seed = 1;
  for (const auto& lengths : kReplays) {
    CAPTURE(lengths, mxfp8);
    const AttentionInputs inputs = inputs_of(lengths, lengths, mxfp8, change, ++seed);
    forward.set(inputs);
    forward.launch();
    Device::instance().synchronize();
    CHECK_NOTHROW(forward.check());
    const AttentionOutputs outputs = forward.outputs();
    CHECK(outputs == run_attention(inputs));
    check_kernel_rounding(inputs, outputs);
  }
}

std::string report(CapacityForward& forward) {
  try {
    forward.check();
  } catch (const Error& error) {
    CHECK(error.status() == MXFA_ERROR_INVALID);
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("rt-graph-new-lengths: each launch of a plan for a capacity takes its own lengths",
          "[lengths][any_arch]") {
  check_replays(false);
}

TEST_CASE("rt-graph-new-lengths: with masks, grouped heads and in MXFP8", "[lengths][any_arch]") {
  check_replays(false, [](AttentionInputs& in) { in.problem.heads_kv = 2, in.problem.causal = true; });
  check_replays(true);
  check_replays(true, [](AttentionInputs& in) { in.dynamic_p = true, in.problem.window_left = 70; });
}

TEST_CASE("Lengths beyond the capacity are reported at the next check, and nothing is computed",
          "[lengths][any_arch]") {
  const AttentionInputs inputs =
      inputs_of({256, 100, 1, 50}, {256, 100, 1, 50}, false, [](AttentionInputs&) {});
  CapacityForward forward(inputs, kCapacity);
  forward.set(inputs);
  const auto& right = inputs.problem.offsets_q;
  struct {
    std::vector<int32_t> q, k;
    const char* sentence;
  } const wrong[] = {
      {offsets_of({1, 257, 0, 0}), right,
       "offsets_q in device memory: sequence 1 has 257 tokens; the plan is for max_length_q = 256"},
      {right, offsets_of({256, 256, 1, 0}),
       "offsets_k in device memory: index 3 is 513; the plan is for max_total_k = 512"},
      {right,
       {0, 10, 6, 20, 30},
       "offsets_k in device memory: index 2 is 6, after 10; offsets must not decrease"},
      {{3, 10, 20, 20, 30}, right, "offsets_q in device memory: index 0 is 3; offsets begin with 0"},
      {{0, -5, 20, 20, 30},
       right,
       "offsets_q in device memory: index 1 is -5, after 0; offsets must not decrease"},
      {{0, 1, 2, 3, INT32_MAX}, right, "offsets_q in device memory: sequence 3 has 2147483644 tokens"}};
  for (const auto& w : wrong) {
    CAPTURE(w.sentence);
    forward.set_offsets(w.q, w.k);
    forward.launch();
    Device::instance().synchronize();
    CHECK(forward.outputs_untouched());
    CHECK_THAT(report(forward), Contains(w.sentence));
    CHECK(report(forward) == "nothing");  // forgotten
  }
  // The first stays until it is asked for; a launch with right lengths computes all the same.
  forward.set_offsets(wrong[0].q, right), forward.launch();
  forward.set_offsets(right, wrong[1].k), forward.launch();
  forward.set(inputs), forward.launch();
  CHECK_THAT(report(forward), Contains("sequence 1 has 257"));
  CHECK(report(forward) == "nothing");
  CHECK(forward.outputs() == run_attention(inputs));
}

TEST_CASE("Lengths in device memory with windows, another length of keys and one broadcast Q",
          "[lengths][any_arch]") {
  // Whole tiles of no key, keys without rows, the capacity to the last token.
  const std::vector<std::vector<int32_t>> lengths_q{{70, 0, 1, 200}, {300, 12, 0, 288}},
      lengths_k{{0, 40, 513, 64}, {700, 1, 20, 79}};
  const Capacity capacity{4, 600, 800, 300, 700};
  for (const bool broadcast : {false, true}) {
    const auto change = [&](AttentionInputs& in) {
      AttentionProblem& p = in.problem;
      p.broadcast_q = broadcast;
      if (broadcast) p.offsets_q = {0, p.offsets_q[1]};
      p.window_left = 150, p.window_right = 20;
    };
    CapacityForward forward(inputs_of(lengths_q[0], lengths_k[0], false, change), capacity);
    for (size_t i = 0; i < lengths_q.size(); ++i) {
      CAPTURE(i, broadcast);
      const AttentionInputs inputs = inputs_of(lengths_q[i], lengths_k[i], false, change);
      forward.set(inputs);
      forward.launch();
      CHECK_NOTHROW(forward.check());
      check_kernel_rounding(inputs, forward.outputs());
    }
  }
}

TEST_CASE("Lengths in device memory have no hazard", "[lengths][hazard][any_arch]") {
  const AttentionInputs inputs = inputs_of({256, 100, 1, 50}, {60, 0, 256, 129}, false,
                                           [](AttentionInputs& in) { in.problem.causal = true; });
  CapacityForward forward(inputs, kCapacity);
  std::optional<AttentionOutputs> first;
  for (const std::string& order : schedules(1)) {
    CAPTURE(order);
    const Schedule schedule(order);
    forward.set(inputs);
    {
      const Checked checked;
      forward.launch();
      Device::instance().synchronize();
    }
    CHECK_NOTHROW(forward.check());
    if (!first) first = forward.outputs();
    CHECK(forward.outputs() == *first);
  }
}

TEST_CASE("The list made on the device has every tile once, the heaviest first", "[lengths][any_arch]") {
  constexpr int kBatch = 700, kHeads = 3;
  std::vector<int32_t> lengths(kBatch);
  uint32_t state = 1;
  for (int32_t& length : lengths) {
    state = state * 1664525 + 1013904223;
    length = (state >> 16) % 8 == 0 ? (state >> 8) % 2000 : (state >> 8) % 3;
  }
  AttentionInputs like;
  like.problem = problem_of(lengths, lengths, kHeads, 128);
  like.problem.causal = true;
  like.mxfp8 = true;
  const auto& offsets = like.problem.offsets_q;
  const Plan handle = Device::instance().context().attention_forward(
      with_capacity(describe_attention(like), {kBatch, offsets.back() + 1000, offsets.back(), 2000, 2500}));
  const mxfa_plan& plan = *handle.get();
  const auto workspace = prepared_workspace(handle);
  Buffer on_device(offsets.size() * sizeof(int32_t));
  on_device.upload(std::span<const int32_t>(offsets));
  const auto* pointer = static_cast<const int32_t*>(on_device.data());
  {
    const Checked checked;
    launch_lengths(plan, reinterpret_cast<uint64_t>(workspace->data()), pointer, pointer,
                   Device::instance().stream());
    Device::instance().synchronize();
  }
  const auto words = workspace->download<int32_t>();
  const auto at = [&](uint64_t byte, size_t count) {
    return std::vector<int32_t>(words.begin() + byte / 4, words.begin() + byte / 4 + count);
  };
  CHECK(at(plan.at_offsets_q, offsets.size()) == offsets);
  CHECK(at(plan.at_offsets_k, offsets.size()) == offsets);
  const auto starts = read_sequences("offsets", kBatch, offsets.data()).scale_offsets;
  CHECK(at(plan.at_scale_offsets_q, starts.size()) == starts);
  CHECK(at(plan.at_scale_offsets_k, starts.size()) == starts);

  // As the CTAs walk it: each to its first end.
  const auto entries = at(plan.at_tiles, plan.slot_count * 4);
  std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> rows_of;  // by sequence, head and first row
  int64_t found = 0, before = INT32_MAX;
  for (uint32_t round = 0; round < plan.slot_count; round += plan.grid) {
    int64_t least = before, most = 0;
    for (uint32_t i = round; i < std::min(round + plan.grid, plan.slot_count); ++i) {
      const int32_t* entry = &entries[4 * i];
      if (entry[0] < 0) continue;
      ++found;
      rows_of[{entry[0], entry[1], entry[2]}] = entry[3];
      const int64_t keys = std::min(entry[2] + entry[3], lengths[entry[0]]);
      least = std::min(least, keys), most = std::max(most, keys);
    }
    if (most == 0) break;
    CHECK(most <= before + 2000 / 31 + 256);  // a class, and a block of keys
    before = least;
  }
  CHECK(found == int64_t(rows_of.size()));
  int64_t expected = 0;
  for (int32_t b = 0; b < kBatch; ++b)
    for (int32_t head = 0; head < kHeads; ++head)
      for (int32_t row = 0; row < lengths[b]; ++expected) {
        const auto tile = rows_of.find({b, head, row});
        REQUIRE(tile != rows_of.end());
        row += tile->second;
      }
  CHECK(found == expected);
}

TEST_CASE("What a plan for a capacity cannot have is refused by name", "[lengths][any_arch]") {
  const AttentionInputs inputs = inputs_of(kReplays[0], kReplays[0], false, [](AttentionInputs&) {});
  const Context& context = Device::instance().context();
  const mxfa_attention good = with_capacity(describe_attention(inputs), kCapacity);
  const auto refused = [&](const mxfa_attention& attention) -> std::string {
    try {
      context.attention_forward(attention);
    } catch (const Error& error) {
      CHECK(error.status() == MXFA_ERROR_INVALID);
      return error.what();
    }
    return "nothing";
  };
  mxfa_attention bad = good;
  bad.offsets_k = inputs.problem.offsets_k.data();
  CHECK_THAT(refused(bad), Contains("offsets_k is set, and so is max_total"));
  bad = good, bad.max_total_k = 0;
  CHECK_THAT(refused(bad), Contains("max_total_k is 0"));
  bad = good, bad.max_length_q = 513;
  CHECK_THAT(refused(bad), Contains("max_length_q is 513") && Contains("512"));
  bad = good, bad.batch = 0;
  CHECK_THAT(refused(bad), Contains("batch is 0"));
  if (Device::instance().arch() != "sm_90a") {
    for (const auto& [kernel, name] : {std::pair{R"({"scheduler": "clc"})", "kernel.scheduler is clc"},
                                       {R"({"scheduler": "lpt"})", "kernel.scheduler is lpt"},
                                       {R"({"pack_heads": "on"})", "kernel.pack_heads is on"},
                                       {R"({"ctas_per_tile": 2})", "kernel.ctas_per_tile is 2"}}) {
      bad = good, bad.kernel = kernel;
      CHECK_THAT(refused(bad), Contains(name) && Contains("lengths lie in device memory"));
    }
  }

  CapacityForward forward(inputs, kCapacity);
  forward.set(inputs);
  const CUstream stream = Device::instance().stream();
  const auto launch_refused = [&](const Plan& plan, const mxfa_attention_forward_args& args) -> std::string {
    try {
      plan(args, stream);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  mxfa_attention_forward_args args = forward.args();
  args.offsets_k = nullptr;
  CHECK_THAT(launch_refused(forward.plan(), args), Contains("args.offsets_k is null"));
  args = forward.args(), args.k.rows = 511;
  CHECK_THAT(launch_refused(forward.plan(), args), Contains("max_total_k is 512, but K has 511 rows"));
  const Plan of_host = context.attention_forward(describe_attention(inputs));
  args = forward.args();
  CHECK_THAT(launch_refused(of_host, args), Contains("args.offsets_q is set"));
  CHECK_NOTHROW(of_host.check(nullptr, stream));  // nothing to find
}

namespace {

BackwardInputs backward_of(const std::vector<int32_t>& lengths, bool deterministic, bool broadcast,
                           uint64_t seed = 1) {
  AttentionProblem problem = problem_of(lengths, lengths, 4, 64);
  problem.heads_kv = 2, problem.causal = true;
  problem.broadcast_q = broadcast;
  if (broadcast) problem.offsets_q = {0, problem.offsets_q[1]};
  BackwardInputs inputs = make_backward(problem, DataDistribution::kNormal, 1.0, seed);
  inputs.options.deterministic = deterministic;
  inputs.forward.kernel =
      R"({"method": "one_kernel"})";  // what a capacity is served by, for the eager run too
  return inputs;
}

void check_backward_replays() {
  for (const bool broadcast : {false, true})
    for (const bool deterministic : {false, true}) {
      CapacityBackward backward(backward_of(kReplays[0], deterministic, broadcast), kCapacity);
      for (const auto& lengths : kReplays) {
        CAPTURE(lengths, deterministic, broadcast);
        const BackwardInputs inputs = backward_of(lengths, deterministic, broadcast);
        const BackwardOutputs eager = run_backward(inputs);
        backward.set(inputs, eager);
        backward.launch();
        CHECK_NOTHROW(backward.check());
        const BackwardOutputs outputs = backward.outputs();
        check_gradient_bounds(inputs, outputs);
        if (!deterministic) continue;
        backward.set(inputs, eager);
        backward.launch();
        CHECK(backward.outputs().dq == outputs.dq);
        if (!broadcast) CHECK(eager.dq == outputs.dq);  // tiles of a sequence add in the order of its keys
      }
      // Nothing is added, and nothing written.
      const std::vector<int32_t> too_many{0, 257, 260, 261, 300};
      backward.set_offsets(broadcast ? std::vector<int32_t>{0, 200} : too_many, too_many);
      backward.launch();
      CHECK_THROWS_WITH(backward.check(), Contains("sequence 0 has 257 tokens"));
      CHECK(backward.outputs_untouched());
    }
}

}  // namespace

TEST_CASE("rt-graph-new-lengths: the backward of a capacity", "[gpu][lengths][sm_90][bwd]") {
  const OnHopper hopper;
  if (hopper.ready()) check_backward_replays();
}

TEST_CASE("The backward of a capacity has no hazard", "[gpu][lengths][hazard][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const BackwardInputs inputs = backward_of(kReplays[1], true, false);
  const BackwardOutputs eager = run_backward(inputs);
  CapacityBackward backward(inputs, kCapacity);
  backward.set(inputs, eager);
  {
    const Checked checked;
    backward.launch();
    Device::instance().synchronize();
  }
  check_gradient_bounds(inputs, backward.outputs());
}
