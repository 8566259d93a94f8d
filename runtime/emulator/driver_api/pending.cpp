#include "driver_api/pending.hpp"

#include "driver_api/driver.hpp"

namespace mxfa::emulator::driver_api {
namespace {

// A program that never waits would make every call slower than the one before; the oldest are done by then.
constexpr size_t kMostPending = 1024;

bool blocking(const Stream* stream) { return stream && !(stream->flags & CU_STREAM_NON_BLOCKING); }

}  // namespace

// Whether new work of the stream waits for it.  The default stream and blocking streams wait for each other.
bool PendingOperations::Pending::before(const Stream* stream) const {
  if (!stream) return default_stream || a_blocking_stream;
  return streams.contains(stream) || (blocking(stream) && default_stream);
}

void PendingOperations::Pending::order(const Stream* stream) {
  if (!stream) {
    default_stream = true;
    return;
  }
  streams.insert(stream);
  a_blocking_stream |= blocking(stream);
}

void PendingOperations::add(const HostOperation& operation, const Stream* stream) {
  if (!checks_asked_for()) return;
  if (list_.size() == kMostPending) list_.erase(list_.begin());
  list_.push_back({operation, {}, {}});
  list_.back().order(stream);
}

void PendingOperations::submit(const Stream* stream) {
  for (Pending& p : list_)
    if (p.before(stream)) p.order(stream);
}

void PendingOperations::record(const Event* event, const Stream* stream) {
  submit(stream);
  for (Pending& p : list_) {
    if (p.before(stream))
      p.events.insert(event);
    else
      p.events.erase(event);
  }
}

void PendingOperations::wait(const Stream* stream, const Event* event) {
  submit(stream);
  for (Pending& p : list_)
    if (p.events.contains(event)) p.order(stream);
}

void PendingOperations::finish(const Stream* stream) {
  std::erase_if(list_, [&](const Pending& p) { return p.before(stream); });
}

void PendingOperations::finish(const Event* event) {
  std::erase_if(list_, [&](const Pending& p) { return p.events.contains(event); });
}

void PendingOperations::forget(uint64_t address, uint64_t bytes) {
  std::erase_if(list_, [&](const Pending& p) {
    return p.operation.begin < address + bytes && address < p.operation.begin + p.operation.bytes;
  });
}

std::vector<HostOperation> PendingOperations::unordered(const Stream* stream) const {
  std::vector<HostOperation> found;
  for (const Pending& p : list_)
    if (!p.before(stream)) found.push_back(p.operation);
  return found;
}

}  // namespace mxfa::emulator::driver_api
