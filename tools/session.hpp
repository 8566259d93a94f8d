// The device side of a command: the driver's table for memory and copies, its primary context made current,
// and the library's context. Both load the same driver library, so they share its primary context.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common.hpp"
#include "host/driver.hpp"
#include "mxfa/mxfa.hpp"

namespace mxfa::tools {

class Session {
 public:
  explicit Session(const CommonFlags& flags);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Driver& driver() const { return driver_; }
  const Context& context() const { return context_; }
  bool real_device() const { return driver_.mxfaEmulatorCounters == nullptr; }  // times mean something
  std::string device_name() const { return driver_.device_name; }

  // Waits for everything launched; a fault or a deadlock comes out here, with the driver's report.
  void synchronize() const;
  // What the CPU driver has executed since it started, and since an earlier answer; null on a real device.
  nlohmann::ordered_json counters() const;
  nlohmann::ordered_json counters_since(const nlohmann::ordered_json& before) const;

 private:
  Driver driver_;
  Context context_;
};

// Device memory with a guard of kGuardBytes on each side and every byte of the middle poisoned: 0xFF is NaN
// in BF16, FP32, E4M3 and UE8M0.
class DeviceBuffer {
 public:
  static constexpr uint64_t kGuardBytes = 4096;
  static constexpr uint8_t kPoison = 0xff, kGuard = 0xa5;
  static constexpr uint64_t kAlignment = 512;  // a scale tensor's, the strictest of the ABI

  DeviceBuffer(const Session& session, std::string name, uint64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const { return reinterpret_cast<void*>(address_); }
  uint64_t bytes() const { return bytes_; }

  template <class T>
  void upload(std::span<const T> values) {
    upload_bytes(values.data(), values.size_bytes());
  }
  template <class T>
  std::vector<T> download() const {
    return download<T>(0, bytes_ / sizeof(T));
  }
  // `count` values from the first-th.
  template <class T>
  std::vector<T> download(uint64_t first, uint64_t count) const {
    std::vector<T> values(count);
    download_bytes(values.data(), count * sizeof(T), first * sizeof(T));
    return values;
  }
  // "" or a sentence: which guard byte was written.
  std::string damage() const;

 private:
  void upload_bytes(const void* from, uint64_t bytes);
  void download_bytes(void* to, uint64_t bytes, uint64_t offset) const;

  const Session& session_;
  std::string name_;
  CUdeviceptr allocation_ = 0, address_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace mxfa::tools
