#include "kernels/attention_lengths_run.hpp"

#include <algorithm>
#include <bit>

namespace mxfa::test {
namespace {

size_t scale_bytes(int heads, int32_t total, int32_t batch) {
  return size_t(heads) * (total + 127 * batch) * 4 + 512 * heads;
}

void poison(const Buffer& buffer) {
  if (buffer.size() == 0) return;
  const Driver& driver = Device::instance().driver();
  driver.check(driver.cuMemsetD8_v2(reinterpret_cast<CUdeviceptr>(buffer.data()), 0xff, buffer.size()),
               "cuMemsetD8");
}

bool all_poison(const Buffer& buffer) {
  const auto bytes = buffer.download<uint8_t>();
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0xff; });
}

// The rest must be untouched.
std::vector<uint16_t> first_elements(const Buffer& buffer, size_t count) {
  auto values = buffer.download<uint16_t>();
  CHECK(std::all_of(values.begin() + count, values.end(), [](uint16_t x) { return x == 0xffff; }));
  values.resize(count);
  return values;
}

template <class T>
void refill(Buffer& buffer, const std::vector<T>& values) {
  poison(buffer);
  buffer.upload(std::span<const T>(values));
}

}  // namespace

mxfa_attention with_capacity(mxfa_attention attention, const Capacity& capacity) {
  attention.batch = capacity.batch;
  attention.offsets_q = attention.offsets_k = nullptr;
  attention.max_total_q = capacity.total_q, attention.max_total_k = capacity.total_k;
  attention.max_length_q = capacity.longest_q, attention.max_length_k = capacity.longest_k;
  return attention;
}

CapacityLaunches::CapacityLaunches(const AttentionInputs& like, const Capacity& c, Plan plan)
    : capacity_(c),
      problem_(like.problem),
      plan_(std::move(plan)),
      workspace_(prepared_workspace(plan_)),
      rows_o_(problem_.broadcast_q ? int64_t{c.batch} * c.total_q : c.total_q),
      q_(c.total_q * row_q() * (like.mxfp8 ? 1 : 2)),
      k_(c.total_k * row_k() * (like.mxfp8 ? 1 : 2)),
      v_(k_.size()),
      o_(rows_o_ * row_q() * 2),
      lse_(rows_o_ * problem_.heads_q * sizeof(float)),
      offsets_q_((problem_.broadcast_q ? 2 : c.batch + 1) * sizeof(int32_t)),
      offsets_k_((c.batch + 1) * sizeof(int32_t)) {}

template <class Args>
void CapacityLaunches::describe(Args& args) const {
  const int64_t stride_q = row_q(), stride_k = row_k();
  args.size = sizeof args;
  args.q = {q_.data(), stride_q, capacity_.total_q, {}};
  args.k = {k_.data(), stride_k, capacity_.total_k, {}};
  args.v = {v_.data(), stride_k, capacity_.total_k, {}};
  args.o = {o_.data(), stride_q, rows_o_, {}};
  args.lse = static_cast<float*>(lse_.data());
  args.workspace = workspace_->data();
  args.offsets_q = static_cast<const int32_t*>(offsets_q_.data());
  args.offsets_k = static_cast<const int32_t*>(offsets_k_.data());
}

void CapacityLaunches::set_offsets(const std::vector<int32_t>& offsets_q,
                                   const std::vector<int32_t>& offsets_k) {
  refill(offsets_q_, offsets_q);
  refill(offsets_k_, offsets_k);
  for (const Buffer* buffer : outputs_) poison(*buffer);
}

bool CapacityLaunches::outputs_untouched() const {
  return std::all_of(outputs_.begin(), outputs_.end(), [](const Buffer* b) { return all_poison(*b); });
}

CapacityForward::CapacityForward(const AttentionInputs& like, const Capacity& c)
    : CapacityLaunches(
          like, c,
          Device::instance().context().attention_forward(with_capacity(describe_attention(like), c))),
      mxfp8_(like.mxfp8),
      scales_q_(mxfp8_ ? scale_bytes(problem_.heads_q, c.total_q, c.batch) : 0),
      scales_k_(mxfp8_ ? scale_bytes(problem_.heads_kv, c.total_k, c.batch) : 0),
      scales_v_(scales_k_.size()) {
  outputs_ = {&o_, &lse_};
  describe(args_);
  if (mxfp8_) {
    args_.q.scales = {scales_q_.data(), scales_q_.size(), MXFA_SCALE_ALONG_D};
    args_.k.scales = {scales_k_.data(), scales_k_.size(), MXFA_SCALE_ALONG_D};
    args_.v.scales = {scales_v_.data(), scales_v_.size(), MXFA_SCALE_ALONG_TOKENS};
  }
}

void CapacityForward::set(const AttentionInputs& in) {
  problem_ = in.problem;
  if (mxfp8_) {
    refill(q_, in.mx_q.payload), refill(k_, in.mx_k.payload), refill(v_, in.mx_v.payload);
    refill(scales_q_, in.mx_q.scales_d), refill(scales_k_, in.mx_k.scales_d);
    refill(scales_v_, in.mx_v.scales_tokens);
  } else {
    refill(q_, in.bf16_q), refill(k_, in.bf16_k), refill(v_, in.bf16_v);
  }
  set_offsets(problem_.offsets_q, problem_.offsets_k);
}

AttentionOutputs CapacityForward::outputs() const {
  const auto lse = lse_.download<float>();
  const size_t rows = problem_.rows_o();
  AttentionOutputs outputs;
  outputs.o = first_elements(o_, rows * row_q());
  size_t written = 0;
  for (int head = 0; head < problem_.heads_q; ++head)
    for (size_t i = 0; i < size_t(rows_o_); ++i) {
      const float x = lse[head * rows_o_ + i];
      if (i < rows)
        outputs.lse.push_back(x);
      else
        written += std::bit_cast<uint32_t>(x) != 0xffffffffu;
    }
  CHECK(written == 0);
  return outputs;
}

CapacityBackward::CapacityBackward(const BackwardInputs& like, const Capacity& c)
    : CapacityLaunches(like.forward, c,
                       Device::instance().context().attention_backward(
                           with_capacity(describe_attention(like.forward), c), like.options)),
      d_o_(o_.size()),
      dq_(q_.size()),
      dk_(k_.size()),
      dv_(k_.size()) {
  outputs_ = {&dq_, &dk_, &dv_};
  describe(args_);
  args_.d_o = args_.o, args_.d_o.data = d_o_.data();
  args_.dq = args_.q, args_.dq.data = dq_.data();
  args_.dk = args_.k, args_.dk.data = dk_.data();
  args_.dv = args_.v, args_.dv.data = dv_.data();
}

void CapacityBackward::set(const BackwardInputs& in, const BackwardOutputs& forward) {
  problem_ = in.forward.problem;
  forward_ = forward;
  refill(q_, in.forward.bf16_q), refill(k_, in.forward.bf16_k), refill(v_, in.forward.bf16_v);
  refill(o_, forward.o), refill(d_o_, in.d_o);
  poison(lse_);
  const size_t rows = problem_.rows_o();
  for (int head = 0; head < problem_.heads_q; ++head)
    lse_.upload(std::span<const float>(forward.lse).subspan(head * rows, rows),
                head * rows_o_ * sizeof(float));
  set_offsets(problem_.offsets_q, problem_.offsets_k);
}

BackwardOutputs CapacityBackward::outputs() const {
  BackwardOutputs outputs = forward_;
  outputs.dq = first_elements(dq_, problem_.rows_q() * row_q());
  outputs.dk = first_elements(dk_, problem_.rows_k() * row_k());
  outputs.dv = first_elements(dv_, problem_.rows_k() * row_k());
  return outputs;
}

}  // namespace mxfa::test
