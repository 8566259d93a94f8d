// Asynchronous work between issue and completion.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "core/machine.hpp"

namespace mxfa::emulator {

// Operations with the same queue number complete in the order of their submission; queue 0 has no order.  Queue numbers come from
// new_queue().  Under the functional schedule an operation is performed inside submit() unless an older one of its queue is pending.
class EventQueue {
 public:
  using Action = std::function<void()>;
  void configure(const Schedule& schedule) { schedule_ = schedule; }
  uint64_t new_queue() { return ++queues_; }
  void submit(uint64_t queue, std::string what, Action action);
  bool empty() const { return pending_.empty(); }
  size_t size() const { return pending_.size(); }
  // Performs one legal operation: the oldest (Functional, Lazy) or one chosen by `choice` (Random).  False if none is pending.
  bool fire_one(uint64_t choice = 0);
  // Performs operations of one queue, in order, until none is left.
  void drain(uint64_t queue);
  // One line per pending operation, for the deadlock report.
  std::vector<std::string> describe() const;

 private:
  struct Pending { uint64_t sequence, queue; std::string what; Action action; };
  std::deque<Pending> pending_;
  Schedule schedule_;
  uint64_t queues_ = 0, sequence_ = 0;
};

}  // namespace mxfa::emulator
