// A timed attention: inputs, launches, and the check of what the last launch left.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <tuple>

#include "bench.hpp"
#include "bench_check.hpp"
#include "bench_mx_operand.hpp"
#include "bench_tensor.hpp"
#include "host/error.hpp"
#include "reference_problem.hpp"
#include "run.hpp"
#include "verdict.hpp"

namespace mxfa::tools {

using nlohmann::ordered_json;
using reference::Orientation;

void refuse_untimed_options(const Shape& shape) {
  if (shape.data.distribution != DataDistribution::normal)
    invalid(
        "data.distribution: got {}, bench has normal only: times depend on how many bits of the data flip",
        name_of(shape.data.distribution));
  if (shape.device_lengths)
    invalid("device_lengths: bench times plans whose lengths the host knows; leave it out");
}

double attention_flop(const Shape& shape) {
  double pairs = 0;
  const bool windowed = shape.window[0] >= 0 || shape.window[1] >= 0;
  if (windowed) {
    const reference::AttentionProblem problem = attention_problem(shape);
    for (int b = 0; b < problem.batch; ++b)
      for (int64_t row = 0; row < problem.len_q(b); ++row)
        pairs += static_cast<double>(visible_keys(problem, b, row).count());
  } else {
    for (size_t b = 0; b < shape.seqlens_k.size(); ++b)
      pairs += static_cast<double>(shape.seqlens_q[shape.broadcast_q ? 0 : b]) * shape.seqlens_k[b];
    if (shape.causal) pairs /= 2;
  }
  return (shape.op == Op::attn_bwd ? 10.0 : 4.0) * shape.head_dim * shape.heads_q * pairs;
}

namespace {

// Q, K and V on the device, as BF16 or quantised.
struct Operands {
  std::vector<std::unique_ptr<BenchTensor>> bf16;
  std::vector<std::unique_ptr<BenchMxOperand>> mxfp8;
  std::vector<mxfa_tensor> tensors;
  std::vector<FetchRows> fetch;
  std::vector<const DeviceBuffer*> buffers;

  Operands(BenchMachine& machine, const Shape& shape, const reference::AttentionProblem& problem) {
    const Session& session = machine.session();
    int index = 0;
    const auto add = [&](const mxfa_tensor& tensor, FetchRows rows) {
      tensors.push_back(tensor);
      fetch.push_back(std::move(rows));
    };
    for (const QuantizeRequest& request : quantize_requests(shape)) {  // none in BF16
      mxfp8.push_back(std::make_unique<BenchMxOperand>(session, shape, request, machine.block(shape), index++,
                                                       machine.stream()));
      const BenchMxOperand& operand = *mxfp8.back();
      add(operand.tensor(index == 3 ? Orientation::kAlongTokens : Orientation::kAlongD), operand.fetch());
      for (const DeviceBuffer* buffer : operand.buffers()) buffers.push_back(buffer);
    }
    if (!mxfp8.empty()) return;
    for (const auto& [name, rows, heads] : {std::tuple{"Q", problem.rows_q(), shape.heads_q},
                                            {"K", problem.rows_k(), shape.heads_kv},
                                            {"V", problem.rows_k(), shape.heads_kv}}) {
      bf16.push_back(std::make_unique<BenchTensor>(session, name, rows, heads, shape.head_dim));
      bf16.back()->fill(machine.block(shape), index++);
      add(bf16.back()->tensor(), bf16.back()->fetch());
      buffers.push_back(&bf16.back()->buffer);
    }
  }
};

}  // namespace

void bench_attention(BenchMachine& machine, const Shape& shape, BenchRow& row) {
  refuse_untimed_options(shape);
  const Session& session = machine.session();
  const Stream& stream = machine.stream();
  const reference::AttentionProblem problem = attention_problem(shape);
  const Plan plan = plan_attention(session.context(), shape);
  row.plan = ordered_json::parse(plan.describe());
  row.work = attention_flop(shape);
  const uint64_t rows_o = static_cast<uint64_t>(problem.rows_o());
  if (rows_o == 0) {
    row.note = "no queries, nothing launched";
    return;
  }

  const Operands operands(machine, shape, problem);
  const uint64_t row_elements = static_cast<uint64_t>(shape.heads_q) * shape.head_dim;
  DeviceBuffer o(session, "O", rows_o * row_elements * 2), lse(session, "LSE", rows_o * shape.heads_q * 4);
  DeviceBuffer workspace(session, "the workspace", plan.workspace());
  mxfa_attention_forward_args args{};
  args.size = sizeof args;
  args.q = operands.tensors[0], args.k = operands.tensors[1], args.v = operands.tensors[2];
  args.o = {o.data(), static_cast<int64_t>(row_elements), static_cast<int64_t>(rows_o), {}};
  args.lse = static_cast<float*>(lse.data());
  args.workspace = workspace.data();
  session.synchronize();
  plan.prepare(args.workspace, stream.get());
  plan(args, stream.get());
  stream.synchronize();
  const std::vector<uint16_t> first = o.download<uint16_t>();
  machine.time([&] { plan(args, stream.get()); }, row);
  stream.synchronize();

  // What the last of all launches left is checked; that the first left the same shows a race between them.
  const std::vector<uint16_t> last = o.download<uint16_t>();
  const std::vector<float> last_lse = lse.download<float>();
  if (first != last) row.failures.push_back("O: the last launch left other bits than the first");
  std::vector<const DeviceBuffer*> buffers = operands.buffers;
  buffers.insert(buffers.end(), {&o, &lse, &workspace});
  for (const DeviceBuffer* buffer : buffers)
    if (const std::string damage = buffer->damage(); !damage.empty()) row.failures.push_back(damage);
  const CheckResult checked = check_attention(
      problem, attention_numerics(session.driver().arch, shape),
      {operands.fetch[0], operands.fetch[1], operands.fetch[2], last, last_lse},
      sample_rows(problem, shape.data.seed, kCheckBudget), limits_of(shape).quantized_sqnr_db);
  row.failures.insert(row.failures.end(), checked.failures.begin(), checked.failures.end());
  row.check = {{"samples", checked.samples},
               {"rows", checked.rows},
               {"of_rows", rows_o * shape.heads_q},
               {"sqnr_db", std::isfinite(checked.sqnr_db) ? ordered_json(checked.sqnr_db) : ordered_json()}};
}

}  // namespace mxfa::tools
