// Asynchronous work between issue and completion.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "core/machine.hpp"

namespace mxfa::emulator {

// Operations with the same queue number complete in the order of their submission; queue 0 has no order, the
// others stand below.  Under the functional schedule an operation is performed inside submit() unless an
// older one of its queue is pending.
class EventQueue {
 public:
  using Action = std::function<void()>;
  void configure(const Schedule& schedule) { schedule_ = schedule; }
  // True when work is performed inside submit(): an engine then need not poison destinations between issue
  // and completion.
  bool immediate() const { return schedule_.kind == Schedule::Kind::Functional; }
  void submit(uint64_t queue, std::string what, Action action);
  bool empty() const { return pending_.empty(); }
  size_t size() const { return pending_.size(); }
  size_t size(uint64_t queue) const;
  // Eager: what is issued to the tensor pipe is performed at once, and only its commits are late; the
  // destinations of stores are poisoned when they are issued.
  bool tensor_at_issue() const { return immediate() || overwrites_at_issue(); }
  bool overwrites_at_issue() const { return schedule_.kind == Schedule::Kind::Eager; }
  // Performs one legal operation: the oldest (Functional, Lazy), the youngest (Eager; tensor-memory accesses
  // of warps last in all three) or one chosen by `choice` (randomised schedules).  False if none is pending.
  bool fire_one(uint64_t choice = 0);
  // The operations that may be performed next, in the order of their submission, each with a number that is
  // the same throughout its queue (no order: throughout its life), and a way to perform one.
  struct Head {
    size_t index;
    uint64_t thread;
  };
  const std::vector<Head>& heads();
  void fire(const Head& head) { perform(head.index); }
  // Hash of what was performed, in its order.
  uint64_t trace() const { return trace_; }
  // Performs operations of one queue, in order, until none is left or `count` are done.
  void drain(uint64_t queue, size_t count = SIZE_MAX);
  // One line per pending operation, for the deadlock report.
  std::vector<std::string> describe() const;

 private:
  struct Pending {
    uint64_t sequence, queue;
    std::string what;
    Action action;
  };
  void perform(size_t index);
  std::deque<Pending> pending_;
  std::vector<Head> heads_;
  std::vector<uint64_t> seen_;
  Schedule schedule_;
  uint64_t sequence_ = 0, trace_ = 0;
};

// The queues: the tensor pipe of a CTA, of a pair, of a warpgroup of Hopper; cp.async of a warp; and the port
// through which the warps of one lane quarter load and store tensor memory.  The port is in order: public
// kernels hand values from one warp to another of the same quarter by tcgen05.st, an mbarrier and tcgen05.ld
// without a wait::st.
inline uint64_t tensor_queue(uint32_t rank) { return (1ull << 63) | (uint64_t{rank} << 32); }
inline uint64_t tmem_port_queue(uint32_t rank, uint32_t warp) {
  return tensor_queue(rank) | (1ull << 24) | warp % 4;
}

inline bool is_tmem_access(uint64_t queue) { return (queue >> 24 & 255) == 1; }
inline uint64_t pair_queue(uint32_t rank) {  // the tensor pipe of a pair of CTAs (cta_group::2)
  return tensor_queue(rank & ~1u) | (4ull << 24);
}
inline uint64_t copy_queue(uint32_t rank, uint32_t warp) {  // cp.async of a warp
  return tensor_queue(rank) | (5ull << 24) | warp;
}
inline uint64_t wgmma_queue(uint32_t rank, uint32_t warpgroup) {
  return tensor_queue(rank) | (3ull << 24) | warpgroup;
}

}  // namespace mxfa::emulator
