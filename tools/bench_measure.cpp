#include "bench_measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace mxfa::tools {

namespace {

class Stopwatch {
 public:
  Stopwatch(const Session& session, const Stream& stream) : driver_(session.driver()), stream_(stream) {
    driver_.check(driver_.cuEventCreate(&begin_, CU_EVENT_DEFAULT), "cuEventCreate");
    driver_.check(driver_.cuEventCreate(&end_, CU_EVENT_DEFAULT), "cuEventCreate");
  }
  ~Stopwatch() {
    for (CUevent event : {begin_, end_})
      if (event) (void)driver_.cuEventDestroy_v2(event);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Milliseconds of one launch, the average of `launches`.  One more goes ahead, untimed: while it runs the
  // host is already past the timed ones, so that no launch latency is counted.
  double ms(const std::function<void()>& launch, int launches) {
    launch();
    driver_.check(driver_.cuEventRecord(begin_, stream_.get()), "cuEventRecord");
    for (int i = 0; i < launches; ++i) launch();
    driver_.check(driver_.cuEventRecord(end_, stream_.get()), "cuEventRecord");
    driver_.check(driver_.cuEventSynchronize(end_), "running the kernel");
    float elapsed = 0;
    driver_.check(driver_.cuEventElapsedTime(&elapsed, begin_, end_), "cuEventElapsedTime");
    return static_cast<double>(elapsed) / launches;
  }

 private:
  const Driver& driver_;
  const Stream& stream_;
  CUevent begin_ = nullptr, end_ = nullptr;
};

}  // namespace

Stream::Stream(const Session& session) : session_(session) {
  // A blocking stream: fills and copies on the default stream are ordered with it.
  session.driver().check(session.driver().cuStreamCreate(&stream_, CU_STREAM_DEFAULT), "cuStreamCreate");
}

Stream::~Stream() { (void)session_.driver().cuStreamDestroy_v2(stream_); }

void Stream::synchronize() const {
  session_.driver().check(session_.driver().cuStreamSynchronize(stream_), "running the kernel");
}

Measurement measure(const Session& session, const Stream& stream, const std::function<void()>& launch,
                    const Yardstick& yardstick, const MeasureOptions& options) {
  Stopwatch stopwatch(session, stream);
  const bool compared = static_cast<bool>(yardstick.launch);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed_ms = [&] {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  double once = 0, yardstick_once = 0;
  do {
    once = stopwatch.ms(launch, 1);
    if (compared) yardstick_once = stopwatch.ms(yardstick.launch, 1);
  } while (elapsed_ms() < options.warm_up_ms);

  const auto launches = [&](double ms) {
    constexpr double kMost = 100;  // a launch that does next to nothing
    return ms > 0 ? static_cast<int>(std::clamp(std::ceil(options.sample_ms / ms), 1.0, kMost))
                  : static_cast<int>(kMost);
  };
  Measurement measurement;
  measurement.work.launches = launches(once);
  if (compared) measurement.yardstick.launches = launches(yardstick_once);
  const auto rest = [&] {
    if (options.rest_ms > 0)
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.rest_ms));
  };
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    rest();
    measurement.work.ms.push_back(stopwatch.ms(launch, measurement.work.launches));
    if (!compared) continue;
    rest();
    measurement.yardstick.ms.push_back(stopwatch.ms(yardstick.launch, measurement.yardstick.launches));
  }
  return measurement;
}

}  // namespace mxfa::tools
