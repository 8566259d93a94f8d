// Order of asynchronous work: per-queue FIFO, any order between queues.
#include "engines/event_queue.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/random.hpp"

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
  trace_ = mix(trace_ + operation.sequence);
  try {
    operation.action();
  } catch (const Fault& fault) {
    throw Fault(fault.code, fmt::format("in {}: {}", operation.what, fault.what()));
  }
}

const std::vector<EventQueue::Head>& EventQueue::heads() {
  heads_.clear();
  seen_.clear();
  for (size_t i = 0; i < pending_.size(); ++i) {
    const uint64_t queue = pending_[i].queue;
    if (queue != 0) {
      if (std::find(seen_.begin(), seen_.end(), queue) != seen_.end()) continue;
      seen_.push_back(queue);
    }
    heads_.push_back({i, queue ? queue : pending_[i].sequence});
  }
  return heads_;
}

bool EventQueue::fire_one(uint64_t choice) {
  if (pending_.empty()) return false;
  const std::vector<Head>& legal = heads();
  if (schedule_.randomised()) {
    perform(legal[choice % legal.size()].index);
    return true;
  }
  // Tensor-memory loads and stores of warps come last: nothing but their own wait promises them, so a missing
  // one shows.
  const auto last = [&](const Head& head) { return is_tmem_access(pending_[head.index].queue); };
  const Head* chosen = &legal[0];
  if (overwrites_at_issue()) {
    for (const Head& head : legal)
      if (!last(head) || last(*chosen)) chosen = &head;
  } else {
    for (const Head& head : legal)
      if (last(*chosen) && !last(head)) chosen = &head;
  }
  perform(chosen->index);
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
