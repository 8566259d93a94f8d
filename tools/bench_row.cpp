// The device of a bench, and a row's rates and JSON.
#include <fmt/format.h>

#include "bench.hpp"
#include "bench_yardstick.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

ordered_json json_of(const Timing& timing) {
  ordered_json json = json_of(summarize(timing.ms));
  json["launches"] = timing.launches;
  json["samples"] = timing.ms;
  return json;
}

// TFLOP/s or GB/s from FLOP or bytes and milliseconds.
double rate_of(double work, double ms, Op op) { return work / ms * (op == Op::mxfp8_quantize ? 1e-6 : 1e-9); }

}  // namespace

std::vector<double> BenchRow::fractions() const {
  std::vector<double> fractions;
  for (size_t i = 0; i < measurement.yardstick.ms.size(); ++i)
    fractions.push_back(work / measurement.work.ms[i] / (yardstick->work / measurement.yardstick.ms[i]));
  return fractions;
}

double BenchRow::rate() const { return rate_of(work, summarize(measurement.work.ms).median, op); }

double BenchRow::yardstick_rate() const {
  if (measurement.yardstick.ms.empty()) return 0;
  return rate_of(yardstick->work, summarize(measurement.yardstick.ms).median, op);
}

ordered_json json_of(const BenchRow& row) {
  ordered_json json = {{"shape", row.shape},       {"op", name_of(row.op)},    {"dtype", name_of(row.dtype)},
                       {"head_dim", row.head_dim}, {"verdict", row.verdict()}, {"failures", row.failures}};
  if (!row.refused.empty()) json["refused"] = row.refused;
  if (!row.note.empty()) json["note"] = row.note;
  if (row.plan.is_object())
    for (const char* key : {"kernel", "arch", "key", "options", "config", "overrides", "grid", "tiles",
                            "ptxas", "build_ms", "load_ms"})
      if (row.plan.contains(key)) json[key] = row.plan[key];
  if (!row.timed()) return json;
  json["work"] = row.work;
  json["work_is"] = row.op == Op::mxfp8_quantize ? "bytes" : "FLOP";
  json["data"] = {{"std", row.std}, {"seed", row.seed}};
  json["time_ms"] = json_of(row.measurement.work);
  json["rate"] = row.rate();
  json["rate_unit"] = row.rate_unit();
  if (row.yardstick) {
    ordered_json& yardstick = json["yardstick"];
    yardstick = {{"name", row.yardstick->name}};
    if (!row.yardstick->missing.empty()) {
      yardstick["missing"] = row.yardstick->missing;
    } else {
      yardstick["work"] = row.yardstick->work;
      yardstick["time_ms"] = json_of(row.measurement.yardstick);
      yardstick["rate"] = row.yardstick_rate();
      json["fraction"] = json_of(summarize(row.fractions()));
    }
  }
  json["check"] = row.check;
  return json;
}

BenchMachine::BenchMachine(const Session& session, const MeasureOptions& options, bool with_yardsticks)
    : session_(session), options_(options), with_yardsticks_(with_yardsticks), stream_(session) {}

const RandomBlock& BenchMachine::block(const Shape& shape) {
  if (!block_ || !block_->is(shape.data.std, shape.data.seed))
    block_ = std::make_unique<RandomBlock>(session_, shape.data.std, shape.data.seed);
  return *block_;
}

const Yardstick& BenchMachine::yardstick(Op op) {
  std::unique_ptr<Yardstick>& yardstick = op == Op::mxfp8_quantize ? copy_ : gemm_;
  if (!yardstick) {
    yardstick = std::make_unique<Yardstick>(
        op == Op::mxfp8_quantize ? make_copy_yardstick(session_, stream_)
                                 : make_gemm_yardstick(session_, stream_, RandomBlock(session_, 1.0, 1)));
  }
  return *yardstick;
}

void BenchMachine::time(const std::function<void()>& launch, BenchRow& row) {
  static const Yardstick kNone;
  if (with_yardsticks_) row.yardstick = &yardstick(row.op);
  row.measurement = measure(session_, stream_, launch, row.yardstick ? *row.yardstick : kNone, options_);
}

std::vector<BenchRow> bench_shape(BenchMachine& machine, const Shape& shape) {
  const auto slash = shape.source.rfind('/');
  BenchRow row;
  row.shape = slash == shape.source.npos ? shape.source : shape.source.substr(slash + 1);
  row.op = shape.op;
  row.dtype = shape.dtype;
  row.head_dim = shape.head_dim;
  row.std = shape.data.std, row.seed = shape.data.seed;
  const auto attempt = [&](auto&& bench) {
    try {
      bench();
    } catch (const Error& error) {
      if (error.status() != MXFA_ERROR_INVALID || row.timed()) throw;
      row.refused = error.what();
    }
  };
  std::vector<BenchRow> rows;
  if (shape.op != Op::mxfp8_quantize) {
    attempt([&] {
      (shape.op == Op::attn_bwd ? bench_attention_backward : bench_attention)(machine, shape, row);
    });
    rows.push_back(std::move(row));
    return rows;
  }
  const BenchRow blank = row;
  for (const QuantizeRequest& request : quantize_requests(shape)) {
    row = blank;
    row.shape += fmt::format(" ({})", name_of(request.layout));
    attempt([&] { bench_quantize(machine, shape, request, row); });
    rows.push_back(row);
  }
  return rows;
}

}  // namespace mxfa::tools
