// A timed quantiser: one tensor, one layout.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench.hpp"
#include "byte_difference.hpp"
#include "host/error.hpp"
#include "run.hpp"

namespace mxfa::tools {

namespace {

using reference::BlockLayout;

// Elements that the check quantises on the host: a second on two cores.
constexpr int64_t kCheckElements = int64_t{8} << 20;

// The longest, the first and the last sequence, then others drawn evenly, until there is enough to compare.
std::set<int> sample_sequences(const std::vector<int32_t>& lengths, int64_t row_elements, uint64_t seed) {
  std::set<int> sample;
  int64_t elements = 0;
  const auto take = [&](size_t b) {
    if (lengths[b] > 0 && sample.insert(static_cast<int>(b)).second) elements += lengths[b] * row_elements;
  };
  take(static_cast<size_t>(std::max_element(lengths.begin(), lengths.end()) - lengths.begin()));
  PortableRandom random(seed);
  take(0);
  take(lengths.size() - 1);
  for (size_t tries = 0; tries < lengths.size() && elements < kCheckElements; ++tries)
    take(static_cast<size_t>(random.uniform() * static_cast<double>(lengths.size())));
  return sample;
}

struct Written {
  const char* name;
  const DeviceBuffer* buffer;  // nullptr: the layout does not write it
};

}  // namespace

void bench_quantize(BenchMachine& machine, const Shape& shape, const QuantizeRequest& request,
                    BenchRow& row) {
  if (shape.data.distribution != DataDistribution::normal)
    invalid("data.distribution: got {}, bench has normal only", name_of(shape.data.distribution));
  const Session& session = machine.session();
  const Stream& stream = machine.stream();
  const Plan plan = plan_quantize(session.context(), shape, request);
  row.plan = nlohmann::ordered_json::parse(plan.describe());
  const std::vector<int32_t> offsets = offsets_of(request.lengths);
  const uint64_t row_elements = static_cast<uint64_t>(request.heads) * shape.head_dim;
  const uint64_t tokens = static_cast<uint64_t>(offsets.back()), elements = tokens * row_elements;
  const uint64_t scale_bytes =
      static_cast<uint64_t>(request.heads) *
      static_cast<uint64_t>(mxfa_scale_rows(static_cast<int32_t>(request.lengths.size()), offsets.data())) *
      4;
  const bool along_d = request.layout != BlockLayout::kAlongTokens;
  const bool along_tokens = request.layout != BlockLayout::kAlongD;
  row.work = static_cast<double>(elements * 3 + (along_d + along_tokens) * scale_bytes);
  if (tokens == 0) {
    row.note = "no tokens, nothing launched";
    return;
  }

  DeviceBuffer input(session, "the tensor (BF16)", (tokens + kTailRows) * row_elements * 2);
  DeviceBuffer payload(session, "the payload", elements);
  DeviceBuffer scales_d(session, "the scales along D", scale_bytes);
  DeviceBuffer scales_tokens(session, "the scales along tokens", scale_bytes);
  DeviceBuffer workspace(session, "the quantiser's workspace", plan.workspace());
  machine.block(shape).fill(input, elements, 0);
  mxfa_quantize_args args{};
  args.size = sizeof args;
  args.input = {
      input.data(), static_cast<int64_t>(row_elements), static_cast<int64_t>(tokens + kTailRows), {}};
  args.payload = payload.data();
  if (along_d) args.scales_d = {scales_d.data(), scale_bytes, MXFA_SCALE_ALONG_D};
  if (along_tokens) args.scales_tokens = {scales_tokens.data(), scale_bytes, MXFA_SCALE_ALONG_TOKENS};
  args.workspace = workspace.data();
  session.synchronize();
  plan.prepare(args.workspace, stream.get());
  machine.time([&] { plan(args, stream.get()); }, row);
  stream.synchronize();

  for (const DeviceBuffer* buffer : {&input, &payload, &scales_d, &scales_tokens, &workspace})
    if (const std::string damage = buffer->damage(); !damage.empty()) row.failures.push_back(damage);
  const std::vector<Written> outputs = {{"scales along D", along_d ? &scales_d : nullptr},
                                        {"scales along tokens", along_tokens ? &scales_tokens : nullptr}};
  // No payload and no scale is 0xFF, the poison: a NaN becomes 0x7F and the largest scale is 254.
  const auto count_unwritten = [&](const char* name, const DeviceBuffer& buffer) {
    const std::vector<uint8_t> bytes = buffer.download<uint8_t>();
    const auto unwritten = std::count(bytes.begin(), bytes.end(), DeviceBuffer::kPoison);
    if (unwritten > 0)
      row.failures.push_back(
          fmt::format("{}: {} of {} bytes were not written", name, unwritten, bytes.size()));
  };
  count_unwritten("payload", payload);
  for (const Written& output : outputs)
    if (output.buffer) count_unwritten(output.name, *output.buffer);

  // Each sampled sequence is quantised alone.  Its scales are, for every head, a run of whole atoms that
  // starts at the sequence, and in the same order as in a tensor that holds nothing else.
  const std::vector<int32_t> starts = reference::scale_starts(offsets);
  const std::set<int> sample =
      sample_sequences(request.lengths, static_cast<int64_t>(row_elements), shape.data.seed);
  int64_t compared = 0;
  for (const int b : sample) {
    const uint64_t first = static_cast<uint64_t>(offsets[b]) * row_elements;
    const uint64_t count = static_cast<uint64_t>(request.lengths[b]) * row_elements;
    const reference::JaggedShape alone{{0, request.lengths[b]}, request.heads, shape.head_dim};
    const reference::QuantizedTensor want = reference::quantize_bf16(
        input.download<uint16_t>(first, count), alone, request.layout,
        shape.mxfp8.scaling_mode == ScalingMode::floor ? reference::ScalingMode::kFloor
                                                       : reference::ScalingMode::kRceil);
    const auto compare = [&](const char* name, const std::vector<uint8_t>& got,
                             const std::vector<uint8_t>& bytes) {
      const std::string sentence =
          byte_difference(got, bytes, fmt::format("{} of sequence {}", name, b), "the reference quantiser");
      if (!sentence.empty()) row.failures.push_back(sentence);
      compared += static_cast<int64_t>(bytes.size());
    };
    compare("payload", payload.download<uint8_t>(first, count), want.payload);
    for (const Written& output : outputs) {
      if (!output.buffer) continue;
      std::vector<uint8_t> got;
      const uint64_t of_head = scale_bytes / static_cast<uint64_t>(request.heads);
      for (uint64_t head = 0; head < static_cast<uint64_t>(request.heads); ++head) {
        const std::vector<uint8_t> part =
            output.buffer->download<uint8_t>(head * of_head + static_cast<uint64_t>(starts[b]) * 4,
                                             static_cast<uint64_t>(starts[b + 1] - starts[b]) * 4);
        got.insert(got.end(), part.begin(), part.end());
      }
      compare(output.name, got, output.buffer == &scales_d ? want.scales_d : want.scales_tokens);
    }
  }
  row.check = {{"sequences", sample.size()}, {"of_sequences", request.lengths.size()}, {"bytes", compared}};
}

}  // namespace mxfa::tools
