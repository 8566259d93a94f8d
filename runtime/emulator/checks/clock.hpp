// Vector clocks.  A component is something whose progress can be waited for: a warp (its synchronous
// accesses, value = release epoch), an mbarrier (asynchronous writes it counts, value = phase + 1), or a
// queue of a thread (work that completes in the order of issue, value = number of the operation).  Numbers of
// components belong to one cluster.  The lanes of a warp share its component; what is known of one lane alone
// stands beside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace mxfa::emulator {

class Clock {
 public:
  uint32_t get(uint32_t component) const { return component < values_.size() ? values_[component] : 0; }
  void raise(uint32_t component, uint32_t value) {
    if (component >= values_.size()) values_.resize(component + 1);
    values_[component] = std::max(values_[component], value);
  }
  // Accesses of one lane up to an epoch of its warp, where the other lanes' may be missing.  kAnyLane: what
  // would be known if the lanes of a warp were ordered among themselves.
  static constexpr uint32_t kAnyLane = 32;
  uint32_t lane(uint32_t warp, uint32_t lane) const {
    const auto it = std::lower_bound(lanes_.begin(), lanes_.end(), std::pair(key(warp, lane), 0u));
    return it != lanes_.end() && it->first == key(warp, lane) ? it->second : 0;
  }
  void raise_lane(uint32_t warp, uint32_t lane, uint32_t value) {
    const auto it = std::lower_bound(lanes_.begin(), lanes_.end(), std::pair(key(warp, lane), 0u));
    if (it != lanes_.end() && it->first == key(warp, lane))
      it->second = std::max(it->second, value);
    else
      lanes_.insert(it, {key(warp, lane), value});
  }
  void join(const Clock& other) {
    if (other.values_.size() > values_.size()) values_.resize(other.values_.size());
    for (size_t k = 0; k < other.values_.size(); ++k) values_[k] = std::max(values_[k], other.values_[k]);
    if (!other.lanes_.empty()) join_lanes(other.lanes_);
  }
  void meet(const Clock& other) {
    if (values_.size() > other.values_.size()) values_.resize(other.values_.size());
    for (size_t k = 0; k < values_.size(); ++k) values_[k] = std::min(values_[k], other.values_[k]);
    for (auto& [key, value] : lanes_) value = std::min(value, other.lane(key >> 6, key & 63));
  }
  bool empty() const { return values_.empty() && lanes_.empty(); }

 private:
  using Lanes = std::vector<std::pair<uint32_t, uint32_t>>;  // by key, few
  static uint32_t key(uint32_t warp, uint32_t lane) { return warp << 6 | lane; }
  void join_lanes(const Lanes& other) {
    size_t at = 0;
    for (const auto& [key, value] : other) {
      while (at < lanes_.size() && lanes_[at].first < key) ++at;
      if (at < lanes_.size() && lanes_[at].first == key)
        lanes_[at].second = std::max(lanes_[at].second, value);
      else
        lanes_.insert(lanes_.begin() + static_cast<std::ptrdiff_t>(at), {key, value});
    }
  }
  std::vector<uint32_t> values_;
  Lanes lanes_;
};

// What lanes of a warp know, and what a release hands to an acquire.
struct Knowledge {
  Clock order;          // what happened before
  Clock shared_fenced;  // generic accesses to shared memory that a proxy fence covers
  Clock global_fenced;
  Clock tensor_fenced;  // tcgen05 work that thread_sync fences have handed on
  // Epochs of warps that must be over, though this orders no memory: relaxed arrivals, and the issue of
  // copies whose bytes have been counted, lead here too.
  Clock reached;
  // Order and fences of accesses to global memory by other clusters of the grid, by their number.
  struct Other {
    Clock order, global_fenced;
  };
  std::map<uint32_t, Other> others;

  void join(const Knowledge& k) {
    join_all_but_tensor(k);
    tensor_fenced.join(k.tensor_fenced);
  }
  // A release hands on of tensor memory what a fence came before.
  void join_all_but_tensor(const Knowledge& k) {
    order.join(k.order);
    shared_fenced.join(k.shared_fenced);
    global_fenced.join(k.global_fenced);
    reached.join(k.reached);
    for (const auto& [cluster, other] : k.others) {
      Other& mine = others[cluster];
      mine.order.join(other.order);
      mine.global_fenced.join(other.global_fenced);
    }
  }
};

}  // namespace mxfa::emulator
