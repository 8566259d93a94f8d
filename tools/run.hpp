// What `mxfa run` does with one shape, and the row it becomes.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common.hpp"
#include "plan_shape.hpp"
#include "reference/attention.hpp"
#include "reference/quantize.hpp"
#include "reference/random.hpp"
#include "session.hpp"

namespace mxfa::tools {

struct RunOptions {
  bool check = false;         // check even where the references take long
  bool judge = true;          // compare with the references at all
  bool keep_outputs = false;  // RunRow::outputs
};

// Bytes that a kernel wrote.
struct Output {
  std::string name;
  std::vector<uint8_t> bytes;
};

struct RunRow {
  std::string shape, op, dtype, device, kernel, arch;
  bool real_device = false;  // times mean something
  std::string jit;           // cold: compiled now; warm: from disk; reused: loaded for an earlier row
  double compile_ms = 0, load_ms = 0;  // of the kernel named above; compile_ms is 0 unless cold
  double time_ms = 0, rate = 0;     // real devices only; rate in TFLOP/s (attention) or GB/s (quantisation)
  nlohmann::ordered_json counters;  // the CPU driver's, of the checked launch
  bool checked = false;
  double sqnr_db = 0, cosine = 0, max_abs = 0, quantized_sqnr_db = 0, lse_error = 0;
  bool has_accuracy = false;         // the five above mean something
  nlohmann::ordered_json gradients;  // attn_bwd: the first three for each of dQ, dK and dV
  std::vector<Output> outputs;
  std::string note;                   // "" or why the row was not checked or not launched
  std::vector<std::string> failures;  // sentences; empty: passed

  void fail(std::string sentence) { failures.push_back(std::move(sentence)); }
  const char* verdict() const { return !failures.empty() ? "FAIL" : checked ? "pass" : "unchecked"; }
};

// Plans everything a shape runs; a refusal says which shape.
std::vector<PlannedKernel> plan_shape(const Session& session, const Shape& shape, bool check);
// Runs a shape: one row for attention, one a quantiser; `plan` is what plan_shape said.
std::vector<RunRow> run_shape(const Session& session, const Shape& shape,
                              const std::vector<PlannedKernel>& plan, const RunOptions& options);

// Fills kernel, architecture, where the code came from and the milliseconds.
void describe_into(const nlohmann::ordered_json& description, RunRow& row);

// Median of repeated launches in milliseconds by the device's own clock; a real device only.
template <class Launch>
double median_ms(const Session& session, Launch&& launch);

// An MXFP8 operand on the device, made by the kernel mxfp8_quantize.
struct DeviceOperand {
  std::unique_ptr<DeviceBuffer> input, payload, scales_d, scales_tokens, workspace;
  reference::QuantizedTensor result;  // fetched bytes
  uint64_t rows = 0;

  mxfa_tensor tensor(int heads, int head_dim, reference::Orientation orientation) const;
};

// Uploads bf16 values with a tail of NaN rows, runs the kernel, fetches payload and scales; guard damage and
// bytes that differ from the reference quantiser (when `check`) become failures of the row.
DeviceOperand quantize_on_device(const Session& session, const Shape& shape, const QuantizeRequest& request,
                                 const std::vector<uint16_t>& values, bool check, RunRow& row);

// BF16 data of the shape's distribution and seed.
std::vector<uint16_t> make_data(const Shape& shape, reference::Operand operand, int64_t tokens, int heads);

// The offsets of a shape whose lengths lie in device memory; null where the host knows them.
class DeviceOffsets {
 public:
  DeviceOffsets(const Session& session, const Shape& shape);
  const int32_t* q() const { return of(q_); }
  const int32_t* k() const { return of(k_); }

 private:
  static const int32_t* of(const std::unique_ptr<DeviceBuffer>& buffer) {
    return buffer ? static_cast<const int32_t*>(buffer->data()) : nullptr;
  }
  std::unique_ptr<DeviceBuffer> q_, k_;
};

// A packed tensor of BF16 values with kTailRows rows of NaN behind them, on the device.
mxfa_tensor upload_bf16(const Session& session, const std::vector<uint16_t>& values, int heads, int head_dim,
                        const char* name, std::unique_ptr<DeviceBuffer>& buffer);
// Multiply-adds of one product over all heads, of the keys that a query sees.
double multiply_adds(const reference::AttentionProblem& problem);

RunRow run_attention(const Session& session, const Shape& shape, const RunOptions& options);
RunRow run_attention_backward(const Session& session, const Shape& shape, const RunOptions& options);
std::vector<RunRow> run_quantize(const Session& session, const Shape& shape, const RunOptions& options);

// Rows of NaN behind every input: what lies beyond the last sequence must not matter.
inline constexpr int64_t kTailRows = 16;

template <class Launch>
double median_ms(const Session& session, Launch&& launch) {
  constexpr int kWarmUps = 3, kRuns = 11;  // clocks and caches settle; an odd number has a median
  const Driver& driver = session.driver();
  CUevent begin = nullptr, end = nullptr;
  driver.check(driver.cuEventCreate(&begin, CU_EVENT_DEFAULT), "cuEventCreate");
  driver.check(driver.cuEventCreate(&end, CU_EVENT_DEFAULT), "cuEventCreate");
  std::vector<float> times;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    driver.check(driver.cuEventRecord(begin, nullptr), "cuEventRecord");
    launch();
    driver.check(driver.cuEventRecord(end, nullptr), "cuEventRecord");
    driver.check(driver.cuEventSynchronize(end), "running the kernel");
    float ms = 0;
    driver.check(driver.cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
    if (i >= kWarmUps) times.push_back(ms);
  }
  (void)driver.cuEventDestroy_v2(begin);
  (void)driver.cuEventDestroy_v2(end);
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

}  // namespace mxfa::tools
