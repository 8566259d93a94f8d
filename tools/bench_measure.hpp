// Timing on a stream: warm-up, then repeats of the measured work and a yardstick in turn, each timed by the
// device's own clock.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "session.hpp"

namespace mxfa::tools {

struct MeasureOptions {
  int repeats = 15;
  double warm_up_ms = 100;  // clocks of an idle GPU need tens of milliseconds to rise
  double rest_ms = 0;       // idle before every repeat; without, both run as hot as the power limit allows
  double sample_ms = 5;  // a repeat launches until about this long: 1000 times the event clock's resolution
};

// Known work, so that a rate can be put beside the rate of the same machine in the same state.
struct Yardstick {
  std::string name;              // "cuBLAS BF16 8192^3"; "": none wanted
  double work = 0;               // of one launch, in FLOP or bytes
  std::function<void()> launch;  // empty: it is missing
  std::string missing;           // why
  std::string library;           // the file it was loaded from, and its version
  std::string version;
};

struct Timing {
  int launches = 0;        // timed together in one repeat
  std::vector<double> ms;  // of one launch, one entry a repeat
};

struct Measurement {
  Timing work, yardstick;  // the second is empty without a yardstick
};

class Stream {
 public:
  explicit Stream(const Session& session);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUstream get() const { return stream_; }
  void synchronize() const;

 private:
  const Session& session_;
  CUstream stream_ = nullptr;
};

Measurement measure(const Session& session, const Stream& stream, const std::function<void()>& launch,
                    const Yardstick& yardstick, const MeasureOptions& options);

}  // namespace mxfa::tools
