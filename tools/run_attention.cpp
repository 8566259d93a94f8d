// Op attn_fwd of `mxfa run`: data, quantisation, attention, and the comparison with both references.
#include <fmt/format.h>

#include <cmath>

#include "host/shape_file.hpp"
#include "reference/attention.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "reference_problem.hpp"
#include "run.hpp"
#include "verdict.hpp"

namespace mxfa::tools {

namespace {

using reference::Operand;
using reference::Orientation;

std::vector<double> head_row_major(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

struct Operands {
  std::vector<uint16_t> q, k, v;  // what was generated
  std::unique_ptr<DeviceBuffer> bf16_q, bf16_k, bf16_v;
  std::unique_ptr<DeviceOperand> mx_q, mx_k, mx_v;
  mxfa_tensor tensor_q{}, tensor_k{}, tensor_v{};
};

void place_operands(const Session& session, const Shape& shape, bool check, Operands& operands, RunRow& row) {
  const int d = shape.head_dim;
  if (shape.dtype == Dtype::bf16) {
    operands.tensor_q = upload_bf16(session, operands.q, shape.heads_q, d, "Q", operands.bf16_q);
    operands.tensor_k = upload_bf16(session, operands.k, shape.heads_kv, d, "K", operands.bf16_k);
    operands.tensor_v = upload_bf16(session, operands.v, shape.heads_kv, d, "V", operands.bf16_v);
    return;
  }
  const std::vector<QuantizeRequest> requests = quantize_requests(shape);  // Q, K, V
  const auto quantize = [&](const QuantizeRequest& request, const std::vector<uint16_t>& values) {
    return std::make_unique<DeviceOperand>(quantize_on_device(session, shape, request, values, check, row));
  };
  operands.mx_q = quantize(requests[0], operands.q);
  operands.mx_k = quantize(requests[1], operands.k);
  operands.mx_v = quantize(requests[2], operands.v);
  operands.tensor_q = operands.mx_q->tensor(shape.heads_q, d, Orientation::kAlongD);
  operands.tensor_k = operands.mx_k->tensor(shape.heads_kv, d, Orientation::kAlongD);
  operands.tensor_v = operands.mx_v->tensor(shape.heads_kv, d, Orientation::kAlongTokens);
}

std::vector<double> as_given(const DeviceOperand& operand, Orientation orientation) {
  const reference::QuantizedTensor& t = operand.result;
  return reference::dequantize(t.payload, orientation == Orientation::kAlongD ? t.scales_d : t.scales_tokens,
                               orientation, t.shape);
}

void judge(const Shape& shape, const reference::AttentionProblem& problem,
           const reference::AttentionOptions& numerics, const Operands& operands,
           const std::vector<uint16_t>& o_bits, const std::vector<float>& lse, RunRow& row) {
  const bool mxfp8 = shape.dtype == Dtype::mxfp8;
  const std::vector<double> o = reference::bf16_to_double(o_bits);
  const std::vector<double> q = reference::bf16_to_double(operands.q),
                            k = reference::bf16_to_double(operands.k),
                            v = reference::bf16_to_double(operands.v);
  const reference::AttentionResult exact = reference::attention_forward(problem, q, k, v);
  // The same mathematics on what the kernel was given, with P rounded as the kernel rounds it.
  const reference::AttentionResult aware =
      mxfp8 ? reference::attention_forward(problem, as_given(*operands.mx_q, Orientation::kAlongD),
                                           as_given(*operands.mx_k, Orientation::kAlongD),
                                           as_given(*operands.mx_v, Orientation::kAlongTokens), numerics)
            : reference::attention_forward(problem, q, k, v, numerics);

  const reference::AttentionDeviation from_exact = reference::attention_deviation(problem, o, exact.o);
  const reference::AttentionDeviation from_aware = reference::attention_deviation(problem, o, aware.o);
  const reference::Deviation lse_deviation = reference::deviation(head_row_major(lse), aware.lse);
  row.sqnr_db = from_exact.overall.sqnr_db;
  row.cosine = from_exact.overall.cosine;
  row.max_abs = from_exact.overall.max_abs;
  row.quantized_sqnr_db = from_aware.overall.sqnr_db;
  row.lse_error = lse_deviation.max_abs;
  row.has_accuracy = row.checked = true;

  const Limits limits = limits_of(shape);
  const auto at_least = [&](double got, double limit, const char* what) {
    if (!(got >= limit)) row.fail(fmt::format("{}: got {:.6g}, need at least {:.6g}", what, got, limit));
  };
  at_least(row.sqnr_db, limits.sqnr_db, "signal to noise of O against the exact reference, dB");
  at_least(row.cosine, limits.cosine, "cosine of O with the exact reference");
  at_least(row.quantized_sqnr_db, limits.quantized_sqnr_db,
           "signal to noise of O against the reference of the kernel's arithmetic, dB");
  if (!(row.lse_error <= limits.lse)) {
    row.fail(fmt::format("largest error of LSE: got {:.6g}, need at most {:.6g}", row.lse_error, limits.lse));
  }
  if (const auto wrong = reference::first_outside_bound(problem, o, aware))
    row.fail("O: " + to_string(*wrong));
  if (const auto wrong = reference::first_lse_outside_bound(problem, lse, aware))
    row.fail("LSE: " + to_string(*wrong));
  if (from_aware.overall.not_finite > 0) {
    row.fail(fmt::format("{} elements of O are not finite", from_aware.overall.not_finite));
  }
}

}  // namespace

mxfa_tensor upload_bf16(const Session& session, const std::vector<uint16_t>& values, int heads, int head_dim,
                        const char* name, std::unique_ptr<DeviceBuffer>& buffer) {
  const uint64_t row_elements = static_cast<uint64_t>(heads) * head_dim;
  const uint64_t rows = values.size() / row_elements + kTailRows;
  buffer = std::make_unique<DeviceBuffer>(session, name, rows * row_elements * 2);
  buffer->upload<uint16_t>(values);
  return {buffer->data(), static_cast<int64_t>(row_elements), static_cast<int64_t>(rows), {}};
}

DeviceOffsets::DeviceOffsets(const Session& session, const Shape& shape) {
  if (!shape.device_lengths) return;
  const auto place = [&](const char* name, const std::vector<int32_t>& lengths) {
    const std::vector<int32_t> offsets = offsets_of(lengths);
    auto buffer = std::make_unique<DeviceBuffer>(session, name, offsets.size() * sizeof(int32_t));
    buffer->upload<int32_t>(offsets);
    return buffer;
  };
  q_ = place("offsets_q", shape.seqlens_q), k_ = place("offsets_k", shape.seqlens_k);
}

double multiply_adds(const reference::AttentionProblem& problem) {
  double pairs = 0;
  for (int b = 0; b < problem.batch; ++b)
    for (int64_t row = 0; row < problem.len_q(b); ++row)
      pairs += static_cast<double>(reference::visible_keys(problem, b, row).count());
  return pairs * problem.heads_q * problem.head_dim;
}

RunRow run_attention(const Session& session, const Shape& shape, const RunOptions& options) {
  const reference::AttentionProblem problem = attention_problem(shape);
  RunRow row;
  row.shape = shape.source;
  row.op = name_of(shape.op);
  row.dtype = name_of(shape.dtype);

  const Plan plan = plan_attention(session.context(), shape);

  const double work = 2 * multiply_adds(problem);                   // of both products
  const bool small = options.check || 2 * work <= kReferenceLimit;  // there are two references
  const bool check = options.judge && small;
  Operands operands;
  operands.q = make_data(shape, Operand::kQ, problem.rows_q(), shape.heads_q);
  operands.k = make_data(shape, Operand::kK, problem.rows_k(), shape.heads_kv);
  operands.v = make_data(shape, Operand::kV, problem.rows_k(), shape.heads_kv);
  place_operands(session, shape, check, operands, row);

  const uint64_t rows_o = static_cast<uint64_t>(problem.rows_o());
  const uint64_t row_elements = static_cast<uint64_t>(shape.heads_q) * shape.head_dim;
  DeviceBuffer o(session, "O", rows_o * row_elements * 2), lse(session, "LSE", rows_o * shape.heads_q * 4);
  DeviceBuffer workspace(session, "the workspace", plan.workspace());
  mxfa_attention_forward_args args{};
  args.size = sizeof args;
  args.q = operands.tensor_q;
  args.k = operands.tensor_k;
  args.v = operands.tensor_v;
  args.o = {o.data(), static_cast<int64_t>(row_elements), static_cast<int64_t>(rows_o), {}};
  args.lse = static_cast<float*>(lse.data());
  args.workspace = workspace.data();
  const DeviceOffsets offsets(session, shape);
  args.offsets_q = offsets.q(), args.offsets_k = offsets.k();
  plan.prepare(args.workspace, nullptr);
  const nlohmann::ordered_json before = session.counters();
  plan(args, nullptr);
  session.synchronize();
  if (rows_o > 0) {
    row.counters = session.counters_since(before);
    if (session.real_device()) {
      row.time_ms = median_ms(session, [&] { plan(args, nullptr); });
      row.rate = 2.0 * work / row.time_ms * 1e-9;  // TFLOP/s
    }
  }

  for (const DeviceBuffer* buffer : {&o, &lse, &workspace}) {
    if (const std::string damage = buffer->damage(); !damage.empty()) row.fail(damage);
  }
  if (options.keep_outputs) row.outputs = {{"O", o.download<uint8_t>()}, {"LSE", lse.download<uint8_t>()}};
  if (rows_o == 0) {
    row.checked = true;
    row.note = "no queries, nothing launched";
  } else if (check) {
    const reference::AttentionOptions numerics = attention_numerics(session.driver().arch, shape);
    judge(shape, problem, numerics, operands, o.download<uint16_t>(), lse.download<float>(), row);
  } else if (options.judge) {
    row.note = fmt::format(
        "not checked: the references take {:.3g} multiply-adds; --check does it all the same", 2 * work);
  }
  return row;
}

}  // namespace mxfa::tools
