// A timed backward: inputs, O and LSE from the forward kernel, launches, and the check of what the last
// launch left.
#include <cmath>
#include <memory>
#include <tuple>

#include "bench.hpp"
#include "bench_backward_check.hpp"
#include "bench_mx_operand.hpp"
#include "bench_tensor.hpp"
#include "reference_problem.hpp"
#include "verdict.hpp"

namespace mxfa::tools {

namespace {

using reference::Orientation;

// Q, K, V and dO on the device, as BF16 or quantised.
struct Operands {
  std::vector<std::unique_ptr<BenchTensor>> bf16;
  std::vector<std::unique_ptr<BenchMxOperand>> mxfp8;
  std::vector<mxfa_tensor> tensors;
  std::vector<FetchRows> fetch;
  mxfa_tensor forward_v{};

  Operands(BenchMachine& machine, const Shape& shape, const reference::AttentionProblem& problem) {
    const Session& session = machine.session();
    const int data[] = {0, 1, 2, 3, 2};  // of RandomBlock; an MXFP8 backward may have V twice
    for (const QuantizeRequest& request : quantize_requests(shape))  // none in BF16
      mxfp8.push_back(std::make_unique<BenchMxOperand>(session, shape, request, machine.block(shape),
                                                       data[mxfp8.size()], machine.stream()));
    if (!mxfp8.empty()) {
      for (int i = 0; i < 4; ++i) {
        const BenchMxOperand& operand = *mxfp8[i == 2 && mxfp8.size() > 4 ? 4 : i];
        tensors.push_back(operand.tensor(Orientation::kAlongD));
        fetch.push_back(operand.fetch());
      }
      forward_v = mxfp8[2]->tensor(Orientation::kAlongTokens);
      return;
    }
    for (const auto& [name, rows, heads] : {std::tuple{"Q", problem.rows_q(), shape.heads_q},
                                            {"K", problem.rows_k(), shape.heads_kv},
                                            {"V", problem.rows_k(), shape.heads_kv},
                                            {"dO", problem.rows_o(), shape.heads_q}}) {
      bf16.push_back(std::make_unique<BenchTensor>(session, name, rows, heads, shape.head_dim));
      bf16.back()->fill(machine.block(shape), data[bf16.size() - 1]);
      tensors.push_back(bf16.back()->tensor());
      fetch.push_back(bf16.back()->fetch());
    }
    forward_v = tensors[2];
  }
  std::vector<const DeviceBuffer*> buffers() const {
    std::vector<const DeviceBuffer*> all;
    for (const auto& tensor : bf16) all.push_back(&tensor->buffer);
    for (const auto& operand : mxfp8)
      for (const DeviceBuffer* buffer : operand->buffers()) all.push_back(buffer);
    return all;
  }
};

}  // namespace

void bench_attention_backward(BenchMachine& machine, const Shape& shape, BenchRow& row) {
  refuse_untimed_options(shape);
  const Session& session = machine.session();
  const Stream& stream = machine.stream();
  const reference::AttentionProblem problem = attention_problem(shape);
  const Plan plan = plan_attention_backward(session.context(), shape);
  const Plan forward = plan_attention(session.context(), shape);
  row.plan = nlohmann::ordered_json::parse(plan.describe());
  row.work = attention_flop(shape);
  if (problem.rows_q() == 0 && problem.rows_k() == 0) {
    row.note = "no queries and no keys, nothing launched";
    return;
  }

  const auto make = [&](const char* name, int64_t rows, int heads) {
    return BenchTensor(session, name, rows, heads, shape.head_dim);
  };
  const Operands operands(machine, shape, problem);
  const BenchTensor o = make("O", problem.rows_o(), shape.heads_q),
                    dq = make("dQ", problem.rows_q(), shape.heads_q),
                    dk = make("dK", problem.rows_k(), shape.heads_kv),
                    dv = make("dV", problem.rows_k(), shape.heads_kv);
  DeviceBuffer lse(session, "LSE", static_cast<uint64_t>(problem.rows_o()) * shape.heads_q * 4);
  DeviceBuffer forward_workspace(session, "the forward's workspace", forward.workspace()),
      workspace(session, "the workspace", plan.workspace());
  mxfa_attention_forward_args forward_args{};
  forward_args.size = sizeof forward_args;
  forward_args.q = operands.tensors[0], forward_args.k = operands.tensors[1];
  forward_args.v = operands.forward_v;
  forward_args.o = o.tensor();
  forward_args.lse = static_cast<float*>(lse.data());
  forward_args.workspace = forward_workspace.data();
  mxfa_attention_backward_args args{};
  args.size = sizeof args;
  args.q = forward_args.q, args.k = forward_args.k, args.v = operands.tensors[2], args.o = forward_args.o;
  args.d_o = operands.tensors[3];
  args.lse = forward_args.lse;
  args.dq = dq.tensor(), args.dk = dk.tensor(), args.dv = dv.tensor();
  args.workspace = workspace.data();
  session.synchronize();
  forward.prepare(forward_args.workspace, stream.get());
  forward(forward_args, stream.get());
  plan.prepare(args.workspace, stream.get());
  plan(args, stream.get());
  stream.synchronize();
  const std::vector<uint16_t> first_dq = dq.all(), first_dk = dk.all(), first_dv = dv.all();
  machine.time([&] { plan(args, stream.get()); }, row);
  stream.synchronize();

  // What the last of all launches left is checked; that the first left the same shows a race between them.
  const std::vector<uint16_t> last_dq = dq.all(), last_dk = dk.all(), last_dv = dv.all();
  if (first_dk != last_dk) row.failures.push_back("dK: the last launch left other bits than the first");
  if (first_dv != last_dv) row.failures.push_back("dV: the last launch left other bits than the first");
  if (shape.backward.deterministic && first_dq != last_dq)
    row.failures.push_back("dQ: the last launch left other bits than the first");
  std::vector<const DeviceBuffer*> buffers = operands.buffers();
  buffers.insert(buffers.end(), {&o.buffer, &dq.buffer, &dk.buffer, &dv.buffer, &lse, &workspace});
  for (const DeviceBuffer* buffer : buffers)
    if (const std::string damage = buffer->damage(); !damage.empty()) row.failures.push_back(damage);
  const std::vector<float> given_lse = lse.download<float>();
  const CheckResult checked = check_backward(
      problem,
      {operands.fetch[0], operands.fetch[1], operands.fetch[2], o.fetch(), operands.fetch[3], given_lse,
       last_dq, last_dk, last_dv},
      backward_numerics(shape), shape.data.seed, kCheckBudget, limits_of(shape).quantized_sqnr_db);
  row.failures.insert(row.failures.end(), checked.failures.begin(), checked.failures.end());
  row.check = {{"samples", checked.samples},
               {"rows", checked.rows},
               {"of_rows", problem.rows_q() * shape.heads_q + problem.rows_k() * shape.heads_kv},
               {"sqnr_db", std::isfinite(checked.sqnr_db) ? nlohmann::ordered_json(checked.sqnr_db)
                                                          : nlohmann::ordered_json()}};
}

}  // namespace mxfa::tools
