// The parts of `mxfa bench` that need no GPU: statistics, the comparison with a baseline, the sample of rows
// and its check, and a whole row measured on the CPU driver, whose times mean nothing but whose check does.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "reference/random.hpp"
#include "support/catch.hpp"
#include "support/kernel_cache.hpp"
#include "tools/bench.hpp"
#include "tools/bench_check.hpp"
#include "tools/program.hpp"
#include "tools/reference_problem.hpp"

using namespace mxfa;
using namespace mxfa::tools;
using nlohmann::ordered_json;

namespace {

ordered_json summary_json(double median, double half_range) {
  return {{"median", median},
          {"min", median - 2 * half_range},
          {"max", median + 2 * half_range},
          {"q1", median - half_range},
          {"q3", median + half_range}};
}

// A row whose quartiles lie 1 % around its medians: a spread of 2 %.
ordered_json timed_row(const std::string& shape, double ms, double fraction) {
  ordered_json row = {{"shape", shape}, {"op", "attn_fwd"}, {"dtype", "bf16"},
                      {"head_dim", 64}, {"work", 1e12},     {"time_ms", summary_json(ms, 0.01 * ms)}};
  if (fraction > 0) {
    row["yardstick"] = {{"name", "gemm"}};
    row["fraction"] = summary_json(fraction, 0.01 * fraction);
  }
  return row;
}

ordered_json report_of(const std::vector<ordered_json>& rows) {
  return {
      {"command", "bench"}, {"format", kBenchFormat}, {"device", {{"name", "NVIDIA H200"}}}, {"rows", rows}};
}

Shape shape_of(const std::string& text) { return parse_shapes(text, "folder/shape.json").at(0); }

// Q, K, V of a problem, and the exact O and LSE rounded as they are stored.
struct Solved {
  reference::AttentionProblem problem;
  std::vector<uint16_t> q, k, v, o;
  std::vector<float> lse;

  explicit Solved(const Shape& shape) : problem(attention_problem(shape)) {
    const auto random = [&](reference::Operand operand, int64_t rows, int heads) {
      return reference::random_tensor(reference::DataDistribution::kNormal, 1.0, 1, operand, rows, heads,
                                      problem.head_dim);
    };
    q = random(reference::Operand::kQ, problem.rows_q(), problem.heads_q);
    k = random(reference::Operand::kK, problem.rows_k(), problem.heads_kv);
    v = random(reference::Operand::kV, problem.rows_k(), problem.heads_kv);
    const reference::AttentionResult exact = attention_forward(
        problem, reference::bf16_to_double(q), reference::bf16_to_double(k), reference::bf16_to_double(v));
    o = reference::bf16_from_double(exact.o);
    lse.assign(exact.lse.begin(), exact.lse.end());
  }

  CheckResult check(double min_sqnr_db = 45) const {
    const auto fetch = [](const std::vector<uint16_t>& tensor, int row_elements) {
      return [&tensor, row_elements](int64_t first, int64_t rows) {
        return std::vector<uint16_t>(tensor.begin() + first * row_elements,
                                     tensor.begin() + (first + rows) * row_elements);
      };
    };
    const int dim = problem.head_dim;
    return check_attention(problem, reference::hopper_kernel_numerics(),
                           {fetch(q, problem.heads_q * dim), fetch(k, problem.heads_kv * dim),
                            fetch(v, problem.heads_kv * dim), o, lse},
                           sample_rows(problem, 1, 1e12), min_sqnr_db);
  }
};

const char* const kJagged = R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":2,"heads_kv":1,
  "seqlens_q":[3,0,130,40],"seqlens_k":[5,7,0,300]})";

}  // namespace

TEST_CASE("a summary interpolates between the order statistics") {
  const Summary five = summarize({5, 1, 4, 2, 3});
  CHECK(five.median == 3);
  CHECK(five.min == 1);
  CHECK(five.max == 5);
  CHECK(five.q1 == 2);
  CHECK(five.q3 == 4);
  CHECK(five.relative_spread() == Approx(2.0 / 3));
  CHECK(summarize({1, 2}).median == 1.5);
  CHECK(summarize({7}).q1 == 7);
}

TEST_CASE("a row is slower or faster only by more than the spread of both runs") {
  // Both runs spread by 2 %, so up to 4 % is noise.
  const auto [fraction, change] = GENERATE(table<double, Change>({
      {0.80, Change::kSame},
      {0.78, Change::kSame},
      {0.82, Change::kSame},
      {0.76, Change::kSlower},
      {0.84, Change::kFaster},
  }));
  const auto comparisons =
      compare_reports(report_of({timed_row("a", 1, 0.8)}), report_of({timed_row("a", 1, fraction)}));
  REQUIRE(comparisons.size() == 1);
  CAPTURE(comparisons[0].sentence);
  CHECK(comparisons[0].change == change);
  CHECK(comparisons[0].slowdown == Approx(0.8 / fraction - 1).margin(1e-12));
  CHECK(comparisons[0].spread == Approx(0.04));
}

TEST_CASE("a slower machine is no regression where a yardstick saw it too, and is one without") {
  const ordered_json before = timed_row("a", 1.0, 0.8), now = timed_row("a", 1.2, 0.8);
  CHECK(compare_reports(report_of({before}), report_of({now}))[0].change == Change::kSame);
  CHECK(compare_reports(report_of({timed_row("a", 1.0, 0)}), report_of({now}))[0].change == Change::kSlower);
  ordered_json other_yardstick = now;
  other_yardstick["yardstick"]["name"] = "copy";
  CHECK(compare_reports(report_of({before}), report_of({other_yardstick}))[0].change == Change::kSlower);
}

TEST_CASE("rows that are new, gone, untimed or another shape are named and never a regression") {
  ordered_json other = timed_row("changed", 9, 0.1), refused = timed_row("refused", 1, 0.8);
  other["work"] = 2e12;
  refused.erase("time_ms");
  const auto comparisons = compare_reports(
      report_of({timed_row("gone", 1, 0.8), timed_row("changed", 1, 0.8), timed_row("refused", 1, 0.8)}),
      report_of({timed_row("new", 1, 0.8), other, refused}));
  REQUIRE(comparisons.size() == 4);
  CHECK(comparisons[0].change == Change::kNew);
  CHECK(comparisons[1].change == Change::kIncomparable);
  CHECK(comparisons[1].sentence.find("work") != std::string::npos);
  CHECK(comparisons[2].change == Change::kIncomparable);
  CHECK(comparisons[3].change == Change::kMissing);
}

TEST_CASE("work is the field's: two products, half when causal, the visible pairs of a window") {
  const std::string start = R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":3,)";
  const double products = 4.0 * 64 * 3;
  CHECK(attention_flop(shape_of(start + R"("seqlens_q":[2,0,5],"seqlens_k":[7,9,11]})")) ==
        products * (2 * 7 + 5 * 11));
  CHECK(attention_flop(shape_of(start + R"("causal":true,"seqlens_q":[10],"seqlens_k":"same"})")) ==
        products * 50);
  CHECK(attention_flop(shape_of(start + R"("broadcast_q":true,"seqlens_q":[4],"seqlens_k":[3,8]})")) ==
        products * 4 * 11);
  CHECK(attention_flop(shape_of(start + R"("window":[1,0],"seqlens_q":[4],"seqlens_k":"same"})")) ==
        products * (1 + 2 + 2 + 2));
}

TEST_CASE("a sample of rows sees the keys it sees in the whole") {
  const std::string mask =
      GENERATE("\"causal\":false", "\"causal\":true", "\"window\":[9,4]", "\"window\":[9,-1]",
               "\"window\":[-1,20]", R"("causal":true,"window":[30,-1])");
  const Shape shape = shape_of(R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":1,)" + mask +
                               R"(,"seqlens_q":[90,64,1,33],"seqlens_k":[70,200,0,33]})");
  const reference::AttentionProblem whole = attention_problem(shape);
  for (const RowSample& sample : sample_rows(whole, 7, 1e9)) {
    CAPTURE(mask, sample.sequence, sample.first_row, sample.rows);
    REQUIRE(sample.rows > 0);
    REQUIRE(sample.first_row + sample.rows <= whole.len_q(sample.sequence));
    const RowProblem part = row_problem(whole, sample);
    for (int64_t row = 0; row < sample.rows; ++row) {
      const auto want = visible_keys(whole, sample.sequence, sample.first_row + row);
      const auto got = visible_keys(part.problem, 0, row);
      REQUIRE(got.empty() == want.empty());
      if (want.empty()) continue;
      REQUIRE(got.first == want.first);
      REQUIRE(got.last == want.last);
    }
  }
}

TEST_CASE("the sample reaches the ends of the longest and of the last sequence, and stops at its budget") {
  const reference::AttentionProblem problem =
      attention_problem(shape_of(R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":4,)"
                                 R"("seqlens_q":[100,5000,7],"seqlens_k":"same"})"));
  const auto samples = sample_rows(problem, 1, 1e8);
  const auto reaches = [&](int sequence) {
    return std::any_of(samples.begin(), samples.end(), [&](const RowSample& s) {
      return s.sequence == sequence && s.first_row + s.rows == problem.len_q(sequence);
    });
  };
  CHECK(reaches(1));
  CHECK(reaches(2));
  CHECK(samples.size() < 16);  // 32 rows of the long sequence are 2e7 multiply-adds
  CHECK(
      sample_rows(
          attention_problem(shape_of(
              R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":1,"seqlens_q":[],"seqlens_k":[]})")),
          1, 1e8)
          .empty());
}

TEST_CASE("the check passes the exact result and finds a wrong element, a wrong LSE and an unwritten one") {
  const Shape shape = shape_of(kJagged);
  const Solved right(shape);
  const CheckResult good = right.check();
  CHECK(good.failures.empty());
  CHECK(good.samples > 4);
  CHECK(good.sqnr_db > 45);

  // The last element is in the last rows of the last sequence, which are always in the sample.
  Solved wrong_o = right, wrong_lse = right, unwritten = right;
  wrong_o.o.back() = reference::bf16_from_double(reference::bf16_to_double(wrong_o.o.back()) + 0.5);
  REQUIRE(wrong_o.check(0).failures.size() == 1);
  CHECK(wrong_o.check(0).failures[0].find("sequence 3, head 1, row 39, channel 63") != std::string::npos);
  wrong_lse.lse.back() += 0.01f;
  REQUIRE(wrong_lse.check().failures.size() == 1);
  CHECK(wrong_lse.check().failures[0].find("LSE: sequence 3, head 1, row 39") != std::string::npos);
  unwritten.o[0] = 0xffff;
  CHECK(unwritten.check(0).failures.at(0).find("1 of") != std::string::npos);
}

TEST_CASE("a suite's folder is its shape files in name order; nothing and twins are refused") {
  const mxfa::test::Workplace workplace;
  std::filesystem::create_directories(workplace.path("suite/folder.d"));
  std::filesystem::create_directories(workplace.path("other"));
  for (const char* name : {"suite/b.json", "suite/a.json", "suite/notes.txt", "other/a.json"})
    workplace.write(name, "{}");
  CHECK(suite_files({workplace.path("suite"), "one.json"}) ==
        std::vector<std::string>{workplace.path("suite/a.json"), workplace.path("suite/b.json"), "one.json"});
  const auto refusal = [](const std::vector<std::string>& suite) -> std::string {
    try {
      suite_files(suite);
      return "not refused";
    } catch (const InputError& error) {
      return error.what();
    }
  };
  CHECK(refusal({workplace.path("suite/folder.d")}).find("holds no shape file") != std::string::npos);
  CHECK(refusal({workplace.path("suite"), workplace.path("other")}).find("two shape files of one name") !=
        std::string::npos);
}

TEST_CASE(
    "perf-benchmark-hygiene: a measured row is checked and says what it is of, compile time and seed too") {
  setenv("MXFA_CACHE_DIR", mxfa::test::kernel_cache().c_str(), 1);
  CommonFlags flags;
  flags.device = "emulator:b200";  // a process has one model, and other tests use this one
  flags.quiet = true;
  const Session session(flags);
  MeasureOptions quick;
  quick.repeats = 3;
  quick.warm_up_ms = quick.sample_ms = 0;
  BenchMachine machine(session, quick, /*with_yardsticks=*/false);

  const Shape jagged = shape_of(R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":2,
    "seqlens_q":[3,0,130,40],"seqlens_k":[5,7,0,300],"data":{"std":0.5,"seed":7}})");
  const BenchRow row = bench_shape(machine, jagged).at(0);
  CAPTURE(row.refused, row.failures);
  REQUIRE(row.refused.empty());
  CHECK(row.failures.empty());
  const ordered_json json = json_of(row);
  CHECK(json["shape"] == "shape.json");
  CHECK(json["verdict"] == "pass");
  CHECK(json["kernel"] == "attention_fwd_sm100");
  CHECK(json["time_ms"]["samples"].size() == 3);
  CHECK(json["time_ms"]["launches"] == 1);
  CHECK(json["work"].get<double>() == 4.0 * 64 * 2 * (3 * 5 + 40 * 300));
  CHECK(json["check"]["samples"].get<int>() > 4);
  for (const char* key : {"op", "dtype", "head_dim", "key", "config", "options", "grid", "ptxas", "build_ms",
                          "rate", "rate_unit"})
    CHECK(json.contains(key));
  CHECK(json["data"] == ordered_json{{"std", 0.5}, {"seed", 7}});
  CHECK_FALSE(json.contains("fraction"));
  require_bench_report(report_of({json}), "own report");

  const Shape quantize = shape_of(R"({"op":"mxfp8_quantize","dtype":"mxfp8","head_dim":64,"heads_q":3,
    "seqlens_q":[33,0,129]})");
  const std::vector<BenchRow> both = bench_shape(machine, quantize);
  REQUIRE(both.size() == 2);
  for (const BenchRow& one : both) {
    CAPTURE(one.shape, one.refused, one.failures);
    CHECK(std::string(one.verdict()) == "pass");
    // BF16 in, payload out, and 3 tiles of 3 heads of scales in atoms of 512 bytes.
    CHECK(one.work == 162 * 3 * 64 * 3 + 3 * 3 * 512);
  }

  for (const char* block : {"1x32", "32x32"}) {
    const Shape scaled = shape_of(std::string(R"({"op":"attn_fwd","dtype":"mxfp8","head_dim":64,"heads_q":2,
      "heads_kv":1,"seqlens_q":[3,0,130,40],"seqlens_k":[5,7,0,300],"mxfp8":{"block":")") +
                                  block + R"("}})");
    const BenchRow quantised = bench_shape(machine, scaled).at(0);
    CAPTURE(block, quantised.refused, quantised.failures);
    CHECK(std::string(quantised.verdict()) == "pass");
    CHECK(quantised.work == 4.0 * 64 * 2 * (3 * 5 + 40 * 300));
    CHECK(quantised.check["sqnr_db"].get<double>() > 50);  // rounding of O: the operands are as given
  }

  const Shape mxfp8 = shape_of(R"({"op":"attn_bwd","dtype":"mxfp8","head_dim":64,"heads_q":1,)"
                               R"("seqlens_q":[1],"seqlens_k":[1]})");
  const BenchRow refused = bench_shape(machine, mxfp8).at(0);
  CHECK(json_of(refused)["verdict"] == "refused");
  CHECK(refused.refused.find("attn_bwd has no sm_100a kernel") != std::string::npos);
}
