// Vector clocks.  A component is something whose progress can be waited for: a warp (its synchronous
// accesses, value = release epoch), an mbarrier (asynchronous writes it counts, value = phase + 1), or a
// queue of a thread (work that completes in the order of issue, value = number of the operation).  Numbers of
// components belong to one cluster.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace mxfa::emulator {

class Clock {
 public:
  uint32_t get(uint32_t component) const { return component < values_.size() ? values_[component] : 0; }
  void raise(uint32_t component, uint32_t value) {
    if (component >= values_.size()) values_.resize(component + 1);
    values_[component] = std::max(values_[component], value);
  }
  void join(const Clock& other) {
    if (other.values_.size() > values_.size()) values_.resize(other.values_.size());
    for (size_t k = 0; k < other.values_.size(); ++k) values_[k] = std::max(values_[k], other.values_[k]);
  }
  void meet(const Clock& other) {
    if (values_.size() > other.values_.size()) values_.resize(other.values_.size());
    for (size_t k = 0; k < values_.size(); ++k) values_[k] = std::min(values_[k], other.values_[k]);
  }
  bool empty() const { return values_.empty(); }

 private:
  std::vector<uint32_t> values_;
};

// What a warp knows, and what a release hands to an acquire.
struct Knowledge {
  Clock order;          // what happened before
  Clock shared_fenced;  // generic accesses to shared memory that a proxy fence covers
  Clock global_fenced;
  Clock tensor_fenced;  // tcgen05 work that thread_sync fences have handed on
  // Order and fences of accesses to global memory by other clusters of the grid, by their number.
  struct Other {
    Clock order, global_fenced;
  };
  std::map<uint32_t, Other> others;

  void join(const Knowledge& k) {
    order.join(k.order);
    shared_fenced.join(k.shared_fenced);
    global_fenced.join(k.global_fenced);
    tensor_fenced.join(k.tensor_fenced);
    for (const auto& [cluster, other] : k.others) {
      Other& mine = others[cluster];
      mine.order.join(other.order);
      mine.global_fenced.join(other.global_fenced);
    }
  }
};

}  // namespace mxfa::emulator
