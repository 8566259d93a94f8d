// Op attn_bwd of `mxfa run`: the forward kernel makes O and LSE, the backward kernels the gradients, which
// are compared with both references.
#include <fmt/format.h>

#include <cmath>

#include "reference/attention_backward.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "reference_problem.hpp"
#include "run.hpp"
#include "verdict.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;
using reference::Operand;
using reference::Orientation;

// An output on the device: poisoned, with the rows a caller may have behind the last sequence.
struct Gradient {
  DeviceBuffer buffer;
  uint64_t row_elements, rows;

  Gradient(const Session& session, const char* name, int64_t rows, int heads, int head_dim)
      : buffer(session, name,
               (static_cast<uint64_t>(rows) + kTailRows) * static_cast<uint64_t>(heads) * head_dim * 2),
        row_elements(static_cast<uint64_t>(heads) * head_dim),
        rows(static_cast<uint64_t>(rows)) {}
  mxfa_tensor tensor() const {
    return {buffer.data(), static_cast<int64_t>(row_elements), static_cast<int64_t>(rows + kTailRows), {}};
  }
  std::vector<double> fetch(RunRow& row, const char* name) const {
    const std::vector<uint16_t> bits = buffer.download<uint16_t>();
    const auto end = bits.begin() + static_cast<std::ptrdiff_t>(rows * row_elements);
    if (std::any_of(end, bits.end(), [](uint16_t value) { return value != 0xffff; }))
      row.fail(fmt::format("{}: a row past the last sequence was written", name));
    return reference::bf16_to_double(std::span<const uint16_t>(bits).first(rows * row_elements));
  }
};

ordered_json figures(const std::vector<double>& got, const std::vector<double>& want) {
  const reference::Deviation deviation = reference::deviation(got, want);
  return {
      {"sqnr_db", std::isfinite(deviation.sqnr_db) ? ordered_json(deviation.sqnr_db) : ordered_json()},
      {"cosine", deviation.cosine},
      {"max_abs_error", std::isfinite(deviation.max_abs) ? ordered_json(deviation.max_abs) : ordered_json()}};
}

// Q, K, V and dO on the device, and, for the check, their values as the backward is given them.
struct BackwardOperands {
  std::vector<std::unique_ptr<DeviceBuffer>> bf16;
  std::vector<DeviceOperand> mxfp8;
  mxfa_tensor q{}, k{}, v{}, d_o{}, forward_v{};
  std::vector<double> given_q, given_k, given_v, given_d_o;

  BackwardOperands(const Session& session, const Shape& shape,
                   const std::vector<std::vector<uint16_t>>& data,  // Q, K, V, dO
                   bool check, RunRow& row) {
    const int heads[] = {shape.heads_q, shape.heads_kv, shape.heads_kv, shape.heads_q};
    mxfa_tensor* const tensors[] = {&q, &k, &v, &d_o};
    std::vector<double>* const given[] = {&given_q, &given_k, &given_v, &given_d_o};
    if (shape.dtype == Dtype::bf16) {
      const char* const names[] = {"Q", "K", "V", "dO"};
      for (int i = 0; i < 4; ++i) {
        bf16.emplace_back();
        *tensors[i] = upload_bf16(session, data[i], heads[i], shape.head_dim, names[i], bf16.back());
        if (check) *given[i] = reference::bf16_to_double(data[i]);
      }
      forward_v = v;
      return;
    }
    const std::vector<QuantizeRequest> requests = quantize_requests(shape);  // Q, K, V, dO, perhaps V again
    const int of[] = {0, 1, 2, 3, 2};
    for (size_t i = 0; i < requests.size(); ++i)
      mxfp8.push_back(quantize_on_device(session, shape, requests[i], data[of[i]], check, row));
    for (int i = 0; i < 4; ++i) {
      const DeviceOperand& operand = i == 2 && mxfp8.size() > 4 ? mxfp8[4] : mxfp8[i];
      *tensors[i] = operand.tensor(heads[i], shape.head_dim, Orientation::kAlongD);
      if (check) *given[i] = reference::dequantize(operand.result);
    }
    forward_v = mxfp8[2].tensor(shape.heads_kv, shape.head_dim, Orientation::kAlongTokens);
  }
};

void judge(const Shape& shape, const reference::GradientValues& got, const reference::Gradients& exact,
           const reference::Gradients& aware, const reference::AttentionProblem& problem, RunRow& row) {
  const reference::Deviation from_exact = reference::gradient_deviation(got, exact);
  const reference::Deviation from_aware = reference::gradient_deviation(got, aware);
  row.sqnr_db = from_exact.sqnr_db;
  row.cosine = from_exact.cosine;
  row.max_abs = from_exact.max_abs;
  row.quantized_sqnr_db = from_aware.sqnr_db;
  row.gradients = {{"dq", figures(got.dq, exact.dq)},
                   {"dk", figures(got.dk, exact.dk)},
                   {"dv", figures(got.dv, exact.dv)}};
  row.has_accuracy = row.checked = true;
  const Limits limits = limits_of(shape);
  const auto at_least = [&](double value, double limit, const char* what) {
    if (!(value >= limit)) row.fail(fmt::format("{}: got {:.6g}, need at least {:.6g}", what, value, limit));
  };
  at_least(row.sqnr_db, limits.sqnr_db, "signal to noise of the gradients against the exact reference, dB");
  at_least(row.cosine, limits.cosine, "cosine of the gradients with the exact reference");
  at_least(row.quantized_sqnr_db, limits.quantized_sqnr_db,
           "signal to noise of the gradients against the reference of the kernel's arithmetic, dB");
  if (const auto wrong = reference::first_gradient_outside_bound(problem, got, aware)) row.fail(*wrong);
  if (from_aware.not_finite > 0)
    row.fail(fmt::format("{} elements of the gradients are not finite", from_aware.not_finite));
}

// Whether the schedule leaves dQ its bits: else it is a sum of floats in the order in which tiles of keys
// finish.
bool dq_has_one_sum(const Shape& shape, const reference::AttentionProblem& problem, bool split) {
  if (split || shape.backward.deterministic) return true;
  if (problem.broadcast_q) return false;
  constexpr int64_t kTileKeys = 128;
  // Two numbers and zeros have the same sum in every order.
  for (int b = 0; b < problem.batch; ++b)
    for (int64_t row = 0; row < problem.len_q(b); ++row) {
      const auto seen = reference::visible_keys(problem, b, row);
      if (seen.count() > 0 && (seen.last - 1) / kTileKeys - seen.first / kTileKeys > 1) return false;
    }
  return true;
}

}  // namespace

RunRow run_attention_backward(const Session& session, const Shape& shape, const RunOptions& options) {
  const reference::AttentionProblem problem = attention_problem(shape);
  RunRow row;
  row.shape = shape.source;
  row.op = name_of(shape.op);
  row.dtype = name_of(shape.dtype);
  const Plan plan = plan_attention_backward(session.context(), shape);
  const Plan forward = plan_attention(session.context(), shape);

  const int d = shape.head_dim;
  const double work = 5 * multiply_adds(problem);
  // Two references, and the forward of the exact one.
  const bool check = options.judge && (options.check || 2.5 * work <= kReferenceLimit);
  const std::vector<std::vector<uint16_t>> data = {
      make_data(shape, Operand::kQ, problem.rows_q(), shape.heads_q),
      make_data(shape, Operand::kK, problem.rows_k(), shape.heads_kv),
      make_data(shape, Operand::kV, problem.rows_k(), shape.heads_kv),
      make_data(shape, Operand::kOutputGradient, problem.rows_o(), shape.heads_q)};
  const BackwardOperands operands(session, shape, data, check, row);
  mxfa_attention_backward_args args{};
  args.size = sizeof args;
  args.q = operands.q, args.k = operands.k, args.v = operands.v, args.d_o = operands.d_o;
  const Gradient o(session, "O", problem.rows_o(), shape.heads_q, d);  // an output of the forward
  const Gradient dq(session, "dQ", problem.rows_q(), shape.heads_q, d),
      dk(session, "dK", problem.rows_k(), shape.heads_kv, d),
      dv(session, "dV", problem.rows_k(), shape.heads_kv, d);
  DeviceBuffer lse(session, "LSE", static_cast<uint64_t>(problem.rows_o()) * shape.heads_q * 4);
  DeviceBuffer forward_workspace(session, "the forward's workspace", forward.workspace());
  DeviceBuffer workspace(session, "the workspace", plan.workspace());

  mxfa_attention_forward_args forward_args{};
  forward_args.size = sizeof forward_args;
  forward_args.q = args.q, forward_args.k = args.k, forward_args.v = operands.forward_v;
  forward_args.o = o.tensor();
  forward_args.lse = static_cast<float*>(lse.data());
  forward_args.workspace = forward_workspace.data();
  const DeviceOffsets offsets(session, shape);
  forward_args.offsets_q = args.offsets_q = offsets.q();
  forward_args.offsets_k = args.offsets_k = offsets.k();
  forward.prepare(forward_args.workspace, nullptr);
  forward(forward_args, nullptr);

  args.o = o.tensor();
  args.lse = forward_args.lse;
  args.dq = dq.tensor(), args.dk = dk.tensor(), args.dv = dv.tensor();
  args.workspace = workspace.data();
  plan.prepare(args.workspace, nullptr);
  session.synchronize();
  const ordered_json before = session.counters();
  plan(args, nullptr);
  session.synchronize();
  const bool launched = problem.rows_q() > 0 || problem.rows_k() > 0;
  if (launched) {
    row.counters = session.counters_since(before);
    if (session.real_device()) {
      row.time_ms = median_ms(session, [&] { plan(args, nullptr); });
      row.rate = 2.0 * work / row.time_ms * 1e-9;  // TFLOP/s
    }
  }

  const std::initializer_list<const DeviceBuffer*> written = {&o.buffer,  &dq.buffer, &dk.buffer,
                                                              &dv.buffer, &lse,       &workspace};
  for (const DeviceBuffer* buffer : written) {
    if (const std::string damage = buffer->damage(); !damage.empty()) row.fail(damage);
  }
  const reference::GradientValues got{dq.fetch(row, "dQ"), dk.fetch(row, "dK"), dv.fetch(row, "dV")};
  if (options.keep_outputs) {
    row.outputs = {{"dK", dk.buffer.download<uint8_t>()}, {"dV", dv.buffer.download<uint8_t>()}};
    const ordered_json options_of = ordered_json::parse(plan.describe())["options"];
    if (dq_has_one_sum(shape, problem, options_of["method"]["chosen"] == "split"))
      row.outputs.push_back({"dQ", dq.buffer.download<uint8_t>()});
  }
  if (!launched) {
    row.checked = true;
    row.note = "no queries and no keys, nothing launched";
  } else if (check) {
    const auto exact = [&](int index) { return reference::bf16_to_double(data[index]); };
    const std::vector<float> given_lse = lse.download<float>();
    judge(shape, got, reference::attention_backward(problem, exact(0), exact(1), exact(2), exact(3)),
          reference::attention_backward(problem, operands.given_q, operands.given_k, operands.given_v,
                                        operands.given_d_o, o.fetch(row, "O"),
                                        std::vector<double>(given_lse.begin(), given_lse.end()),
                                        backward_numerics(shape)),
          problem, row);
  } else if (options.judge) {
    row.note = fmt::format(
        "not checked: the references take {:.3g} multiply-adds; --check does it all the same", 2.5 * work);
  }
  return row;
}

}  // namespace mxfa::tools
