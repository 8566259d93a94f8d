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

// Before a stream that does not wait for the default one reads what was uploaded.
void finish_uploads() {
  const Driver& driver = Device::instance().driver();
  driver.check(driver.cuCtxSynchronize(), "uploads");
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

CapacityForward::CapacityForward(const AttentionInputs& like, const Capacity& c)
    : capacity_(c),
      mxfp8_(like.mxfp8),
      problem_(like.problem),
      plan_(Device::instance().context().attention_forward(with_capacity(describe_attention(like), c))),
      workspace_(prepared_workspace(plan_)),
      rows_o_(problem_.broadcast_q ? int64_t{c.batch} * c.total_q : c.total_q),
      q_(size_t(c.total_q) * problem_.heads_q * problem_.head_dim * (mxfp8_ ? 1 : 2)),
      k_(size_t(c.total_k) * problem_.heads_kv * problem_.head_dim * (mxfp8_ ? 1 : 2)),
      v_(k_.size()),
      o_(rows_o_ * problem_.heads_q * problem_.head_dim * 2),
      lse_(rows_o_ * problem_.heads_q * sizeof(float)),
      scales_q_(mxfp8_ ? scale_bytes(problem_.heads_q, c.total_q, c.batch) : 0),
      scales_k_(mxfp8_ ? scale_bytes(problem_.heads_kv, c.total_k, c.batch) : 0),
      scales_v_(scales_k_.size()),
      offsets_q_((problem_.broadcast_q ? 2 : c.batch + 1) * sizeof(int32_t)),
      offsets_k_((c.batch + 1) * sizeof(int32_t)) {
  const int64_t row_q = int64_t{problem_.heads_q} * problem_.head_dim;
  const int64_t row_k = int64_t{problem_.heads_kv} * problem_.head_dim;
  args_.size = sizeof args_;
  args_.q = {q_.data(), row_q, c.total_q, {}};
  args_.k = {k_.data(), row_k, c.total_k, {}};
  args_.v = {v_.data(), row_k, c.total_k, {}};
  args_.o = {o_.data(), row_q, rows_o_, {}};
  if (mxfp8_) {
    args_.q.scales = {scales_q_.data(), scales_q_.size(), MXFA_SCALE_ALONG_D};
    args_.k.scales = {scales_k_.data(), scales_k_.size(), MXFA_SCALE_ALONG_D};
    args_.v.scales = {scales_v_.data(), scales_v_.size(), MXFA_SCALE_ALONG_TOKENS};
  }
  args_.lse = static_cast<float*>(lse_.data());
  args_.workspace = workspace_->data();
  args_.offsets_q = static_cast<const int32_t*>(offsets_q_.data());
  args_.offsets_k = static_cast<const int32_t*>(offsets_k_.data());
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

void CapacityForward::set_offsets(const std::vector<int32_t>& offsets_q,
                                  const std::vector<int32_t>& offsets_k) {
  refill(offsets_q_, offsets_q);
  refill(offsets_k_, offsets_k);
  poison(o_), poison(lse_);
  finish_uploads();
}

void CapacityForward::launch() { plan_(args_, Device::instance().stream()); }

AttentionOutputs CapacityForward::outputs() const {
  const auto lse = lse_.download<float>();
  const size_t row = size_t(problem_.heads_q) * problem_.head_dim;
  const size_t rows = problem_.rows_o();
  AttentionOutputs outputs;
  outputs.o = first_elements(o_, rows * row);
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

bool CapacityForward::outputs_untouched() const { return all_poison(o_) && all_poison(lse_); }

CapacityBackward::CapacityBackward(const BackwardInputs& like, const Capacity& c)
    : problem_(like.forward.problem),
      plan_(Device::instance().context().attention_backward(
          with_capacity(describe_attention(like.forward), c), like.options)),
      workspace_(prepared_workspace(plan_)),
      rows_o_(problem_.broadcast_q ? int64_t{c.batch} * c.total_q : c.total_q),
      q_(size_t(c.total_q) * problem_.heads_q * problem_.head_dim * 2),
      k_(size_t(c.total_k) * problem_.heads_kv * problem_.head_dim * 2),
      v_(k_.size()),
      o_(rows_o_ * problem_.heads_q * problem_.head_dim * 2),
      d_o_(o_.size()),
      lse_(rows_o_ * problem_.heads_q * sizeof(float)),
      dq_(q_.size()),
      dk_(k_.size()),
      dv_(k_.size()),
      offsets_q_((problem_.broadcast_q ? 2 : c.batch + 1) * sizeof(int32_t)),
      offsets_k_((c.batch + 1) * sizeof(int32_t)) {
  const int64_t row_q = int64_t{problem_.heads_q} * problem_.head_dim;
  const int64_t row_k = int64_t{problem_.heads_kv} * problem_.head_dim;
  args_.size = sizeof args_;
  args_.q = {q_.data(), row_q, c.total_q, {}}, args_.dq = {dq_.data(), row_q, c.total_q, {}};
  args_.k = {k_.data(), row_k, c.total_k, {}}, args_.dk = {dk_.data(), row_k, c.total_k, {}};
  args_.v = {v_.data(), row_k, c.total_k, {}}, args_.dv = {dv_.data(), row_k, c.total_k, {}};
  args_.o = {o_.data(), row_q, rows_o_, {}}, args_.d_o = {d_o_.data(), row_q, rows_o_, {}};
  args_.lse = static_cast<const float*>(lse_.data());
  args_.workspace = workspace_->data();
  args_.offsets_q = static_cast<const int32_t*>(offsets_q_.data());
  args_.offsets_k = static_cast<const int32_t*>(offsets_k_.data());
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

void CapacityBackward::set_offsets(const std::vector<int32_t>& offsets_q,
                                   const std::vector<int32_t>& offsets_k) {
  refill(offsets_q_, offsets_q);
  refill(offsets_k_, offsets_k);
  poison(dq_), poison(dk_), poison(dv_);
  finish_uploads();
}

void CapacityBackward::launch() { plan_(args_, Device::instance().stream()); }

BackwardOutputs CapacityBackward::outputs() const {
  BackwardOutputs outputs = forward_;
  const size_t row_q = size_t(problem_.heads_q) * problem_.head_dim;
  const size_t row_k = size_t(problem_.heads_kv) * problem_.head_dim;
  outputs.dq = first_elements(dq_, problem_.rows_q() * row_q);
  outputs.dk = first_elements(dk_, problem_.rows_k() * row_k);
  outputs.dv = first_elements(dv_, problem_.rows_k() * row_k);
  return outputs;
}

bool CapacityBackward::outputs_untouched() const {
  return all_poison(dq_) && all_poison(dk_) && all_poison(dv_);
}

}  // namespace mxfa::test
