// The device under test and its memory: MXFA_TEST_DEVICE, else the CPU driver as a B200; tests of kernels
// that the CPU driver is not given by default ask for the machine's GPU (OnHopper).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/driver.hpp"
#include "mxfa/mxfa.hpp"

namespace mxfa::test {

class Device {
 public:
  static Device& instance();  // the current one

  const Context& context() const { return *context_; }
  const Driver& driver() const { return driver_; }
  const std::string& arch() const { return driver_.arch; }
  CUstream stream() const { return stream_; }
  // Waits for the stream and fails with the driver's own report.
  void synchronize() const;

 private:
  friend class OnHopper;
  explicit Device(const std::string& name);
  static Device*& current();
  Driver driver_;
  std::unique_ptr<Context> context_;
  CUstream stream_ = nullptr;
};

// For its scope the current device is one of sm_90a: MXFA_TEST_DEVICE where that is set, else the machine's
// GPU. Where there is none, ready() is false and a warning has said "not run".
class OnHopper {
 public:
  OnHopper();
  ~OnHopper();
  OnHopper(const OnHopper&) = delete;
  OnHopper& operator=(const OnHopper&) = delete;
  bool ready() const { return ready_; }

 private:
  Device* before_;
  bool ready_ = false;
};

// Launches of a test that looks for the same bits: on a GPU each may run in another order.  The CPU driver
// does in every launch the same, unless it is given another schedule; two more show what one leaves behind.
inline int launches(int on_gpu) { return Device::instance().driver().loads_ptx ? 3 : on_gpu; }

inline void on_hopper(const std::function<void()>& test) {
  const OnHopper hopper;
  if (hopper.ready()) test();
}

// Device memory between two guards.  It starts out as NaN bytes, in every format; the guards must still hold
// theirs when the buffer dies.
class Buffer {
 public:
  explicit Buffer(size_t bytes, uint8_t fill = 0xff);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  size_t size() const { return bytes_; }
  void* data() const { return reinterpret_cast<void*>(address_ + kGuard); }

  template <class T>
  void upload(std::span<const T> values, size_t first_byte = 0) {
    write(first_byte, values.data(), values.size_bytes());
  }
  template <class T>
  std::vector<T> download() const {
    std::vector<T> values(bytes_ / sizeof(T));
    read(0, values.data(), values.size() * sizeof(T));
    return values;
  }
  bool guards_intact() const;

 private:
  static constexpr size_t kGuard = 1024;  // also the alignment; scale tensors need 512, cuMemAlloc gives 256
  static constexpr uint8_t kGuardByte = 0xff;
  void write(size_t first_byte, const void* source, size_t bytes);
  void read(ptrdiff_t first_byte, void* target, size_t bytes) const;

  CUdeviceptr allocation_ = 0, address_ = 0;  // address_: of the first guard
  size_t bytes_;
};

// The workspace of a plan, prepared.
std::unique_ptr<Buffer> prepared_workspace(const Plan& plan);

// Sets the order in which the CPU driver works, for the launches in its scope: "functional", "lazy",
// "random:SEED".
class Schedule {
 public:
  explicit Schedule(const std::string& value);
  ~Schedule();
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;
};
// The hazard checks of the CPU driver, for the launches in its scope.
struct Checked {
  Checked() { setenv("MXFA_EMU_CHECK", "on", 1); }
  ~Checked() { unsetenv("MXFA_EMU_CHECK"); }
};
// functional, lazy, eager, and the seeds 1..count of random, pct and split in turn.
std::vector<std::string> schedules(int random_count);

}  // namespace mxfa::test
