// Which memsets and copies the device may not have done yet.  They are done at once here; what is followed is
// the order that the program has given them, for the hazard checks.  Where the documentation of CUDA leaves
// an order open, it counts as given.
#pragma once

#include <set>
#include <vector>

#include "checks/checks.hpp"

namespace mxfa::emulator::driver_api {

struct Stream;
struct Event;

// Streams: null is the default one.  The per-thread default stream counts as the same.
class PendingOperations {
 public:
  // Only what is asked for with the checks on is kept.
  void add(const HostOperation& operation, const Stream* stream);
  // The stream is given work, which waits for what the stream waits for.
  void submit(const Stream* stream);
  void record(const Event* event, const Stream* stream);
  void wait(const Stream* stream, const Event* event);
  // The host knows that the work of the stream, before the event, all work is done.
  void finish(const Stream* stream);
  void finish(const Event* event);
  void finish() { list_.clear(); }
  void forget(uint64_t address, uint64_t bytes);  // the memory is nobody's any more
  // What work of the stream does not wait for.
  std::vector<HostOperation> unordered(const Stream* stream) const;

 private:
  struct Pending {
    HostOperation operation;
    // Who has work that waits for it.
    std::set<const Stream*> streams;
    std::set<const Event*> events;
    bool default_stream = false, a_blocking_stream = false;

    bool before(const Stream* stream) const;
    void order(const Stream* stream);
  };
  std::vector<Pending> list_;
};

}  // namespace mxfa::emulator::driver_api
