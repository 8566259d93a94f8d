// What `mxfa bench` measures of a shape, and the rows it becomes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench_compare.hpp"
#include "bench_inputs.hpp"
#include "bench_measure.hpp"
#include "common.hpp"
#include "plan_shape.hpp"

namespace mxfa::tools {

struct BenchRow {
  std::string shape;  // file name, case and, for a quantiser, its layout: unique in a suite
  Op op = Op::attn_fwd;
  Dtype dtype = Dtype::bf16;
  int head_dim = 0;
  double std = 0;  // of the data, and its seed
  uint64_t seed = 0;
  nlohmann::ordered_json plan;  // mxfa_plan_describe
  double work = 0;              // of one launch: FLOP (attention) or bytes read and written (quantiser)
  Measurement measurement;
  const Yardstick* yardstick = nullptr;
  nlohmann::ordered_json check;       // what was compared and how well it agrees
  std::string refused;                // "" or why the device or the bench does not serve the shape
  std::string note;                   // "" or why nothing was timed
  std::vector<std::string> failures;  // sentences; empty: right

  bool timed() const { return !measurement.work.ms.empty(); }
  const char* verdict() const {
    return !refused.empty() ? "refused" : !failures.empty() ? "FAIL" : timed() ? "pass" : "nothing";
  }
  // Of each repeat: this row's rate over the yardstick's of the same repeat; empty without a yardstick.
  std::vector<double> fractions() const;
  double rate() const;            // median, in units of rate_unit()
  double yardstick_rate() const;  // the same; 0 without a yardstick
  const char* rate_unit() const { return op == Op::mxfp8_quantize ? "GB/s" : "TFLOP/s"; }
};
nlohmann::ordered_json json_of(const BenchRow& row);

// The device of a bench, its stream, the random data and the yardsticks, each made when it is first needed.
class BenchMachine {
 public:
  BenchMachine(const Session& session, const MeasureOptions& options, bool with_yardsticks = true);

  const Session& session() const { return session_; }
  const Stream& stream() const { return stream_; }
  const RandomBlock& block(const Shape& shape);
  const Yardstick& yardstick(Op op);
  // Times the launch beside the operation's yardstick and puts the result into the row.
  void time(const std::function<void()>& launch, BenchRow& row);

 private:
  const Session& session_;
  MeasureOptions options_;
  bool with_yardsticks_;
  Stream stream_;
  std::unique_ptr<RandomBlock> block_;
  std::unique_ptr<Yardstick> gemm_, copy_;
};

// 4 * head_dim * heads_q * (pairs of a query and a key): both products; 10 for the five of the backward.  All
// pairs without a mask; half of them when causal, the convention of the field; the visible ones with a
// window.
double attention_flop(const Shape& shape);
// One for attention, one a layout for a quantiser.  A shape that is not served becomes a refused row; device
// trouble is thrown.
std::vector<BenchRow> bench_shape(BenchMachine& machine, const Shape& shape);
void bench_attention(BenchMachine& machine, const Shape& shape, BenchRow& row);
void bench_attention_backward(BenchMachine& machine, const Shape& shape, BenchRow& row);
// Refuses what bench does not time: a backward other than in BF16, and other than normal data.
void refuse_untimed_options(const Shape& shape);
void bench_quantize(BenchMachine& machine, const Shape& shape, const QuantizeRequest& request, BenchRow& row);

// The files of a suite in the order they run: a folder stands for its *.json in name order.  Refuses what
// does not exist, an empty folder, and two files of one name, which a report could not tell apart.
std::vector<std::string> suite_files(const std::vector<std::string>& suite);

}  // namespace mxfa::tools
