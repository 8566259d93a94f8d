// The cases of tests/data/cases/config_cli.json that speak about the C interface: metadata is checked before
// anything is launched, and the message has the parts that the case asks for.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "mxfa/mxfa.hpp"
#include "support/catch.hpp"

using nlohmann::json;

namespace {

json load_case(const std::string& id) {
  for (const json& one : json::parse(std::ifstream(MXFA_TEST_DATA "/cases/config_cli.json"))) {
    if (one["id"] == id) return one;
  }
  FAIL("no case " << id);
  return {};
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

mxfa::Context& context() {
  setenv("MXFA_EMULATOR_LIBRARY", MXFA_EMULATOR_LIBRARY, 1);
  static mxfa::Context the_context("emulator:b200");
  return the_context;
}

struct Problem {
  std::vector<int32_t> offsets_q, offsets_k;
  mxfa_dtype dtype = MXFA_BF16;

  mxfa::Plan plan() const {
    mxfa_attention attention;
    mxfa_attention_defaults(&attention, sizeof attention);
    attention.dtype = dtype;
    attention.head_dim = 64;
    attention.heads_q = attention.heads_kv = 1;
    attention.batch = static_cast<int32_t>(offsets_k.size()) - 1;
    attention.offsets_q = offsets_q.data();
    attention.offsets_k = offsets_k.data();
    return context().attention_forward(attention);
  }
};

// Arguments that would be right if `address` were memory; every check comes before the first use of a
// pointer.
mxfa_attention_forward_args plausible_args(const Problem& problem) {
  void* address = reinterpret_cast<void*>(uint64_t{1} << 40);
  const int64_t rows_q = problem.offsets_q.back(), rows_k = problem.offsets_k.back();
  mxfa_attention_forward_args args{};
  args.size = sizeof args;
  args.q = {address, 64, rows_q, {}};
  args.k = args.v = {address, 64, rows_k, {}};
  args.o = {address, 64, rows_q, {}};
  if (problem.dtype == MXFA_MXFP8) {
    args.q.scales = args.k.scales = {address, 1 << 20, MXFA_SCALE_ALONG_D};
    args.v.scales = {address, 1 << 20, MXFA_SCALE_ALONG_TOKENS};
  }
  args.workspace = address;
  return args;
}

template <class Action>
void check_refused(const json& one, Action&& action) {
  std::string message;
  try {
    action();
  } catch (const mxfa::Error& error) {
    message = error.what();
    CHECK(error.status() == MXFA_ERROR_INVALID);
  }
  CAPTURE(message);
  for (const std::string part : one["expected"]["message_has"]) {
    CAPTURE(part);
    CHECK(lower(message).find(lower(part)) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("cfg-offsets-decreasing: offsets that go down are refused when planning") {
  const json one = load_case("cfg-offsets-decreasing");
  const Problem problem{one["input"]["offsets_q"], one["input"]["offsets_k"]};
  check_refused(one, [&] { (void)problem.plan(); });
}

TEST_CASE("cfg-offsets-end: a last offset beyond the buffer is refused at the launch") {
  const json one = load_case("cfg-offsets-end");
  const Problem problem{one["input"]["offsets_q"], one["input"]["offsets_k"]};
  const mxfa::Plan plan = problem.plan();
  mxfa_attention_forward_args args = plausible_args(problem);
  args.k.rows = one["input"]["rows_k"];
  check_refused(one, [&] { plan(args, nullptr); });
}

TEST_CASE("cfg-mxfp8-missing-scales: an MXFP8 operand without scales is refused at the launch") {
  const json one = load_case("cfg-mxfp8-missing-scales");
  const Problem problem{{0, 4}, {0, 4}, MXFA_MXFP8};
  const mxfa::Plan plan = problem.plan();
  mxfa_attention_forward_args args = plausible_args(problem);
  args.k.scales.data = nullptr;
  check_refused(one, [&] { plan(args, nullptr); });
}

// cfg-offsets-int64: 64-bit offsets cannot be passed, because the interface is typed; nothing is ever
// reinterpreted.
static_assert(std::is_same_v<decltype(mxfa_attention::offsets_k), const int32_t*>);
static_assert(std::is_same_v<decltype(mxfa_attention::offsets_q), const int32_t*>);
// cfg-batch-mismatch: the interface has one batch for both arrays; a shape file can disagree, and
// shape_file_test.cpp refuses it.
