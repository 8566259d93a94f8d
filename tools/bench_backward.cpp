// A timed backward: inputs, O and LSE from the forward kernel, launches, and the check of what the last
// launch left.
#include <cmath>

#include "bench.hpp"
#include "bench_backward_check.hpp"
#include "bench_tensor.hpp"
#include "reference_problem.hpp"
#include "verdict.hpp"

namespace mxfa::tools {

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
  const BenchTensor q = make("Q", problem.rows_q(), shape.heads_q),
                    k = make("K", problem.rows_k(), shape.heads_kv),
                    v = make("V", problem.rows_k(), shape.heads_kv),
                    o = make("O", problem.rows_o(), shape.heads_q),
                    d_o = make("dO", problem.rows_o(), shape.heads_q),
                    dq = make("dQ", problem.rows_q(), shape.heads_q),
                    dk = make("dK", problem.rows_k(), shape.heads_kv),
                    dv = make("dV", problem.rows_k(), shape.heads_kv);
  int index = 0;
  for (const BenchTensor* tensor : {&q, &k, &v, &d_o}) tensor->fill(machine.block(shape), index++);
  DeviceBuffer lse(session, "LSE", static_cast<uint64_t>(problem.rows_o()) * shape.heads_q * 4);
  DeviceBuffer forward_workspace(session, "the forward's workspace", forward.workspace()),
      workspace(session, "the workspace", plan.workspace());
  mxfa_attention_forward_args forward_args{};
  forward_args.size = sizeof forward_args;
  forward_args.q = q.tensor(), forward_args.k = k.tensor(), forward_args.v = v.tensor();
  forward_args.o = o.tensor();
  forward_args.lse = static_cast<float*>(lse.data());
  forward_args.workspace = forward_workspace.data();
  mxfa_attention_backward_args args{};
  args.size = sizeof args;
  args.q = forward_args.q, args.k = forward_args.k, args.v = forward_args.v, args.o = forward_args.o;
  args.d_o = d_o.tensor();
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
  const std::initializer_list<const DeviceBuffer*> buffers = {&q.buffer,   &k.buffer,  &v.buffer,  &o.buffer,
                                                              &d_o.buffer, &dq.buffer, &dk.buffer, &dv.buffer,
                                                              &lse,        &workspace};
  for (const DeviceBuffer* buffer : buffers)
    if (const std::string damage = buffer->damage(); !damage.empty()) row.failures.push_back(damage);
  const std::vector<float> given_lse = lse.download<float>();
  const CheckResult checked = check_backward(
      problem,
      {q.fetch(), k.fetch(), v.fetch(), o.fetch(), d_o.fetch(), given_lse, last_dq, last_dk, last_dv},
      backward_numerics(shape, row.plan), shape.data.seed, kCheckBudget, limits_of(shape).quantized_sqnr_db);
  row.failures.insert(row.failures.end(), checked.failures.begin(), checked.failures.end());
  row.check = {{"samples", checked.samples},
               {"rows", checked.rows},
               {"of_rows", problem.rows_q() * shape.heads_q + problem.rows_k() * shape.heads_kv},
               {"sqnr_db", std::isfinite(checked.sqnr_db) ? nlohmann::ordered_json(checked.sqnr_db)
                                                          : nlohmann::ordered_json()}};
}

}  // namespace mxfa::tools
