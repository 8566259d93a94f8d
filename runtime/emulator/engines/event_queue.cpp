// Order of asynchronous work: per-queue FIFO, any order between queues.
#include "engines/event_queue.hpp"

#include <fmt/format.h>

namespace mxfa::emulator {

void EventQueue::submit(uint64_t queue, std::string what, Action action) {
  if (immediate() && (queue == 0 || size(queue) == 0)) {
    action();
    return;
  }
  pending_.push_back({++sequence_, queue, std::move(what), std::move(action)});
}

size_t EventQueue::size(uint64_t queue) const {
  size_t count = 0;
  for (const Pending& operation : pending_) count += operation.queue == queue;
  return count;
}

// Taken out before it runs: an operation may submit others.
void EventQueue::perform(size_t index) {
  Pending operation = std::move(pending_[index]);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
  try {
    operation.action();
  } catch (const Fault& fault) {
    throw Fault(fault.code, fmt::format("in {}: {}", operation.what, fault.what()));
  }
}

bool EventQueue::fire_one(uint64_t choice) {
  if (pending_.empty()) return false;
  if (schedule_.kind != Schedule::Kind::Random) {
    // The oldest of all is the oldest of its queue.  Tensor-memory loads and stores of warps come last:
    // nothing but their own wait promises them, so a missing one shows.
    size_t choice_of_all = 0;
    while (choice_of_all < pending_.size() && is_tmem_access(pending_[choice_of_all].queue)) ++choice_of_all;
    perform(choice_of_all < pending_.size() ? choice_of_all : 0);
    return true;
  }
  std::vector<size_t> legal;
  std::vector<uint64_t> seen;
  for (size_t i = 0; i < pending_.size(); ++i) {
    const uint64_t queue = pending_[i].queue;
    if (queue != 0) {
      bool older = false;
      for (uint64_t other : seen) older |= other == queue;
      if (older) continue;
      seen.push_back(queue);
    }
    legal.push_back(i);
  }
  perform(legal[choice % legal.size()]);
  return true;
}

void EventQueue::drain(uint64_t queue, size_t count) {
  for (size_t i = 0; i < pending_.size() && count > 0;) {
    if (pending_[i].queue == queue) {
      perform(i);
      --count;
      i = 0;  // the operation may have submitted or drained others
    } else {
      ++i;
    }
  }
}

std::vector<std::string> EventQueue::describe() const {
  std::vector<std::string> lines;
  for (const Pending& operation : pending_)
    lines.push_back(fmt::format("#{} {}", operation.sequence, operation.what));
  return lines;
}

}  // namespace mxfa::emulator
